//! Counters of a paged process.
//!
//! The counters lie in a memory file that the process holds open under a known name
//! ([`FILE_NAME`]). So `terapage stat` and `terapage top` can map it through `/proc/PID/fd`,
//! without help of the process. Nothing is left behind when the process ends.

mod condition;
mod regions;

pub use condition::{CONDITION_AT, Condition};
pub use regions::{FILE_BYTES, REGIONS, REGIONS_AT, Region, RegionCounters, RegionTable};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The name of the memory file, as `/proc/PID/fd` shows it after `/memfd:`.
pub const FILE_NAME: &str = "terapage-stats";

/// "TERASTA" and the layout's version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TERASTA\x06");

/// The most pagers of a process.
pub const PAGERS_MOST: usize = 8;

/// The memory file has a [`Shared`] for each pager, one behind the other, at multiples of this many
/// bytes.
pub const STRIDE: usize = 8192;

/// Buckets of a [`Latency`]: powers of two of microseconds, from under 1 us to over 0.5 s.
pub const BUCKETS: usize = 20;

/// Bytes of the counters at the start of the memory file: [`Counters`] has only 64-bit words.
pub const BYTES: usize = size_of::<Counters>();

/// What one pager counts. What is true of the whole process is in that of the first pager alone.
#[repr(C, align(4096))]
pub struct Shared {
    /// The counters of the pager.
    pub counters: Counters,
    unused: [u64; (CONDITION_AT - BYTES) / 8],
    /// What is wrong, in words.
    pub condition: Condition,
    /// The counters of its regions.
    pub regions: RegionTable,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            counters: Counters::default(),
            unused: [0; (CONDITION_AT - BYTES) / 8],
            condition: Condition::default(),
            regions: RegionTable::default(),
        }
    }
}

const _: () = assert!(size_of::<Shared>() == STRIDE && FILE_BYTES <= STRIDE);
const _: () = assert!(std::mem::offset_of!(Shared, regions) == REGIONS_AT);

/// What all pagers of a process count.
#[derive(Clone, Copy)]
pub struct Whole(pub &'static [Shared]);

impl Whole {
    /// The counters of the first pager, with those that are of the whole process.
    pub fn first(&self) -> &'static Counters {
        &self.0[0].counters
    }

    /// The present values of all pagers together.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of_all(self.0.iter().map(|shared| &shared.counters))
    }

    /// Bytes in memory that the budget counts: frames, buffers and books.
    pub fn counted_bytes(&self) -> u64 {
        let of = |one: &Counters| one.resident_bytes.load(Relaxed) + one.books_bytes.load(Relaxed);
        self.0.iter().map(|shared| of(&shared.counters)).sum()
    }
}

/// The part of a memory file that is of each pager, the first one first; at least one.
fn pagers_of(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let count = Snapshot::of_one(file).map_or(1, |first| first.pagers as usize);
    file.chunks(STRIDE).take(count.clamp(1, PAGERS_MOST))
}

/// Latencies, counted in buckets: bucket `i` has those under 2^i microseconds.
#[repr(C)]
#[derive(Default)]
pub struct Latency {
    /// The counts; the last bucket has no upper end.
    pub buckets: [AtomicU64; BUCKETS],
}

