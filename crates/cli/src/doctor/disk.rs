//! The speed of a store's disk: operations and bytes each second. Measuring takes about a second.

use super::{Check, Status};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// Bytes of a large operation.
const LARGE: usize = 1 << 20;
/// Bytes of the nameless file that is written and read.
const FILE_BYTES: usize = 32 << 20;
/// Each part takes this long at most. A shorter part would be wrong: a limit on operations may
/// admit many at once, and then none for a tenth of a second.
const PART: Duration = Duration::from_millis(300);
/// The numbers of small and of large reads that are under way at the same time.
const SMALL_DEPTH: usize = 16;
const LARGE_DEPTH: usize = 4;
/// With fewer operations each second, programs that touch scattered data mostly wait. Solid state
/// drives in the machine have ten times as many, cloud volumes often 3,000. Chosen, not measured.
const FEW: f64 = 10_000.0;

/// The speed of a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Disk {
    pub operations_per_s: f64,
    pub mb_per_s: f64,
}

/// Measures the disk of a directory that takes direct I/O. `None` if that fails: doctor says
/// elsewhere what is wrong with a store.
pub(super) fn measure(directory: &Path) -> Option<Disk> {
    let flags = OFlags::TMPFILE | OFlags::DIRECT | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR).ok()?);
    let written = write(&file)?;
    let operations = reads_per_s(&file, PAGE, written, SMALL_DEPTH)?;
    let large = reads_per_s(&file, LARGE, written, LARGE_DEPTH)?;
    Some(Disk { operations_per_s: operations, mb_per_s: large * LARGE as f64 / 1e6 })
}

/// `bytes` bytes aligned to a page, and the buffer that they are in.
fn aligned(buffer: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    buffer.resize(bytes + PAGE, 0x5a);
    let skip = buffer.as_ptr().align_offset(PAGE);
    &mut buffer[skip..skip + bytes]
}

/// Fills the file. Returns the number of bytes that were written in the time for this part.
fn write(file: &File) -> Option<usize> {
    let (mut buffer, began) = (Vec::new(), Instant::now());
    let bytes = aligned(&mut buffer, LARGE);
    let mut at = 0;
    while at < FILE_BYTES && (at == 0 || began.elapsed() < PART) {
        file.write_all_at(bytes, at as u64).ok()?;
        at += LARGE;
    }
    Some(at)
}

/// Reads pieces of the first `written` bytes of the file, by `depth` threads. Returns the number of
/// reads each second.
fn reads_per_s(file: &File, piece: usize, written: usize, depth: usize) -> Option<f64> {
    let (began, reads) = (Instant::now(), AtomicU64::new(0));
    let pieces = (written / piece) as u64;
    let read = || {
        let mut buffer = Vec::new();
        let bytes = aligned(&mut buffer, piece);
        while began.elapsed() < PART {
            // The places are in no order: each is Knuth's multiplicative hash of the number.
            let number = reads.fetch_add(1, Relaxed);
            let at = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % pieces * piece as u64;
            file.read_exact_at(bytes, at).ok()?;
        }
        Some(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..depth).map(|_| scope.spawn(read)).collect();
        threads.into_iter().map(|thread| thread.join().ok().flatten()).collect::<Option<Vec<_>>>()
    })?;
    Some(reads.into_inner() as f64 / began.elapsed().as_secs_f64())
}

/// Adds the disk's speed to the check of a store.
pub(super) fn check(store: Check, disk: Disk) -> Check {
    let Disk { operations_per_s, mb_per_s } = disk;
    let slow = if operations_per_s < FEW { ": programs that touch scattered data will be slow" } else { "" };
    let found = format!(
        "{}; this disk: {operations_per_s:.0} operations a second at 4 KiB, {mb_per_s:.0} MB/s{slow}",
        store.found
    );
    debug_assert!(store.status != Status::Failure, "a store that cannot be used is not measured");
    Check { found, disk: Some(disk), ..store }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_with_few_operations_is_called_slow() {
        let found = |operations_per_s| {
            let disk = Disk { operations_per_s, mb_per_s: 125.0 };
            check(Check::ok("store", "/a takes direct I/O"), disk).found
        };
        let slow = "/a takes direct I/O; this disk: 3000 operations a second at 4 KiB, 125 MB/s: programs \
                    that touch scattered data will be slow";
        assert_eq!(found(3000.0), slow);
        assert!(found(200_000.0).ends_with("125 MB/s"));
    }

    #[test]
    fn a_directory_is_measured_and_stays_empty() {
        let place = tempfile::tempdir().unwrap();
        let Some(disk) = measure(place.path()) else {
            assert!(!matches!(terapage_store::takes_direct_io(place.path()), Ok(true)));
            return eprintln!("SKIPPED: no direct I/O");
        };
        assert!(disk.operations_per_s > 0.0 && disk.mb_per_s > 0.0, "{disk:?}");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
