//! The last touches that belong to no stream, among which new streams are found.

/// Touches remembered.
const RECENT: usize = 32;

/// The longest step that is considered, in blocks.
const STEP_MAX: i64 = 4096;

/// A ring of touches.
#[derive(Default)]
pub struct Recent {
    touches: Vec<u32>,
    oldest: usize,
}

impl Recent {
    /// Remembers `block`.
    pub fn push(&mut self, block: u32) {
        if self.touches.len() < RECENT {
            self.touches.push(block);
        } else {
            self.touches[self.oldest] = block;
            self.oldest = (self.oldest + 1) % RECENT;
        }
    }

    fn has(&self, block: i64) -> bool {
        self.touches.iter().any(|&touch| i64::from(touch) == block)
    }

    /// The step, 1 or -1, of a stream whose second touch is `block`.
    pub fn neighbour(&self, block: u32) -> Option<i32> {
        let block = i64::from(block);
        [1, -1].into_iter().find(|&step| self.has(block - i64::from(step)))
    }

    /// The step, longer than 1 in either direction, of a stream whose fourth touch is `block`.
    ///
    /// Three equal distances are required: two are common among random touches.
    pub fn stride(&self, block: u32) -> Option<i32> {
        let block = i64::from(block);
        // From the newest on: the newest is the likeliest.
        let newest_first = (1..=self.touches.len())
            .map(|back| self.touches[(self.oldest + self.touches.len() - back) % self.touches.len()]);
        for touch in newest_first {
            let step = block - i64::from(touch);
            let far_enough = (2..=STEP_MAX).contains(&step.abs());
            if far_enough && self.has(block - 2 * step) && self.has(block - 3 * step) {
                return Some(step as i32);
            }
        }
        None
    }
}
