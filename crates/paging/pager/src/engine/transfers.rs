//! The completions of operations: blocks that were read or written, and operations that failed.

use super::Engine;
use super::table::{State, WANTED};
use crate::io::bounce::Buffer;
use crate::io::transfers::Operation;
use terapage_stats::Counters;
use terapage_store::{Ended, Failure, OpKind, Why};

/// Tries of an operation that fails, without a pause in between. Chosen, not measured.
const TRIES: u32 = 4;

/// The first and the longest pause, ms, between tries of an operation whose failure may pass. Each
/// pause is twice the previous one. Chosen, not measured.
const PAUSES_MS: [u64; 2] = [10, 1000];

/// Whether an operation failed because the store has no room: on the disk, by a quota, or by a
/// limit on the size of files.
fn is_full(failure: &Failure) -> bool {
    const ENOSPC: i32 = 28;
    const EDQUOT: i32 = 122;
    const EFBIG: i32 = 27;
    matches!(failure.why, Why::Errno(ENOSPC | EDQUOT | EFBIG))
}

impl Engine {
    /// Handles the end of a store's operation.
    pub(crate) fn ended(&mut self, end: Ended) {
        let number = end.id as usize;
        let mut operation = self.io.transfers.take(number);
        match (end.result, operation.kind) {
            (Err(failure), _) => self.try_again(number, operation, &failure),
            (Ok(()), OpKind::Read) => self.arrived(number, operation),
            (Ok(()), OpKind::Write) => {
                self.io.put_buffer(&mut operation);
                self.paged_out(&operation);
            }
        }
    }

    /// Tries a failed operation again: a few times at once, or, if waiting may help, with pauses
    /// until its time is over.
    pub(crate) fn try_again(&mut self, number: usize, mut operation: Operation, failure: &Failure) {
        let now_ns = self.now();
        if operation.tries == 0 {
            operation.failing_since_ns = now_ns;
        }
        operation.tries += 1;
        let failing_ms = (now_ns - operation.failing_since_ns) / 1_000_000;
        if failure.passing && failing_ms < self.options.tuning.patience_ms {
            let [first, most] = PAUSES_MS;
            let pause_ms = (first << (operation.tries - 1).min(16)).min(most);
            return self.io.begin_later(number, operation, pause_ms * 1_000_000);
        }
        if !failure.passing && operation.tries < TRIES {
            return self.io.begin_again(number, operation);
        }
        let wanted = |block: &&u32| self.table.get(**block).has(WANTED);
        let wanted = operation.blocks.iter().filter(wanted).count();
        if operation.kind == OpKind::Write || wanted == operation.blocks.len() {
            self.give_up(&operation, failure, failing_ms);
        }
        self.forgo(operation);
    }

    fn give_up(&mut self, operation: &Operation, failure: &Failure, failing_ms: u64) -> ! {
        let store = self.io.name(operation.origin);
        let doing = match operation.kind {
            OpKind::Read => "reading from",
            OpKind::Write => "writing to",
        };
        let how_long = match failure.passing {
            true => format!("for {} s", failing_ms / 1000),
            false => format!("{TRIES} times"),
        };
        // Of other failures the store has said where.
        let place = self.io.whereabouts(operation.origin, operation.slot);
        let place = place.filter(|_| failure.why == Why::Wrong).map(|place| format!(" ({place})"));
        let place = place.unwrap_or_default();
        let why = format!("{doing} store {store} failed {how_long}: {}{place}", failure.why);
        match operation.kind {
            OpKind::Write if is_full(failure) => self.io.end_as_full(&why),
            _ => self.stop(&why),
        }
    }

    /// Whether any block from `first` to `end` is being read or written.
    pub(crate) fn is_on_its_way(&self, first: u32, end: u32) -> bool {
        let is_in = |block: &u32| (first..end).contains(block);
        self.io.transfers.all().any(|operation| operation.blocks.iter().any(is_in))
    }

    /// Waits until no block from `first` to `end` is being read, written or on trial.
    pub(crate) fn settle(&mut self, first: u32, end: u32) {
        while self.is_on_its_way(first, end) {
            self.wait();
        }
        self.end_trials(first, end);
    }

    /// Waits until no operation and no trial is under way.
    pub(crate) fn settle_all(&mut self) {
        while self.table.count(State::Reading) + self.table.count(State::Writing) > 0 {
            self.wait();
        }
        self.end_trials(0, u32::MAX);
    }

    /// A bounce buffer for a run of `blocks` blocks of a store, if the run is long enough for one,
    /// one is free, and the buffer helps the store.
    pub(crate) fn buffer(&mut self, kind: OpKind, origin: u8, blocks: usize) -> Option<Buffer> {
        if self.io.takes_pieces(origin) {
            return None;
        }
        // The pages of sealed files are copies, which do not keep frames together.
        let scattered = self.frames.maker.was_slow() || self.mover.events.any_sealed();
        let buffer = self.io.bounce.take(kind, blocks, scattered)?;
        Counters::add(&self.counters.bounced_bytes, (blocks * self.block) as u64);
        Some(buffer)
    }
}
