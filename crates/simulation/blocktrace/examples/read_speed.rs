//! How fast traces are read:
//! `cargo run --release -p terapage-blocktrace --example read_speed -- [REQUESTS]`.
//!
//! Makes requests, writes them in each format and compression into memory, and reads them again,
//! three times each.

use std::io::{Cursor, Write};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use terapage_blocktrace::{Compression, Format, Kind, Options, Request, Writer, WriterOptions, read};

/// Requests like a file server's: a quarter sequential, offsets over 16 GiB, times that MSR's
/// format can hold.
fn requests(count: u64) -> impl Iterator<Item = Request> {
    let (mut state, mut time_ns, mut offset) = (42u64, 0, 0);
    (0..count).map(move |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let random = state >> 24;
        time_ns += (random % 20_000) * 100;
        let bytes = 512 << (random % 8);
        if !random.is_multiple_of(4) {
            offset = (random >> 3) % (16 << 30) / 4096 * 4096;
        }
        let kind = if random.is_multiple_of(3) { Kind::Read } else { Kind::Write };
        offset += u64::from(bytes);
        Request { time_ns, offset, bytes, volume: 0, kind }
    })
}

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("one thread").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: u64 = std::env::args().nth(1).map_or(Ok(2_000_000), |text| text.parse())?;
    println!("{:<13} {:<6} {:>9} {:>10} {:>12}", "format", "", "bytes/req", "write M/s", "read M/s");
    let packings = [None, Some(Compression::Gzip), Some(Compression::Zstd), Some(Compression::Xz)];
    for format in Format::ALL.into_iter().filter(|format| format.is_written()) {
        for compression in packings.into_iter().take(if format == Format::Msr { 4 } else { 1 }) {
            // xz takes long to write.
            let part = if compression == Some(Compression::Xz) { 8 } else { 1 };
            measure(format, compression, count / part)?;
        }
    }
    Ok(())
}

fn measure(
    format: Format,
    compression: Option<Compression>,
    count: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    let memory = Memory::default();
    let options = WriterOptions { lossy: true, ..WriterOptions::default() };
    let start = Instant::now();
    let mut writer = Writer::to("memory", memory.clone(), compression, format, &options)?;
    for request in requests(count) {
        writer.write(&request, "hm_0")?;
    }
    writer.finish()?;
    let write_rate = count as f64 / start.elapsed().as_secs_f64() / 1e6;
    let bytes = std::mem::take(&mut *memory.0.lock().expect("one thread"));
    let per_request = bytes.len() as f64 / count as f64;
    let mut rates = Vec::new();
    for _ in 0..3 {
        let input = Cursor::new(bytes.clone());
        let start = Instant::now();
        let mut sum = 0u64;
        for request in read("memory", input, &Options::default())? {
            sum = sum.wrapping_add(request?.offset);
        }
        std::hint::black_box(sum);
        rates.push(count as f64 / start.elapsed().as_secs_f64() / 1e6);
    }
    rates.sort_by(f64::total_cmp);
    let packing = compression.map_or(String::new(), |packing| format!("{packing:?}").to_lowercase());
    let (slowest, fastest) = (rates[0], rates[2]);
    println!("{format:<13} {packing:<6} {per_request:>9.1} {write_rate:>10.1} {slowest:>5.1}-{fastest:.1}");
    Ok(())
}
