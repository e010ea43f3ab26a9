//! Names of files, and file systems.

use crate::row::Arg::{In, Out, Text};
use crate::row::{NONE, PATH, Row, SPECIAL, V, bytes, call, int, long};
use crate::special::{commands, mounts};
use crate::{Service, When};

/// `struct stat`.
const STAT: u32 = if cfg!(target_arch = "aarch64") { 128 } else { 144 };
/// The largest page: a text or a structure of "one page" is no longer.
const PAGE: u32 = if cfg!(target_arch = "aarch64") { 65536 } else { 4096 };

/// The flag of direct I/O on x86-64, where hosts exist.
const O_DIRECT: u32 = 0o40000;
const O_NONBLOCK: u32 = 0o4000;
/// A host changes what calls with these flags do.
const FLAGS: u32 = O_DIRECT | O_NONBLOCK;

pub const ROWS: &[Row] = &[
    call(2, NONE, "open", &[PATH, V, V]).waits().host(Service::Open).when(When::Has(1, FLAGS)),
    call(257, 56, "openat", &[V, PATH, V, V]).waits().host(Service::Open).when(When::Has(2, FLAGS)),
    call(437, 437, "openat2", &[V, PATH, In(long(3).most(PAGE)), V]).waits().host(Service::Open),
    call(85, NONE, "creat", &[PATH, V]).waits(),
    call(4, NONE, "stat", &[PATH, Out(bytes(STAT))]),
    call(5, 80, "fstat", &[V, Out(bytes(STAT))]),
    call(6, NONE, "lstat", &[PATH, Out(bytes(STAT))]),
    call(262, 79, "newfstatat", &[V, PATH, Out(bytes(STAT)), V]),
    call(332, 291, "statx", &[V, PATH, V, V, Out(bytes(256))]),
    call(468, 468, "file_getattr", &[V, PATH, Out(long(3).most(PAGE)), V, V]),
    call(469, 469, "file_setattr", &[V, PATH, In(long(3).most(PAGE)), V, V]),
    call(21, NONE, "access", &[PATH, V]),
    call(269, 48, "faccessat", &[V, PATH, V]),
    call(439, 439, "faccessat2", &[V, PATH, V, V]),
    call(76, 45, "truncate", &[PATH, V]),
    call(82, NONE, "rename", &[PATH, PATH]),
    call(264, 38, "renameat", &[V, PATH, V, PATH]),
    call(316, 276, "renameat2", &[V, PATH, V, PATH, V]),
    call(83, NONE, "mkdir", &[PATH, V]),
    call(258, 34, "mkdirat", &[V, PATH, V]),
    call(84, NONE, "rmdir", &[PATH]),
    call(86, NONE, "link", &[PATH, PATH]),
    call(265, 37, "linkat", &[V, PATH, V, PATH, V]),
    call(87, NONE, "unlink", &[PATH]),
    call(263, 35, "unlinkat", &[V, PATH, V]),
    call(88, NONE, "symlink", &[PATH, PATH]),
    call(266, 36, "symlinkat", &[PATH, V, PATH]),
    call(89, NONE, "readlink", &[PATH, Out(int(2)), V]).host(Service::ReadLink),
    call(267, 78, "readlinkat", &[V, PATH, Out(int(3)), V]).host(Service::ReadLink),
    call(90, NONE, "chmod", &[PATH, V]),
    call(91, 52, "fchmod", &[V, V]),
    call(268, 53, "fchmodat", &[V, PATH, V]),
    call(452, 452, "fchmodat2", &[V, PATH, V, V]),
    call(92, NONE, "chown", &[PATH, V, V]),
    call(93, 55, "fchown", &[V, V, V]),
    call(94, NONE, "lchown", &[PATH, V, V]),
    call(260, 54, "fchownat", &[V, PATH, V, V, V]),
    call(95, 166, "umask", &[V]),
    call(133, NONE, "mknod", &[PATH, V, V]),
    call(259, 33, "mknodat", &[V, PATH, V, V]),
    call(132, NONE, "utime", &[PATH, In(bytes(16))]),
    call(235, NONE, "utimes", &[PATH, In(bytes(32))]),
    call(261, NONE, "futimesat", &[V, PATH, In(bytes(32))]),
    call(280, 88, "utimensat", &[V, PATH, In(bytes(32)), V]),
    call(79, 17, "getcwd", &[Out(long(1).most(4096)), V]),
    call(80, 49, "chdir", &[PATH]),
    call(81, 50, "fchdir", &[V]),
    call(161, 51, "chroot", &[PATH]),
    call(303, 264, "name_to_handle_at", &[V, PATH, SPECIAL, SPECIAL, V]).with(mounts::name_to_handle),
    call(304, 265, "open_by_handle_at", &[V, SPECIAL, V]).with(mounts::open_by_handle).waits(),
    call(155, 41, "pivot_root", &[PATH, PATH]),
    // The data are a page, of which the kernel takes what it can read.
    call(165, 40, "mount", &[Text(PAGE), PATH, Text(PAGE), V, In(bytes(PAGE))]).waits(),
    call(166, 39, "umount2", &[PATH, V]).waits(),
    call(428, 428, "open_tree", &[V, PATH, V]),
    call(467, 467, "open_tree_attr", &[V, PATH, V, In(long(4).most(PAGE)), V]),
    call(429, 429, "move_mount", &[V, PATH, V, PATH, V]),
    call(430, 430, "fsopen", &[Text(PAGE), V]),
    call(431, 431, "fsconfig", &[V, V, Text(256), SPECIAL, V]).with(mounts::fsconfig).waits(),
    call(432, 432, "fsmount", &[V, V, V]),
    call(433, 433, "fspick", &[V, PATH, V]),
    call(442, 442, "mount_setattr", &[V, PATH, V, In(long(4).most(PAGE)), V]),
    call(457, 457, "statmount", &[SPECIAL, Out(long(2)), V, V]).with(mounts::request),
    call(458, 458, "listmount", &[SPECIAL, Out(long(2).of(8)), V, V]).with(mounts::request),
    call(470, 470, "listns", &[SPECIAL, Out(long(2).of(8)), V, V]).with(mounts::request),
    call(137, 43, "statfs", &[PATH, Out(bytes(120))]),
    call(138, 44, "fstatfs", &[V, Out(bytes(120))]),
    call(136, NONE, "ustat", &[V, Out(bytes(32))]),
    call(139, NONE, "sysfs", &[V, SPECIAL, SPECIAL]).with(mounts::sysfs),
    call(163, 89, "acct", &[PATH]),
    call(167, 224, "swapon", &[PATH, V]).waits(),
    call(168, 225, "swapoff", &[PATH]).waits(),
    call(179, 60, "quotactl", &[V, PATH, V, SPECIAL]).with(commands::quotactl).waits(),
    call(443, 443, "quotactl_fd", &[V, V, V, SPECIAL]).with(commands::quotactl_fd).waits(),
    call(254, 27, "inotify_add_watch", &[V, PATH, V]),
    call(301, 263, "fanotify_mark", &[V, V, V, V, PATH]),
];
