//! Counters of several processes, added up.

use terapage_stats::{BUCKETS, Snapshot};

/// Sums over processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    /// Processes that run.
    pub processes: u64,
    /// Sums of the processes' counters. Only growing counters include processes that have ended.
    pub sums: Snapshot,
}

impl Sums {
    /// Adds a process that runs.
    pub fn add_running(&mut self, now: &Snapshot) {
        self.processes += 1;
        let all = &mut self.sums;
        all.budget_bytes += now.budget_bytes;
        all.lease_bytes += now.lease_bytes;
        all.resident_bytes += now.resident_bytes;
        all.untracked_bytes += now.untracked_bytes;
        all.region_bytes += now.region_bytes;
        all.store_bytes += now.store_bytes;
        all.mirror_copies += now.mirror_copies;
        all.mirror_missing += now.mirror_missing;
        all.mirror_behind += now.mirror_behind;
        all.started_s = if self.processes == 1 { now.started_s } else { all.started_s.min(now.started_s) };
        self.add_counters(now);
    }

    /// Adds the growing counters.
    pub fn add_counters(&mut self, now: &Snapshot) {
        let all = &mut self.sums;
        for (sum, value) in [
            (&mut all.first_touches, now.first_touches),
            (&mut all.major_faults, now.major_faults),
            (&mut all.minor_faults, now.minor_faults),
            (&mut all.demand_blocks, now.demand_blocks),
            (&mut all.prefetched_blocks, now.prefetched_blocks),
            (&mut all.prefetch_used_runs, now.prefetch_used_runs),
            (&mut all.prefetch_wasted_runs, now.prefetch_wasted_runs),
            (&mut all.prefetch_used_blocks, now.prefetch_used_blocks),
            (&mut all.prefetch_wasted_blocks, now.prefetch_wasted_blocks),
            (&mut all.prefetch_stops, now.prefetch_stops),
            (&mut all.companions, now.companions),
            (&mut all.companions_used, now.companions_used),
            (&mut all.page_in_bytes, now.page_in_bytes),
            (&mut all.page_out_bytes, now.page_out_bytes),
            (&mut all.clean_page_outs, now.clean_page_outs),
            (&mut all.zero_page_outs, now.zero_page_outs),
            (&mut all.dirty_page_outs, now.dirty_page_outs),
            (&mut all.retries, now.retries),
            (&mut all.forks, now.forks),
            (&mut all.major_wait_us, now.major_wait_us),
            (&mut all.minor_wait_us, now.minor_wait_us),
            (&mut all.requests, now.requests),
            (&mut all.request_wait_us, now.request_wait_us),
            (&mut all.program_us, now.program_us),
            (&mut all.stalled_us, now.stalled_us),
            (&mut all.resynced_bytes, now.resynced_bytes),
            (&mut all.mapped_file_bytes, now.mapped_file_bytes),
            (&mut all.changed_file_bytes, now.changed_file_bytes),
            (&mut all.files_left, now.files_left),
            (&mut all.files_read_again, now.files_read_again),
        ] {
            *sum = sum.saturating_add(value);
        }
        for bucket in 0..BUCKETS {
            all.major_latency_us[bucket] += now.major_latency_us[bucket];
        }
    }
}