impl Latency {
    /// Counts a latency of `ns` nanoseconds.
    pub fn add(&self, ns: u64) {
        let us = ns / 1000;
        let bucket = (64 - us.leading_zeros() as usize).min(BUCKETS - 1);
        self.buckets[bucket].fetch_add(1, Relaxed);
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of a pager. They have one writer (its thread) and any number of readers.
        #[repr(C)]
        #[derive(Default)]
        pub struct Counters {
            /// [`MAGIC`], once the rest can be read.
            pub magic: AtomicU64,
            $($(#[$doc])* pub $name: AtomicU64,)*
            /// From a hard fault's arrival to the waking of its thread.
            pub hard_latency: Latency,
        }

        /// The counters as they were at one time.
        #[derive(Clone, Copy, Debug, Default, Serialize)]
        pub struct Snapshot {
            $($(#[$doc])* pub $name: u64,)*
            /// Counts by power of two of microseconds, as in [`Latency`].
            pub hard_latency_us: [u64; BUCKETS],
        }

        impl Counters {
            /// The present values. Each is read by itself.
            pub fn snapshot(&self) -> Snapshot {
                Snapshot {
                    $($name: self.$name.load(Relaxed),)*
                    hard_latency_us: std::array::from_fn(|i| self.hard_latency.buckets[i].load(Relaxed)),
                }
            }
        }

        impl Snapshot {
    /// The counters as JSON, in one line with its end.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string(self)? + "\n")
    }

            /// Reads the counters of one pager, which begin here. `None` if there are fewer bytes,
            /// or if they do not begin with [`MAGIC`]: there are no counters, not yet, or they have
            /// another layout.
            fn of_one(bytes: &[u8]) -> Option<Snapshot> {
                let counters = bytes.get(..BYTES)?;
                let (words, _) = counters.as_chunks::<8>();
                let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
                if words.next()? != MAGIC {
                    return None;
                }
                $(let $name = words.next()?;)*
                let mut hard_latency_us = [0; BUCKETS];
                for (bucket, word) in hard_latency_us.iter_mut().zip(words) {
                    *bucket = word;
                }
                Some(Snapshot { $($name,)* hard_latency_us })
            }
        }
    };
}

counters! {
    /// The process, by its id.
    pid,
    /// When paging started, in seconds since 1970.
    started_s,
    /// The budget, bytes.
    budget_bytes,
    /// The block size, bytes.
    block_bytes,
    /// Bytes of frames in use, and of bounce buffers.
    resident_bytes,
    /// The most that `resident_bytes` has been.
    resident_peak_bytes,
    /// Bytes of address space that are paged and in use.
    region_bytes,
    /// Number of regions.
    regions,
    /// Bytes of the store in use.
    store_bytes,
    /// Touches of blocks that were never touched before.
    first_touches,
    /// Touches of blocks that had to be read from the store.
    hard_faults,
    /// Touches of blocks that still had their frame.
    soft_faults,
    /// Blocks read because a thread waited.
    demand_blocks,
    /// Blocks read ahead.
    prefetched_blocks,
    /// Prefetched runs that the program came to: their markers were touched.
    prefetch_used_runs,
    /// Prefetched runs whose markers left, or could not be read, before they were touched.
    prefetch_wasted_runs,
    /// Blocks read ahead that were touched: an estimate by samples.
    prefetch_used_blocks,
    /// Blocks read ahead that left before they were touched: an estimate by samples.
    prefetch_wasted_blocks,
    /// How often prefetch has stopped because little of what it read was used.
    prefetch_stops,
    /// Whether prefetch is stopped (1, or 0).
    prefetch_stopped,
    /// Bytes read from the store.
    page_in_bytes,
    /// Bytes written to the store.
    page_out_bytes,
    /// Blocks that left memory without a write, because the store held the same bytes.
    clean_page_outs,
    /// Blocks that left memory without a write, because they were all zero.
    zero_page_outs,
    /// Blocks that left memory by a write.
    dirty_page_outs,
    /// Pages that could not be moved at once, and were tried again or copied.
    retries,
    /// Forks of the process.
    forks,
    /// Bytes of address space that had been paged and no longer are (protected, locked, mapped
    /// over).
    released_bytes,
    /// Bytes read and written through bounce buffers.
    bounced_bytes,
    /// Microseconds that threads waited for hard faults, all threads together.
    hard_wait_us,
    /// Microseconds that threads waited for soft faults and first touches, all threads together.
    soft_wait_us,
    /// Calls for memory that waited for the pager (`munmap`, `madvise`, ...), and its other
    /// requests.
    requests,
    /// Microseconds that threads waited for requests, all threads together.
    request_wait_us,
    /// Microseconds of processor time that the program's own threads have used, at the last look.
    program_us,
    /// Blocks of which another page was touched soon after the first one: what trials have found.
    trials_together,
    /// Blocks of which none was.
    trials_apart,
    /// Bytes in memory that the budget does not count: private ones, and shared ones.
    beside_bytes,
    /// The most that `beside_bytes` was found to be.
    beside_peak_bytes,
    /// Bytes of shared memory among `beside_bytes`.
    shared_bytes,
    /// The most that `shared_bytes` was found to be.
    shared_peak_bytes,
    /// The part of the budget that is the process's now, bytes.
    lease_bytes,
    /// The job whose processes share the budget; 0 if each has its own.
    job,
    /// Processes of the job that have a lease.
    job_processes,
    /// Microseconds in which at least one thread waited for a page-in.
    stalled_us,
    /// How stores are read and written: 1 is io_uring, 2 libaio, 3 threads.
    io_engine,
    /// Bytes of bookkeeping for blocks, which count in the budget.
    books_bytes,
    /// The pagers of the process.
    pagers,
}

impl Counters {
    /// Adds `n` to a counter of this set.
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Relaxed);
    }
}

impl Snapshot {
    /// Reads a memory file: all pagers of the process together. `None` if it has no counters, not
    /// yet, or if they have another layout.
    pub fn from_bytes(file: &[u8]) -> Option<Snapshot> {
        let mut pagers = pagers_of(file).map(Snapshot::of_one);
        let mut all = pagers.next()??;
        pagers.flatten().for_each(|one| all.add(&one));
        Some(all)
    }

