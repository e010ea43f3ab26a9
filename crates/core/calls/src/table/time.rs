//! Time and timers.

use crate::row::Arg::{Both, In, Out};
use crate::row::{NONE, Row, V, bytes, call};

/// `struct timex`.
const TIMEX: u32 = 208;

pub const ROWS: &[Row] = &[
    call(96, 169, "gettimeofday", &[Out(bytes(16)), Out(bytes(8))]),
    call(164, 170, "settimeofday", &[In(bytes(16)), In(bytes(8))]),
    call(201, NONE, "time", &[Out(bytes(8))]),
    call(159, 171, "adjtimex", &[Both(bytes(TIMEX))]),
    call(305, 266, "clock_adjtime", &[V, Both(bytes(TIMEX))]),
    call(227, 112, "clock_settime", &[V, In(bytes(16))]),
    call(228, 113, "clock_gettime", &[V, Out(bytes(16))]),
    call(229, 114, "clock_getres", &[V, Out(bytes(16))]),
    call(35, 101, "nanosleep", &[In(bytes(16)), Out(bytes(16))]).waits(),
    call(230, 115, "clock_nanosleep", &[V, V, In(bytes(16)), Out(bytes(16))]).waits(),
    call(37, NONE, "alarm", &[V]),
    call(36, 102, "getitimer", &[V, Out(bytes(32))]),
    call(38, 103, "setitimer", &[V, In(bytes(32)), Out(bytes(32))]),
    // The number of the timer is read if it is restored (`PR_TIMER_CREATE_RESTORE_IDS`).
    call(222, 107, "timer_create", &[V, In(bytes(64)), Both(bytes(4))]),
    call(223, 110, "timer_settime", &[V, V, In(bytes(32)), Out(bytes(32))]),
    call(224, 108, "timer_gettime", &[V, Out(bytes(32))]),
    call(225, 109, "timer_getoverrun", &[V]),
    call(226, 111, "timer_delete", &[V]),
    call(283, 85, "timerfd_create", &[V, V]),
    call(286, 86, "timerfd_settime", &[V, V, In(bytes(32)), Out(bytes(32))]),
    call(287, 87, "timerfd_gettime", &[V, Out(bytes(32))]),
];
