//! Counters of a paged process.
//!
//! The counters lie in a memory file that the process holds open under a known name
//! ([`FILE_NAME`]). So `terapage stat` and `terapage top` can map it through `/proc/PID/fd`,
//! without help from the process. Nothing is left behind when the process ends.

mod condition;
mod control;
mod regions;

pub use condition::{CONDITION_AT, Condition};
pub use control::{CONTROL_AT, Control, Stage};
pub use regions::{FILE_BYTES, REGIONS, REGIONS_AT, Region, RegionCounters, RegionTable};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The name of the memory file, as `/proc/PID/fd` shows it after `/memfd:`.
pub const FILE_NAME: &str = "terapage-stats";

/// "TERASTA" and the layout's version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TERASTA\x0b");

/// Buckets of a [`Latency`]: powers of two of microseconds, from under 1 us to over 0.5 s.
pub const BUCKETS: usize = 20;

/// Bytes of the counters at the start of the memory file: [`Counters`] has only 64-bit words.
pub const BYTES: usize = size_of::<Counters>();

/// The memory file: what the pager of a process counts.
#[repr(C, align(4096))]
pub struct Shared {
    /// The counters.
    pub counters: Counters,
    unused: [u64; (CONTROL_AT - BYTES) / 8],
    /// What `terapage release` asks of the process.
    pub control: Control,
    /// What is wrong, in words.
    pub condition: Condition,
    /// The counters of the process's regions.
    pub regions: RegionTable,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            counters: Counters::default(),
            unused: [0; (CONTROL_AT - BYTES) / 8],
            control: Control::default(),
            condition: Condition::default(),
            regions: RegionTable::default(),
        }
    }
}

impl Shared {
    /// Bytes in memory that the budget counts: frames, buffers and bookkeeping.
    pub fn counted_bytes(&self) -> u64 {
        self.counters.resident_bytes.load(Relaxed) + self.counters.books_bytes.load(Relaxed)
    }
}

const _: () = assert!(FILE_BYTES <= size_of::<Shared>());
const _: () = assert!(std::mem::offset_of!(Shared, regions) == REGIONS_AT);

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
            /// From a major fault's arrival to the waking of its thread.
            pub major_latency: Latency,
        }

        /// The counters as they were at one time.
        #[derive(Clone, Copy, Debug, Default, Serialize)]
        pub struct Snapshot {
            $($(#[$doc])* pub $name: u64,)*
            /// Counts by power of two of microseconds, as in [`Latency`].
            pub major_latency_us: [u64; BUCKETS],
        }

        impl Counters {
            /// The present values. Each is read by itself.
            pub fn snapshot(&self) -> Snapshot {
                Snapshot {
                    $($name: self.$name.load(Relaxed),)*
                    major_latency_us: std::array::from_fn(|i| self.major_latency.buckets[i].load(Relaxed)),
                }
            }
        }

        impl Snapshot {
    /// The counters as JSON, in one complete line.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string(self)? + "\n")
    }

            /// Reads a memory file. `None` if the file is too short, or does not begin with
            /// [`MAGIC`]: there are no counters yet, or they have another layout.
            pub fn from_bytes(file: &[u8]) -> Option<Snapshot> {
                let counters = file.get(..BYTES)?;
                let (words, _) = counters.as_chunks::<8>();
                let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
                if words.next()? != MAGIC {
                    return None;
                }
                $(let $name = words.next()?;)*
                let mut major_latency_us = [0; BUCKETS];
                for (bucket, word) in major_latency_us.iter_mut().zip(words) {
                    *bucket = word;
                }
                Some(Snapshot { $($name,)* major_latency_us })
            }
        }
    };
}

