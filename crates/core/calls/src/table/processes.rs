//! Processes and threads: their start, end and scheduling.

use crate::row::Arg::{In, Out, Text};
use crate::row::{AT, NONE, PATH, Row, SPECIAL, V, bytes, call, int, unsigned};
use crate::special::{commands, prctl, processes, ptrace};
use crate::{Hook, Service, When};

/// A mask of processors (32,768 of them at most).
const PROCESSORS: u32 = 4096;

/// The command that sets a filter of system calls.
const PR_SET_SECCOMP: u32 = 22;

/// The request of a process that wants to be traced.
const PTRACE_TRACEME: u32 = 0;

pub const ROWS: &[Row] = &[
    call(56, 220, "clone", &[V, AT, SPECIAL, SPECIAL, SPECIAL])
        .with(processes::clone)
        .host(Service::Clone)
        .when(When::Forks),
    call(435, 435, "clone3", &[SPECIAL, V]).nested(processes::clone3).nobody(),
    call(57, NONE, "fork", &[]).hook(Hook::Fork),
    call(58, NONE, "vfork", &[]).waits().host(Service::Vfork),
    call(59, 221, "execve", &[PATH, SPECIAL, SPECIAL])
        .nested(processes::execve)
        .waits()
        .host(Service::Execute),
    call(322, 281, "execveat", &[V, PATH, SPECIAL, SPECIAL, V])
        .nested(processes::execveat)
        .waits()
        .host(Service::Execute),
    call(60, 93, "exit", &[V]),
    call(231, 94, "exit_group", &[V]).hook(Hook::ExitGroup),
    call(61, 260, "wait4", &[V, Out(bytes(4)), V, Out(bytes(144))]).waits(),
    call(247, 95, "waitid", &[V, V, Out(bytes(128)), V, Out(bytes(144))]).waits(),
    call(218, 96, "set_tid_address", &[SPECIAL]).with(processes::set_tid_address),
    call(273, 99, "set_robust_list", &[SPECIAL, V]).with(processes::set_robust_list),
    call(274, 100, "get_robust_list", &[V, Out(bytes(8)), Out(bytes(8))]),
    call(334, 293, "rseq", &[SPECIAL, V, V, V]).with(processes::rseq).nobody(),
    call(471, 471, "rseq_slice_yield", &[]),
    call(39, 172, "getpid", &[]),
    call(110, 173, "getppid", &[]),
    call(186, 178, "gettid", &[]),
    call(109, 154, "setpgid", &[V, V]),
    call(121, 155, "getpgid", &[V]),
    call(111, NONE, "getpgrp", &[]),
    call(112, 157, "setsid", &[]),
    call(124, 156, "getsid", &[V]),
    call(434, 434, "pidfd_open", &[V, V]),
    call(438, 438, "pidfd_getfd", &[V, V, V]),
    call(272, 97, "unshare", &[V]).hook(Hook::Unshare),
    call(308, 268, "setns", &[V, V]).hook(Hook::Setns),
    call(135, 92, "personality", &[V]),
    call(157, 167, "prctl", &[V, SPECIAL, SPECIAL, SPECIAL, SPECIAL])
        .nested(prctl::visit)
        .host(Service::OwnFilter)
        .when(When::Is(0, PR_SET_SECCOMP)),
    call(158, NONE, "arch_prctl", &[V, SPECIAL]).with(prctl::arch),
    call(101, 117, "ptrace", &[V, V, SPECIAL, SPECIAL])
        .nested(ptrace::visit)
        .host(Service::Trace)
        .when(When::Is(0, PTRACE_TRACEME)),
    call(317, 277, "seccomp", &[V, V, SPECIAL]).nested(commands::seccomp).host(Service::OwnFilter),
    call(205, NONE, "set_thread_area", &[]),
    call(211, NONE, "get_thread_area", &[]),
    call(24, 124, "sched_yield", &[]),
    call(142, 118, "sched_setparam", &[V, In(bytes(4))]),
    call(143, 121, "sched_getparam", &[V, Out(bytes(4))]),
    call(144, 119, "sched_setscheduler", &[V, V, In(bytes(4))]),
    call(145, 120, "sched_getscheduler", &[V]),
    call(146, 125, "sched_get_priority_max", &[V]),
    call(147, 126, "sched_get_priority_min", &[V]),
    call(148, 127, "sched_rr_get_interval", &[V, Out(bytes(16))]),
    call(203, 122, "sched_setaffinity", &[V, V, In(unsigned(1).most(PROCESSORS))]),
    call(204, 123, "sched_getaffinity", &[V, V, Out(unsigned(1).most(PROCESSORS))]),
    call(314, 274, "sched_setattr", &[V, SPECIAL, V]).with(processes::sched_setattr),
    call(315, 275, "sched_getattr", &[V, Out(unsigned(2)), V, V]),
    // The third was a cache (before 2.6.24).
    call(309, 168, "getcpu", &[Out(bytes(4)), Out(bytes(4)), AT]),
    call(140, 141, "getpriority", &[V, V]),
    call(141, 140, "setpriority", &[V, V, V]),
    call(251, 30, "ioprio_set", &[V, V, V]),
    call(252, 31, "ioprio_get", &[V, V]),
    call(97, 163, "getrlimit", &[V, Out(bytes(16))]),
    call(160, 164, "setrlimit", &[V, In(bytes(16))]),
    call(302, 261, "prlimit64", &[V, V, In(bytes(16)), Out(bytes(16))]),
    call(98, 165, "getrusage", &[V, Out(bytes(144))]),
    call(100, 153, "times", &[Out(bytes(32))]),
    call(298, 241, "perf_event_open", &[SPECIAL, V, V, V, V]).nested(processes::perf_event_open),
    call(335, NONE, "uretprobe", &[]),
    call(336, NONE, "uprobe", &[]),
    call(170, 161, "sethostname", &[In(int(1).most(64)), V]),
    call(171, 162, "setdomainname", &[In(int(1).most(64)), V]),
    call(176, 106, "delete_module", &[Text(64), V]).waits(),
];
