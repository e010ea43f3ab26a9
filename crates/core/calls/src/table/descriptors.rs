//! Reads, writes, and what else is done with open files; extended attributes.

use crate::Pieces::{Bytes, Vector};
use crate::row::Arg::{Both, In, Out, Text};
use crate::row::{NONE, PATH, Row, SPECIAL, V, bytes, call, long, unsigned};
use crate::special::{commands, ioctl, refused, vectors, xattrs};
use crate::{Hook, Service, When};

/// The name of an attribute (`XATTR_NAME_MAX`, and a NUL).
const NAME: crate::row::Arg = Text(256);
/// The value of an attribute, or all names, are no longer (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
const VALUE: u32 = 65536;

/// The command that sets the flags of a file.
const F_SETFL: u32 = 4;

pub const ROWS: &[Row] = &[
    call(0, 63, "read", &[V, Out(long(2)), V])
        .in_pieces(Bytes(1))
        .waits()
        .hook(Hook::Read)
        .when(When::Marked(0)),
    call(1, 64, "write", &[V, In(long(2)), V])
        .in_pieces(Bytes(1))
        .waits()
        .hook(Hook::Write)
        .when(When::Marked(0)),
    call(17, 67, "pread64", &[V, Out(long(2)), V, V])
        .in_pieces(Bytes(1))
        .waits()
        .hook(Hook::Pread64)
        .when(When::Address(3)),
    call(18, 68, "pwrite64", &[V, In(long(2)), V, V])
        .in_pieces(Bytes(1))
        .waits()
        .hook(Hook::Pwrite64)
        .when(When::Address(3)),
    call(19, 65, "readv", &[V, SPECIAL, V])
        .nested(vectors::read)
        .in_pieces(Vector(1))
        .waits()
        .hook(Hook::Readv)
        .when(When::Marked(0)),
    call(20, 66, "writev", &[V, SPECIAL, V])
        .nested(vectors::write)
        .in_pieces(Vector(1))
        .waits()
        .hook(Hook::Writev)
        .when(When::Marked(0)),
    call(295, 69, "preadv", &[V, SPECIAL, V, V, V])
        .nested(vectors::read)
        .in_pieces(Vector(1))
        .waits()
        .hook(Hook::Preadv)
        .when(When::Address(3)),
    call(296, 70, "pwritev", &[V, SPECIAL, V, V, V])
        .nested(vectors::write)
        .in_pieces(Vector(1))
        .waits()
        .hook(Hook::Pwritev)
        .when(When::Address(3)),
    call(327, 286, "preadv2", &[V, SPECIAL, V, V, V, V])
        .nested(vectors::read)
        .in_pieces(Vector(1))
        .waits()
        .hook(Hook::Preadv2)
        .when(When::Address(3)),
    call(328, 287, "pwritev2", &[V, SPECIAL, V, V, V, V])
        .nested(vectors::write)
        .in_pieces(Vector(1))
        .waits()
        .hook(Hook::Pwritev2)
        .when(When::Address(3)),
    call(40, 71, "sendfile", &[V, V, Both(bytes(8)), V]).waits(),
    call(275, 76, "splice", &[V, Both(bytes(8)), V, Both(bytes(8)), V, V]).waits(),
    call(276, 77, "tee", &[V, V, V, V]).waits(),
    call(278, 75, "vmsplice", &[V, SPECIAL, V, V]).nested(refused).waits().nobody(),
    call(326, 285, "copy_file_range", &[V, Both(bytes(8)), V, Both(bytes(8)), V, V]).waits(),
    call(3, 57, "close", &[V]).waits().hook(Hook::Close).when(When::Descriptor(0)),
    call(436, 436, "close_range", &[V, V, V]).hook(Hook::CloseRange),
    call(8, 62, "lseek", &[V, V, V]).host(Service::Seek).when(When::Address(1)),
    call(16, 29, "ioctl", &[V, V, SPECIAL]).nested(ioctl::visit).waits(),
    call(72, 25, "fcntl", &[V, V, SPECIAL])
        .with(commands::fcntl)
        .waits()
        .host(Service::FileFlags)
        .when(When::Is(1, F_SETFL)),
    call(73, 32, "flock", &[V, V]).waits(),
    call(74, 82, "fsync", &[V]).waits(),
    call(75, 83, "fdatasync", &[V]).waits(),
    call(162, 81, "sync", &[]).waits(),
    call(306, 267, "syncfs", &[V]).waits(),
    call(277, 84, "sync_file_range", &[V, V, V, V]).waits(),
    call(77, 46, "ftruncate", &[V, V]),
    call(285, 47, "fallocate", &[V, V, V, V]).waits(),
    call(221, 223, "fadvise64", &[V, V, V, V]),
    call(187, 213, "readahead", &[V, V, V]),
    call(451, 451, "cachestat", &[V, In(bytes(16)), Out(bytes(40)), V]),
    call(32, 23, "dup", &[V]),
    call(33, NONE, "dup2", &[V, V]).hook(Hook::Dup2).when(When::Descriptor(1)),
    call(292, 24, "dup3", &[V, V, V]).hook(Hook::Dup3).when(When::Descriptor(1)),
    call(22, NONE, "pipe", &[Out(bytes(8))]),
    call(293, 59, "pipe2", &[Out(bytes(8)), V]),
    call(78, NONE, "getdents", &[V, Out(unsigned(2)), V]),
    call(217, 61, "getdents64", &[V, Out(unsigned(2)), V]),
    call(319, 279, "memfd_create", &[Text(250), V]),
    call(447, 447, "memfd_secret", &[V]),
    // The kernel reads and writes what operations name until they end.
    call(206, 0, "io_setup", &[V, Both(bytes(8))]).with(refused),
    call(209, 2, "io_submit", &[V, V, SPECIAL]).nested(refused),
    call(425, 425, "io_uring_setup", &[V, SPECIAL]).nested(refused),
    call(426, 426, "io_uring_enter", &[V, V, V, V, SPECIAL, V]).nested(refused).waits(),
    call(427, 427, "io_uring_register", &[V, V, SPECIAL, V]).nested(refused).waits(),
    call(207, 1, "io_destroy", &[V]).waits(),
    call(208, 4, "io_getevents", &[V, V, V, Out(long(2).of(32)), In(bytes(16))]).waits(),
    call(333, 292, "io_pgetevents", &[V, V, V, Out(long(2).of(32)), In(bytes(16)), SPECIAL])
        .nested(vectors::mask_in_sixth)
        .waits(),
    call(210, 3, "io_cancel", &[V, In(bytes(64)), Out(bytes(32))]),
    call(188, 5, "setxattr", &[PATH, NAME, In(long(3).most(VALUE)), V, V]),
    call(189, 6, "lsetxattr", &[PATH, NAME, In(long(3).most(VALUE)), V, V]),
    call(190, 7, "fsetxattr", &[V, NAME, In(long(3).most(VALUE)), V, V]),
    call(191, 8, "getxattr", &[PATH, NAME, Out(long(3).most(VALUE)), V]),
    call(192, 9, "lgetxattr", &[PATH, NAME, Out(long(3).most(VALUE)), V]),
    call(193, 10, "fgetxattr", &[V, NAME, Out(long(3).most(VALUE)), V]),
    call(194, 11, "listxattr", &[PATH, Out(long(2).most(VALUE)), V]),
    call(195, 12, "llistxattr", &[PATH, Out(long(2).most(VALUE)), V]),
    call(196, 13, "flistxattr", &[V, Out(long(2).most(VALUE)), V]),
    call(197, 14, "removexattr", &[PATH, NAME]),
    call(198, 15, "lremovexattr", &[PATH, NAME]),
    call(199, 16, "fremovexattr", &[V, NAME]),
    call(463, 463, "setxattrat", &[V, PATH, V, NAME, SPECIAL, V]).nested(xattrs::set),
    call(464, 464, "getxattrat", &[V, PATH, V, NAME, SPECIAL, V]).nested(xattrs::get),
    call(465, 465, "listxattrat", &[V, PATH, V, Out(long(4).most(VALUE)), V]),
    call(466, 466, "removexattrat", &[V, PATH, V, NAME]),
];
