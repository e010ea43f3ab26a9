//! Names of files, their properties, file systems.

use crate::world::{Case, World, case, checked};

const CURRENT: usize = libc::AT_FDCWD as usize;

/// A file `f`, a link `l` to it, a directory `d`.
fn files() {
    std::fs::write("f", "x").unwrap();
    std::fs::create_dir("d").unwrap();
    std::os::unix::fs::symlink("target", "l").unwrap();
}

fn text(w: &mut World, text: &str) -> usize {
    files();
    w.text(text)
}

/// The arguments of a call with one name, and then these.
fn first(w: &mut World, name: &str, others: [usize; 3]) -> [usize; 6] {
    [text(w, name), others[0], others[1], others[2], 0, 0]
}

/// The same beside a directory.
fn second(w: &mut World, name: &str, others: [usize; 3]) -> [usize; 6] {
    [CURRENT, text(w, name), others[0], others[1], others[2], 0]
}

/// The identity of the mount of the root, which is what `statx` says.
fn mount() -> usize {
    let mut answer = std::mem::MaybeUninit::<[u64; 32]>::zeroed();
    // STATX_MNT_ID_UNIQUE
    // SAFETY: the answer has 256 bytes, of any value.
    let words = unsafe {
        libc::syscall(libc::SYS_statx, CURRENT, c"/".as_ptr(), 0, 0x4000, answer.as_mut_ptr());
        answer.assume_init()
    };
    words[18] as usize
}

