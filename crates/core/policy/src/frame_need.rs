//! How many frames a pager would use, and what more frames would save, judged by its recent work.

/// A pager that lacks frames asks for this multiple of what it has, plus `STEP_BYTES`.
const STEP_TIMES: u64 = 4;
const STEP_BYTES: u64 = 64 << 20;

/// A pager with enough frames keeps its frames divided by this, plus `SPARE_BYTES`, in reserve.
const SPARE_PART: u64 = 8;
const SPARE_BYTES: u64 = 1 << 20;

/// A process that uses less than one processor divided by this does nothing.
const IDLE_PART: u64 = 50;
/// The number of idle samples after which a process counts as idle.
const IDLE_LOOKS: u32 = 2;
/// The number of samples for which a pager that lacked frames still counts as short.
const SHORT_LOOKS: u32 = 4;
/// A pager grows if it has gained more than its frames divided by this since the last sample.
const GROWTH_PART: u64 = 64;

/// The counts of a pager so far, and its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The time, ns.
    pub now_ns: u64,
    /// The processor time of the program, ns.
    pub ran_ns: u64,
    /// Blocks that were paged in.
    pub came: u64,
    /// Minor faults.
    pub soft: u64,
    /// The wait for major faults, us.
    pub waited_us: u64,
    /// First touches.
    pub first: u64,
    /// Bytes that the pager has.
    pub resident: u64,
}

impl Done {
    fn since(&self, before: &Done) -> Done {
        let less = |of: fn(&Done) -> u64| of(self).saturating_sub(of(before));
        Done {
            now_ns: less(|done| done.now_ns),
            ran_ns: less(|done| done.ran_ns),
            came: less(|done| done.came),
            soft: less(|done| done.soft),
            waited_us: less(|done| done.waited_us),
            first: less(|done| done.first),
            resident: less(|done| done.resident),
        }
    }
}

/// The frames that a pager wants, judged by samples of its work. At first a pager counts as lacking
/// frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrameNeed {
    last: Done,
    idle_for: u32,
    /// Samples since the pager lacked frames, or began to use more.
    full_for: u32,
    gain: f64,
}

impl Default for FrameNeed {
    fn default() -> FrameNeed {
        FrameNeed::new()
    }
}

impl FrameNeed {
    /// Nothing was seen yet.
    pub const fn new() -> FrameNeed {
        let last = Done { now_ns: 0, ran_ns: 0, came: 0, soft: 0, waited_us: 0, first: 0, resident: 0 };
        FrameNeed { last, idle_for: 0, full_for: 0, gain: 0.0 }
    }

    /// For the child of a fork: it has all the memory of its parent, and does not want more before
    /// it has lacked frames.
    pub fn of_child() -> FrameNeed {
        FrameNeed { full_for: SHORT_LOOKS, ..FrameNeed::new() }
    }

    /// Looks. `short`: frames were lacking since the last sample. `soft_bytes`: the bytes of blocks
    /// that have left the program, and lose their frames next.
    pub fn look(&mut self, now: Done, short: bool, soft_bytes: usize) {
        let before = std::mem::replace(&mut self.last, now);
        if before.now_ns == 0 {
            return;
        }
        let passed = now.since(&before);
        let works = passed.ran_ns > passed.now_ns / IDLE_PART || passed.came + passed.first > 0;
        let count = |looks: u32, anew: bool| if anew { 0 } else { looks.saturating_add(1) };
        self.idle_for = count(self.idle_for, works);
        // A pager that was given frames takes a while to fill them, and lacks none meanwhile.
        let grows = passed.resident > now.resident / GROWTH_PART;
        self.full_for = count(self.full_for, (short || grows) && passed.came + passed.first > 0);
        let gain = gain_of(&passed, soft_bytes);
        // It rises fast. It falls slowly: a pager that has enough frames has no faults by which to
        // judge.
        let weight = if gain > self.gain { 0.5 } else { 0.05 };
        self.gain += (gain - self.gain) * weight;
    }

    /// Notes between two samples that frames are lacking.
    pub fn lacks(&mut self) {
        self.full_for = 0;
    }

    /// Bytes that the pager would use, if it holds `resident` bytes.
    pub fn wants(&self, resident: u64) -> u64 {
        match self.full_for < SHORT_LOOKS {
            true => resident * STEP_TIMES + STEP_BYTES,
            false => resident + resident / SPARE_PART + SPARE_BYTES,
        }
    }

    /// Whether the pager lacks frames.
    pub fn is_short(&self) -> bool {
        self.full_for < SHORT_LOOKS
    }

    /// The gain from one more MiB.
    pub fn gain(&self) -> f64 {
        self.gain
    }

    /// Whether the process does nothing.
    pub fn is_idle(&self) -> bool {
        self.idle_for >= IDLE_LOOKS
    }
}

/// The gain from one more MiB: the share of the time that threads wait for blocks, times the part
/// of these blocks that would still have been in memory. Soft blocks lose their frames next, so
/// touches of them show what a pager with that many frames fewer would have waited for.
fn gain_of(passed: &Done, soft_bytes: usize) -> f64 {
    let faults = (passed.came + passed.soft) as f64;
    if faults == 0.0 {
        return 0.0;
    }
    let waits = (passed.waited_us as f64 * 1000.0 / passed.now_ns.max(1) as f64).min(1.0);
    let soft_mib = soft_bytes.max(1 << 16) as f64 / f64::from(1 << 20);
    waits * passed.soft as f64 / faults / soft_mib
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn gain(came: u64, soft: u64, waited_us: u64) -> f64 {
        gain_of(&Done { now_ns: SECOND, came, soft, waited_us, ..Done::default() }, 16 << 20)
    }

    #[test]
    fn a_scan_saves_nothing_and_random_touches_do() {
        assert_eq!(gain(10_000, 0, 900_000), 0.0);
        assert_eq!(gain(0, 0, 0), 0.0);
        let random = gain(5000, 500, 900_000);
        assert!(random > gain(5000, 100, 900_000));
        assert!(random > gain(5000, 500, 100_000), "who does not wait saves little");
    }

    #[test]
    fn who_lacks_wants_more_and_who_is_full_a_little() {
        let mut frame_need = FrameNeed::new();
        let mut done = Done { now_ns: 1, resident: 100 << 20, ..Done::default() };
        frame_need.look(done, false, 0);
        assert_eq!(frame_need.wants(100 << 20), 464 << 20, "it begins by growing");
        for _ in 0..SHORT_LOOKS {
            assert!(frame_need.is_short() && !frame_need.is_idle());
            done = Done { now_ns: done.now_ns + SECOND, ran_ns: done.ran_ns + SECOND, ..done };
            frame_need.look(done, true, 0);
        }
        assert!(frame_need.wants(100 << 20) < 120 << 20, "it lacks frames but does not use them");
        frame_need.lacks();
        assert!(frame_need.is_short());
        (0..IDLE_LOOKS).for_each(|_| frame_need.look(done, false, 0));
        assert!(frame_need.is_idle());
    }
}
