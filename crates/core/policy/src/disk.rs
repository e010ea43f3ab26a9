//! What operations cost on the disk at hand, as measured while the program runs.
//!
//! The formula is `operations x operation + bytes / rate`. While few operations are under way,
//! `operation` is the disk's latency. On a disk that admits a limited number of operations each
//! second, and is at this limit, `operation` is a second divided by that number. Both costs are
//! shares of the disk's busy time, so they are measured in the same way: in intervals in which
//! reads were under way nearly all of the time, least squares explain the busy time by the number
//! of operations and the number of bytes.

/// The least time of an interval, ns. A limit on operations may admit many at once and then none
/// for a tenth of a second, so a shorter interval could see only the rush or only the pause.
const INTERVAL_NS: u64 = 250_000_000;
/// An interval shows the costs only if at least this many reads ended in it.
const OPERATIONS_MIN: u32 = 32;
/// The weight of older intervals falls by this factor with each new one. Chosen, not measured.
const KEPT: f64 = 0.9;
/// How far the bytes' share of a read's time is expected to be from that on the assumed disk, as a
/// standard deviation. Chosen: of reads of 30 KiB, the share is 0.4 on a fast SSD and on a cloud
/// volume of 3,000 operations each second, 0.2 on one of 500, and 0.02 on a rotating disk.
const SHARE_SPREAD: f64 = 0.2;
/// The noise of the intervals' times that is assumed at first, as a variance; it counts as one
/// interval. On a busy machine the times vary by 30 %.
const NOISE: f64 = 0.03;

/// The assumed costs of a disk that was not measured yet: those of a fast SSD.
const OPERATION_NS: f64 = 60_000.0;
const BYTE_NS: f64 = 0.8;
/// The bounds of the measured costs.
const OPERATION_BOUNDS_NS: [f64; 2] = [1_000.0, 1e9];
const BYTE_BOUNDS_NS: [f64; 2] = [0.01, 10_000.0];

/// The costs of reads on a disk.
#[derive(Clone, Debug)]
pub struct Disk {
    operation_ns: f64,
    byte_ns: f64,
    /// What a byte costs on the assumed disk, in operations.
    ratio: f64,
    /// The sums of least squares: of xx, xy, yy, x, y and 1, where x is the number of operations
    /// and y the number of bytes for each ns in which reads were under way.
    sums: [f64; 6],
    /// The present interval: its beginning, the reads that ended in it, and how long reads were
    /// under way.
    began_ns: u64,
    operations: u32,
    bytes: u64,
    busy_ns: u64,
    /// Reads under way, and the time up to which they count in `busy_ns`.
    under_way: u32,
    since_ns: u64,
}

impl Default for Disk {
    fn default() -> Self {
        Disk::assumed(OPERATION_NS, BYTE_NS)
    }
}

impl Disk {
    /// A disk with these assumed costs: ns for an operation, and for a byte.
    pub fn assumed(operation_ns: f64, byte_ns: f64) -> Disk {
        let [least, most] = OPERATION_BOUNDS_NS;
        let operation_ns = operation_ns.clamp(least, most);
        let byte_ns = byte_ns.clamp(BYTE_BOUNDS_NS[0], BYTE_BOUNDS_NS[1]);
        Disk {
            operation_ns,
            byte_ns,
            ratio: byte_ns / operation_ns,
            sums: [0.0; 6],
            began_ns: 0,
            operations: 0,
            bytes: 0,
            busy_ns: 0,
            under_way: 0,
            since_ns: 0,
        }
    }

    /// The time that the disk needs for each operation, ns.
    pub fn operation_ns(&self) -> f64 {
        self.operation_ns
    }

    /// The time that the disk needs for a number of operations with a number of bytes in all, ns.
    pub fn cost_ns(&self, operations: f64, bytes: f64) -> f64 {
        operations * self.operation_ns + bytes * self.byte_ns
    }

    /// A read begins.
    pub fn begins(&mut self, now_ns: u64) {
        self.pass(now_ns);
        self.under_way += 1;
    }

    /// A read of `bytes` bytes has ended.
    pub fn ended(&mut self, bytes: usize, now_ns: u64) {
        self.pass(now_ns);
        self.under_way = self.under_way.saturating_sub(1);
        self.operations += 1;
        self.bytes += bytes as u64;
        if now_ns.saturating_sub(self.began_ns) >= INTERVAL_NS {
            self.judge(now_ns);
        }
    }

    /// Counts the time until now, if reads are under way.
    fn pass(&mut self, now_ns: u64) {
        if self.under_way > 0 {
            self.busy_ns += now_ns.saturating_sub(self.since_ns);
        }
        self.since_ns = now_ns;
    }