    /// The present values of all pagers of a process together, the first one first.
    pub fn of_all<'a>(pagers: impl IntoIterator<Item = &'a Counters>) -> Snapshot {
        let mut pagers = pagers.into_iter().map(Counters::snapshot);
        let mut all = pagers.next().unwrap_or_default();
        pagers.for_each(|one| all.add(&one));
        all
    }

    /// Adds the counters of another pager of the same process.
    fn add(&mut self, other: &Snapshot) {
        macro_rules! sum {
            ($($name:ident),*) => {$(self.$name += other.$name;)*};
        }
        sum!(resident_bytes, resident_peak_bytes, regions, store_bytes, lease_bytes, books_bytes);
        sum!(first_touches, hard_faults, soft_faults, demand_blocks, prefetched_blocks);
        sum!(prefetch_used_runs, prefetch_wasted_runs, page_in_bytes, page_out_bytes);
        sum!(prefetch_used_blocks, prefetch_wasted_blocks, prefetch_stops, prefetch_stopped);
        sum!(clean_page_outs, zero_page_outs, dirty_page_outs, retries, released_bytes);
        sum!(bounced_bytes, hard_wait_us, soft_wait_us, requests, request_wait_us);
        sum!(trials_together, trials_apart);
        for (sum, more) in self.hard_latency_us.iter_mut().zip(other.hard_latency_us) {
            *sum += more;
        }
        // Pagers have their peaks at different times, and all together never more than the budget.
        self.resident_peak_bytes = self.resident_peak_bytes.min(self.budget_bytes.max(self.resident_bytes));
        // Waits for several pagers overlap.
        self.stalled_us = self.stalled_us.max(other.stalled_us);
    }

    /// Microseconds that threads waited for memory: for hard faults, soft faults and requests.
    pub fn waited_us(&self) -> u64 {
        self.hard_wait_us.saturating_add(self.soft_wait_us).saturating_add(self.request_wait_us)
    }

    /// The share of the threads' time that they waited for memory, 0 to 1: of the time in which
    /// they waited for memory or worked. Threads that sleep, or wait for anything else, count
    /// neither way. `None` if it is not known how long they worked.
    pub fn waited_share(&self) -> Option<f64> {
        let waited = self.waited_us() as f64;
        (self.program_us > 0).then(|| waited / (waited + self.program_us as f64))
    }

