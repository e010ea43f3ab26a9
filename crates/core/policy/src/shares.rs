//! How many bytes of frames each of several processes gets of a budget that they share.
//!
//! Each process has a minimum. The rest of the budget goes to the processes that use it, in
//! proportion to a weight, and no process gets more than it wants (weighted max-min fairness). The
//! weight follows the gain from one more frame: a process whose faults often meet recently
//! paged-out blocks gains much, a scan that is longer than any budget gains nothing. Processes that
//! do nothing have what the others leave.

/// The largest weight; the smallest is its reciprocal. A process gets at most this many times the
/// share of a process with average gain.
const WEIGHT_MAX: f64 = 4.0;

/// What one process has, and wants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claimant {
    /// The number of its job, whose bound applies: see [`Bound`].
    pub job: usize,
    /// Bytes that the process always has.
    pub least: u64,
    /// Bytes that the process has now.
    pub resident: u64,
    /// The most bytes that the process can use now.
    pub wants: u64,
    /// The gain from more frames, in a unit that is the same for all; not negative.
    pub gain: f64,
    /// The process does nothing now.
    pub idle: bool,
}

/// A bound for the processes of a job, and of its inner jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Bytes for all of these processes.
    pub bytes: u64,
    /// The outer job, which has a lower number; `None` for the first.
    pub parent: Option<usize>,
}

/// Whether `job` is `other`, or lies in it. `bounds` is indexed by job.
pub fn is_within(bounds: &[Bound], mut job: usize, other: usize) -> bool {
    loop {
        if job == other {
            return true;
        }
        match bounds.get(job).and_then(|bound| bound.parent).filter(|&parent| parent < job) {
            Some(parent) => job = parent,
            None => return false,
        }
    }
}

/// The bytes for each claimant. Their sum is at most the bound of each job, unless the minimums of
/// its processes exceed the bound.
pub fn shares(bounds: &[Bound], claimants: &[Claimant]) -> Vec<u64> {
    let mut caps: Vec<u64> =
        claimants.iter().map(|one| if one.idle { one.resident } else { one.wants }.max(one.least)).collect();
    // Inner jobs come first: the others get what they leave.
    for job in (0..bounds.len()).rev() {
        let members: Vec<usize> =
            (0..claimants.len()).filter(|&at| is_within(bounds, claimants[at].job, job)).collect();
        let inside: Vec<(Claimant, u64)> = members.iter().map(|&at| (claimants[at], caps[at])).collect();
        for (at, share) in members.into_iter().zip(divide(bounds[job].bytes, &inside)) {
            caps[at] = share;
        }
    }
    caps
}

/// A working process gives up its lease divided by this at once, unless the budget is exceeded: its
/// faults show what it misses before it gives up more.
const PART: u64 = 8;

/// The bytes that a claimant may have from now on, on the way from its lease to its share. `free`
/// bytes are in no lease; negative if the budget is exceeded.
pub fn next_lease(one: &Claimant, share: u64, lease: u64, free: i64) -> u64 {
    let allowed = if share >= lease {
        share.min(lease.saturating_add_signed(free.max(0)))
    } else if one.idle || free < 0 || share >= one.resident {
        share
    } else {
        share.max(lease - lease / PART)
    };
    allowed.max(one.least)
}

/// Divides bytes among claimants with their caps.
fn divide(bytes: u64, claimants: &[(Claimant, u64)]) -> Vec<u64> {
    let mut has: Vec<u64> = claimants.iter().map(|(one, _)| one.least).collect();
    let rest = bytes.saturating_sub(has.iter().sum());
    let busy = claimants.iter().filter(|(one, _)| !one.idle);
    let (count, sum) = busy.fold((0.0, 0.0), |(count, sum), (one, _)| (count + 1.0, sum + one.gain));
    let mean = if count > 0.0 { sum / count } else { 0.0 };
    let weight = |one: &Claimant| match mean > 0.0 {
        true => (one.gain / mean).clamp(1.0 / WEIGHT_MAX, WEIGHT_MAX),
        false => 1.0,
    };
    let weights: Vec<f64> =
        claimants.iter().map(|(one, _)| if one.idle { 0.0 } else { weight(one) }).collect();
    let rest = fill(rest, &weights, claimants, &mut has);
    // The other claimants get the rest, at most as much as they hold.
    let weights: Vec<f64> =
        claimants.iter().map(|(one, _)| if one.idle { 1.0 + one.resident as f64 } else { 0.0 }).collect();
    fill(rest, &weights, claimants, &mut has);
    has
}

