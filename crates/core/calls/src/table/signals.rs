//! Signals. `rt_sigreturn` reads the frame that a signal left on the stack.

use crate::row::Arg::{In, Out};
use crate::row::{NONE, Row, V, bytes, call, long};
use crate::special::processes;
use crate::{Service, When};

/// `siginfo_t`.
const INFO: u32 = 128;

pub const ROWS: &[Row] = &[
    call(13, 134, "rt_sigaction", &[V, In(bytes(32)), Out(bytes(32)), V]).host(Service::Action),
    call(14, 135, "rt_sigprocmask", &[V, In(bytes(8)), Out(bytes(8)), V])
        .host(Service::Mask)
        .when(When::Blocks),
    call(15, 139, "rt_sigreturn", &[]),
    call(127, 136, "rt_sigpending", &[Out(long(1).most(8)), V]),
    call(128, 137, "rt_sigtimedwait", &[In(bytes(8)), Out(bytes(INFO)), In(bytes(16)), V]).waits(),
    call(129, 138, "rt_sigqueueinfo", &[V, V, In(bytes(INFO))]),
    call(297, 240, "rt_tgsigqueueinfo", &[V, V, V, In(bytes(INFO))]),
    call(130, 133, "rt_sigsuspend", &[In(bytes(8)), V]).waits().host(Service::Wait(0)),
    call(131, 132, "sigaltstack", &[In(bytes(24)), Out(bytes(24))]).nested(processes::sigaltstack),
    call(424, 424, "pidfd_send_signal", &[V, V, In(bytes(INFO)), V]),
    call(34, NONE, "pause", &[]).waits(),
    call(62, 129, "kill", &[V, V]),
    call(200, 130, "tkill", &[V, V]),
    call(234, 131, "tgkill", &[V, V, V]),
    call(219, 128, "restart_syscall", &[]).waits(),
];