    /// Learns from the interval that ends now.
    fn judge(&mut self, now_ns: u64) {
        if self.operations >= OPERATIONS_MIN && self.busy_ns > 0 {
            let busy_ns = self.busy_ns as f64;
            self.sums.iter_mut().for_each(|sum| *sum *= KEPT);
            self.add(f64::from(self.operations) / busy_ns, self.bytes as f64 / busy_ns);
            self.solve();
        }
        (self.began_ns, self.operations, self.bytes, self.busy_ns) = (now_ns, 0, 0, 0);
    }

    /// Adds that `x` operations with `y` bytes took 1 ns.
    fn add(&mut self, x: f64, y: f64) {
        for (sum, value) in self.sums.iter_mut().zip([x * x, x * y, y * y, x, y, 1.0]) {
            *sum += value;
        }
    }

    /// The costs a and b for which the sum of (a x + b y - 1)^2 is least, plus a term that grows
    /// with the distance of the bytes' share, of a mean read's time, from that on the assumed disk.
    ///
    /// If all reads have about the same size, their times hardly tell operations from bytes, and
    /// noise would decide. So the term counts as much as the noise of the measured times demands
    /// (ridge regression): it decides only where they do not.
    fn solve(&mut self) {
        let [xx, xy, yy, x, y, count] = self.sums;
        // With r bytes in a mean read and the assumed ratio q, the difference of the shares is
        // (b - q a) r / (1 + q r), divided by the time of a mean read.
        let bytes = xy / xx;
        let distance = bytes / (1.0 + self.ratio * bytes);
        let weight = self.noise() / SHARE_SPREAD.powi(2) * xx / count * distance.powi(2);
        let (xx, xy, yy) = (xx + weight * self.ratio.powi(2), xy - weight * self.ratio, yy + weight);
        let determinant = xx * yy - xy * xy;
        let [least, most] = BYTE_BOUNDS_NS;
        if determinant > 0.0 {
            self.byte_ns = ((y * xx - x * xy) / determinant).clamp(least, most);
        }
        let [least, most] = OPERATION_BOUNDS_NS;
        self.operation_ns = ((x - self.byte_ns * xy) / xx).clamp(least, most);
    }

