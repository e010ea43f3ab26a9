//! System calls that a stopped thread of another process makes for this one.
//!
//! The thread executes a `syscall` instruction that its process has (in the kernel's vdso), step by
//! step, with all other signals blocked. Its registers are put back at the end.

use crate::Why;
use crate::memory::Mapping;
use crate::process::Process;
use crate::trace::{self, Registers, Stop};
use std::time::Duration;

/// The longest time that a call may take.
const CALL_MOST: Duration = Duration::from_secs(10);

const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// The signal by which a step ends. If a thread blocked it, the kernel would take the program's
/// handler for it away.
const STEPS: u64 = 1 << (libc::SIGTRAP - 1);

/// A thread that makes calls.
pub struct Remote<'a> {
    pub process: &'a Process,
    thread: u32,
    registers: Registers,
    blocked: u64,
    instruction: usize,
    /// The number of the call that fails, for tests.
    fault: Option<usize>,
    calls: usize,
}

fn system(error: &std::io::Error) -> Why {
    format!("its thread cannot make calls ({error})")
}

/// Where a `syscall` instruction lies in a process.
pub fn instruction(process: &Process, all: &[Mapping]) -> Result<usize, Why> {
    let vdso = all.iter().find(|mapping| mapping.name == "[vdso]");
    let range = &vdso.ok_or("it has no vdso")?.range;
    let mut code = vec![0; (range.end - range.start) as usize];
    process.get(range.start as usize, &mut code).map_err(|error| system(&error))?;
    let place = code.windows(SYSCALL.len()).position(|bytes| bytes == SYSCALL);
    place.map(|place| range.start as usize + place).ok_or_else(|| "its vdso makes no calls".to_owned())
}

impl<'a> Remote<'a> {
    /// Begins to make calls with this [`instruction`].
    pub fn begin(
        process: &'a Process,
        (thread, registers): (u32, Registers),
        instruction: usize,
        fault: Option<usize>,
    ) -> Result<Remote<'a>, Why> {
        let blocked = trace::blocked(thread).map_err(|error| system(&error))?;
        trace::block(thread, !STEPS).map_err(|error| system(&error))?;
        Ok(Remote { process, thread, registers, blocked, instruction, fault, calls: 0 })
    }

    /// The registers with which the thread makes a call.
    pub fn registers_for(&self, number: i64, arguments: [usize; 6]) -> Registers {
        let [a, b, c, d, e, f] = arguments.map(|argument| argument as u64);
        Registers {
            rip: self.instruction as u64,
            rax: number as u64,
            orig_rax: u64::MAX,
            rdi: a,
            rsi: b,
            rdx: c,
            r10: d,
            r8: e,
            r9: f,
            ..self.registers
        }
    }

    fn next_fails(&mut self) -> bool {
        self.calls += 1;
        self.fault == Some(self.calls)
    }

    /// Makes a call, and returns the kernel's answer.
    ///
    /// # Errors
    /// The thread could not make it, or the kernel refuses it. `what` names it in the text.
    pub fn call(&mut self, what: &str, number: i64, arguments: [usize; 6]) -> Result<usize, Why> {
        if self.next_fails() {
            return Err(format!("{what}: a fault of a test"));
        }
        let answer = self.answer(number, arguments)?;
        if (-4095..0).contains(&answer) {
            return Err(format!("{what} ({})", std::io::Error::from_raw_os_error(-answer as i32)));
        }
        Ok(answer as usize)
    }

    /// Makes a call that the kernel may refuse, and returns its answer.
    ///
    /// # Errors
    /// The thread could not make it.
    pub fn answer(&mut self, number: i64, arguments: [usize; 6]) -> Result<i64, Why> {
        self.start(number, arguments)?;
        self.finish()
    }

    /// Lets the thread begin a call.
    ///
    /// # Errors
    /// The thread cannot make it.
    pub fn start(&self, number: i64, arguments: [usize; 6]) -> Result<(), Why> {
        let registers = self.registers_for(number, arguments);
        let begins = trace::set_registers(self.thread, &registers).and_then(|()| trace::step(self.thread));
        begins.map_err(|error| system(&error))
    }

    /// Waits for the kernel's answer to the call that the thread has begun.
    ///
    /// # Errors
    /// The thread could not make it.
    pub fn finish(&self) -> Result<i64, Why> {
        self.await_step()?;
        Ok(trace::registers(self.thread).map_err(|error| system(&error))?.rax as i64)
    }

    /// Writes memory of the process.
    pub fn put(&self, at: usize, bytes: &[u8]) -> Result<(), Why> {
        self.process.put(at, bytes).map_err(|error| system(&error))
    }

    /// Waits until the thread has executed one instruction.
    fn await_step(&self) -> Result<(), Why> {
        loop {
            match trace::wait(self.thread, CALL_MOST).map_err(|error| system(&error))? {
                Stop::Signal(libc::SIGTRAP) => return Ok(()),
                Stop::Ended => return Err("it has ended".into()),
                // The process is to stop: the kernel stops it after this process has let it go.
                Stop::Request(_) | Stop::Signal(_) | Stop::Clone => {}
            }
            trace::step(self.thread).map_err(|error| system(&error))?;
        }
    }

    /// Begins a thread with these registers, which stays stopped. Returns its number.
    pub fn begin_thread(&mut self, stack: usize, registers: &Registers) -> Result<u32, Why> {
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM;
        if self.next_fails() {
            return Err("a thread: a fault of a test".into());
        }
        let call = self.registers_for(libc::SYS_clone, [flags as usize, stack, 0, 0, 0, 0]);
        let made = || -> std::io::Result<Option<u32>> {
            trace::follow_threads(self.thread, true)?;
            trace::set_registers(self.thread, &call)?;
            trace::step(self.thread)?;
            if trace::wait(self.thread, CALL_MOST)? != Stop::Clone {
                return Ok(None);
            }
            let made = trace::made(self.thread)?;
            trace::wait(made, CALL_MOST)?;
            // It has inherited this, and will begin threads of its own.
            trace::follow_threads(made, false)?;
            trace::set_registers(made, registers)?;
            Ok(Some(made))
        };
        let made = made().map_err(|error| system(&error))?.ok_or("it may have no further thread")?;
        // The call's answer is written only now.
        trace::step(self.thread).map_err(|error| system(&error))?;
        self.await_step()?;
        trace::follow_threads(self.thread, false).map_err(|error| system(&error))?;
        Ok(made)
    }

    /// The thread gets back what it had.
    pub fn end(self) -> Result<(), Why> {
        let put = || {
            trace::set_registers(self.thread, &self.registers)?;
            trace::block(self.thread, self.blocked)
        };
        put().map_err(|error| system(&error))
    }
}