pub const CASES: &[Case] = &[
    case("open", |w| first(w, "f", [0; 3])),
    case("openat", |w| second(w, "f", [0; 3])),
    case("openat2", |w| [CURRENT, text(w, "f"), w.words(&[0, 0, 0]), 24, 0, 0]),
    case("openat2", |w| [CURRENT, text(w, "f"), w.words(&[0; 8]), 64, 0, 0]),
    case("creat", |w| first(w, "n", [0o600, 0, 0])),
    case("stat", |w| [text(w, "f"), w.out(), 0, 0, 0, 0]),
    case("lstat", |w| [text(w, "f"), w.out(), 0, 0, 0, 0]),
    case("fstat", |w| [w.file(3), w.out(), 0, 0, 0, 0]),
    case("newfstatat", |w| [CURRENT, text(w, "f"), w.out(), 0, 0, 0]),
    case("statx", |w| [CURRENT, text(w, "f"), 0, 0xfff, w.out(), 0]),
    case("file_getattr", |w| [CURRENT, text(w, "f"), w.out(), 24, 0, 0]),
    case("access", |w| first(w, "f", [0; 3])),
    case("faccessat", |w| second(w, "f", [0; 3])),
    case("faccessat2", |w| second(w, "f", [0; 3])),
    case("truncate", |w| first(w, "f", [0; 3])),
    case("rename", |w| [text(w, "f"), w.text("new"), 0, 0, 0, 0]),
    case("renameat", |w| [CURRENT, text(w, "f"), CURRENT, w.text("new"), 0, 0]),
    case("renameat2", |w| [CURRENT, text(w, "f"), CURRENT, w.text("new"), 0, 0]),
    case("mkdir", |w| first(w, "n", [0o700, 0, 0])),
    case("mkdirat", |w| second(w, "n", [0o700, 0, 0])),
    case("rmdir", |w| first(w, "d", [0; 3])),
    case("link", |w| [text(w, "f"), w.text("new"), 0, 0, 0, 0]),
    case("linkat", |w| [CURRENT, text(w, "f"), CURRENT, w.text("new"), 0, 0]),
    case("unlink", |w| first(w, "f", [0; 3])),
    case("unlinkat", |w| second(w, "f", [0; 3])),
    case("symlink", |w| [text(w, "f"), w.text("new"), 0, 0, 0, 0]),
    case("symlinkat", |w| [text(w, "f"), CURRENT, w.text("new"), 0, 0, 0]),
    case("readlink", |w| {
        let len = w.between(1, 6);
        [text(w, "l"), w.out(), len, 0, 0, 0]
    }),
    case("readlinkat", |w| {
        let len = w.between(1, 6);
        [CURRENT, text(w, "l"), w.out(), len, 0, 0]
    }),
    case("chmod", |w| first(w, "f", [0o600, 0, 0])),
    case("fchmodat", |w| second(w, "f", [0o600, 0, 0])),
    case("fchmodat2", |w| second(w, "f", [0o600, 0, 0])),
    case("chown", |w| first(w, "f", [usize::MAX, usize::MAX, 0])),
    case("lchown", |w| first(w, "f", [usize::MAX, usize::MAX, 0])),
    case("fchownat", |w| second(w, "f", [usize::MAX, usize::MAX, 0])),
    case("mknod", |w| first(w, "n", [0o10_600, 0, 0])),
    case("mknodat", |w| second(w, "n", [0o10_600, 0, 0])),
    case("utime", |w| [text(w, "f"), w.words(&[1, 2]), 0, 0, 0, 0]),
    case("utimes", |w| [text(w, "f"), w.words(&[1, 2, 3, 4]), 0, 0, 0, 0]),
    case("futimesat", |w| [CURRENT, text(w, "f"), w.words(&[1, 2, 3, 4]), 0, 0, 0]),
    case("utimensat", |w| [CURRENT, text(w, "f"), w.words(&[1, 2, 3, 4]), 0, 0, 0]),
    case("getcwd", |w| {
        let memory = w.out();
        w.loose();
        [memory, 4096, 0, 0, 0, 0]
    }),
    case("chdir", |w| first(w, "d", [0; 3])),
    case("chroot", |w| first(w, "d", [0; 3])),
    case("name_to_handle_at", |w| {
        let handle = w.ints(&[8, 0]);
        w.loose();
        [CURRENT, text(w, "f"), handle, w.out(), 0, 0]
    }),
    case("open_by_handle_at", |w| {
        // A handle of no kind.
        let handle = w.words(&[8 | 99 << 32, 0]);
        [CURRENT, handle, 0, 0, 0, 0]
    })
    .fails(),
    case("file_setattr", |w| [CURRENT, text(w, "f"), w.words(&[0; 3]), 24, 0, 0]),
    case("pivot_root", |w| [text(w, "d"), w.text("d"), 0, 0, 0, 0]).fails(),
    case("umount2", |w| first(w, "d", [0; 3])).fails(),
    case("mount", |w| {
        files();
        let options = w.mem(b"ro");
        w.loose();
        [w.text("what"), w.text("d"), w.text("no such type"), 0, options, 0]
    })
    .fails(),
    case("open_tree", |w| second(w, "d", [0; 3])),
    case("open_tree_attr", |w| [CURRENT, text(w, "d"), 1, w.words(&[0; 4]), 32, 0]),
    case("move_mount", |w| [CURRENT, text(w, "d"), CURRENT, w.text("d"), 0, 0]).fails(),
    case("fsopen", |w| [w.text("tmpfs"), 0, 0, 0, 0, 0]),
    case("fsconfig", |w| {
        // SAFETY: a text.
        let fs = checked(unsafe { libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), 0) } as isize);
        [fs, 1, w.text("mode"), w.text("700"), 0, 0]
    }),
    case("fspick", |w| second(w, "/dev", [0; 3])).fails(),
    case("mount_setattr", |w| [CURRENT, text(w, "nowhere"), 0, w.words(&[1, 0, 0, 0]), 32, 0]).fails(),
    case("statmount", |w| {
        let memory = w.out();
        w.loose();
        [w.words(&[24, mount(), 1]), memory, 4096, 0, 0, 0]
    }),
    case("listmount", |w| {
        // All of the root (LSMT_ROOT), of which there is one at least.
        [w.words(&[24, usize::MAX, 0]), w.out(), 1, 0, 0, 0]
    }),
    case("statfs", |w| [text(w, "f"), w.out(), 0, 0, 0, 0]),
    case("fstatfs", |w| [w.file(3), w.out(), 0, 0, 0, 0]),
    case("ustat", |w| {
        use std::os::unix::fs::MetadataExt;
        let device = std::fs::metadata("/").unwrap().dev() as usize;
        [device, w.out(), 0, 0, 0, 0]
    }),
    case("sysfs", |w| [1, w.text("proc"), 0, 0, 0, 0]),
    case("sysfs", |w| {
        let memory = w.out();
        w.loose();
        [2, 0, memory, 0, 0, 0]
    }),
    case("acct", |w| first(w, "nowhere", [0; 3])).fails(),
    case("swapon", |w| first(w, "nowhere", [0; 3])).fails(),
    case("swapoff", |w| first(w, "nowhere", [0; 3])).fails(),
    case("quotactl", |w| [0x80_0007 << 8, text(w, "nowhere"), 0, 0, 0, 0]).fails(),
    case("inotify_add_watch", |w| {
        // SAFETY: the call touches no memory.
        let inotify = unsafe { libc::inotify_init1(0) } as usize;
        [inotify, text(w, "f"), 2, 0, 0, 0]
    }),
    case("fanotify_mark", |w| {
        // SAFETY: the call touches no memory.
        let fanotify = checked(unsafe { libc::fanotify_init(0, 0) } as isize);
        [fanotify, 1, 2, CURRENT, text(w, "f"), 0]
    }),
    case("mq_open", |w| [w.text("calls-nowhere"), 0, 0, 0, 0, 0]).fails(),
    case("mq_unlink", |w| [w.text("calls-nowhere"), 0, 0, 0, 0, 0]).fails(),
];