counters! {
    /// The process number.
    pid,
    /// The time when paging started, in seconds since 1970.
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
    major_faults,
    /// Touches of blocks that still had their frame.
    minor_faults,
    /// Blocks read because a thread waited.
    demand_blocks,
    /// Blocks read ahead.
    prefetched_blocks,
    /// Prefetched runs that the program reached: their markers were touched.
    prefetch_used_runs,
    /// Prefetched runs whose markers were paged out, or could not be read, before they were
    /// touched.
    prefetch_wasted_runs,
    /// Blocks read ahead that were touched: an estimate from samples.
    prefetch_used_blocks,
    /// Blocks read ahead that were paged out untouched: an estimate from samples.
    prefetch_wasted_blocks,
    /// The number of times that prefetch has stopped because the program used few of the blocks
    /// that were read ahead.
    prefetch_stops,
    /// Whether prefetch is stopped (1, or 0).
    prefetch_stopped,
    /// Companions: neighbours that were read in the same operation as a demanded block.
    companions,
    /// Companions that were touched before they left memory.
    companions_used,
    /// Bytes read from the store.
    page_in_bytes,
    /// Bytes written to the store.
    page_out_bytes,
    /// Blocks that left memory without a write, because the store held the same bytes.
    clean_page_outs,
    /// Blocks that left memory without a write, because they were all zero.
    zero_page_outs,
    /// Blocks that left memory with a write.
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
    /// Microseconds that threads waited for major faults, all threads together.
    major_wait_us,
    /// Microseconds that threads waited for minor faults and first touches, all threads together.
    minor_wait_us,
    /// Calls for memory that waited for the pager (`munmap`, `madvise`, ...), and the pager's other
    /// requests.
    requests,
    /// Microseconds that threads waited for requests, all threads together.
    request_wait_us,
    /// Microseconds of processor time that the program's own threads have used, when last measured.
    program_us,
    /// Blocks on trial of which another page than the first was touched while they were in memory.
    trials_together,
    /// Blocks of which none was.
    trials_apart,
    /// Bytes in memory that the budget does not count: private and shared ones.
    untracked_bytes,
    /// The most that `untracked_bytes` was found to be.
    untracked_peak_bytes,
    /// Bytes of shared memory among `untracked_bytes`.
    shared_bytes,
    /// The most that `shared_bytes` was found to be.
    shared_peak_bytes,
    /// The part of the budget that the process may use now, bytes.
    lease_bytes,
    /// The job whose processes share the budget; 0 if each has its own.
    job,
    /// Processes of the job that have a lease.
    job_processes,
    /// Microseconds in which at least one thread waited for a page-in.
    stalled_us,
    /// How stores are read and written: 1 is io_uring, 2 libaio, 3 threads.
    io_engine,
    /// Whether the process is paged without rights, so its system calls are guarded (1, or 0).
    guarded,
    /// Bytes of bookkeeping for blocks, which count in the budget.
    books_bytes,
    /// Copies that the store's mirrors have; 0: there is no mirror.
    mirror_copies,
    /// Copies that are left out, or do not answer.
    mirror_missing,
    /// Slots that copies are to be written again.
    mirror_behind,
    /// Bytes that were written to copies again in the background.
    resynced_bytes,
    /// Bytes of mapped files that were paged (`--files`), all mappings together.
    mapped_file_bytes,
    /// Bytes of private mappings of files that the program has changed while they were paged.
    changed_file_bytes,
    /// How often mapped files, or parts of them, were given back to the kernel.
    files_left,
    /// Whether the budget follows the free memory (1, or 0).
    budget_auto,
    /// Whether `terapage release` was done, so nothing is paged any more (1, or 0).
    released,
    /// The most bytes that were mapped at once of files that `--files` could page, and that the
    /// kernel has.
    unpaged_files_peak_bytes,
    /// Such files of which the kernel read pages more than once, as far as is known.
    files_read_again,
}

impl Counters {
    /// Adds `n` to a counter of this set.
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Relaxed);
    }
}

impl Snapshot {
    /// Whether every copy of the store's mirrors has all that it should; `None` without a mirror.
    pub fn in_sync(&self) -> Option<bool> {
        (self.mirror_copies > 0).then_some(self.mirror_missing + self.mirror_behind == 0)
    }

    /// Microseconds that threads waited for memory: for major faults, minor faults and requests.
    pub fn waited_us(&self) -> u64 {
        self.major_wait_us.saturating_add(self.minor_wait_us).saturating_add(self.request_wait_us)
    }

    /// The share of the threads' time, 0 to 1, in which they waited for memory: of the time in
    /// which they waited for memory or worked. Time in which threads sleep, or wait for anything
    /// else, does not count. `None` if the time of their work is unknown.
    pub fn waited_share(&self) -> Option<f64> {
        let waited = self.waited_us() as f64;
        (self.program_us > 0).then(|| waited / (waited + self.program_us as f64))
    }

    /// The latency that a share `p` (0 to 1) of the major faults did not exceed, in microseconds:
    /// the upper end of its bucket. `None` without major faults.
    pub fn major_latency_percentile_us(&self, p: f64) -> Option<u64> {
        let total: u64 = self.major_latency_us.iter().sum();
        let wanted = (total as f64 * p).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.major_latency_us.iter().enumerate().find_map(|(i, &count)| {
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
        assert_eq!((snapshot.released, snapshot.files_read_again), (names - 2, names));
        assert_eq!(snapshot.major_latency_us, std::array::from_fn(|i| names + 1 + i as u64));
    }

    #[test]
    fn every_field_is_documented() {
        let docs = include_str!("../../../../docs/configuration.md");
        for value in [serde_json::to_value(Snapshot::default()), serde_json::to_value(Region::default())] {
            for field in value.unwrap().as_object().unwrap().keys() {
                assert!(docs.contains(&format!("- `{field}`: ")), "{field} is not in docs/configuration.md");
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
            Snapshot { major_wait_us: 5, minor_wait_us: 3, request_wait_us: 1, ..Snapshot::default() };
        assert_eq!((now.waited_us(), now.waited_share()), (9, None));
        now.program_us = 3;
        assert_eq!(now.waited_share(), Some(0.75));
    }

    #[test]
    fn percentiles_are_upper_ends_of_buckets() {
        let counters = Counters::default();
        assert_eq!(counters.snapshot().major_latency_percentile_us(0.5), None);
        for _ in 0..99 {
            counters.major_latency.add(100_000);
        }
        counters.major_latency.add(5_000_000_000);
        let snapshot = counters.snapshot();
        assert_eq!(snapshot.major_latency_percentile_us(0.5), Some(128));
        assert_eq!(snapshot.major_latency_percentile_us(0.99), Some(128));
        assert_eq!(snapshot.major_latency_percentile_us(1.0), Some(1 << (BUCKETS - 1)));
    }
}
