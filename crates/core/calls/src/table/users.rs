//! Users, groups and rights.

use crate::row::Arg::{Both, In, Out};
use crate::row::{Row, SPECIAL, V, bytes, call, int, long, unsigned};
use crate::special::{commands, users};

/// The kernel takes no more (`NGROUPS_MAX`, each of 4 bytes).
const GROUPS: u32 = 65536 * 4;
const ID: crate::row::Arg = Out(bytes(4));

pub const ROWS: &[Row] = &[
    call(102, 174, "getuid", &[]),
    call(107, 175, "geteuid", &[]),
    call(104, 176, "getgid", &[]),
    call(108, 177, "getegid", &[]),
    call(105, 146, "setuid", &[V]),
    call(106, 144, "setgid", &[V]),
    call(113, 145, "setreuid", &[V, V]),
    call(114, 143, "setregid", &[V, V]),
    call(117, 147, "setresuid", &[V, V, V]),
    call(119, 149, "setresgid", &[V, V, V]),
    call(122, 151, "setfsuid", &[V]),
    call(123, 152, "setfsgid", &[V]),
    call(118, 148, "getresuid", &[ID, ID, ID]),
    call(120, 150, "getresgid", &[ID, ID, ID]),
    call(115, 158, "getgroups", &[V, Out(int(0).of(4).most(GROUPS))]),
    call(116, 159, "setgroups", &[V, In(int(0).of(4).most(GROUPS))]),
    call(125, 90, "capget", &[Both(bytes(8)), SPECIAL]).with(users::capget),
    call(126, 91, "capset", &[Both(bytes(8)), SPECIAL]).with(users::capset),
    call(444, 444, "landlock_create_ruleset", &[In(long(1).most(65536)), V, V]),
    call(445, 445, "landlock_add_rule", &[V, V, SPECIAL, V]).with(commands::landlock_add_rule),
    call(446, 446, "landlock_restrict_self", &[V, V]),
    call(459, 459, "lsm_get_self_attr", &[V, SPECIAL, Both(bytes(4)), V]).with(users::lsm_get),
    call(460, 460, "lsm_set_self_attr", &[V, In(unsigned(2).most(65536)), V, V]),
    call(461, 461, "lsm_list_modules", &[SPECIAL, Both(bytes(4)), V]).with(users::lsm_list),
];
