//! System V's and POSIX's messages, semaphores and shared memory; keys.

use crate::Hook;
use crate::row::Arg::{Both, In, Out, Text};
use crate::row::{AT, NONE, PATH, Row, SPECIAL, V, bytes, call, long, unsigned};
use crate::special::{commands, keys};

const TIMEOUT: crate::row::Arg = In(bytes(16));
/// The type of a key, with its NUL.
const TYPE: crate::row::Arg = Text(32);
/// The description of a key, and what is handed on with a request.
const TEXT: crate::row::Arg = Text(4096);

pub const ROWS: &[Row] = &[
    call(29, 194, "shmget", &[V, V, V]),
    call(30, 196, "shmat", &[V, AT, V]).hook(Hook::Shmat),
    call(31, 195, "shmctl", &[V, V, SPECIAL]).with(commands::shmctl),
    call(67, 197, "shmdt", &[AT]).hook(Hook::Shmdt),
    call(64, 190, "semget", &[V, V, V]),
    call(65, 193, "semop", &[V, In(unsigned(2).of(6)), V]).waits(),
    call(220, 192, "semtimedop", &[V, In(unsigned(2).of(6)), V, TIMEOUT]).waits(),
    call(66, 191, "semctl", &[V, V, V, SPECIAL]).with(commands::semctl),
    call(68, 186, "msgget", &[V, V]),
    // The type of the message stands before its bytes.
    call(69, 189, "msgsnd", &[V, In(long(2).plus(8)), V, V]).waits(),
    call(70, 188, "msgrcv", &[V, Out(long(2).plus(8)), V, V, V]).waits(),
    call(71, 187, "msgctl", &[V, V, SPECIAL]).with(commands::msgctl),
    call(240, 180, "mq_open", &[PATH, V, V, In(bytes(64))]),
    call(241, 181, "mq_unlink", &[PATH]),
    call(242, 182, "mq_timedsend", &[V, In(long(2)), V, V, TIMEOUT]).waits(),
    call(243, 183, "mq_timedreceive", &[V, Out(long(2)), V, Out(bytes(4)), TIMEOUT]).waits(),
    call(244, 184, "mq_notify", &[V, In(bytes(64))]).nested(commands::mq_notify),
    call(245, 185, "mq_getsetattr", &[V, In(bytes(64)), Out(bytes(64))]),
    // The kernel takes payloads of less than 1 MiB.
    call(248, 217, "add_key", &[TYPE, TEXT, In(long(3).most(1 << 20)), V, V]),
    call(249, 218, "request_key", &[TYPE, TEXT, TEXT, V]).waits(),
    call(250, 219, "keyctl", &[V, SPECIAL, SPECIAL, SPECIAL, SPECIAL]).nested(keys::visit).waits(),
    call(312, 272, "kcmp", &[V, V, V, V, SPECIAL]).with(commands::kcmp),
    call(174, NONE, "create_module", &[]),
    call(177, NONE, "get_kernel_syms", &[]),
    call(178, NONE, "query_module", &[]),
    call(180, 42, "nfsservctl", &[]),
    call(181, NONE, "getpmsg", &[]),
    call(182, NONE, "putpmsg", &[]),
    call(183, NONE, "afs_syscall", &[]),
    call(184, NONE, "tuxcall", &[]),
    call(185, NONE, "security", &[]),
    call(236, NONE, "vserver", &[]),
    call(156, NONE, "_sysctl", &[]),
    call(134, NONE, "uselib", &[]),
    // `getdents` of profiles (before 6.8).
    call(212, 18, "lookup_dcookie", &[V, Both(long(2).most(4096)), V]),
];
