//! Which memory of a program will be paged, according to its file, its libraries and its arguments.

use crate::doctor::Check;
use crate::doctor::follow::{self, first_bytes, is_called};
use crate::program;
use crate::userfaultfd;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use terapage_config::{Heap, Hosted};
use terapage_sys::executable::Why;
use terapage_sys::runtimes::JAVA;

/// How many programs that only execute others are followed: `env`, a shim, and so on.
const DEPTH: usize = 8;

/// The settings that say which of a program's memory is paged.
#[derive(Clone, Copy)]
pub struct Paged {
    /// Which allocations are.
    pub heap: Heap,
    /// Which programs a host loads.
    pub hosted: Hosted,
}

/// The report about a program and its arguments.
pub fn forecast(command: &[OsString], paged: Paged) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut command = command.to_vec();
    let mut preload = std::env::var_os("LD_PRELOAD").unwrap_or_default();
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
        let judge = if userfaultfd::guards() { program::judge_guarded } else { program::judge };
        let (why, files) = judge(&path);
        let last = files.last().unwrap_or(&path);
        checks.push(of_file(&shown, &files, why, paged));
        if why.is_some() {
            break;
        }
        if let Some(next) = follow::next(&path, &files, arguments) {
            if is_called(last, &["env"]) {
                preload = follow::preload_after_env(&files, arguments, preload);
            }
            command = next;
            continue;
        }
        checks.extend(of_malloc(last, &preload, paged));
        checks.extend(of_known(last, arguments));
        break;
    }
    checks
}

