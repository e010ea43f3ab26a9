//! fio with the same accesses to the same file, as a cross-check of the lab's own reads and writes.
//!
//! fio does more than the lab's loop for each call, and after a system call its larger code and
//! data are cold. If a call itself takes a microsecond, as with 4 KiB from the page cache, that is
//! a tenth of the figure or more. So fio's own work is measured as well: the time of a call of fio
//! on a device that does nothing, less the time of the same call of the lab. fio's figure without
//! this work is the pass `less-own-work`, which must agree with the lab's.

use crate::workload::fio::{self, Pattern};
use crate::workload::raw::{Buffer, HUGE, Meter, Places, Raw, depth, is_right};
use crate::workload::{Pass, Said};
use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The number of calls by which fio's own work is measured: about 50 ms, which fio's clock measures
/// in whole milliseconds.
const CALLS: u64 = 200_000;

/// Bytes of a call that reads a block.
const BLOCK: u64 = 4096;

/// An engine of fio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// pread and pwrite.
    Psync,
    /// Copies to and from a mapping.
    Mmap,
    /// io_uring.
    IoUring,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Engine::Psync => "psync",
            Engine::Mmap => "mmap",
            Engine::IoUring => "io_uring",
        }
    }

    fn depth(self, block: u64) -> u32 {
        if self == Engine::IoUring { depth(block) as u32 } else { 1 }
    }
}

/// Runs fio, and prints its figures, and the figures without its own work. fio's mmap engine sets
/// MADV_RANDOM or MADV_SEQUENTIAL, and syncs only if an option asks for it.
///
/// # Errors
/// When fio fails.
pub fn run(raw: &Raw, engine: Engine, bytes: u64, meter: &Meter) -> anyhow::Result<()> {
    let writes = raw.pattern.writes();
    let pattern = pattern(raw, engine, "io", raw.block);
    let mut words = common(engine, raw.method.is_direct(), raw.block);
    words.extend([
        format!("--filename={}", raw.file.display().to_string().replace(':', "\\:")),
        format!("--size={bytes}"),
        format!("--rw={}", pattern.rw),
        sizes(raw.block, writes, raw.method.is_direct()),
        format!("--runtime={}ms", raw.milliseconds.max(1)),
    ]);
    words.push(match raw.laps() {
        Some(laps) => format!("--io_size={}", bytes.saturating_mul(laps)),
        None => "--time_based".into(),
    });
    let before = meter.now();
    let mut pass = fio::here(&words, &pattern)?;
    pass.device_bytes = meter.since_by_child(&before, writes);
    println!("{}", serde_json::to_string(&pass)?);
    if writes {
        // fio has written its own bytes.
        fs::remove_file(&raw.file)?;
    }
    if engine == Engine::IoUring {
        // The device does not wait for this work.
        return Ok(());
    }
    let own_s = own_work(raw, engine)?;
    let calls = pass.bytes / raw.block;
    Said::Raw(format!("fio's own work: {:.0} ns of each of {calls} calls", own_s * 1e9)).print()?;
    if let Some(pass) = without(&pass, own_s * calls as f64) {
        println!("{}", serde_json::to_string(&pass)?);
    }
    Ok(())
}

/// A pass with some of its time subtracted; none if nothing would be left.
fn without(pass: &Pass, seconds: f64) -> Option<Pass> {
    let left = pass.seconds - seconds;
    (left > 0.0).then(|| Pass { pass: "less-own-work".into(), seconds: left, ..pass.clone() })
}

fn pattern<'a>(raw: &Raw, engine: Engine, pass: &'a str, block: u64) -> Pattern<'a> {
    Pattern {
        pass,
        rw: raw.pattern.name_of_fio(),
        read_percent: if raw.pattern.writes() { 0 } else { 100 },
        block,
        depth: engine.depth(block),
        words: false,
        seconds: None,
    }
}

/// The sizes of fio's reads and writes. For a device, its buffers must lie in huge pages, as the
/// lab's do. glibc uses huge pages for memory of at least a huge page. So the size of the other
/// direction, which does no I/O, is at least a huge page: fio's buffers have the larger of the two
/// sizes.
fn sizes(block: u64, writes: bool, direct: bool) -> String {
    let other = if direct { block.max(HUGE as u64) } else { block };
    match writes {
        true => format!("--bs={other},{block}"),
        false => format!("--bs={block},{other}"),
    }
}

