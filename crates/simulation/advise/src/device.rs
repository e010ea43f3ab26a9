//! The device under the store: the cost of a single read, and the bytes that it transfers per
//! second.

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;
use terapage_config::Size;

/// Bytes of the file for the measurement. Chosen, not measured, like the numbers up to `ALIGN`.
const FILE_BYTES: u64 = 128 << 20;
/// Requests in flight for bandwidth.
const DEPTH: usize = 8;
/// Bytes of a request for bandwidth.
const PIECE: usize = 1 << 20;
/// Request sizes whose latency is measured.
const SIZES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Reads of each size.
const READS: u64 = 200;
/// Two measurements agree if they differ by less than this share.
const AGREEMENT: f64 = 0.15;
/// The most measurements of a device.
const MEASUREMENTS_MAX: usize = 5;
/// Direct I/O needs memory and offsets in multiples of this.
const ALIGN: usize = 4096;

/// Why the speed of a device is not known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text does not describe a device.
    #[error("'{text}': {why} (write latency=80us,read=1800M,write=1600M)")]
    Text {
        /// What was written.
        text: String,
        /// What is wrong.
        why: String,
    },
    /// The device cannot be measured.
    #[error("the store {} cannot be measured: {cause} (name another --store, or give its speed: \
             --device latency=80us,read=1800M,write=1600M)", path.display())]
    Measure {
        /// The store.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
}

/// The speed of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// What it is.
    pub name: String,
    /// Whether it was measured here; otherwise the user or the docs state it.
    pub measured: bool,
    /// Pairs of a request size in bytes and the time of a single read in microseconds, sizes
    /// ascending.
    pub latency_us: Vec<(u64, f64)>,
    /// Bytes a second, many reads in flight.
    pub read_bytes_s: f64,
    /// Bytes a second, many writes in flight.
    pub write_bytes_s: f64,
}

impl Device {
    /// A device of `latency_us` for a small read.
    pub fn stated(name: &str, latency_us: f64, read_bytes_s: f64, write_bytes_s: f64) -> Device {
        let latency_us = vec![(0, latency_us)];
        Device { name: name.to_owned(), measured: false, latency_us, read_bytes_s, write_bytes_s }
    }

    /// Microseconds of a single read of `bytes`.
    pub fn latency_us(&self, bytes: u64) -> f64 {
        let per_byte = 1e6 / self.read_bytes_s;
        let Some(&(first_bytes, first_us)) = self.latency_us.first() else { return bytes as f64 * per_byte };
        let mut before = (first_bytes, first_us);
        if bytes < first_bytes {
            return first_us;
        }
        for &(size, us) in &self.latency_us {
            if bytes <= size {
                let share = (bytes - before.0) as f64 / (size - before.0).max(1) as f64;
                return before.1 + share * (us - before.1);
            }
            before = (size, us);
        }
        before.1 + (bytes - before.0) as f64 * per_byte
    }

    /// Measures the file system of a directory until two measurements agree: about half a second
    /// each, with 128 MiB of a file without a name. If none agree, it also says why the last one
    /// cannot be trusted.
    ///
    /// # Errors
    /// Errors of the operating system, or a store that is not a directory.
    pub fn measure(directory: &Path) -> Result<(Device, Option<String>), Error> {
        let failed = |cause| Error::Measure { path: directory.to_owned(), cause };
        if !directory.is_dir() {
            return Err(failed(io::Error::other(
                "it is not a directory, and the measurement would \
                                                overwrite it",
            )));
        }
        settle(|| measure(directory)).map_err(failed)
    }

    /// Whether two measurements are about the same.
    fn agrees(&self, other: &Device) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() <= AGREEMENT * a.min(b);
        near(self.latency_us(16 << 10), other.latency_us(16 << 10))
            && near(self.read_bytes_s, other.read_bytes_s)
    }
}

/// Measures until two in a row agree, and returns the quicker one: the slower one was disturbed.
fn settle(mut once: impl FnMut() -> io::Result<Device>) -> io::Result<(Device, Option<String>)> {
    let quicker = |a: Device, b: Device| if a.latency_us(16 << 10) <= b.latency_us(16 << 10) { a } else { b };
    let (mut last, mut best) = (once()?, None::<Device>);
    for _ in 1..MEASUREMENTS_MAX {
        let next = once()?;
        if next.agrees(&last) {
            return Ok((quicker(last, next), None));
        }
        best = Some(best.map_or_else(|| last.clone(), |best| quicker(best, last.clone())));
        last = next;
    }
    let why = format!(
        "the device of {} was measured {MEASUREMENTS_MAX} times, each time with another result",
        last.name
    );
    Ok((best.map_or_else(|| last.clone(), |best| quicker(best, last.clone())), Some(why)))
}

fn measure(directory: &Path) -> io::Result<Device> {
    let nameless = tempfile::tempfile_in(directory)?;
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(format!("/proc/self/fd/{}", nameless.as_raw_fd()))?;
    // 1. Bandwidth: the first writes allocate the blocks of the file, the second ones count.
    pass(&file, true)?;
    let write_bytes_s = pass(&file, true)?;
    let read_bytes_s = pass(&file, false)?;
    // 2. Latencies at seeded places.
    let mut latency_us = Vec::new();
    let mut seed = 1u64;
    for size in SIZES {
        let mut buffer = Aligned::new(size);
        let mut times = Vec::new();
        for _ in 0..READS.min(4 * FILE_BYTES / size as u64) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let place = (seed >> 33) % (FILE_BYTES / size as u64) * size as u64;
            let start = Instant::now();
            file.read_exact_at(buffer.bytes(), place)?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        // The mean, since that is the cost of many reads. Outliers are caused by the machine, not
        // the device.
        times.sort_by(f64::total_cmp);
        times.truncate(times.len() * 99 / 100);
        latency_us.push((size as u64, times.iter().sum::<f64>() / times.len() as f64));
    }
    let name = directory.display().to_string();
    Ok(Device { name, measured: true, latency_us, read_bytes_s, write_bytes_s })
}

