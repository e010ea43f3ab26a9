//! The program to run: where it is, and whether it can be paged.

use rustix::fs::{Access, access};
use std::ffi::{CString, OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use terapage_sys::executable::{self, FirstLine, Why};

/// Why a program cannot be run.
#[derive(Debug, PartialEq, Eq)]
pub enum Missing {
    /// No file has this name.
    NotFound,
    /// There is a file, or something else on the path to it, but no executable.
    NotExecutable,
}

/// Finds `program` as a shell does: by its path if it has a slash, otherwise in `path`.
pub fn find(program: &OsStr, path: Option<OsString>) -> Result<PathBuf, Missing> {
    let by_name = !program.as_bytes().contains(&b'/');
    let candidates: Vec<PathBuf> = if !by_name {
        vec![program.into()]
    } else if program.is_empty() {
        Vec::new()
    } else {
        let path = path.unwrap_or_else(|| "/bin:/usr/bin".into());
        std::env::split_paths(&path).map(|directory| Path::new(".").join(directory).join(program)).collect()
    };
    let mut missing = Missing::NotFound;
    for candidate in candidates {
        match candidate.metadata() {
            Ok(found) if found.is_file() && access(&candidate, Access::EXEC_OK).is_ok() => {
                return Ok(candidate);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // Entries of PATH that are not directories are skipped.
            Err(error) if error.kind() == ErrorKind::NotADirectory && by_name => {}
            // So are directories that this user may not search.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && by_name => {}
            _ => missing = Missing::NotExecutable,
        }
    }
    Err(missing)
}

/// Why the program at `path` cannot be paged, if its files show that, and the files that were
/// inspected: for a script, also its interpreter.
pub fn judge(path: &Path) -> (Option<Why>, Vec<PathBuf>) {
    let mut files = Vec::new();
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return (None, files) };
    let why = executable::cannot_be_paged(&path, &mut |file| {
        files.push(OsStr::from_bytes(file.to_bytes()).into());
    });
    (why, files)
}

/// The same for a program that would be guarded.
pub fn judge_guarded(path: &Path) -> (Option<Why>, Vec<PathBuf>) {
    let (why, files) = judge(path);
    let last = files.last().and_then(|file| CString::new(file.as_os_str().as_bytes()).ok());
    (last.and_then(|file| executable::cannot_be_guarded(&file)).or(why), files)
}

/// Whether the program at `path`, which could be paged, or the interpreter that it names as a
/// script, is a dynamic executable that the host can load.
pub fn is_dynamic(path: &Path) -> bool {
    let (_, files) = judge(path);
    let last = files.last().and_then(|file| CString::new(file.as_os_str().as_bytes()).ok());
    files.len() <= 2 && last.is_some_and(|file| executable::is_elf(&file))
}

/// The words that a script's interpreter gets before the script's own arguments: the interpreter's
/// name first, and the script's path last. `None` if the program is no script.
pub fn first_line(path: &Path) -> Option<Vec<OsString>> {
    let line = FirstLine::of(&CString::new(path.as_os_str().as_bytes()).ok()?)?;
    let words = [Some(line.interpreter()), line.argument()].into_iter().flatten();
    let words = words.map(|word| OsStr::from_bytes(word.to_bytes()).to_owned());
    Some(words.chain([path.into()]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn write(directory: &Path, name: &str, bytes: &[u8]) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn programs_are_found_as_a_shell_does() {
        let here = tempfile::tempdir().unwrap();
        let yes = write(here.path(), "yes", b"");
        std::fs::write(here.path().join("no"), b"").unwrap();
        let find = |name: &str| find(OsStr::new(name), Some(here.path().into()));
        assert_eq!(find("yes").unwrap(), yes);
        assert_eq!(find(yes.to_str().unwrap()).unwrap(), yes);
        assert_eq!(find("no"), Err(Missing::NotExecutable));
        assert_eq!(find("absent"), Err(Missing::NotFound));
        assert_eq!(find(""), Err(Missing::NotFound));
        assert_eq!(find("/tmp"), Err(Missing::NotExecutable));
        assert_eq!(find(yes.join("below").to_str().unwrap()), Err(Missing::NotExecutable));
        let path = std::env::join_paths([yes.as_path(), here.path()]).unwrap();
        assert_eq!(super::find(OsStr::new("absent"), Some(path)), Err(Missing::NotFound));
    }

    #[test]
    fn a_script_is_judged_with_its_interpreter() {
        let here = tempfile::tempdir().unwrap();
        let script = write(here.path(), "script", b"#!/no/such/interpreter\n");
        assert_eq!(judge(&script), (None, vec![script, "/no/such/interpreter".into()]));
    }
}
