//! What the kernel touches of threads by itself, without a call of theirs: in guarded mode it
//! cannot wait for a page there, so this memory is not paged.

use crate::Why;
use crate::host::ORDERS;
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

/// Bytes for what is asked of a thread: a word, and a `stack_t` (start, flags, bytes).
const PLACE: usize = 32;
const STACK_AT: usize = 8;
const DISABLED: u64 = libc::SS_DISABLE as u64;

const CANNOT: &str = "its threads cannot be asked";

/// Bytes of the head of a list of robust mutexes, and of the word for a thread's end.
const ROBUST: u64 = 24;
const WORD: u64 = 4;

impl Threads {
    /// The stacks of all threads, with what the kernel uses of each. `instruction` is that of
    /// [`remote::instruction`](crate::remote::instruction), `scratch` memory of the process.
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
        let asked = ask(process, instruction, scratch, &threads)?;
        let mut stacks = Vec::new();
        for ((number, registers), (word, aside)) in threads.into_iter().zip(asked) {
            let mut stack = Stack::of(&registers);
            if aside.as_ref().is_some_and(|aside| aside.contains(&registers.rsp)) {
                // Where its usual stack lies is not known.
                return Err(BUSY.into());
            }
            stack.kept.push(word..word.saturating_add(WORD));
            stack.kept.extend(noted_by_kernel(number));
            named_by_call(process, &registers, &mut stack.kept);
            stack.has_aside = aside.is_some();
            stack.kept.extend(aside);
            stacks.push(stack);
        }
        Ok(stacks)
    }
}

/// What a thread knows: where its word for its end lies, and the stack for its handlers.
type Known = (u64, Option<Range<u64>>);

/// Asks the kernel, in each thread. All make the same call at the same time: on a busy machine each
/// waits for a processor.
fn ask(
    process: &Process,
    instruction: usize,
    scratch: usize,
    threads: &[(u32, Registers)],
) -> Result<Vec<Known>, Why> {
    if threads.len() * PLACE > ORDERS {
        return Err("it has too many threads".into());
    }
    let begin = |&thread: &(u32, Registers)| Remote::begin(process, thread, instruction, None);
    let begun: Vec<Result<Remote, Why>> = threads.iter().map(begin).collect();
    let all: Vec<&Remote> = begun.iter().flatten().collect();
    let place = |index: usize| scratch + index * PLACE;
    // Some kernels do not tell the word (CONFIG_CHECKPOINT_RESTORE).
    let asked = process
        .put(scratch, &vec![0; threads.len() * PLACE])
        .map_err(|error| format!("{CANNOT} ({error})"))
        .and_then(|()| together(&all, libc::SYS_prctl, |at| [GET_TID_ADDRESS, place(at), 0, 0, 0, 0]))
        .and_then(|()| together(&all, libc::SYS_sigaltstack, |at| [0, place(at) + STACK_AT, 0, 0, 0, 0]));
    drop(all);
    let ended: Vec<Result<(), Why>> = begun.into_iter().map(|remote| remote?.end()).collect();
    ended.into_iter().collect::<Result<(), Why>>()?;
    asked?;
    let mut bytes = vec![0; threads.len() * PLACE];
    process.get(scratch, &mut bytes).map_err(|error| format!("{CANNOT} ({error})"))?;
    let known = |place: &[u8]| {
        let word = |at: usize| place[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
        let [start, flags, bytes] = [0, 8, 16].map(|at| word(STACK_AT + at));
        let has_stack = flags & 0xffff_ffff & DISABLED == 0;
        (word(0), has_stack.then(|| start..start.saturating_add(bytes)))
    };
    Ok(bytes.chunks_exact(PLACE).map(known).collect())
}

/// Lets all threads make a call, and waits for all of them, also after an error of one.
fn together(all: &[&Remote], number: i64, arguments: impl Fn(usize) -> [usize; 6]) -> Result<(), Why> {
    let begun: Vec<_> = all.iter().enumerate().map(|(at, one)| one.start(number, arguments(at))).collect();
    let answers: Vec<_> =
        begun.into_iter().zip(all).map(|(begun, one)| begun.and_then(|()| one.finish())).collect();
    answers.into_iter().try_for_each(|answer| match answer? {
        0 => Ok(()),
        refused => Err(format!("{CANNOT} ({})", std::io::Error::from_raw_os_error(-refused as i32))),
    })
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
