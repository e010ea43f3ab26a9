//! The state of a thread that the kernel saves when it calls the handler, and from which it
//! restores the thread (`struct rt_sigframe` of x86-64). The layout is part of the kernel's
//! interface.

/// The context of the interrupted thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Context {
    flags: u64,
    link: u64,
    /// The stack for handlers: its address, its flags, its bytes.
    stack: [usize; 3],
    pub r8: usize,
    pub r9: usize,
    pub r10: usize,
    pub r11: usize,
    pub r12: usize,
    pub r13: usize,
    pub r14: usize,
    pub r15: usize,
    pub rdi: usize,
    pub rsi: usize,
    pub rbp: usize,
    pub rbx: usize,
    pub rdx: usize,
    pub rax: usize,
    pub rcx: usize,
    pub rsp: usize,
    pub rip: usize,
    others: [u64; 6],
    /// The processor's other registers.
    registers: *mut u8,
    unused: [u64; 8],
    /// The signals that were blocked.
    pub blocked: u64,
}

const _: () = assert!(size_of::<Context>() == 304 && std::mem::offset_of!(Context, registers) == 224);

impl Context {
    /// The arguments of the trapped system call.
    pub fn arguments(&self) -> [usize; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }

    /// The stack for handlers: its address, and its bytes (0 if there is none).
    pub fn stack_aside(&self) -> (usize, usize) {
        let [at, flags, bytes] = self.stack;
        (at, if flags as i32 & libc::SS_DISABLE == 0 { bytes } else { 0 })
    }

    /// The thread has no stack for handlers.
    pub fn forget_stack_aside(&mut self) {
        self.stack = [0, libc::SS_DISABLE as usize, 0];
    }
}

/// The kernel's description of the signal (`siginfo_t`, for a trapped call).
#[repr(C)]
pub struct Trapped {
    pub signal: i32,
    /// The filter's mark.
    pub errno: i32,
    pub code: i32,
    unused: i32,
    pub place: usize,
    pub number: i32,
    pub processor: u32,
}

/// The code of a signal from a filter.
pub const FROM_FILTER: i32 = 1;

/// Bytes of a frame: room for a context, and after it for the other registers.
pub const FRAME: usize = 16 << 10;
const REGISTERS: usize = 320;
/// Bytes of the other registers, unless their header says that there are more.
const PLAIN: usize = 512;
/// The place of a number that says how many bytes the registers have, and the value that marks it
/// (`struct _fpx_sw_bytes`, FP_XSTATE_MAGIC1).
const EXTENDED: usize = 464;
const EXTENDED_MARK: u32 = 0x4650_5853;

/// The most bytes of other registers for which a frame has room.
pub const REGISTERS_MOST: usize = FRAME - REGISTERS;

/// Copies a context, with the other registers, to a frame from which it can be restored, whatever
/// happens to its original stack.
///
/// # Safety
/// The kernel has made the context, and `to` is aligned to 64 bytes and has room for a frame.
pub unsafe fn copy(from: *const Context, to: *mut Context) {
    // SAFETY: the caller passes a context, and the kernel puts the registers where it says.
    unsafe {
        to.copy_from_nonoverlapping(from, 1);
        let registers = (*from).registers;
        if registers.is_null() {
            return;
        }
        let place = to.cast::<u8>().add(REGISTERS);
        let extended = registers.add(EXTENDED).cast::<u32>();
        let len = if extended.read_unaligned() == EXTENDED_MARK {
            extended.add(1).read_unaligned() as usize
        } else {
            PLAIN
        };
        place.copy_from_nonoverlapping(registers, len.min(REGISTERS_MOST));
        (*to).registers = place;
    }
}
