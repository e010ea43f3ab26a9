//! Waiting for files, futexes and events.

use crate::row::Arg::{Both, In, Out};
use crate::row::{NONE, Row, SPECIAL, V, bytes, call, int, unsigned};
use crate::special::{futexes, vectors};
use crate::{Service, When};

/// `struct epoll_event`, which is packed on x86-64.
const EVENT: u32 = if cfg!(target_arch = "aarch64") { 16 } else { 12 };
const TIMEOUT: crate::row::Arg = In(bytes(16));

pub const ROWS: &[Row] = &[
    call(7, NONE, "poll", &[Both(unsigned(1).of(8)), V, V]).waits(),
    call(271, 73, "ppoll", &[Both(unsigned(1).of(8)), V, Both(bytes(16)), In(bytes(8)), V])
        .waits()
        .host(Service::Wait(3))
        .when(When::Given(3)),
    call(23, NONE, "select", &[V, SPECIAL, SPECIAL, SPECIAL, Both(bytes(16))]).with(vectors::sets).waits(),
    call(270, 72, "pselect6", &[V, SPECIAL, SPECIAL, SPECIAL, Both(bytes(16)), SPECIAL])
        .nested(vectors::sets_and_mask)
        .waits()
        .host(Service::Select)
        .when(When::Given(5)),
    call(213, NONE, "epoll_create", &[V]),
    call(291, 20, "epoll_create1", &[V]),
    call(233, 21, "epoll_ctl", &[V, V, V, In(bytes(EVENT))]),
    call(232, NONE, "epoll_wait", &[V, Out(int(2).of(EVENT)), V, V]).waits(),
    call(281, 22, "epoll_pwait", &[V, Out(int(2).of(EVENT)), V, V, In(bytes(8)), V])
        .waits()
        .host(Service::Wait(4))
        .when(When::Given(4)),
    call(441, 441, "epoll_pwait2", &[V, Out(int(2).of(EVENT)), V, TIMEOUT, In(bytes(8)), V])
        .waits()
        .host(Service::Wait(4))
        .when(When::Given(4)),
    call(214, NONE, "epoll_ctl_old", &[]),
    call(215, NONE, "epoll_wait_old", &[]),
    call(284, NONE, "eventfd", &[V]),
    call(290, 19, "eventfd2", &[V, V]),
    call(282, NONE, "signalfd", &[V, In(bytes(8)), V]),
    call(289, 74, "signalfd4", &[V, In(bytes(8)), V, V]),
    call(253, NONE, "inotify_init", &[]),
    call(294, 26, "inotify_init1", &[V]),
    call(255, 28, "inotify_rm_watch", &[V, V]),
    call(300, 262, "fanotify_init", &[V, V]),
    call(323, 282, "userfaultfd", &[V]),
    call(202, 98, "futex", &[SPECIAL, V, V, SPECIAL, SPECIAL, V]).with(futexes::futex).waits(),
    call(449, 449, "futex_waitv", &[SPECIAL, V, V, TIMEOUT, V]).nested(futexes::wait_vector).waits(),
    call(454, 454, "futex_wake", &[SPECIAL, V, V, V]).with(futexes::wake),
    call(455, 455, "futex_wait", &[SPECIAL, V, V, V, TIMEOUT, V]).with(futexes::wait).waits(),
    call(456, 456, "futex_requeue", &[SPECIAL, V, V, V]).nested(futexes::requeue),
];
