//! How the host begins in another process: on a stack as the kernel would make it for a program,
//! with the report and the orders beside it.

use crate::image::Image;
use crate::process::Process;
use crate::remote::Remote;
use crate::{Why, Wish, passed, rights};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use terapage_sys::adoption::{self, Orders, REPORT, TEXT_MOST};
use terapage_sys::userfaultfd::DEVICE_VARIABLE;

/// Bytes of the stack.
const STACK: usize = 256 << 10;
/// Bytes for the report and the orders: 65,530 mappings, the most that a process has by default,
/// would take fewer.
pub const ORDERS: usize = 4 << 20;
/// Bytes for the texts on the stack.
const DATA: usize = 256 << 10;

/// Names the table in errors.
const JOB: &str = "the table of the job's memory cannot be passed";

/// What is ready for the host's thread.
pub struct Start {
    pub report: usize,
    /// Whether the program is paged without the right to page.
    pub is_guarded: bool,
    entry: usize,
    stack: usize,
}

/// The report, as seen from outside.
pub struct Seen {
    pub state: u32,
    pub all_bytes: u64,
    pub done_bytes: u64,
    pub text: String,
}

impl Seen {
    /// Reads the report. `None` if the process has ended.
    pub fn read(process: &Process, at: usize) -> Option<Seen> {
        let mut bytes = [0; REPORT];
        process.get(at, &mut bytes).ok()?;
        let word = |at: usize| bytes[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
        let long = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
        let text = &bytes[24..24 + (word(4) as usize).min(TEXT_MOST)];
        let text = String::from_utf8_lossy(text).into_owned();
        Some(Seen { state: word(0), all_bytes: long(8), done_bytes: long(16), text })
    }
}

impl Start {
    /// Maps the host, its stack and its orders, which `choose` makes when it is known whether the
    /// program is guarded; it gets [`ORDERS`] bytes of the process.
    pub fn make(
        remote: &mut Remote,
        image: &Image,
        wish: &Wish,
        choose: impl FnOnce(bool, usize) -> Result<Orders, Why>,
    ) -> Result<Start, Why> {
        let data = ORDERS + DATA;
        let rights = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
        let what = "there is no memory for the host";
        let len = data + STACK;
        let report = remote.call(what, libc::SYS_mmap, [0, len, rights, private, usize::MAX, 0])?;
        let base = image.map(remote, report)?;
        let device = if wish.guards { None } else { passed::pass_device(remote, report)? };
        let is_guarded = wish.guards || device.is_none() && rights::lacks(remote, report)?;
        let mut orders = choose(is_guarded, report)?;
        orders.fails = wish.fault == Some(0);
        let words: Vec<u8> = orders.to_words().into_iter().flat_map(u64::to_ne_bytes).collect();
        if REPORT + words.len() > ORDERS {
            return Err("it has too many mappings".into());
        }
        let table = match &wish.table {
            Some(table) => Some((table.setting)(passed::pass(remote, report, &table.fd, JOB)?)),
            None => None,
        };
        remote.put(report, &[0; REPORT])?;
        remote.put(report + REPORT, &words)?;
        let auxiliary = auxiliary(remote.process, image, base)?;
        let mut settings: Vec<CString> = wish.settings.to_vec();
        let device = device.and_then(|device| CString::new(format!("{DEVICE_VARIABLE}={device}")).ok());
        settings.extend(device.into_iter().chain(table));
        let path = image.path.as_os_str().as_bytes();
        let texts = texts((report, is_guarded), wish.pid, path, &settings);
        let stack = put_stack(remote, (report + len, report + data), &texts, auxiliary)?;
        Ok(Start { report, is_guarded, entry: base + image.entry, stack })
    }

    /// Begins the host's thread, which stays stopped. Returns its number.
    pub fn begin(&self, remote: &mut Remote) -> Result<u32, Why> {
        let mut registers = remote.registers_for(0, [0; 6]);
        (registers.rip, registers.rsp) = (self.entry as u64, self.stack as u64);
        (registers.rax, registers.rbp, registers.fs_base, registers.gs_base) = (0, 0, 0, 0);
        remote.begin_thread(self.stack, &registers)
    }
}

/// The auxiliary vector of the process, which describes the host.
fn auxiliary(process: &Process, image: &Image, base: usize) -> Result<Vec<(u64, u64)>, Why> {
    let mut auxiliary = process.auxiliary()?;
    auxiliary.retain(|(kind, _)| {
        ![libc::AT_BASE, libc::AT_EXECFN, libc::AT_SECURE, libc::AT_PHDR, libc::AT_PHNUM, libc::AT_ENTRY]
            .contains(kind)
    });
    auxiliary.extend([
        (libc::AT_PHDR, (base + image.headers) as u64),
        (libc::AT_PHNUM, image.header_count as u64),
        (libc::AT_ENTRY, (base + image.entry) as u64),
    ]);
    Ok(auxiliary)
}

/// The host's path, and its environment.
fn texts((report, is_guarded): (usize, bool), pid: u32, path: &[u8], settings: &[CString]) -> Vec<Vec<u8>> {
    let mut texts = vec![path.to_vec()];
    let how = if is_guarded { adoption::GUARDED } else { adoption::USUAL };
    texts.push(format!("TERAPAGE_HOSTED={how}{report:x}").into_bytes());
    texts.push(format!("TERAPAGE_ROOT={pid}").into_bytes());
    texts.extend(settings.iter().map(|text| text.as_bytes().to_vec()));
    texts
}

/// Fills the stack, between `top` and the least address. Returns the stack pointer.
fn put_stack(
    remote: &mut Remote,
    (top, least): (usize, usize),
    all: &[Vec<u8>],
    mut auxiliary: Vec<(u64, u64)>,
) -> Result<usize, Why> {
    let (mut texts, mut places): (Vec<u8>, Vec<usize>) = Default::default();
    for text in all {
        places.push(texts.len());
        texts.extend_from_slice(text);
        texts.push(0);
    }
    let at = (top - texts.len()) & !15;
    remote.put(at, &texts)?;
    let mut places = places.into_iter().map(|place| (at + place) as u64);
    let path = places.next().unwrap_or(0);
    auxiliary.push((libc::AT_EXECFN, path));
    let mut words = vec![1, path, 0];
    words.extend(places.chain([0]));
    words.extend(auxiliary.into_iter().flat_map(|(kind, value)| [kind, value]).chain([0, 0]));
    let stack = (at - words.len() * size_of::<u64>()) & !63;
    if stack < least + STACK / 2 {
        return Err("the settings are too long".into());
    }
    let words: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
    remote.put(stack, &words)?;
    Ok(stack)
}
