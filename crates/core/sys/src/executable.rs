//! The properties of a program's file that keep the library out of the program. The check runs
//! before the program is executed.
//!
//! Children of `vfork` and signal handlers run it, too. So it allocates nothing, takes no lock, and
//! closes all files again.

use crate::opening::Opening;
use crate::runtimes::GO;
use std::ffi::CStr;
use std::fmt;

/// Why the memory of a program cannot be paged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The program is static: no loader loads libraries into it.
    Static,
    /// The program is written in Go, whose runtime maps memory by direct system calls.
    Go {
        /// Whether the program has no loader.
        is_static: bool,
    },
    /// The program is a tool of Valgrind: it takes all addresses for its own, and unmaps what it
    /// finds there.
    Valgrind,
    /// The program changes the system calls of what it runs, and takes a trapped call for one that
    /// was made.
    ChangesCalls,
    /// The program is for processors of 32 bits.
    Narrow,
    /// The program is for another processor; the number is ELF's (`e_machine`).
    Machine(u16),
    /// The program's loader is not that of the GNU C library.
    Loader(Name),
    /// The program gains the rights of a user or group, or capabilities: the loader ignores
    /// `LD_PRELOAD`.
    Privileged(&'static str),
}

impl Why {
    /// Whether the environment must not name the library, since the program's loader, or that of
    /// programs that it starts, would complain or fail. Static programs pass `LD_PRELOAD` on to
    /// children that can be paged.
    pub fn bars_library(&self) -> bool {
        matches!(self, Why::ChangesCalls | Why::Narrow | Why::Machine(_) | Why::Loader(_))
    }

    /// Whether the host (crate `host`) can page the program: it loads no library, but it is for
    /// this processor.
    pub fn is_hostable(&self) -> bool {
        matches!(self, Why::Static | Why::Go { .. } | Why::Loader(_))
    }
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Static => out.write_str("a static executable"),
            Why::Go { is_static: true } => out.write_str("a static executable (Go)"),
            Why::Go { is_static: false } => out.write_str("a Go program, which maps its heap by itself"),
            Why::Valgrind => out.write_str("a tool of Valgrind, which takes all addresses for its own"),
            Why::ChangesCalls => {
                out.write_str("a tracer that changes system calls, which are guarded without rights")
            }
            Why::Narrow => out.write_str("a 32-bit executable"),
            Why::Machine(number) => {
                write!(out, "an executable for another processor (ELF machine {number})")
            }
            Why::Loader(name) if name.bytes().starts_with(b"ld-musl") => {
                out.write_str("linked with musl, not with the GNU C library")
            }
            Why::Loader(name) => write!(out, "for another loader than the GNU C library's ({name})"),
            Why::Privileged(what) => out.write_str(what),
        }
    }
}

/// The last part of a path, cut if it is too long.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; 48],
    len: usize,
}

impl Name {
    /// The name in a path.
    pub fn of(path: &[u8]) -> Name {
        let last = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
        let mut name = Name { bytes: [0; 48], len: last.len().min(48) };
        name.bytes[..name.len].copy_from_slice(&last[..name.len]);
        name
    }

    /// The bytes of the name.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.bytes().utf8_chunks() {
            for c in chunk.valid().chars() {
                fmt::Write::write_char(out, if c.is_control() { '?' } else { c })?;
            }
            if !chunk.invalid().is_empty() {
                out.write_str("?")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// Bytes at the beginning of a file by which the kernel recognises its kind.
const HEAD: usize = 256;

/// The number of scripts, each the interpreter of the one before, that the kernel follows.
const DEPTH: usize = 5;

/// Numbers of the ELF format.
const PT_LOAD: u32 = 1;
/// The address at which the tools of Valgrind begin, and no other program does.
pub const VALGRIND: u64 = 0x5800_0000;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// A file that is open for reading.
struct Look {
    fd: i64,
    _opening: Opening,
}

impl Look {
    fn at(path: &CStr) -> Option<Look> {
        let opening = Opening::begin();
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        // SAFETY: the path ends in a zero byte.
        let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) };
        let look = (fd >= 0).then_some(Look { fd, _opening: opening })?;
        // Only plain files: to read a pipe or a device may have an effect.
        look.status().is_some_and(|status| status.st_mode & libc::S_IFMT == libc::S_IFREG).then_some(look)
    }