/// fio's options for all reads and writes.
fn common(engine: Engine, direct: bool, block: u64) -> Vec<String> {
    let depth = engine.depth(block);
    let mut words: Vec<String> = [
        "--name=terapage-lab",
        "--output-format=json",
        // The page cache keeps its contents, as for the other ways, and no advice is given.
        "--invalidate=0",
        "--fadvise_hint=0",
        "--norandommap",
        "--overwrite=1",
        // Only the whole time is of interest; otherwise fio reads the clock, and changes a buffer,
        // for each call.
        "--gtod_reduce=1",
        "--scramble_buffers=0",
    ]
    .map(str::to_owned)
    .to_vec();
    words.extend([
        format!("--ioengine={}", engine.name()),
        format!("--direct={}", u8::from(direct)),
        format!("--iodepth={depth}"),
    ]);
    if !direct {
        // Whole pages, as the lab's buffers are.
        words.push("--iomem=shm".into());
    }
    if depth > 1 {
        // As in the lab: completions are taken at once, and the same number of requests is
        // submitted by one call.
        words.extend([
            format!("--iodepth_batch_submit={depth}"),
            format!("--iodepth_batch_complete_max={depth}"),
        ]);
    }
    words
}

/// The seconds of each call that fio spends in addition to the lab: measured on devices that do
/// nothing, or, if the engine makes no calls, with fio's engine that does nothing.
fn own_work(raw: &Raw, engine: Engine) -> anyhow::Result<f64> {
    let (rw, writes) = (raw.pattern.name_of_fio(), raw.pattern.writes());
    let mut words = common(engine, false, raw.block);
    let idle = match engine {
        Engine::Mmap => {
            words.push("--ioengine=null".into());
            None
        }
        _ => Some(Path::new(if writes { "/dev/null" } else { "/dev/zero" })),
    };
    words.extend([
        format!("--filename={}", idle.unwrap_or(Path::new("nothing")).display()),
        format!("--size={}", CALLS * BLOCK),
        format!("--rw={rw}"),
        format!("--bs={BLOCK}"),
    ]);
    let theirs = fio::here(&words, &pattern(raw, engine, "own", BLOCK))?;
    let ours = ours(idle, writes)?;
    // On a busy machine the lab's calls may have taken longer than fio's.
    Ok((theirs.seconds - ours.as_secs_f64()).max(0.0) / CALLS as f64)
}

/// The time of the same number of calls by the lab.
fn ours(idle: Option<&Path>, writes: bool) -> anyhow::Result<Duration> {
    let open = |path| -> std::io::Result<File> { OpenOptions::new().read(!writes).write(writes).open(path) };
    let file = idle.map(open).transpose()?;
    let mut buffer = Buffer::new(BLOCK as usize)?;
    let mut places = Places::new(CALLS * BLOCK, BLOCK, true, 1, Some(1));
    let start = Instant::now();
    while let Some(offset) = places.next().filter(|_| start.elapsed() < Duration::MAX) {
        let buffer = buffer.slice();
        match &file {
            Some(file) if writes => file.write_all_at(buffer, offset)?,
            Some(file) => file.read_exact_at(buffer, offset)?,
            None => {}
        }
        black_box(is_right(black_box(buffer), offset));
    }
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::{ours, sizes, without};
    use crate::workload::Pass;
    use std::path::Path;

    #[test]
    fn own_work_is_taken_off_the_time_alone() {
        let pass =
            Pass { pass: "io".into(), seconds: 2.0, bytes: 4096, device_bytes: Some(7), ..Pass::default() };
        let less = without(&pass, 0.5).expect("1.5 s are left");
        assert_eq!((less.pass.as_str(), less.seconds, less.bytes), ("less-own-work", 1.5, 4096));
        assert_eq!(less.device_bytes, Some(7));
        assert!(without(&pass, 2.0).is_none());
    }

    #[test]
    fn buffers_for_a_device_are_huge_and_blocks_stay_as_they_are() {
        assert_eq!(sizes(65536, false, true), "--bs=65536,2097152");
        assert_eq!(sizes(65536, true, true), "--bs=2097152,65536");
        assert_eq!(sizes(4 << 20, false, true), "--bs=4194304,4194304");
        assert_eq!(sizes(4096, true, false), "--bs=4096,4096");
    }

    #[test]
    fn calls_of_devices_that_do_nothing_can_be_timed() {
        for (path, writes) in [(Some("/dev/zero"), false), (Some("/dev/null"), true), (None, false)] {
            assert!(!ours(path.map(Path::new), writes).expect("calls").is_zero());
        }
    }
}