    /// The variance of the intervals' times that operations and bytes do not explain, in parts of
    /// these times.
    fn noise(&self) -> f64 {
        let [xx, xy, yy, x, y, count] = self.sums;
        let determinant = xx * yy - xy * xy;
        // The least sum of squares, with both costs; if all reads are alike, with one.
        let explained = match determinant > xx * yy * 1e-6 {
            true => (x * x * yy - 2.0 * x * y * xy + y * y * xx) / determinant,
            false => x * x / xx,
        };
        ((count - explained).max(0.0) + NOISE) / (count + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Disk;
    use crate::companions::Companions;
    use crate::testing::random;

    const MS: u64 = 1_000_000;

    /// Reads of these bytes one after another, each as long as `took_ns` says. Returns what was
    /// learnt.
    fn play(sizes: impl Iterator<Item = usize>, mut took_ns: impl FnMut(u64, usize) -> u64) -> Disk {
        let (mut disk, mut now_ns) = (Disk::default(), 1);
        for bytes in sizes {
            disk.begins(now_ns);
            now_ns += took_ns(now_ns, bytes);
            disk.ended(bytes, now_ns);
            // The program computes.
            now_ns += 50_000;
        }
        disk
    }

    fn sizes(count: u32) -> impl Iterator<Item = usize> {
        // More small reads at some times than at others, as in programs.
        random(count, 64).enumerate().map(|(at, size)| match at / 5000 % 2 {
            0 => 4096,
            _ => 4096 * (1 + size as usize),
        })
    }

    fn is_about(found: f64, right: f64) -> bool {
        (right * 0.8..right * 1.25).contains(&found)
    }

    #[test]
    fn latency_and_rate_are_told_apart() {
        for (operation_ns, byte_ns) in [(36_000.0, 0.8), (300_000.0, 3.0), (2_000_000.0, 16.0)] {
            let disk = play(sizes(100_000), |_, bytes| (operation_ns + bytes as f64 * byte_ns) as u64);
            assert!(is_about(disk.operation_ns(), operation_ns), "{operation_ns}: {disk:?}");
            assert!(is_about(disk.cost_ns(0.0, 1.0), byte_ns), "{byte_ns}: {disk:?}");
            let cost = 3.0 * operation_ns + 10_000.0 * byte_ns;
            assert!(is_about(disk.cost_ns(3.0, 10_000.0), cost), "{disk:?}");
        }
    }

    #[test]
    fn a_slow_disk_is_known_soon() {
        for (operation_ns, byte_ns) in [(300_000.0, 3.0), (2_000_000.0, 16.0)] {
            let time_ns = 2 * super::INTERVAL_NS;
            let reads = (time_ns as f64 / (operation_ns + 4096.0 * byte_ns + 50_000.0)) as usize;
            let disk = play(std::iter::repeat_n(4096, reads), |_, bytes| {
                (operation_ns + bytes as f64 * byte_ns) as u64
            });
            let cost_ns = operation_ns + 4096.0 * byte_ns;
            assert!(is_about(disk.cost_ns(1.0, 4096.0), cost_ns), "{cost_ns}: {disk:?}");
        }
    }

    #[test]
    fn an_operation_of_a_limited_disk_costs_its_part_of_a_second() {
        // 500 operations each second: 50 in each tenth of a second at once, and then none.
        let (mut tenth, mut left) = (0, 50);
        let disk = play(std::iter::repeat_n(4096, 20_000), |now_ns, _| {
            let now = now_ns / (100 * MS);
            if now > tenth {
                (tenth, left) = (now, 50);
            }
            if left > 0 {
                left -= 1;
                return 70_000;
            }
            (tenth, left) = (now + 1, 49);
            tenth * 100 * MS - now_ns + 70_000
        });
        assert!(is_about(disk.cost_ns(1.0, 4096.0), 2_000_000.0), "{disk:?}");
    }

    #[test]
    fn reads_under_way_together_share_the_time() {
        let (mut disk, mut now_ns) = (Disk::default(), 1);
        for _ in 0..20_000 {
            (0..8).for_each(|_| disk.begins(now_ns));
            now_ns += 400_000;
            (0..8).for_each(|_| disk.ended(4096, now_ns));
        }
        assert!(is_about(disk.cost_ns(1.0, 4096.0), 50_000.0), "{disk:?}");
    }

    #[test]
    fn a_disk_that_stalls_for_a_while_is_forgotten() {
        let stalled = |now_ns: u64| now_ns > 3_000 * MS && now_ns < 3_001 * MS;
        let disk = play(sizes(100_000), |now_ns, _| if stalled(now_ns) { 5_000 * MS } else { 100_000 });
        assert!(disk.cost_ns(1.0, 4096.0) < 150_000.0, "{disk:?}");
    }

    /// Plays on a busy machine: in each quarter of a second all reads take up to 30 % more or less.
    fn play_with_noise(
        seed: u32,
        sizes: impl Iterator<Item = usize>,
        mut took_ns: impl FnMut(usize) -> f64,
    ) -> Disk {
        let noise: Vec<u32> = random(1000 + seed, 61).skip(seed as usize).collect();
        play(sizes, |now_ns, bytes| {
            let percent = 70 + noise[(now_ns / super::INTERVAL_NS) as usize];
            (took_ns(bytes) * f64::from(percent) / 100.0) as u64
        })
    }

    #[test]
    fn noise_does_not_tell_bytes_from_operations() {
        for seed in 0..200 {
            let mut pages = random(60_000 + seed, 2).skip(seed as usize);
            let mut next = || 4096 * (7 + pages.next().expect("enough") as usize);
            let sizes = (0..20_000 + 100 * seed).map(|_| next());
            let disk = play_with_noise(seed, sizes, |bytes| 300_000.0 + bytes as f64);
            let mut companions = Companions::default();
            (0..1000).for_each(|_| companions.touched());
            assert_eq!(companions.together(&disk, 4096), 8, "seed {seed}: {disk:?}");
        }
    }

    #[test]
    fn reads_of_many_sizes_tell_them_apart_even_with_noise() {
        for seed in 0..200 {
            let disk = play_with_noise(seed, sizes(60_000 + seed).skip(seed as usize), |bytes| {
                20_000.0 + 10.0 * bytes as f64
            });
            let mut companions = Companions::default();
            (0..1000).for_each(|_| companions.touched());
            assert_eq!(companions.together(&disk, 4096), 1, "seed {seed}: {disk:?}");
        }
    }

    #[test]
    fn whatever_comes_the_costs_are_numbers_within_bounds() {
        let mut draw = random(60_000, 1 << 30);
        let mut next = || u64::from(draw.next().expect("enough"));
        let (mut disk, mut now_ns) = (Disk::default(), 0);
        for _ in 0..10_000 {
            now_ns += next() % (1 << (next() % 30));
            if next() % 2 == 0 {
                disk.begins(now_ns);
            } else {
                // Some reads end without having begun, and some clocks go back.
                disk.ended(next() as usize, now_ns.saturating_sub(next() % 3));
            }
            let cost = disk.cost_ns(1.0, 4096.0);
            assert!((1_000.0..=1.1e9).contains(&cost), "{disk:?}");
        }
    }
}
