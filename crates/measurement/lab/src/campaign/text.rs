//! The file of random lines that `{text}` names, and the hash of a program's output.

use crate::ground::janitor::OwnedFile;
use crate::ground::runner::{self, Stop};
use crate::ground::site::Site;
use anyhow::Context;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::PathBuf;
use terapage_figures::SplitMix;
use twox_hash::xxhash3_128::Hasher;

const MIB: u64 = 1 << 20;

/// A hash of the whole file; `None` if it cannot be read.
///
/// # Errors
/// The lab must stop.
pub fn hash(stop: &Stop, mut file: File) -> Result<Option<u128>, runner::Error> {
    use std::io::Seek;
    let mut hasher = Hasher::new();
    let mut piece = vec![0; MIB as usize];
    if file.rewind().is_err() {
        return Ok(None);
    }
    loop {
        stop.check()?;
        match file.read(&mut piece) {
            Ok(0) => return Ok(Some(hasher.finish_128())),
            Ok(count) => hasher.write(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Ok(None),
        }
    }
}

/// The text, which is made unless an earlier run has left it.
///
/// # Errors
/// It cannot be written, or the lab must stop.
pub fn text(site: &Site, bytes: u64, seed: u64) -> anyhow::Result<PathBuf> {
    let path = site.directory.join(format!("terapage-lab-text-{bytes}-{seed}.txt"));
    if fs::metadata(&path).is_ok_and(|known| known.len() == bytes) {
        return Ok(path);
    }
    // The file has another name until it is complete.
    let path_of_part = site.path("text");
    let made = OwnedFile::create(&site.janitor, path_of_part.clone(), 0o666);
    let (part, file) = made.with_context(|| path_of_part.display().to_string())?;
    let mut file = BufWriter::with_capacity(MIB as usize, file);
    let (mut numbers, mut left) = (SplitMix(seed), bytes);
    let mut line = Vec::new();
    while left > 0 {
        site.stop.check()?;
        // A check of the signals every few thousand lines.
        for _ in 0..4096 {
            random_line(&mut numbers, left, &mut line);
            file.write_all(&line).with_context(|| part.path().display().to_string())?;
            left -= line.len() as u64;
            if left == 0 {
                break;
            }
        }
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    fs::rename(part.path(), &path)?;
    Ok(path)
}

/// A line of 9 to 63 bytes with its end, 36 on average (sort then needs 1.66 GB for 600 MB), and
/// never more than `left`.
fn random_line(numbers: &mut SplitMix, left: u64, line: &mut Vec<u8>) {
    const LETTERS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz-";
    line.clear();
    let length = (8 + numbers.below(55)).min(left - 1);
    let mut bits = 0;
    for i in 0..length {
        if i % 10 == 0 {
            bits = numbers.next();
        }
        line.push(LETTERS[(bits & 63) as usize]);
        bits >>= 6;
    }
    line.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::random_line;
    use terapage_figures::SplitMix;

    #[test]
    fn lines_never_go_past_the_end() {
        let mut line = Vec::new();
        for seed in 0..200 {
            let mut numbers = SplitMix(seed);
            for left in 1..80 {
                random_line(&mut numbers, left, &mut line);
                assert!(line.len() as u64 <= left && line.last() == Some(&b'\n'));
            }
        }
    }
}
