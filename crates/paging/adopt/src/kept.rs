//! What the kernel touches of threads by itself, without a call of theirs: in guarded mode it
//! cannot wait for a page there, so this memory is not paged.

use crate::Why;
use crate::memory::Stack;
use crate::process::Process;
use crate::remote::Remote;
use crate::threads::{BUSY, Threads};
use crate::trace::{self, Registers};
use std::ops::Range;
use terapage_calls::Memory;

/// The kernel's answer to a call that it goes on with later, with the arguments that it has noted
/// (`ERESTART_RESTARTBLOCK`). No filter sees those again.
const GOES_ON: i64 = -516;

/// The calls with such an answer, and the most bytes that one names: those of as many descriptors
/// as a process may have.
const GO_ON: [i64; 4] = [libc::SYS_poll, libc::SYS_nanosleep, libc::SYS_clock_nanosleep, libc::SYS_futex];
const NAMED_MOST: u64 = 8 << 20;

/// `PR_GET_TID_ADDRESS`.
const GET_TID_ADDRESS: usize = 40;

/// Bytes of `stack_t`, and its fields: the start, the flags, the bytes.
const STACK_BYTES: usize = 24;
const DISABLED: u64 = libc::SS_DISABLE as u64;

/// Bytes of the head of a list of robust mutexes, and of the word for a thread's end.
const ROBUST: u64 = 24;
const WORD: u64 = 4;

impl Threads {
    /// The stacks of all threads, with what the kernel uses of each. `instruction` is that of
    /// [`remote::instruction`](crate::remote::instruction), `scratch` a page of the process.
    ///
    /// # Errors
    /// A thread cannot be asked, or is [busy](BUSY): it handles a signal on its other stack.
    pub fn guarded_stacks(
        &self,
        process: &Process,
        instruction: usize,
        scratch: usize,
    ) -> Result<Vec<Stack>, Why> {
        let threads: Vec<(u32, Registers)> = self.free(process)?;
        let mut stacks = Vec::new();
        for (number, registers) in threads {
            let mut stack = Stack::of(&registers);
            let aside = {
                let mut remote = Remote::begin(process, (number, registers), instruction, None)?;
                let asked = ask(&mut remote, scratch, &mut stack);
                remote.end()?;
                asked?
            };
            if aside.as_ref().is_some_and(|aside| aside.contains(&registers.rsp)) {
                // Where its usual stack lies is not known.
                return Err(BUSY.into());
            }
            stack.kept.extend(noted_by_kernel(number));
            named_by_call(process, &registers, &mut stack.kept);
            stack.has_aside = aside.is_some();
            stack.kept.extend(aside);
            stacks.push(stack);
        }
        Ok(stacks)
    }
}

/// Asks the kernel, in the thread: where its word for its end lies. Returns the stack for its
/// handlers.
fn ask(remote: &mut Remote, scratch: usize, stack: &mut Stack) -> Result<Option<Range<u64>>, Why> {
    let what = "its threads cannot be asked";
    let word = |remote: &Remote, at: usize| {
        let mut bytes = [0; size_of::<u64>()];
        let read = remote.process.get(scratch + at, &mut bytes);
        read.map(|()| u64::from_ne_bytes(bytes)).map_err(|error| format!("{what} ({error})"))
    };
    remote.put(scratch, &[0; STACK_BYTES])?;
    // Some kernels do not tell (CONFIG_CHECKPOINT_RESTORE).
    remote.call(what, libc::SYS_prctl, [GET_TID_ADDRESS, scratch, 0, 0, 0, 0])?;
    let at = word(remote, 0)?;
    stack.kept.push(at..at.saturating_add(WORD));
    remote.call(what, libc::SYS_sigaltstack, [0, scratch, 0, 0, 0, 0])?;
    let [start, flags, bytes] = [word(remote, 0)?, word(remote, 8)? & 0xffff_ffff, word(remote, 16)?];
    Ok((flags & DISABLED == 0).then(|| start..start.saturating_add(bytes)))
}

/// What the kernel has noted of a stopped thread: its restartable sequences, and its list of robust
/// mutexes.
fn noted_by_kernel(thread: u32) -> impl Iterator<Item = Range<u64>> {
    /// Bytes of `struct rseq`, of all versions.
    const SEQUENCES: u64 = 256;
    let sequences = trace::sequences(thread).unwrap_or(0);
    let (mut head, mut len) = (0_u64, 0_u64);
    // SAFETY: the call writes two words.
    let found = unsafe {
        libc::syscall(libc::SYS_get_robust_list, i64::from(thread), &raw mut head, &raw mut len) == 0
    };
    let list = if found { head } else { 0 };
    let all = [(sequences, SEQUENCES), (list, ROBUST)];
    all.into_iter().filter(|&(at, _)| at != 0).map(|(at, len)| at..at.saturating_add(len))
}

/// What a call names that the kernel goes on with.
fn named_by_call(process: &Process, registers: &Registers, kept: &mut Vec<Range<u64>>) {
    struct Named<'a>(&'a Process, &'a mut Vec<Range<u64>>);
    impl Memory for Named<'_> {
        fn range(&mut self, range: terapage_calls::Range) -> bool {
            self.1.push(range.start as u64..range.start.saturating_add(range.len) as u64);
            true
        }
        fn read(&mut self, at: usize, into: &mut [u8]) -> bool {
            self.0.get(at, into).is_ok()
        }
        fn is_self(&mut self, pid: i32) -> bool {
            pid as u32 == self.0.pid
        }
    }
    let Registers { rax, orig_rax, rdi, rsi, rdx, r10, r8, r9, .. } = *registers;
    if rax as i64 != GOES_ON {
        return;
    }
    let arguments = [rdi, rsi, rdx, r10, r8, r9].map(|argument| argument as usize);
    let visit = |number: i64, kept: &mut Vec<Range<u64>>| {
        terapage_calls::visit(number as usize, &arguments, &mut Named(process, kept));
    };
    if orig_rax as i64 != libc::SYS_restart_syscall {
        return visit(orig_rax as i64, kept);
    }
    // An earlier stop has ended the call, too: the number is lost, and the arguments are not.
    for number in GO_ON {
        let mut named = Vec::new();
        visit(number, &mut named);
        kept.extend(named.into_iter().filter(|range| range.end - range.start <= NAMED_MOST));
    }
}
