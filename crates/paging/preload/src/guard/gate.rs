//! The gate: a page with a system call instruction from which all calls pass the filter. It lies at
//! the same address in every process, because the filter survives each exec.

use super::machine;
use terapage_sys::machine::{Code, GATE_CODE as CODE, publish};
use terapage_sys::page_bytes;

/// The address of the gate, below the arena.
pub use terapage_sys::hosting::{GATE as AT, at_gate as call};
/// The address that the filter sees: that behind the instruction.
pub const PLACE: usize = AT + machine::CALL_BYTES;

/// How unwinders leave the gate (`.eh_frame`): a thread that is cancelled in a call there runs the
/// destructors of its functions.
#[repr(C, align(8))]
struct Frames {
    common: [u8; 24],
    /// The length of the rest, and the distance from here to the start.
    begin: [u32; 2],
    /// The gate, and its length.
    code: [usize; 2],
    /// No augmentation; nothing to do.
    rest: [u8; 8],
    end: u32,
}

static FRAMES: Frames =
    Frames { common: machine::FRAMES, begin: [28, 28], code: [AT, size_of_val(&CODE)], rest: [0; 8], end: 0 };

unsafe extern "C" {
    /// Of the compiler's library, which this library needs anyway.
    fn __register_frame(frames: *const Frames);
}

/// Makes the gate. Returns whether it is there.
pub fn open() -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let (write, run) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ | libc::PROT_EXEC);
    let write = i64::from(write);
    // SAFETY: nothing is replaced; the page is this function's.
    unsafe {
        let at = libc::syscall(libc::SYS_mmap, AT, page_bytes(), write, i64::from(flags), -1_i64, 0_i64);
        if at != AT as i64 {
            return false;
        }
        (AT as *mut Code).write(CODE);
        publish(AT);
        // Some systems allow no new code (MemoryDenyWriteExecute).
        let runs = libc::syscall(libc::SYS_mprotect, AT, page_bytes(), i64::from(run)) == 0;
        if !runs {
            close();
        }
        runs
    }
}

/// Removes the gate.
pub fn close() {
    // SAFETY: nobody uses the page.
    unsafe { libc::syscall(libc::SYS_munmap, AT, page_bytes()) };
}

/// From now on the calls that the library makes often go through the gate.
pub fn use_it() {
    libc::set_gate(AT);
}

/// Describes the gate to unwinders, which allocate.
pub fn describe() {
    // SAFETY: the description is right, and stays.
    unsafe { __register_frame(&raw const FRAMES) };
}
