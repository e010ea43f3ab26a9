//! Theory: the closed forms against which the model is checked, and the steady state in which it
//! starts.

/// The principal branch of Lambert's W for -1/e <= `x` < 0: the w in -1..0 with w e^w = x.
fn lambert_w(x: f64) -> f64 {
    // Near the branch point, from the series in sqrt(2 (e x + 1)); then Halley's iteration.
    let p = (2.0 * (std::f64::consts::E * x + 1.0)).max(0.0).sqrt();
    let mut w = -1.0 + p - p * p / 3.0 + 11.0 / 72.0 * p * p * p;
    for _ in 0..50 {
        let e = w.exp();
        let f = w * e - x;
        let slope = e * (w + 1.0) - (w + 2.0) * f / (2.0 * w + 2.0);
        if slope == 0.0 || !slope.is_finite() {
            break;
        }
        let step = f / slope;
        w -= step;
        if step.abs() < 1e-14 {
            break;
        }
    }
    w
}

/// The write amplification of uniform random writes with large blocks, for an over-provisioning of
/// `over_provisioning` (flash beyond the data, as a share of the data).
///
/// With a = 1 + `over_provisioning`: a / (a + W(-a e^-a)). Xiang, Kurkoski, "An Improved Analytic
/// Expression for Write Amplification in NAND Flash" (2011); the same as Desnoyers, "Analytic
/// Modeling of SSD Write Performance" (2012), for cleaning in the order of writing, which greedy
/// cleaning approaches with large blocks.
pub fn write_amplification(over_provisioning: f64) -> f64 {
    let a = 1.0 + over_provisioning;
    a / (a + lambert_w(-a * (-a).exp()))
}

/// The mean time that a request waits before it is served, in units of the service time. Requests
/// arrive at random (Poisson) and keep one server with constant service time busy for the share
/// `load` of the time: M/D/1, load / (2 (1 - load)) (Pollaczek, Khinchine).
pub fn md1_waiting(load: f64) -> f64 {
    load / (2.0 * (1.0 - load))
}

/// How full the blocks are in the steady state of uniform random writes and greedy collection.
///
/// The mean-field limit for many blocks (Desnoyers 2012; Van Houdt 2013): a block with i valid
/// slots loses one at a rate proportional to i, and is collected once it has as few as the emptiest
/// block. So the rate from i to i - 1 equals the rate from i - 1 to i - 2, and the number of blocks
/// with i valid slots is proportional to 1/i. Collected blocks have `floor` valid slots or, for a
/// share `mixed` of them, `floor + 1`. For large blocks this becomes [`write_amplification`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    slots: u32,
    floor: u32,
    mixed: f64,
}

impl Steady {
    /// The steady state for blocks of `slots` slots, with `blocks` (over 1) such blocks for each
    /// `slots` units of data.
    pub fn new(slots: u32, blocks: f64) -> Steady {
        // Blocks for a block's worth of data: the sum of the shares from `floor + 1` on, over the
        // gain of a collection.
        let mut tail = 0.0;
        let mut floor = slots;
        while floor > 0 {
            floor -= 1;
            let term = 1.0 / f64::from(floor + 1);
            let needed = |mixed: f64| {
                f64::from(slots) * (tail + (1.0 - mixed) * term) / (f64::from(slots - floor) - mixed)
            };
            if needed(0.0) >= blocks {
                return Steady { slots, floor, mixed: bisect(|mixed| needed(mixed) - blocks) };
            }
            tail += term;
        }
        Steady { slots, floor: 0, mixed: 0.0 }
    }

    /// The mean number of valid slots of a block that is collected.
    pub fn moved(&self) -> f64 {
        f64::from(self.floor) + self.mixed
    }

    /// Units programmed for each unit that the host writes.
    pub fn write_amplification(&self) -> f64 {
        f64::from(self.slots) / (f64::from(self.slots) - self.moved())
    }

    /// The valid slots of `count` blocks, the emptiest first, drawn as evenly as possible from the
    /// distribution.
    pub fn fill(&self, count: u32) -> Vec<u32> {
        let share = |valid: u32| {
            let part = if valid == self.floor + 1 { 1.0 - self.mixed } else { 1.0 };
            part / f64::from(valid)
        };
        let total: f64 = (self.floor + 1..=self.slots).map(share).sum();
        let mut valid = self.floor + 1;
        let mut below = share(valid);
        (0..count)
            .map(|block| {
                let wanted = (f64::from(block) + 0.5) / f64::from(count) * total;
                while below < wanted && valid < self.slots {
                    valid += 1;
                    below += share(valid);
                }
                valid
            })
            .collect()
    }
}

/// The zero in 0..1 of a decreasing function that is not negative at 0.
fn bisect(function: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if function(middle) > 0.0 { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_value() {
        // The paper's abstract: 2.36 at an over-provisioning of 0.3.
        assert!((write_amplification(0.3) - 2.36).abs() < 0.005, "{}", write_amplification(0.3));
    }

    #[test]
    fn lambert_solves_its_equation() {
        for x in [-0.367, -0.35, -0.2, -0.01, -1e-9] {
            let w = lambert_w(x);
            assert!((w * w.exp() - x).abs() < 1e-12, "{x} {w}");
        }
    }

    #[test]
    fn large_blocks_come_to_the_closed_form() {
        for spare in [0.07, 0.15, 0.28, 1.0] {
            let steady = Steady::new(1 << 16, 1.0 + spare).write_amplification();
            let closed = write_amplification(spare);
            assert!((steady / closed - 1.0).abs() < 2e-3, "{spare}: {steady} {closed}");
        }
    }

    #[test]
    fn small_blocks_are_collected_more_cheaply() {
        assert!(Steady::new(32, 1.1).write_amplification() < Steady::new(512, 1.1).write_amplification());
    }

    #[test]
    fn the_blocks_hold_the_data() {
        for (slots, blocks) in [(64, 1.07), (256, 1.28), (1152, 1.07), (256, 3.0)] {
            let fill = Steady::new(slots, blocks).fill(10_000);
            let held: f64 = fill.iter().map(|&valid| f64::from(valid)).sum();
            let data = f64::from(slots) * 10_000.0 / blocks;
            assert!((held / data - 1.0).abs() < 5e-3, "{slots} {blocks}: {held} {data}");
        }
    }

    #[test]
    fn much_room_moves_nothing() {
        let steady = Steady::new(16, 50.0);
        assert_eq!(steady.write_amplification(), 1.0);
    }
}
