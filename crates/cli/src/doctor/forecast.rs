//! Which memory of a program will be paged, according to its file, its libraries and its arguments.

use crate::doctor::Check;
use crate::doctor::follow::{self, first_bytes, is_called};
use crate::program;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use terapage_sys::executable::Why;

/// How many programs that only execute others are followed: `env`, a shim, and so on.
const DEPTH: usize = 8;

/// The report about a program and its arguments.
pub fn forecast(command: &[OsString]) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut command = command.to_vec();
    for _ in 0..DEPTH {
        let Some((name, arguments)) = command.split_first() else { break };
        let shown = name.display().to_string();
        let path = match program::find(name, std::env::var_os("PATH")) {
            Ok(path) => path,
            Err(missing) => {
                let found = match missing {
                    program::Missing::NotFound => format!("{shown}: not found"),
                    program::Missing::NotExecutable => format!("{shown}: not executable"),
                };
                checks.push(Check::failure("program", found, "name a program by its name or path"));
                break;
            }
        };
        let (why, files) = program::judge(&path);
        let last = files.last().unwrap_or(&path);
        checks.push(of_file(&shown, &files, why));
        if why.is_some() {
            break;
        }
        if let Some(next) = follow::next(&path, &files, arguments) {
            command = next;
            continue;
        }
        checks.extend(of_memory(last));
        checks.extend(of_known(last, arguments));
        break;
    }
    checks
}

/// The result for the file itself.
fn of_file(shown: &str, files: &[PathBuf], why: Option<Why>) -> Check {
    let chain: Vec<_> = files.iter().skip(1).map(|file| file.display().to_string()).collect();
    let by = if chain.is_empty() { String::new() } else { format!(", run by {}", chain.join(", run by ")) };
    if files.last().is_some_and(|file| first_bytes(file, 16).get(8..10) == Some(b"AI")) {
        let found = format!("{shown}{by} is an AppImage: its own loader is static, what it starts is paged");
        return Check::warning("program", found, "--appimage-extract, and run squashfs-root/AppRun");
    }
    let Some(why) = why else {
        let heap =
            if crate::library::IS_IN_HOST { "private mappings, brk" } else { "malloc, private mappings" };
        let found = format!("{shown}{by}: {heap} and static arrays are paged");
        return Check::ok("program", found);
    };
    let hosts = || crate::library::find().ok().and_then(|library| crate::library::host(&library));
    if why.is_hostable() && files.len() <= 2 && hosts().is_some() {
        let found = format!("{shown}{by} is {why}: private mappings, brk and static arrays are paged");
        return Check::ok("program", found);
    }
    let found = format!("{shown}{by} is {why}: its memory is not paged");
    Check::failure("program", found, remedy(why))
}

/// The way to make a program pageable that is not.
fn remedy(why: Why) -> &'static str {
    match why {
        Why::Static => "link it dynamically, with the GNU C library; its children can be paged",
        Why::Go { .. } => "none: a memory limit for Go's collector is GOMEMLIMIT",
        Why::Loader(_) => {
            "build it for the GNU C library, or use a package of it from a distribution with that library"
        }
        Why::Narrow | Why::Machine(_) => "use a build of it for this machine's processor, 64 bits",
        Why::Privileged(_) => {
            "run terapage as the user that the program becomes: sudo terapage run ... instead of \
             terapage run -- sudo ..."
        }
    }
}

/// Allocators by the beginning of their libraries' names, and where each takes its memory.
const ALLOCATORS: [(&str, &str); 5] = [
    ("libtcmalloc", "moves the break, then maps"),
    ("libjemalloc", "maps its memory"),
    ("libmimalloc", "maps its memory"),
    ("libhoard", "maps its memory"),
    ("libtbbmalloc_proxy", "maps its memory"),
];

/// The result for the program's allocator.
fn of_memory(path: &Path) -> Option<Check> {
    let name = "malloc";
    let object = Object::read(path)?;
    let preloaded = std::env::var("LD_PRELOAD").unwrap_or_default();
    let preloaded = preloaded.split([':', ' ']).filter_map(|path| path.rsplit('/').next());
    // The library stands before a preloaded allocator; a linked allocator is seen among the
    // libraries that the program is linked with.
    let linked = object.needed.iter().map(String::as_str).chain(preloaded);
    for library in linked {
        if let Some((_, way)) = ALLOCATORS.iter().find(|(name, _)| library.starts_with(name)) {
            return Some(Check::ok(name, format!("{library}, which {way}: paged")));
        }
    }
    let own = ["tc_malloc", "je_malloc", "mi_malloc", "malloc"];
    let own = own.into_iter().find(|own| object.defined.iter().any(|defined| defined == own))?;
    let found = format!(
        "the program's own ({own}): the memory that it maps or gets by moving the \
                         break is paged"
    );
    Some(Check::ok(name, found))
}