/// Bytes per second of one pass over the file with several requests in flight.
fn pass(file: &File, write: bool) -> io::Result<f64> {
    let start = Instant::now();
    let pieces = FILE_BYTES as usize / PIECE;
    let results = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..DEPTH)
            .map(|worker| {
                scope.spawn(move || {
                    let mut buffer = Aligned::new(PIECE);
                    (worker..pieces).step_by(DEPTH).try_for_each(|piece| {
                        let at = (piece * PIECE) as u64;
                        if write {
                            file.write_all_at(buffer.bytes(), at)
                        } else {
                            file.read_exact_at(buffer.bytes(), at)
                        }
                    })
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect::<Vec<_>>()
    });
    results.into_iter().collect::<io::Result<()>>()?;
    Ok(FILE_BYTES as f64 / start.elapsed().as_secs_f64())
}

/// Memory for direct I/O. It does not hold zeros, which some devices do not write.
struct Aligned {
    bytes: Vec<u8>,
    from: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let bytes: Vec<u8> = (0..len + ALIGN).map(|at| (at.wrapping_mul(0x9e37) >> 4) as u8 | 1).collect();
        let from = bytes.as_ptr().align_offset(ALIGN);
        Aligned { bytes, from, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.len]
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Device, Error> {
        let no = |why: String| Error::Text { text: text.escape_debug().to_string(), why };
        let (mut latency, mut read, mut write) = (None, None, None);
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(|| no(format!("'{part}' has no '='")))?;
            let rate = || -> Result<f64, Error> {
                let size: Size = value
                    .trim_end_matches("/s")
                    .parse()
                    .map_err(|_| no(format!("{key}: '{value}' is not a number of bytes")))?;
                if size.0 == 0 { Err(no(format!("{key} is 0"))) } else { Ok(size.0 as f64) }
            };
            match key.trim() {
                "latency" => {
                    latency = Some(microseconds(value).ok_or_else(|| {
                        no(format!(
                            "'{value}' is not \
                                                                                 a time"
                        ))
                    })?)
                }
                "read" => read = Some(rate()?),
                "write" => write = Some(rate()?),
                other => return Err(no(format!("'{other}' is unknown"))),
            }
        }
        let missing = |what: &str| no(format!("{what} is missing"));
        Ok(Device::stated(
            "stated",
            latency.ok_or_else(|| missing("latency"))?,
            read.ok_or_else(|| missing("read"))?,
            write.ok_or_else(|| missing("write"))?,
        ))
    }
}

/// `80us`, `1.2ms`, `900ns`, in microseconds.
fn microseconds(text: &str) -> Option<f64> {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let number: f64 = text[..at].parse().ok()?;
    let us = match &text[at..] {
        "ns" => number / 1e3,
        "us" => number,
        "ms" => number * 1e3,
        "s" => number * 1e6,
        _ => return None,
    };
    (us.is_finite() && us > 0.0).then_some(us)
}

#[cfg(test)]
mod tests {
    use super::Device;

    #[test]
    fn devices_are_read_as_they_are_written() {
        let device: Device = "latency=80us,read=1800M,write=1G/s".parse().unwrap();
        assert_eq!(device.latency_us(0), 80.0);
        assert_eq!(device.write_bytes_s, f64::from(1 << 30));
        let of_1800k = device.latency_us(1800 << 10);
        assert!((of_1800k - (80.0 + 1e6 / 1024.0)).abs() < 1e-6, "{of_1800k}");
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (text, part) in [
            ("", "has no '='"),
            ("latency=80us,read=1G", "write is missing"),
            ("latency=80,read=1G,write=1G", "'80' is not a time"),
            ("latency=-1us,read=1G,write=1G", "is not a time"),
            ("latency=1us,read=0,write=1G", "read is 0"),
            ("latency=1us,read=1G,write=fast", "write: 'fast'"),
            ("speed=1", "'speed' is unknown"),
        ] {
            let error = text.parse::<Device>().unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn devices_are_measured_until_two_agree() {
        let run = |latencies: &[f64]| {
            let mut latencies = latencies.iter().cycle();
            super::settle(|| Ok(Device::stated("d", *latencies.next().unwrap(), 1e9, 1e9))).unwrap()
        };
        let (device, trouble) = run(&[300.0, 90.0, 84.0]);
        assert_eq!((device.latency_us[0].1, trouble), (84.0, None));
        let (device, trouble) = run(&[300.0, 90.0]);
        assert!(device.latency_us[0].1 == 90.0 && trouble.unwrap().contains("5 times"));
    }

    #[test]
    fn latency_lies_between_what_was_measured() {
        let latency_us = vec![(4096, 30.0), (16384, 50.0)];
        let device =
            Device { name: String::new(), measured: true, latency_us, read_bytes_s: 1e9, write_bytes_s: 1e9 };
        assert_eq!(device.latency_us(1024), 30.0);
        assert_eq!(device.latency_us(10240), 40.0);
        assert!((device.latency_us(16384 + 1000) - 51.0).abs() < 1e-9);
    }
}