    /// Reads into `into` from `offset` on: the bytes that the file has there.
    fn read<'a>(&self, into: &'a mut [u8], offset: u64) -> &'a [u8] {
        // SAFETY: the buffer has the given length.
        let got = unsafe {
            libc::syscall(libc::SYS_pread64, self.fd, into.as_mut_ptr(), into.len(), offset as i64)
        };
        &into[..usize::try_from(got).unwrap_or(0)]
    }

    fn status(&self) -> Option<libc::stat> {
        // SAFETY: plain data, for which zeros are a value.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: `status` has room for the answer.
        (unsafe { libc::fstat(self.fd as i32, &raw mut status) } == 0).then_some(status)
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        // SAFETY: only this value owns the descriptor.
        unsafe { libc::syscall(libc::SYS_close, self.fd) };
    }
}

/// Why the program at `path` cannot be paged; `None` if no reason is found. For a script, its
/// interpreter decides. `each` is called with the path of every inspected file.
pub fn cannot_be_paged(path: &CStr, each: &mut dyn FnMut(&CStr)) -> Option<Why> {
    each(path);
    let mut head = [0; HEAD];
    let mut next = [0; HEAD];
    let mut look = Look::at(path)?;
    for _ in 0..=DEPTH {
        let len = look.read(&mut head, 0).len();
        let Some(interpreter) = interpreter(&head[..len], &mut next) else {
            let why = elf(&head[..len], &look);
            // A program that the host loads would not gain its rights.
            return match why {
                Some(why) if !why.is_hostable() => Some(why),
                why => privileged(&look).or(why),
            };
        };
        each(interpreter);
        look = Look::at(interpreter)?;
    }
    None
}

/// In guarded mode: why neither the program at `path`, which is no script, nor what it runs can be
/// paged, if its name says so.
pub fn cannot_be_guarded(path: &CStr) -> Option<Why> {
    (Name::of(path.to_bytes()).bytes() == b"proot").then_some(Why::ChangesCalls)
}

/// The first line of a script: an interpreter, and the argument that precedes the script's path.
pub struct FirstLine {
    interpreter: [u8; HEAD],
    argument: [u8; HEAD],
    has_argument: bool,
}

impl FirstLine {
    /// Reads the first line of the file at `path`. `None` if it is not a script.
    pub fn of(path: &CStr) -> Option<FirstLine> {
        let (mut head, mut line) = ([0; HEAD], FirstLine::empty());
        let look = Look::at(path)?;
        let len = look.read(&mut head, 0).len();
        let name = interpreter(&head[..len], &mut line.interpreter)?.count_bytes();
        let rest = head[2..len].split(|&b| b == b'\n').next()?.trim_ascii();
        let rest = rest[name..].split(|&b| b == 0).next()?.trim_ascii();
        line.has_argument = !rest.is_empty();
        line.argument[..rest.len()].copy_from_slice(rest);
        Some(line)
    }

    fn empty() -> FirstLine {
        FirstLine { interpreter: [0; HEAD], argument: [0; HEAD], has_argument: false }
    }

    /// The interpreter's path.
    pub fn interpreter(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.interpreter).unwrap_or_default()
    }

    /// Its argument, if the line has one.
    pub fn argument(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.argument).ok().filter(|_| self.has_argument)
    }
}

/// The interpreter that the first line of a script names.
fn interpreter<'a>(head: &[u8], into: &'a mut [u8; HEAD]) -> Option<&'a CStr> {
    let line = head.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?.trim_ascii();
    let path = line.split(|b| b" \t\0".contains(b)).next().filter(|path| !path.is_empty())?;
    into[..path.len()].copy_from_slice(path);
    into[path.len()] = 0;
    CStr::from_bytes_until_nul(into).ok()
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// A file by its device and number, so that two paths to it are equal.
pub type FileName = (u64, u64);

