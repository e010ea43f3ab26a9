//! The generator of a volume's requests, without end.

use crate::arrivals::Arrivals;
use crate::layout::{Layout, Run};
use crate::random::{Random, threshold};
use crate::sizes::Sizes;
use crate::volume::Volume;
use terapage_blocktrace::{Kind, Request};

/// The least number of objects of a stream, however small the scale.
const OBJECTS_MIN: u64 = 8;

/// Synthetic requests of a volume. The same volume, seed and scale give the same requests on every
/// machine. It needs about 16 bytes for each object, whatever the number of requests.
///
/// It never ends: take as many requests as needed. A trace that is shorter than the volume's has
/// touched fewer of its objects.
#[derive(Clone, Debug)]
pub struct Generator {
    random: Random,
    arrivals: Arrivals,
    writes: Layout,
    reads: Layout,
    /// The probability that the next run is of writes, for 32 random bits.
    write: u64,
    /// The probability that a run of reads is one that was written, as 32 random bits.
    read_written: u64,
    kind: Kind,
    run: Run,
    /// The number of objects of `run` that were requested.
    done: u16,
    span_sectors: u64,
}

impl Generator {
    /// Requests of `volume`; other seeds give other requests of the same kind. `scale` (more than
    /// 0) multiplies the number of objects, for short runs with caches that are scaled in the same
    /// way; 1 is the volume itself.
    pub fn new(volume: &Volume, seed: u64, scale: f64) -> Generator {
        let mut random = Random::new(seed);
        let objects = |share: f64| ((volume.objects.value as f64 * scale * share) as u64).max(OBJECTS_MIN);
        let sizes =
            |shape, mean| Sizes::tilted(shape, mean).expect("profiles are checked when they are read");
        let write_sizes = sizes(&volume.writes.sizes.value, volume.writes.mean_bytes.value);
        let objects_written = objects(volume.writes.object_share.value);
        let (writes, end) = Layout::new(&volume.writes, &write_sizes, objects_written, 0, &mut random);
        let written = writes.expected_popular(volume.writes.zipf_exponent.value);
        let read_written = volume.reads_of_written.value;
        // Reads of written objects have the sizes of writes. The other reads compensate for that,
        // as far as their sizes allow.
        let mean = volume.reads.mean_bytes.value;
        let own = (mean - read_written * written.bytes / written.requests) / (1.0 - read_written);
        let shape = &volume.reads.sizes.value;
        let read_sizes = Sizes::tilted(shape, own).unwrap_or_else(|| sizes(shape, mean));
        let objects_read = objects(volume.reads.object_share.value);
        let (reads, end) = Layout::new(&volume.reads, &read_sizes, objects_read, end, &mut random);
        let per_write = writes.expected(volume.writes.zipf_exponent.value).requests;
        let own = reads.expected(volume.reads.zipf_exponent.value).requests;
        // `read_written` is a share of requests; as a share of runs it may be more or less.
        let by_run =
            read_written / written.requests / (read_written / written.requests + (1.0 - read_written) / own);
        let per_read = by_run * written.requests + (1.0 - by_run) * own;
        let share = volume.write_share.value;
        let write = share / per_write / (share / per_write + (1.0 - share) / per_read);
        let mean_ns = volume.duration_s.value * 1e9 / volume.requests.value as f64;
        Generator {
            arrivals: Arrivals::new(mean_ns, volume.inter_arrival_cv.value),
            writes,
            reads,
            write: threshold(write),
            read_written: threshold(by_run),
            kind: Kind::Write,
            run: Run { sector: 0, sectors: 1, objects: 0 },
            done: 0,
            span_sectors: end,
            random,
        }
    }

    /// The end of the bytes that any request can touch.
    pub fn span_bytes(&self) -> u64 {
        self.span_sectors * 512
    }

    fn draw(&mut self) {
        let random = &mut self.random;
        self.done = 0;
        if u64::from(random.next() as u32) < self.write {
            (self.kind, self.run) = (Kind::Write, self.writes.draw(random));
            return;
        }
        self.kind = Kind::Read;
        let written = self.read_written > 0 && u64::from(random.next() as u32) < self.read_written;
        self.run = if written { self.writes.draw_popular(random) } else { self.reads.draw(random) };
    }
}

impl Iterator for Generator {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.done == self.run.objects {
            self.draw();
        }
        let bytes = u32::from(self.run.sectors) * 512;
        let offset = u64::from(self.run.sector) * 512 + u64::from(self.done) * u64::from(bytes);
        self.done += 1;
        let time_ns = self.arrivals.next_ns(&mut self.random);
        Some(Request { time_ns, offset, bytes, volume: 0, kind: self.kind })
    }
}