/// The result for the file itself.
fn of_file(shown: &str, files: &[PathBuf], why: Option<Why>, paged: Paged) -> Check {
    let chain: Vec<_> = files.iter().skip(1).map(|file| file.display().to_string()).collect();
    let by = if chain.is_empty() { String::new() } else { format!(", run by {}", chain.join(", run by ")) };
    if files.last().is_some_and(|file| first_bytes(file, 16).get(8..10) == Some(b"AI")) {
        let found = format!("{shown}{by} is an AppImage: its own loader is static, what it starts is paged");
        return Check::warning("program", found, "--appimage-extract, and run squashfs-root/AppRun");
    }
    let Some(why) = why else {
        // Another line says what the settings leave out of `malloc`.
        let heap = match paged.heap {
            _ if crate::library::IS_IN_HOST => "private mappings, brk",
            Heap::All => "malloc, private mappings",
            Heap::Large | Heap::Off => "private mappings",
        };
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
        Why::Valgrind => "none: Valgrind maps the memory of what it runs, and that is not paged",
        Why::ChangesCalls => "run what it runs without it, or get the right to page (terapage doctor --fix)",
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

/// Who serves `malloc` in a program that the library pages: as in the program itself, the first
/// object that defines the function, in the order in which the loader searches. Terapage's heap
/// takes the place of the C library's only.
fn of_malloc(path: &Path, preload: &OsStr, paged: Paged) -> Option<Check> {
    let name = "malloc";
    if crate::library::IS_IN_HOST || paged.hosted == Hosted::All && program::is_dynamic(path) {
        let found = "the program's own, since it is hosted: the memory that it maps is paged";
        return Some(Check::ok(name, found));
    }
    let object = Object::read(path)?;
    let defines = |object: &Object| object.defined.iter().any(|defined| defined == name);
    let by = if defines(&object) {
        "the program's own".to_owned()
    } else {
        let loaded = loaded_with(path, object.interpreter.as_deref()?, preload)?;
        let first = loaded.iter().find(|path| Object::read(path).is_some_and(|object| defines(&object)))?;
        let first = first.file_name()?.to_string_lossy().into_owned();
        if first.starts_with("libc.so") || first.starts_with("libc-") {
            return Some(Check::ok(
                name,
                match paged.heap {
                    Heap::All => "Terapage's heap, in the place of the C library's: paged",
                    Heap::Large => {
                        "Terapage's heap for objects of 128 KiB and more: paged; the C library's for \
                         smaller ones, as the setting heap says: not paged"
                    }
                    Heap::Off => "the C library's, as the setting heap says: not paged",
                },
            ));
        }
        format!("that of {first}")
    };
    Some(Check::ok(name, format!("{by}, which stays: the memory that it maps or gets from brk is paged")))
}

/// The libraries that a program is started with, in the order in which the loader searches them:
/// the loader is asked, and does not start the program.
fn loaded_with(path: &Path, loader: &Path, preload: &OsStr) -> Option<Vec<PathBuf>> {
    let mut command = Command::new(loader);
    command.arg("--list").arg(path).env("LD_PRELOAD", preload).stdin(Stdio::null()).stderr(Stdio::null());
    let answer = command.output().ok().filter(|answer| answer.status.success())?;
    // `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)`.
    let path_of = |line: &[u8]| {
        let line = OsStr::from_bytes(line).to_str()?;
        let (found, _) = line.rsplit_once(" (0x")?;
        let path = found.rsplit_once(" => ").map_or(found, |(_, path)| path).trim();
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    Some(answer.stdout.split(|&b| b == b'\n').filter_map(path_of).collect())
}

/// Facts about programs with known names.
fn of_known(path: &Path, arguments: &[OsString]) -> Option<Check> {
    if is_called(path, &[JAVA.program]) {
        let of_environment = JAVA.option_variables.map(std::env::var_os);
        let of_environment = of_environment
            .iter()
            .flatten()
            .flat_map(|value| value.as_bytes().split(u8::is_ascii_whitespace).map(OsStr::from_bytes));
        let mut all = arguments.iter().map(OsString::as_os_str).chain(of_environment);
        return Some(if all.any(|argument| argument == JAVA.shares_heap) {
            let found =
                format!("the heap of {} is shared memory (a memfd): it is not paged", JAVA.shares_heap);
            Check::failure(JAVA.program, found, "-XX:+UseG1GC or -XX:+UseParallelGC instead")
        } else {
            Check::ok(
                JAVA.program,
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
    /// The loader that it names.
    interpreter: Option<PathBuf>,
    /// The functions that it exports.
    defined: Vec<String>,
}

/// Numbers of ELF.
const PT_INTERP: u32 = 3;
const PROGRAM_HEADER: usize = 56;
const SHT_DYNSYM: u32 = 11;
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
        let (table, count) = (number::<8>(&head, 32)?, number::<2>(&head, 56)?);
        let segments = part(table, count * PROGRAM_HEADER as u64)?;
        let is_interpreter = |header: &&[u8]| number::<4>(header, 0) == Some(u64::from(PT_INTERP));
        let interpreter = segments.chunks_exact(PROGRAM_HEADER).find(is_interpreter).and_then(|header| {
            let text = part(number::<8>(header, 8)?, number::<8>(header, 32)?)?;
            Some(PathBuf::from(OsStr::from_bytes(text.split(|&b| b == 0).next()?)))
        });
        let mut object = Object { interpreter, defined: Vec::new() };
        for (index, header) in headers.chunks_exact(SECTION_HEADER).enumerate() {
            if number::<4>(header, 4) != Some(u64::from(SHT_DYNSYM)) {
                continue;
            }
            let (entries, names) = (section(index as u64)?, section(number::<4>(header, 40)?)?);
            let text = |at: u64| {
                let text = names.get(at as usize..)?.split(|&b| b == 0).next()?;
                Some(String::from_utf8_lossy(text).into_owned())
            };
            let defined = entries.chunks_exact(SYMBOL).filter(|symbol| number::<2>(symbol, 6) != Some(0));
            object.defined.extend(defined.filter_map(|symbol| text(number::<4>(symbol, 0)?)));
        }
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objects_loader_and_libraries_are_found() {
        let path = std::env::current_exe().unwrap();
        let own = Object::read(&path).unwrap();
        let loaded = loaded_with(&path, own.interpreter.as_deref().unwrap(), OsStr::new("")).unwrap();
        let libc = loaded.iter().find(|path| path.to_string_lossy().contains("/libc.so"));
        let libc = Object::read(libc.expect("the C library")).unwrap();
        assert!(libc.defined.iter().any(|name| name == "malloc"));
        assert!(Object::read(Path::new("/etc/passwd")).is_none());
    }

    #[test]
    fn who_serves_malloc_is_told() {
        let path = std::env::current_exe().unwrap();
        let of = |heap, hosted| of_malloc(&path, OsStr::new(""), Paged { heap, hosted }).unwrap();
        assert!(of(Heap::All, Hosted::On).found().starts_with("Terapage's heap, in"));
        assert!(of(Heap::Large, Hosted::On).found().contains("128 KiB"));
        assert!(of(Heap::Off, Hosted::On).found().starts_with("the C library's"));
    }

    #[test]
    fn a_collector_that_shares_its_heap_is_told() {
        let java = |argument: &str| of_known(Path::new("/jdk/bin/java"), &[argument.into()]).unwrap();
        assert!(java("-XX:+UseZGC").found().contains("not paged"));
        assert!(java("-Xmx4g").found().contains("paged"));
        assert!(of_known(Path::new("/usr/bin/sort"), &[]).is_none());
    }
}
