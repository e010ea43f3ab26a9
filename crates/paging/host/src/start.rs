//! The program's beginning: its initial stack, as the kernel would have made it, and the jump.
//!
//! The texts of the arguments and the environment stay where the kernel has put them. The words
//! that point to them, and the auxiliary vector, are made again, below.

use crate::image::Loaded;
use crate::{machine, raw};
use std::ffi::{CStr, CString};

/// The data that the kernel has passed to the host.
pub struct Passed {
    /// The place of the number of arguments.
    at: *mut usize,
    arguments: Vec<usize>,
    environment: Vec<usize>,
    /// The auxiliary vector: kinds and values.
    auxiliary: Vec<(usize, usize)>,
}

/// How the library is named in `LD_PRELOAD`.
const LIBRARY: &[u8] = b"libterapage_preload.so";
const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// The text behind a pointer of the environment.
fn text<'a>(at: usize) -> &'a [u8] {
    // SAFETY: the kernel has put a text there, and only this thread runs.
    unsafe { CStr::from_ptr(at as *const _) }.to_bytes()
}

impl Passed {
    /// The data that were passed to `main`.
    ///
    /// # Safety
    /// These are the arguments of `main`, before any change of the data behind them.
    pub unsafe fn of(count: i32, arguments: *mut usize) -> Passed {
        // SAFETY: the arguments, a zero, the environment, a zero, and the auxiliary vector follow
        // one another.
        unsafe {
            let mut at = arguments;
            let mut words = || {
                let mut all = Vec::new();
                while at.read() != 0 {
                    all.push(at.read());
                    at = at.add(1);
                }
                at = at.add(1);
                all
            };
            let (given, environment) = (words(), words());
            debug_assert_eq!(given.len(), count as usize);
            let mut auxiliary = Vec::new();
            while at.read() != libc::AT_NULL as usize {
                auxiliary.push((at.read(), at.add(1).read()));
                at = at.add(2);
            }
            Passed { at: arguments.sub(1), arguments: given, environment, auxiliary }
        }
    }

    /// The variables of the environment.
    #[cfg(target_env = "musl")]
    pub fn texts(&self) -> impl Iterator<Item = &'static [u8]> {
        self.environment.iter().map(|&at| text(at))
    }

    /// Removes a variable from the environment, and returns its value.
    pub fn take(&mut self, name: &[u8]) -> Option<&'static [u8]> {
        let is = |&at: &usize| text(at).strip_prefix(name).is_some_and(|rest| rest.starts_with(b"="));
        let place = self.environment.iter().position(is)?;
        Some(&text(self.environment.remove(place))[name.len() + 1..])
    }

    /// Removes the library from `LD_PRELOAD`: another C library cannot load it.
    pub fn take_library(&mut self) {
        self.environment.retain_mut(|at| {
            let Some(value) = text(*at).strip_prefix(PRELOAD) else { return true };
            let is_ours = |name: &[u8]| name.rsplit(|&b| b == b'/').next() == Some(LIBRARY);
            let others: Vec<&[u8]> = value
                .split(|b| b": ".contains(b))
                .filter(|name| !name.is_empty() && !is_ours(name))
                .collect();
            let new = [PRELOAD, &others.join(&b':')].concat();
            // The text is for the program, so it is never freed.
            *at = CString::new(new).map_or(*at, |new| new.into_raw() as usize);
            !others.is_empty()
        });
    }

    /// A value of the auxiliary vector.
    pub fn auxiliary(&self, kind: u64) -> Option<usize> {
        self.auxiliary.iter().find(|(other, _)| *other == kind as usize).map(|&(_, value)| value)
    }

    /// The environment, for an exec.
    pub fn environment(&self) -> Vec<usize> {
        self.environment.iter().copied().chain([0]).collect()
    }

    /// The arguments, for an exec.
    pub fn arguments(&self) -> Vec<usize> {
        self.arguments.iter().copied().chain([0]).collect()
    }

    fn set(&mut self, kind: u64, value: usize) {
        match self.auxiliary.iter_mut().find(|(other, _)| *other == kind as usize) {
            Some((_, place)) => *place = value,
            None => self.auxiliary.push((kind as usize, value)),
        }
    }

    /// The words at the top of the program's stack.
    fn words(&self) -> Vec<usize> {
        let pairs = self.auxiliary.iter().flat_map(|&(kind, value)| [kind, value]);
        let texts = self.arguments().into_iter().chain(self.environment());
        [self.arguments.len()].into_iter().chain(texts).chain(pairs).chain([0, 0]).collect()
    }

    /// Describes the loaded files in the auxiliary vector.
    pub fn describe(&mut self, program: &Loaded, loader: Option<&Loaded>, path: &CStr) {
        self.set(libc::AT_PHDR, program.headers);
        self.set(libc::AT_PHNUM, program.header_count);
        self.set(libc::AT_ENTRY, program.entry);
        self.set(libc::AT_BASE, loader.map_or(0, |loader| loader.base));
        self.set(libc::AT_EXECFN, path.as_ptr() as usize);
    }
}

/// Begins the program. Nothing of the host's stack remains.
///
/// # Safety
/// The program is loaded at the entry, and the calling thread is the process's first.
pub unsafe fn jump(passed: &Passed, entry: usize) -> ! {
    let words = passed.words();
    let len = size_of_val(&*words);
    let Some(from) = raw::map(len) else { crate::trap::stop("no memory for the program's arguments") };
    let to = (passed.at as usize - len) & !63;
    // SAFETY: the copy was mapped just now and has this length; below the words that the kernel has
    // passed there are only frames of functions that do not return.
    unsafe {
        (from as *mut usize).copy_from_nonoverlapping(words.as_ptr(), words.len());
        machine::set_pointer(0);
        machine::begin(to, from, words.len(), entry)
    }
}