/// Divides `rest` bytes among claimants with a weight, in proportion to it, up to their caps.
/// Returns the bytes that no process wants.
fn fill(mut rest: u64, weights: &[f64], claimants: &[(Claimant, u64)], has: &mut [u64]) -> u64 {
    // Each round satisfies at least one claimant, or gives all bytes.
    for _ in 0..claimants.len() {
        let open = |at: usize, has: &[u64]| weights[at] > 0.0 && has[at] < claimants[at].1;
        let sum: f64 = (0..has.len()).filter(|&at| open(at, has)).map(|at| weights[at]).sum();
        if rest == 0 || sum <= 0.0 {
            break;
        }
        let (mut given, mut satisfied) = (0, false);
        for at in 0..has.len() {
            if !open(at, has) {
                continue;
            }
            let room = claimants[at].1 - has[at];
            let part = (rest as f64 * (weights[at] / sum)) as u64;
            satisfied |= part >= room;
            let part = part.min(room).min(rest - given);
            has[at] += part;
            given += part;
        }
        rest -= given;
        if !satisfied {
            break;
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn one(resident: u64, wants: u64, gain: f64) -> Claimant {
        let (resident, wants) = (resident * MIB, wants.saturating_mul(MIB));
        Claimant { job: 0, least: 4 * MIB, resident, wants, gain, idle: false }
    }

    fn of(bytes: u64, claimants: &[Claimant]) -> Vec<u64> {
        let bound = Bound { bytes: bytes * MIB, parent: None };
        shares(&[bound], claimants).into_iter().map(|share| share / MIB).collect()
    }

    #[test]
    fn a_lease_grows_as_far_as_there_is_room_and_shrinks_in_steps() {
        let (lease, busy) = (80 * MIB, one(80, 400, 0.0));
        assert_eq!(next_lease(&busy, 100 * MIB, lease, 5 * MIB as i64), 85 * MIB);
        assert_eq!(next_lease(&busy, 100 * MIB, lease, -1), lease);
        assert_eq!(next_lease(&busy, 20 * MIB, lease, 0), 70 * MIB);
        assert_eq!(next_lease(&busy, 20 * MIB, lease, -1), 20 * MIB);
        assert_eq!(next_lease(&Claimant { idle: true, ..busy }, 20 * MIB, lease, 0), 20 * MIB);
        assert_eq!(next_lease(&busy, MIB, lease, -1), 4 * MIB, "the least is its own in any case");
    }

    #[test]
    fn equals_share_alike() {
        let all = [one(10, 4000, 0.0); 4];
        assert_eq!(of(400, &all), [100; 4]);
        assert_eq!(of(10, &all), [4; 4], "the least is theirs in any case");
    }

    #[test]
    fn who_wants_little_leaves_the_rest_to_others() {
        assert_eq!(of(400, &[one(20, 20, 0.0), one(100, 4000, 0.0)]), [20, 380]);
        assert_eq!(of(400, &[one(20, 20, 0.0), one(100, 60, 0.0)]), [20, 60], "nobody wants more");
    }

    #[test]
    fn who_does_nothing_has_what_is_left() {
        let idle = Claimant { idle: true, ..one(200, 4000, 9.0) };
        assert_eq!(of(400, &[idle, one(100, 4000, 0.0)]), [4, 396]);
        assert_eq!(of(400, &[idle, one(100, 120, 0.0)]), [200, 120]);
        assert_eq!(of(400, &[idle, one(100, 300, 0.0)]), [100, 300]);
    }

    #[test]
    fn who_saves_more_has_more_but_not_all() {
        let shares = of(1008, &[one(500, 4000, 1e6), one(500, 4000, 0.0)]);
        assert!(shares[0] > 850 && shares[1] > 100, "{shares:?}");
    }

    #[test]
    fn a_job_in_a_job_has_its_own_bound() {
        let bounds = [Bound { bytes: 400 * MIB, parent: None }, Bound { bytes: 50 * MIB, parent: Some(0) }];
        let inner = Claimant { job: 1, ..one(10, 4000, 0.0) };
        let shares = shares(&bounds, &[one(10, 4000, 0.0), inner, inner]);
        assert_eq!(shares.map_mib(), [350, 25, 25]);
    }

    trait Mib {
        fn map_mib(self) -> Vec<u64>;
    }

    impl Mib for Vec<u64> {
        fn map_mib(self) -> Vec<u64> {
            self.into_iter().map(|bytes| bytes / MIB).collect()
        }
    }

    prop_compose! {
        fn claimant()(job in 0..3usize, least in 1..9u64, resident in 0..2000u64, wants in 0..4000u64, gain in 0.0..1e6, idle in any::<bool>()) -> Claimant {
            Claimant { job, least: least * MIB, resident: resident * MIB, wants: wants * MIB, gain, idle }
        }
    }

    proptest! {
        #[test]
        fn no_job_has_more_than_its_bound(
            claimants in proptest::collection::vec(claimant(), 0..12),
            bytes in proptest::collection::vec(1..4000u64, 3),
        ) {
            let parents = [None, Some(0), Some(1)];
            let bounds: Vec<Bound> =
                bytes.iter().zip(parents).map(|(bytes, parent)| Bound { bytes: bytes * MIB, parent }).collect();
            let shares = shares(&bounds, &claimants);
            for (job, bound) in bounds.iter().enumerate() {
                let members = || (0..claimants.len()).filter(|&at| is_within(&bounds, claimants[at].job, job));
                let least: u64 = members().map(|at| claimants[at].least).sum();
                let sum: u64 = members().map(|at| shares[at]).sum();
                prop_assert!(sum <= bound.bytes.max(least));
            }
            for (one, &share) in claimants.iter().zip(&shares) {
                let most = if one.idle { one.resident } else { one.wants };
                prop_assert!(share >= one.least && share <= most.max(one.least));
            }
            // No bytes are left that a process wants whose job is the outermost, where only that
            // bound counts.
            let left = bounds[0].bytes.saturating_sub(shares.iter().sum());
            for (one, &share) in claimants.iter().zip(&shares).filter(|(one, _)| one.job == 0 && !one.idle) {
                prop_assert!(left <= claimants.len() as u64 * 16 || share + 16 >= one.wants.max(one.least), "{} left, {one:?} has {share}", left);
            }
        }
    }
}
