//! Whether a run did its work: its status, its clock, the files that it writes.

use crate::contender::run::Run;
use crate::ground::runner::End;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// How a run ended, if the program ends with `status` after its work.
pub fn judged(end: End, code: Option<i32>, status: i32) -> End {
    match (&end, code) {
        (End::Failed(_), Some(code)) if status != 0 && code == status => End::Done,
        (End::Done, Some(code)) if code != status => {
            End::Failed(format!("exit status: {code}, not {status}"))
        }
        _ => end,
    }
}

/// A statement of the program's own clock that is possible only if somebody set the clock
/// meanwhile.
pub fn impossible(run: &Run) -> Option<String> {
    let wrong = run.passes.iter().find(|pass| !pass.seconds.is_finite() || pass.seconds <= 0.0)?;
    Some(format!(
        "its pass {} took {} s by its own clock, which was set meanwhile or does not work",
        wrong.pass, wrong.seconds
    ))
}

/// The values that show whether a file was rewritten: its number, its time, its length.
pub type Stamp = Option<(u64, i64, i64, u64)>;

/// The stamp of each file; `None` if the file does not exist.
pub fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let stamp = |path: &PathBuf| {
        let found = fs::metadata(path).ok()?;
        Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
    };
    paths.iter().map(stamp).collect()
}

/// A hash of the files that the program has written.
///
/// # Errors
/// A file was not written, or cannot be read.
pub fn written(paths: &[PathBuf], before: &[Stamp]) -> Result<String, String> {
    let mut text = String::new();
    for ((path, before), after) in paths.iter().zip(before).zip(stamps(paths)) {
        if after.is_none() || after == *before {
            return Err(format!("it did not write {}", path.display()));
        }
        let hash = hash_of(path).map_err(|error| format!("{}: {error}", path.display()))?;
        text += &format!(" {hash:032x}");
    }
    Ok(text)
}

fn hash_of(path: &Path) -> std::io::Result<u128> {
    use std::io::Read;
    let mut file = File::open(path)?;
    let mut hasher = twox_hash::xxhash3_128::Hasher::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hasher.finish_128()),
            count => hasher.write(&piece[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{stamps, written};
    use std::fs;

    #[test]
    fn a_file_that_was_not_written_is_noticed() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("out");
        let paths = [path.clone()];
        let before = stamps(&paths);
        assert!(written(&paths, &before).is_err());
        fs::write(&path, "one").expect("a file");
        let one = written(&paths, &before).expect("written");
        let before = stamps(&paths);
        assert!(written(&paths, &before).expect_err("stale").contains("did not write"));
        fs::write(&path, "other").expect("a file");
        assert_ne!(written(&paths, &before).expect("written"), one);
    }
}
