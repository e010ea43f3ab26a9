//! The machine: its name, log, modules, ports and end; `bpf`.

use crate::row::Arg::{In, Out, Text};
use crate::row::{NONE, Row, SPECIAL, V, bytes, call, int, long};
use crate::special::{bpf, commands};

pub const ROWS: &[Row] = &[
    call(63, 160, "uname", &[Out(bytes(390))]),
    call(99, 179, "sysinfo", &[Out(bytes(112))]),
    call(103, 116, "syslog", &[V, Out(int(2)), V]).waits(),
    call(318, 278, "getrandom", &[Out(long(1)), V, V]).waits(),
    call(153, 58, "vhangup", &[]),
    call(172, NONE, "iopl", &[V]),
    call(173, NONE, "ioperm", &[V, V, V]),
    call(169, 142, "reboot", &[V, V, V, SPECIAL]).with(commands::reboot).waits(),
    call(175, 105, "init_module", &[In(long(1)), V, Text(1 << 20)]).waits(),
    call(313, 273, "finit_module", &[V, Text(1 << 20), V]).waits(),
    call(246, 104, "kexec_load", &[V, V, SPECIAL, V]).nested(commands::kexec_load),
    call(320, 294, "kexec_file_load", &[V, V, V, In(long(2).most(65536)), V]),
    call(321, 280, "bpf", &[V, SPECIAL, V]).nested(bpf::visit).waits(),
];
