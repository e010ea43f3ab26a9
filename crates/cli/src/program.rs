//! The program to run: where it is, and whether it can be paged.

use rustix::fs::{Access, access};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Why a program cannot be run.
#[derive(Debug, PartialEq, Eq)]
pub enum Missing {
    /// There is no such file.
    NotFound,
    /// There is one, or something on the way to it, and it is no executable.
    NotExecutable,
}

/// Finds `program` as a shell would: by its path when it has a slash, else in `path`.
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
            // What stands in PATH and is no directory is passed over.
            Err(error) if error.kind() == ErrorKind::NotADirectory && by_name => {}
            _ => missing = Missing::NotExecutable,
        }
    }
    Err(missing)
}

/// Why the memory of the program at `path` could not be paged, if that can be seen. A script is
/// judged by its interpreter.
pub fn cannot_be_paged(path: &Path) -> Option<&'static str> {
    let mut path = path.to_owned();
    for _ in 0..4 {
        let file = File::open(&path).ok()?;
        let mut head = Vec::new();
        (&file).take(256).read_to_end(&mut head).ok()?;
        match interpreter(&head) {
            Some(interpreter) => path = interpreter,
            None => return unpageable(&head, &file).or_else(|| privileged(&path, &file)),
        }
    }
    None
}

/// The interpreter that the first line of a script names.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?.trim_ascii();
    let path = line.split(|b| b" \t".contains(b)).next()?;
    (!path.is_empty()).then(|| OsStr::from_bytes(path).into())
}

/// What of an executable's format keeps the library out.
fn unpageable(head: &[u8], file: &File) -> Option<&'static str> {
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    match head.get(4) {
        Some(1) => return Some("a 32-bit executable"),
        Some(2) => {}
        _ => return None,
    }
    let little = head.get(5) == Some(&1);
    (little && !has_interpreter(head, file)?).then_some("a static executable")
}

/// Whether a 64-bit little-endian ELF file asks for the dynamic loader.
fn has_interpreter(head: &[u8], file: &File) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
    let table = u64::from_le_bytes(head.get(32..40)?.try_into().ok()?);
    let (size, count) = (u64::from(half(54)?), u64::from(half(56)?));
    for i in 0..count {
        let mut kind = [0; 4];
        file.read_exact_at(&mut kind, table.checked_add(i * size)?).ok()?;
        if u32::from_le_bytes(kind) == PT_INTERP {
            return Some(true);
        }
    }
    Some(false)
}

/// Whether the loader will not load foreign libraries because the program gains rights.
fn privileged(path: &Path, file: &File) -> Option<&'static str> {
    let found = file.metadata().ok()?;
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    if found.mode() & libc::S_ISUID != 0 && found.uid() != user.as_raw() {
        return Some("a set-user-id executable");
    }
    if found.mode() & libc::S_ISGID != 0 && found.gid() != group.as_raw() {
        return Some("a set-group-id executable");
    }
    let mut value = [0u8; 64];
    let capable = rustix::fs::getxattr(path, "security.capability", &mut value).is_ok();
    (capable && !user.is_root()).then_some("an executable with file capabilities")
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

    /// An ELF file with one program header of kind `kind`.
    fn elf(class: u8, kind: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes[64..68].copy_from_slice(&kind.to_le_bytes());
        bytes
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
    fn what_cannot_be_paged_is_told() {
        let here = tempfile::tempdir().unwrap();
        let judge = |bytes: &[u8]| cannot_be_paged(&write(here.path(), "program", bytes));
        assert_eq!(judge(&elf(2, 3)), None);
        assert_eq!(judge(&elf(2, 1)), Some("a static executable"));
        assert_eq!(judge(&elf(1, 3)), Some("a 32-bit executable"));
        assert_eq!(judge(b"\x7fELF\x02\x01"), None);
        assert_eq!(judge(b"echo"), None);
        let interpreter = write(here.path(), "interpreter", &elf(2, 1));
        let script = format!("#! {} -x\necho\n", interpreter.display());
        assert_eq!(judge(script.as_bytes()), Some("a static executable"));
        let itself = here.path().join("program");
        assert_eq!(judge(format!("#!{}\n", itself.display()).as_bytes()), None);
        assert_eq!(cannot_be_paged(Path::new("/nonexistent")), None);
    }
}
