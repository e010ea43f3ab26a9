//! The library that is loaded into the program, and the host.
//!
//! The command for musl has no library to load: the host, in which the library is, pages each
//! program.

use anyhow::{Context, bail};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Whether the host pages each program.
pub const IS_IN_HOST: bool = cfg!(target_env = "musl");

/// The name of the check in `terapage doctor`.
pub const KIND: &str = if IS_IN_HOST { "host" } else { "library" };

const NAME: &str = if IS_IN_HOST { HOST } else { "libterapage_preload.so" };
const HOST: &str = "terapage-host";

/// Finds the library, or the host that it is in: `$TERAPAGE_LIBRARY`, else next to this executable,
/// else in `../lib/terapage` from there. The path is absolute.
pub fn find() -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os("TERAPAGE_LIBRARY").filter(|path| !path.is_empty()) {
        let path = std::path::absolute(&named).context("TERAPAGE_LIBRARY")?;
        if !path.is_file() {
            bail!("TERAPAGE_LIBRARY: {} does not exist (unset it, or name {NAME})", path.display());
        }
        check(&path)?;
        return Ok(path);
    }
    let executable = std::env::current_exe().context("this executable cannot be found")?;
    let directory = executable.parent().unwrap_or(Path::new("/"));
    let candidates = [directory.join(NAME), directory.join("../lib/terapage").join(NAME)];
    match candidates.iter().find(|path| path.is_file()) {
        Some(path) => check(path).map(|()| path.clone()),
        None => bail!(
            "{NAME} was not found, neither as {} nor as {} (install it there, or name it in TERAPAGE_LIBRARY)",
            candidates[0].display(),
            candidates[1].display()
        ),
    }
}

/// The host, which runs programs that load no library: beside the library. `None` if it is not
/// there.
pub fn host(library: &Path) -> Option<PathBuf> {
    Some(library.with_file_name(HOST)).filter(|path| path.is_file())
}

/// The name of the host for musl beside the other host.
#[cfg(target_arch = "x86_64")]
const STATIC_HOST: &str = "terapage-host-musl";

/// The static host, which contains the library: it can be brought into a running program.
#[cfg(target_arch = "x86_64")]
pub fn static_host() -> anyhow::Result<PathBuf> {
    let library = find()?;
    if IS_IN_HOST {
        return Ok(library);
    }
    let host = library.with_file_name(STATIC_HOST);
    if !host.is_file() {
        bail!("{} was not found (tools/static-host builds it; or use the command for musl)", host.display());
    }
    Ok(std::fs::canonicalize(&host).unwrap_or(host))
}

/// The variable that tells the host its program.
pub const HOSTED: &str = "TERAPAGE_HOSTED";

/// Its value. With `required`, the program must not run unpaged; with `guarded`, its calls are
/// guarded.
pub fn hosted(program: &OsStr, required: bool, guarded: bool) -> OsString {
    let flags = [(required, "r"), (guarded, "g")].into_iter().filter(|(is_set, _)| *is_set);
    let mut value = OsString::from(flags.map(|(_, flag)| flag).chain([":"]).collect::<String>());
    value.push(program);
    value
}

/// Whether the loader can load the library: the loader skips a library that it cannot load, and the
/// program would run without paging.
fn check(path: &Path) -> anyhow::Result<()> {
    let mut head = Vec::new();
    let file = File::open(path).with_context(|| format!("{} cannot be loaded", path.display()))?;
    file.take(5).read_to_end(&mut head).with_context(|| path.display().to_string())?;
    if head != b"\x7fELF\x02" {
        bail!(
            "{} cannot be loaded as a library (install {NAME} again, or name it in \
             TERAPAGE_LIBRARY)",
            path.display()
        );
    }
    Ok(())
}

/// `LD_PRELOAD` with the library before its present contents; `None` if it needs no change.
pub fn preload(library: &Path, present: Option<&OsStr>) -> anyhow::Result<Option<OsString>> {
    if IS_IN_HOST {
        return Ok(None);
    }
    let library = library.as_os_str().as_bytes();
    if library.iter().any(|b| b": \t\n".contains(b)) {
        bail!(
            "{}: the loader cannot load a library whose path has a blank or colon (move it)",
            String::from_utf8_lossy(library)
        );
    }
    let mut all = library.to_owned();
    let present = present.map_or(&b""[..], |present| present.as_bytes());
    for other in present.split(|b| b": ".contains(b)).filter(|other| !other.is_empty() && *other != library) {
        all.push(b':');
        all.extend_from_slice(other);
    }
    Ok(Some(OsString::from_vec(all)))
}

/// `LD_PRELOAD` without the library; `None` if nothing is left.
pub fn without(library: &Path, present: Option<&OsStr>) -> Option<OsString> {
    let name = library.file_name()?.as_bytes();
    let is_other = |other: &&[u8]| !other.is_empty() && other.rsplit(|&b| b == b'/').next() != Some(name);
    let others = present?.as_bytes().split(|b| b": ".contains(b)).filter(is_other);
    let others = others.collect::<Vec<_>>().join(&b':');
    (!others.is_empty()).then(|| OsString::from_vec(others))
}

/// `ASAN_OPTIONS` so that AddressSanitizer accepts a library that is loaded before its own; present
/// options win.
pub fn sanitizer_options(present: Option<&OsStr>) -> OsString {
    const OURS: &str = "verify_asan_link_order=0";
    let mut all = OsString::from(OURS);
    if let Some(present) = present.filter(|present| !present.is_empty() && *present != OURS) {
        all.push(":");
        all.push(present);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_user_are_kept_and_win() {
        let with = |present: Option<&str>| sanitizer_options(present.map(OsStr::new));
        assert_eq!(with(None), "verify_asan_link_order=0");
        assert_eq!(with(Some("verify_asan_link_order=0")), "verify_asan_link_order=0");
        assert_eq!(with(Some("detect_leaks=0")), "verify_asan_link_order=0:detect_leaks=0");
    }

    #[test]
    fn the_library_comes_first_and_once() {
        let with = |present: Option<&str>| {
            let all = preload(Path::new("/l/t.so"), present.map(OsStr::new)).unwrap();
            all.map_or_else(String::new, |all| all.into_string().unwrap())
        };
        assert_eq!(with(None), "/l/t.so");
        assert_eq!(with(Some("")), "/l/t.so");
        assert_eq!(with(Some("a.so b.so")), "/l/t.so:a.so:b.so");
        assert_eq!(with(Some("a.so:/l/t.so")), "/l/t.so:a.so");
        assert!(preload(Path::new("/my libs/t.so"), None).is_err());
        let without = |present: Option<&str>| without(Path::new("/l/t.so"), present.map(OsStr::new));
        assert_eq!(without(Some("a.so /other/t.so:b.so")), Some("a.so:b.so".into()));
        assert_eq!((without(Some("/l/t.so")), without(Some("")), without(None)), (None, None, None));
    }
}
