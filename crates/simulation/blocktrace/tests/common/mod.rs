//! Helpers of several tests.
#![allow(dead_code)]

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use terapage_blocktrace::{Compression, Format, Kind, Losses, Options, Request, Writer, WriterOptions, read};
use terapage_figures::SplitMix;

/// The folder of real traces; `None`, with a message, if there is none.
pub fn traces() -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/traces");
    let folder = std::env::var_os("TERAPAGE_TRACES").map_or(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no real traces in {} (TERAPAGE_TRACES names the folder)", folder.display());
    None
}

/// A buffer that can be read after the writer has moved away.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes requests; `name` names the volumes.
pub fn written(
    requests: &[Request],
    format: Format,
    compression: Option<Compression>,
    options: &WriterOptions,
    name: impl Fn(u16) -> String,
) -> Result<(Vec<u8>, Losses), String> {
    let target = Shared::default();
    let writer = Writer::to("target", target.clone(), compression, format, options);
    let mut writer = writer.map_err(|error| error.to_string())?;
    for request in requests {
        writer.write(request, &name(request.volume)).map_err(|error| error.to_string())?;
    }
    let losses = writer.finish().map_err(|error| error.to_string())?;
    Ok((target.bytes(), losses))
}

/// Reads a whole trace.
pub fn all(bytes: &[u8], options: &Options) -> Result<Vec<Request>, String> {
    let reader =
        read("bytes", std::io::Cursor::new(bytes.to_vec()), options).map_err(|error| error.to_string())?;
    reader.map(|request| request.map_err(|error| error.to_string())).collect()
}

/// Requests that fit into every format, except for the format's own losses: whole sectors, times
/// from 0.
pub fn requests(
    random: &mut SplitMix,
    count: usize,
    volumes: u16,
    tick_ns: u64,
    trims: bool,
) -> Vec<Request> {
    let (mut time_ns, mut seen) = (0, 0);
    let mut requests = Vec::new();
    for number in 0..count {
        time_ns += if number == 0 { 0 } else { random.next() % 5_000 * tick_ns };
        // Volumes are numbered in the order in which they appear.
        let volume = random.index(usize::from(seen + 1).min(usize::from(volumes))) as u16;
        seen = seen.max(volume + 1);
        let kind = match random.index(if trims { 3 } else { 2 }) {
            0 => Kind::Read,
            1 => Kind::Write,
            _ => Kind::Trim,
        };
        let offset = (random.next() >> (20 + random.index(30))) / 512 * 512;
        let bytes = (1 + random.index(64) as u32) * 512;
        requests.push(Request { time_ns, offset, bytes, volume, kind });
    }
    requests
}