/// The loader that the program at `path` names, for a script its interpreter; `None` if there is no
/// such loader, or if the program insists on the usual layout of addresses.
pub fn loader_of(path: &CStr) -> Option<FileName> {
    let (mut head, mut next) = ([0; HEAD], [0; HEAD]);
    let mut look = Look::at(path)?;
    for _ in 0..=DEPTH {
        let len = look.read(&mut head, 0).len();
        match interpreter(&head[..len], &mut next) {
            Some(interpreter) => look = Look::at(interpreter)?,
            None => break,
        }
    }
    let mut path = [0; HEAD];
    let segments = Segments::of(&look)?;
    let (offset, len) = segments.find(PT_INTERP)?;
    let len = len as usize;
    if look.read(path.get_mut(..len)?, offset).len() != len || segments.has_layout() {
        return None;
    }
    let status = Look::at(CStr::from_bytes_until_nul(&path).ok()?)?.status()?;
    Some((status.st_dev, status.st_ino))
}

/// The table of segments of an executable of this machine.
struct Segments<'a> {
    look: &'a Look,
    table: u64,
    size: u64,
    count: u64,
}

impl<'a> Segments<'a> {
    fn of(look: &'a Look) -> Option<Segments<'a>> {
        let mut head = [0; HEADER];
        let head = look.read(&mut head, 0);
        if !head.starts_with(b"\x7fELF\x02\x01") || half(head, 18)? != MACHINE {
            return None;
        }
        let (table, size, count) = (long(head, 32)?, half(head, 54)?, half(head, 56)?);
        Some(Segments { look, table, size: size.into(), count: count.into() })
    }

    /// Calls `each` with the kind, the offset, the address and the length in the file of each
    /// segment, until there is an answer.
    fn each<T>(&self, mut each: impl FnMut(u32, u64, u64, u64) -> Option<T>) -> Option<T> {
        (0..self.count).find_map(|i| {
            let mut bytes = [0; PROGRAM_HEADER];
            let header = self.look.read(&mut bytes, self.table.checked_add(i * self.size)?);
            each(word(header, 0)?, long(header, 8)?, long(header, 16)?, long(header, 32)?)
        })
    }

    /// The offset and length of the first segment of a kind.
    fn find(&self, kind: u32) -> Option<(u64, u64)> {
        self.each(|this, offset, _, len| (this == kind).then_some((offset, len)))
    }

    /// Whether the runtime of a sanitizer that lays out all addresses is linked in, or needed.
    fn has_layout(&self) -> bool {
        self.names().is_some_and(|(mut offset, mut left)| {
            const NAMES: [&[u8]; 4] = [b"__tsan_init", b"__msan_init", b"libtsan.so", b"libmsan.so"];
            // Parts overlap by what a name may lack.
            const PART: u64 = 4096;
            const LAP: u64 = 16;
            let mut bytes = [0; PART as usize];
            while left > LAP {
                let part = self.look.read(&mut bytes[..left.min(PART) as usize], offset);
                if NAMES.iter().any(|name| part.windows(name.len()).any(|window| window == *name)) {
                    return true;
                }
                let step = PART - LAP;
                (offset, left) = (offset + step, left.saturating_sub(step));
            }
            false
        })
    }

    /// The offset and length of the names of dynamic symbols.
    fn names(&self) -> Option<(u64, u64)> {
        const DT_STRTAB: u64 = 5;
        const DT_STRSZ: u64 = 10;
        let (at, len) = self.find(PT_DYNAMIC)?;
        let (mut address, mut bytes) = (None, None);
        for i in 0..len / 16 {
            let mut entry = [0; 16];
            let entry = self.look.read(&mut entry, at.checked_add(i * 16)?);
            match long(entry, 0)? {
                0 => break,
                DT_STRTAB => address = long(entry, 8),
                DT_STRSZ => bytes = long(entry, 8),
                _ => {}
            }
        }
        let address = address?;
        let offset = self.each(|kind, offset, start, len| {
            let within = address.checked_sub(start).filter(|&within| kind == PT_LOAD && within < len)?;
            offset.checked_add(within)
        })?;
        // Larger tables are of programs whose start takes long anyway.
        Some((offset, bytes?.min(1 << 20)))
    }
}

/// The property of an executable's format that keeps the library out.
fn elf(head: &[u8], look: &Look) -> Option<Why> {
    if !head.starts_with(b"\x7fELF") || head.len() < HEADER {
        return None;
    }
    if head[4] == 1 {
        return Some(Why::Narrow);
    }
    if head[5] == 2 {
        return Some(Why::Machine(u16::from_be_bytes([head[18], head[19]])));
    }
    match half(head, 18)? {
        MACHINE => {}
        other => return Some(Why::Machine(other)),
    }
    let (table, size, count) = (long(head, 32)?, half(head, 54)?, half(head, 56)?);
    let (mut loader, mut is_go, mut is_valgrind) = (None, false, false);
    for i in 0..u64::from(count) {
        let mut bytes = [0; PROGRAM_HEADER];
        let header = look.read(&mut bytes, table.checked_add(i * u64::from(size))?);
        let (offset, len) = (long(header, 8)?, long(header, 32)?);
        match word(header, 0)? {
            PT_INTERP => {
                let mut path = [0; HEAD];
                let path = look.read(&mut path[..len.min(HEAD as u64) as usize], offset);
                loader = Some(Name::of(path.split(|&b| b == 0).next()?));
            }
            PT_NOTE => is_go |= has_note_of_go(look, offset, len),
            PT_LOAD => is_valgrind |= offset == 0 && long(header, 16)? == VALGRIND,
            _ => {}
        }
    }
    match loader {
        None if is_valgrind => Some(Why::Valgrind),
        None if is_go => Some(Why::Go { is_static: true }),
        None => Some(Why::Static),
        Some(name) if !is_gnu(name.bytes()) => Some(Why::Loader(name)),
        Some(_) => is_go.then_some(Why::Go { is_static: false }),
    }
}

/// Whether a loader of this name is that of the GNU C library.
fn is_gnu(name: &[u8]) -> bool {
    let is_old = |rest: &[u8]| rest.first().is_some_and(u8::is_ascii_digit);
    name.starts_with(b"ld-linux")
        || name.starts_with(b"ld-lsb")
        || name == b"ld.so"
        || name.starts_with(b"ld.so.")
        || name.starts_with(b"ld64.so.")
        || name.strip_prefix(b"ld-").is_some_and(is_old)
}

/// Whether the notes have one of Go; the first is its build id.
fn has_note_of_go(look: &Look, offset: u64, len: u64) -> bool {
    let mut bytes = [0; 512];
    let len = len.min(bytes.len() as u64) as usize;
    let mut notes = look.read(&mut bytes[..len], offset);
    while let (Some(name), Some(content)) = (word(notes, 0), word(notes, 4)) {
        if name == 4 && notes.get(12..16) == Some(GO.note) {
            return true;
        }
        let next = 12 + (name as usize).next_multiple_of(4) + (content as usize).next_multiple_of(4);
        notes = notes.get(next..).unwrap_or_default();
    }
    false
}

/// Whether the file at `path` begins as an executable of 64 bits does.
pub fn is_elf(path: &CStr) -> bool {
    let mut head = [0; 5];
    Look::at(path).is_some_and(|look| look.read(&mut head, 0) == b"\x7fELF\x02")
}

/// Whether the program at `path` is set-user-id or set-group-id, but this process has given up that
/// programs gain rights (`no_new_privs`).
pub fn is_denied_rights(path: &CStr) -> bool {
    // SAFETY: no memory is touched.
    let (never, user, group) =
        unsafe { (libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1, libc::getuid(), libc::getgid()) };
    let gains = |status: libc::stat| {
        let runs = status.st_mode & libc::S_IXGRP != 0;
        status.st_mode & libc::S_ISUID != 0 && status.st_uid != user
            || status.st_mode & libc::S_ISGID != 0 && runs && status.st_gid != group
    };
    never && Look::at(path).and_then(|look| look.status()).is_some_and(gains)
}

/// Whether the loader will load no preloaded libraries because the program gains rights.
fn privileged(look: &Look) -> Option<Why> {
    // SAFETY: no memory is touched.
    let (user, group, effective_user, effective_group, never) = unsafe {
        let never = libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
        (libc::getuid(), libc::getgid(), libc::geteuid(), libc::getegid(), never)
    };
    let status = look.status()?;
    let gains = |bit: libc::mode_t| !never && status.st_mode & bit != 0;
    if gains(libc::S_ISUID) && status.st_uid != user {
        return Some(Why::Privileged("a set-user-id executable"));
    }
    if gains(libc::S_ISGID) && status.st_mode & libc::S_IXGRP != 0 && status.st_gid != group {
        return Some(Why::Privileged("a set-group-id executable"));
    }
    if (!gains(libc::S_ISUID) && user != effective_user)
        || (!gains(libc::S_ISGID) && group != effective_group)
    {
        return Some(Why::Privileged("run with an effective user or group that is not its real one"));
    }
    let mut value = [0u8; 64];
    // SAFETY: the name ends in a zero byte, and the value has the given length.
    let got = unsafe {
        let name = c"security.capability".as_ptr();
        libc::syscall(libc::SYS_fgetxattr, look.fd, name, value.as_mut_ptr(), value.len())
    };
    let gains_some = got > 0 && !never && user != 0;
    gains_some.then_some(Why::Privileged("an executable with file capabilities"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    fn judge(path: &Path) -> Option<String> {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        cannot_be_paged(&path, &mut |_| {}).map(|why| why.to_string())
    }

    /// An ELF file with one program header of kind `kind` with `content`.
    fn elf(class: u8, machine: u16, kind: u32, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER + PROGRAM_HEADER];
        bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32] = HEADER as u8;
        bytes[54] = PROGRAM_HEADER as u8;
        bytes[56] = 1;
        bytes[64..68].copy_from_slice(&kind.to_le_bytes());
        bytes[72] = (HEADER + PROGRAM_HEADER) as u8;
        bytes[96] = content.len() as u8;
        bytes.extend_from_slice(content);
        bytes
    }

    fn write(directory: &Path, name: &str, bytes: &[u8]) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn what_cannot_be_paged_is_reported() {
        let here = tempfile::tempdir().unwrap();
        let judged = |bytes: &[u8]| judge(&write(here.path(), "program", bytes));
        let loader = |path: &[u8]| judged(&elf(2, MACHINE, PT_INTERP, path));
        for gnu in
            ["/lib64/ld-linux-x86-64.so.2\0", "/gnu/store/x/lib/ld-linux-aarch64.so.1", "/o/ld-2.17.so\0"]
        {
            assert_eq!(loader(gnu.as_bytes()), None);
        }
        assert!(loader(b"/lib/ld-musl-x86_64.so.1\0").unwrap().contains("musl"));
        assert!(loader(b"/system/bin/linker64\0").unwrap().contains("(linker64)"));
        assert_eq!(judged(&elf(2, MACHINE, 1, b"")).unwrap(), "a static executable");
        let go = b"\x04\0\0\0\x02\0\0\0\x04\0\0\0Go\0\0ab\0\0";
        assert_eq!(judged(&elf(2, MACHINE, PT_NOTE, go)).unwrap(), "a static executable (Go)");
        let mut tool = elf(2, MACHINE, PT_LOAD, b"");
        tool[72] = 0;
        tool[80..88].copy_from_slice(&VALGRIND.to_le_bytes());
        assert!(judged(&tool).unwrap().contains("Valgrind"));
        assert_eq!(judged(&elf(1, MACHINE, 3, b"")).unwrap(), "a 32-bit executable");
        assert!(judged(&elf(2, 8, 3, b"")).unwrap().contains("machine 8"));
        assert_eq!(judged(b"\x7fELF\x02\x01"), None);
        assert_eq!(judged(b"echo"), None);
        assert_eq!(judge(Path::new("/nonexistent")), None);
        assert_eq!(judge(here.path()), None);
    }

    #[test]
    fn executables_are_told_from_other_files() {
        let here = tempfile::tempdir().unwrap();
        let is = |bytes: &[u8]| {
            let path = write(here.path(), "file", bytes);
            is_elf(&CString::new(path.as_os_str().as_bytes()).unwrap())
        };
        assert!(is(&elf(2, MACHINE, PT_INTERP, b"")) && is_elf(c"/proc/self/exe"));
        assert!(!is(&elf(1, MACHINE, PT_INTERP, b"")) && !is(b"#!/bin/sh") && !is_elf(c"/nonexistent"));
        assert!(!is_denied_rights(c"/proc/self/exe"));
    }

    #[test]
    fn the_first_line_of_a_script_is_taken_apart() {
        let here = tempfile::tempdir().unwrap();
        let line = |text: &[u8]| {
            let path = write(here.path(), "script", text);
            let path = CString::new(path.as_os_str().as_bytes()).unwrap();
            let line = FirstLine::of(&path)?;
            Some((line.interpreter().to_owned(), line.argument().map(CStr::to_owned)))
        };
        assert_eq!(line(b"#! /bin/a -x  y \necho").unwrap(), (c"/bin/a".into(), Some(c"-x  y".into())));
        assert_eq!(line(b"#!/bin/a").unwrap(), (c"/bin/a".into(), None));
        assert!(line(b"echo").is_none());
    }

    #[test]
    fn scripts_are_judged_by_their_interpreters_as_deep_as_the_kernel_goes() {
        let here = tempfile::tempdir().unwrap();
        let mut path = write(here.path(), "0", &elf(2, MACHINE, 1, b""));
        for depth in 1..=DEPTH {
            path = write(
                here.path(),
                &depth.to_string(),
                format!("#! {} -x\necho\n", path.display()).as_bytes(),
            );
            assert_eq!(judge(&path).as_deref(), Some("a static executable"), "{depth}");
        }
        let itself = here.path().join("itself");
        write(here.path(), "itself", format!("#!{}", itself.display()).as_bytes());
        assert_eq!(judge(&itself), None);
    }

    /// No bytes make it panic, and what it says is one line.
    #[test]
    fn fuzzed_executables_are_judged() {
        let here = tempfile::tempdir().unwrap();
        let samples = [
            elf(2, MACHINE, PT_INTERP, b"/lib/ld-musl-x86_64.so.1\0"),
            elf(2, MACHINE, PT_NOTE, b"\x04\0\0\0\x02\0\0\0\x04\0\0\0Go\0\0ab\0\0"),
            b"#! /bin/a -x\necho".to_vec(),
            std::fs::read("/proc/self/exe").unwrap()[..4096].to_vec(),
        ];
        let (mut good, mut wanting) = (0, 0);
        terapage_fuzz::fuzz("executables", 100, |random| {
            let mut bytes = samples[random.below(samples.len())].clone();
            for _ in 0..=random.below(6) {
                let at = random.below(bytes.len().min(HEADER + 4 * PROGRAM_HEADER));
                let any = random.number() as u8;
                bytes[at] = random.one(&[0, 1, 0x7f, 0xff, any]);
            }
            bytes.truncate(if random.below(4) == 0 { 1 + random.below(bytes.len()) } else { bytes.len() });
            let told = judge(&write(here.path(), "program", &bytes));
            *(if told.is_some() { &mut wanting } else { &mut good }) += 1;
            assert!(
                told.is_none_or(|text| !text.is_empty() && !text.contains('\n')),
                "{}",
                bytes.escape_ascii()
            );
        });
        assert!(good > 0 && wanting > 0, "{good} were good, {wanting} found wanting");
    }

    #[test]
    fn a_name_is_shown_in_one_line() {
        assert_eq!(Name::of(b"/a/b\n\xffc").to_string(), "b??c");
        assert_eq!(Name::of(&[b'x'; 100]).bytes().len(), 48);
    }

    #[test]
    fn loaders_are_compared_by_their_files() {
        let own = loader_of(c"/proc/self/exe");
        if cfg!(target_env = "gnu") {
            assert!(own.is_some());
        }
        let here = tempfile::tempdir().unwrap();
        let script = write(here.path(), "script", b"#!/bin/sh -e\n");
        let path_of = |path: &Path| CString::new(path.as_os_str().as_bytes()).unwrap();
        assert_eq!(loader_of(&path_of(&script)), loader_of(c"/bin/sh"));
        let fixed = write(here.path(), "static", &elf(2, MACHINE, PT_NOTE, b""));
        assert_eq!(loader_of(&path_of(&fixed)), None);
    }
}
