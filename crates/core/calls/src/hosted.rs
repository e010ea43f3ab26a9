//! Calls of hosted programs (docs/host.md): which of them the host's filter traps, and who serves
//! them. The filter and both dispatches come from the rows, and a test compares docs/host.md.

/// What a row says of a call of hosted programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hosted {
    /// Under which condition the call is trapped.
    pub when: When,
    /// Who serves it then.
    pub by: By,
}

/// The condition under which a call is trapped; arguments are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Always.
    Always,
    /// If this argument is not 0.
    Given(u8),
    /// If this argument may be one of the pager's descriptors.
    Descriptor(u8),
    /// If this argument, an offset, may be the address of paged memory (`/proc/self/mem`).
    Address(u8),
    /// If this argument is a descriptor that was own memory when the program sought an address in
    /// it: by a filter of its own.
    Marked(u8),
    /// If this argument is this number.
    Is(u8, u32),
    /// If this argument has any of these bits.
    Has(u8, u32),
    /// If the call makes a process that has a copy of this memory, or has this memory until it
    /// executes a program.
    Forks,
    /// If the call may block signals.
    Blocks,
}

/// Who serves a trapped call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The paging library, by its hook of the C library's function.
    Library(Hook),
    /// The host.
    Host(Service),
    /// Nobody: the call fails with ENOSYS, so programs use older calls.
    Nobody,
}

/// A hook of the paging library (`preload`: `process/hosted.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the calls")]
pub enum Hook {
    Brk,
    Close,
    CloseRange,
    Dup2,
    Dup3,
    ExitGroup,
    Fork,
    Madvise,
    Mlock,
    Mlock2,
    Mlockall,
    Mmap,
    Mprotect,
    Mremap,
    Munlock,
    Munlockall,
    Munmap,
    PkeyMprotect,
    Pread64,
    Preadv,
    Preadv2,
    ProcessMadvise,
    ProcessVmWritev,
    Pwrite64,
    Pwritev,
    Pwritev2,
    Read,
    Readv,
    Setns,
    Shmat,
    Shmdt,
    Unshare,
    Write,
    Writev,
}

impl Hook {
    /// Whether the call changes what is mapped, so that a child of `vfork` must not make it as its
    /// parent would (`preload`: `process/borrowed.rs`).
    pub const fn changes_memory(self) -> bool {
        match self {
            Hook::Brk
            | Hook::Madvise
            | Hook::Mlock
            | Hook::Mlock2
            | Hook::Mlockall
            | Hook::Mmap
            | Hook::Mprotect
            | Hook::Mremap
            | Hook::Munlock
            | Hook::Munlockall
            | Hook::Munmap
            | Hook::PkeyMprotect
            | Hook::ProcessMadvise
            | Hook::Shmat
            | Hook::Shmdt => true,
            Hook::Close
            | Hook::CloseRange
            | Hook::Dup2
            | Hook::Dup3
            | Hook::ExitGroup
            | Hook::Fork
            | Hook::Pread64
            | Hook::Preadv
            | Hook::Preadv2
            | Hook::ProcessVmWritev
            | Hook::Pwrite64
            | Hook::Pwritev
            | Hook::Pwritev2
            | Hook::Read
            | Hook::Readv
            | Hook::Setns
            | Hook::Unshare
            | Hook::Write
            | Hook::Writev => false,
        }
    }
}

/// What the host does itself (`host`: `calls.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Notes an action for a signal.
    Action,
    /// Forks, or lends the memory to a child.
    Clone,
    /// Executes a program.
    Execute,
    /// Sets the flags of a file.
    FileFlags,
    /// Blocks signals.
    Mask,
    /// Opens a file: without O_DIRECT, and without waiting for the pager's leases.
    Open,
    /// Sets a filter of the program's.
    OwnFilter,
    /// Reads a link, which may name the program.
    ReadLink,
    /// Sets the position of a file, which may be own memory.
    Seek,
    /// Waits like `pselect6`.
    Select,
    /// Sets an option of a socket.
    SocketOption,
    /// Has the calling process be traced.
    Trace,
    /// Lends the memory to a child.
    Vfork,
    /// Waits with the set of blocked signals that this argument names.
    Wait(u8),
}