    /// The latency below which a share `p` (0 to 1) of the hard faults stayed, in
    /// microseconds: the upper end of its bucket. `None` without hard faults.
    pub fn hard_latency_percentile_us(&self, p: f64) -> Option<u64> {
        let total: u64 = self.hard_latency_us.iter().sum();
        let wanted = (total as f64 * p).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.hard_latency_us.iter().enumerate().find_map(|(i, &count)| {
            seen += count;
            (total > 0 && seen >= wanted).then_some(1 << i)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a memory file whose counters are 1, 2, 3, ...
    fn file() -> Vec<u8> {
        let words = std::iter::once(MAGIC).chain(1..(BYTES / 8) as u64);
        words.flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn bytes_are_read_in_the_order_of_the_counters() {
        let bytes = file();
        assert_eq!(bytes.len(), BYTES);
        let snapshot = Snapshot::from_bytes(&bytes).unwrap();
        assert_eq!((snapshot.pid, snapshot.started_s, snapshot.budget_bytes), (1, 2, 3));
        let names = (BYTES / 8 - 1 - BUCKETS) as u64;
        assert_eq!((snapshot.io_engine, snapshot.pagers), (names - 2, names));
        assert_eq!(snapshot.hard_latency_us, std::array::from_fn(|i| names + 1 + i as u64));
    }

    #[test]
    fn pagers_are_added_up_and_the_budget_counts_once() {
        let mut bytes = file();
        bytes.resize(STRIDE, 0);
        // The second pager does not know what is true of the whole process.
        let second = std::iter::once(MAGIC).chain((1..(BYTES / 8) as u64).map(|word| word * 10));
        bytes.extend(second.flat_map(u64::to_le_bytes));
        let one = Snapshot::of_one(&bytes).unwrap();
        let all = Snapshot::from_bytes(&bytes).unwrap();
        assert_eq!((all.budget_bytes, all.pid, all.pagers), (one.budget_bytes, one.pid, one.pagers));
        assert_eq!((all.hard_faults, all.regions), (11 * one.hard_faults, 11 * one.regions));
        assert_eq!(all.hard_latency_us[0], 11 * one.hard_latency_us[0]);
        assert_eq!(all.stalled_us, 10 * one.stalled_us, "waits overlap");
        assert_eq!(all.resident_peak_bytes, all.resident_bytes, "a budget of 3 bytes was exceeded");
        assert!(Snapshot::from_bytes(&bytes[..STRIDE + BYTES - 1]).is_some(), "a file that was cut");
    }

    #[test]
    fn every_field_is_documented() {
        let docs = include_str!("../../../../docs/configuration.md");
        for value in [serde_json::to_value(Snapshot::default()), serde_json::to_value(Region::default())] {
            for field in value.unwrap().as_object().unwrap().keys() {
                assert!(docs.contains(&format!("| `{field}` |")), "{field} is not in docs/configuration.md");
            }
        }
    }

    #[test]
    fn other_bytes_are_no_counters() {
        let mut bytes = file();
        assert!(Snapshot::from_bytes(&bytes[..BYTES - 1]).is_none());
        assert!(Snapshot::from_bytes(&[]).is_none());
        bytes[0] ^= 1;
        assert!(Snapshot::from_bytes(&bytes).is_none());
    }

    #[test]
    fn the_share_of_waits_is_never_more_than_all() {
        assert_eq!(Snapshot::default().waited_share(), None);
        let mut now =
            Snapshot { hard_wait_us: 5, soft_wait_us: 3, request_wait_us: 1, ..Snapshot::default() };
        assert_eq!((now.waited_us(), now.waited_share()), (9, None));
        now.program_us = 3;
        assert_eq!(now.waited_share(), Some(0.75));
    }

    #[test]
    fn percentiles_are_upper_ends_of_buckets() {
        let counters = Counters::default();
        assert_eq!(counters.snapshot().hard_latency_percentile_us(0.5), None);
        for _ in 0..99 {
            counters.hard_latency.add(100_000);
        }
        counters.hard_latency.add(5_000_000_000);
        let snapshot = counters.snapshot();
        assert_eq!(snapshot.hard_latency_percentile_us(0.5), Some(128));
        assert_eq!(snapshot.hard_latency_percentile_us(0.99), Some(128));
        assert_eq!(snapshot.hard_latency_percentile_us(1.0), Some(1 << (BUCKETS - 1)));
    }
}