/// Facts about programs with known names.
fn of_known(path: &Path, arguments: &[OsString]) -> Option<Check> {
    if is_called(path, &["java"]) {
        let of_environment = ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"].map(std::env::var_os);
        let of_environment = of_environment
            .iter()
            .flatten()
            .flat_map(|value| value.as_bytes().split(u8::is_ascii_whitespace).map(OsStr::from_bytes));
        let mut all = arguments.iter().map(OsString::as_os_str).chain(of_environment);
        return Some(if all.any(|argument| argument == "-XX:+UseZGC") {
            let found = "the heap of -XX:+UseZGC is shared memory (a memfd): it is not paged";
            Check::failure("java", found, "-XX:+UseG1GC or -XX:+UseParallelGC instead")
        } else {
            Check::ok(
                "java",
                "the heap is private memory and is paged; keep -Xmx near the size of the data, \
                 since a collection reads all of it",
            )
        });
    }
    if is_called(path, &["node", "nodejs"]) {
        let mut all = arguments.iter().filter_map(|argument| argument.to_str());
        let options = std::env::var("NODE_OPTIONS").unwrap_or_default();
        let flag = "--max-old-space-size";
        return Some(if all.any(|argument| argument.starts_with(flag)) || options.contains(flag) {
            Check::ok("node", format!("{flag} sets the limit of V8's own heap"))
        } else {
            let found = "V8 ends the program at a limit of its own heap, 2 to 4 GiB by default";
            Check::warning("node", found, format!("{flag}=MIB if the data is larger"))
        });
    }
    None
}

/// The parts of a 64-bit ELF file that are needed here.
struct Object {
    /// The libraries that it is linked with.
    needed: Vec<String>,
    /// The functions that it exports.
    defined: Vec<String>,
}

/// Numbers of ELF.
const SHT_DYNAMIC: u32 = 6;
const SHT_DYNSYM: u32 = 11;
const DT_NEEDED: u64 = 1;
const SECTION_HEADER: usize = 64;
const SYMBOL: usize = 24;

/// The most bytes of a table that are read.
const TABLE_MOST: u64 = 64 << 20;

fn number<const BYTES: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut wide = [0; 8];
    wide[..BYTES].copy_from_slice(bytes.get(at..at + BYTES)?);
    Some(u64::from_le_bytes(wide))
}

impl Object {
    /// `None` if the file is not a 64-bit ELF file, or has no sections.
    fn read(path: &Path) -> Option<Object> {
        let file = File::open(path).ok()?;
        let part = |offset: u64, len: u64| {
            let mut bytes = vec![0; len.min(TABLE_MOST) as usize];
            file.read_exact_at(&mut bytes, offset).ok()?;
            Some(bytes)
        };
        let head = part(0, 64)?;
        if !head.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (table, count) = (number::<8>(&head, 40)?, number::<2>(&head, 60)?);
        let headers = part(table, count * SECTION_HEADER as u64)?;
        let section = |index: u64| {
            let header = headers.get(index as usize * SECTION_HEADER..)?;
            part(number::<8>(header, 24)?, number::<8>(header, 32)?)
        };
        let mut object = Object { needed: Vec::new(), defined: Vec::new() };
        for (index, header) in headers.chunks_exact(SECTION_HEADER).enumerate() {
            let kind = number::<4>(header, 4)? as u32;
            if kind != SHT_DYNAMIC && kind != SHT_DYNSYM {
                continue;
            }
            let (entries, names) = (section(index as u64)?, section(number::<4>(header, 40)?)?);
            let text = |at: u64| {
                let text = names.get(at as usize..)?.split(|&b| b == 0).next()?;
                Some(String::from_utf8_lossy(text).into_owned())
            };
            if kind == SHT_DYNAMIC {
                let needed =
                    entries.chunks_exact(16).filter(|entry| number::<8>(entry, 0) == Some(DT_NEEDED));
                object.needed.extend(needed.filter_map(|entry| text(number::<8>(entry, 8)?)));
            } else {
                let defined = entries.chunks_exact(SYMBOL).filter(|symbol| number::<2>(symbol, 6) != Some(0));
                object.defined.extend(defined.filter_map(|symbol| text(number::<4>(symbol, 0)?)));
            }
        }
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objects_libraries_and_functions_are_read() {
        let own = Object::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(own.needed.iter().any(|name| name.starts_with("libc.so")), "{:?}", own.needed);
        assert!(Object::read(Path::new("/etc/passwd")).is_none());
    }

    #[test]
    fn a_collector_that_shares_its_heap_is_told() {
        let java = |argument: &str| of_known(Path::new("/jdk/bin/java"), &[argument.into()]).unwrap();
        assert!(java("-XX:+UseZGC").found().contains("not paged"));
        assert!(java("-Xmx4g").found().contains("paged"));
        assert!(of_known(Path::new("/usr/bin/sort"), &[]).is_none());
    }
}
