//! Memory itself. Most of these name addresses, and touch nothing.

use crate::Hook;
use crate::Pieces::Vectors;
use crate::row::Arg::{Both, In, Out};
use crate::row::{AT, NONE, Row, SPECIAL, V, bytes, call, long};
use crate::special::{memory, vectors};

pub const ROWS: &[Row] = &[
    call(9, 222, "mmap", &[AT, V, V, V, V, V]).hook(Hook::Mmap),
    call(10, 226, "mprotect", &[AT, V, V]).hook(Hook::Mprotect),
    call(11, 215, "munmap", &[AT, V]).hook(Hook::Munmap),
    call(12, 214, "brk", &[AT]).hook(Hook::Brk),
    call(25, 216, "mremap", &[AT, V, V, V, AT]).hook(Hook::Mremap),
    call(26, 227, "msync", &[AT, V, V]).waits(),
    call(27, 232, "mincore", &[AT, V, SPECIAL]).with(memory::mincore),
    call(28, 233, "madvise", &[SPECIAL, V, V]).with(memory::madvise).waits().hook(Hook::Madvise),
    // These fault in what they lock. `mlockall` ignores what it cannot fault in.
    call(149, 228, "mlock", &[Both(long(1)), V]).waits().hook(Hook::Mlock),
    call(325, 284, "mlock2", &[Both(long(1)), V, V]).waits().hook(Hook::Mlock2),
    call(150, 229, "munlock", &[AT, V]).hook(Hook::Munlock),
    call(151, 230, "mlockall", &[V]).waits().hook(Hook::Mlockall),
    call(152, 231, "munlockall", &[]).hook(Hook::Munlockall),
    call(216, 234, "remap_file_pages", &[AT, V, V, V, V]),
    call(237, 235, "mbind", &[AT, V, V, SPECIAL, V, V]).with(memory::mbind).waits(),
    call(238, 237, "set_mempolicy", &[V, SPECIAL, V]).with(memory::set_mempolicy),
    call(239, 236, "get_mempolicy", &[Out(bytes(4)), SPECIAL, V, SPECIAL, V]).with(memory::get_mempolicy),
    call(256, 238, "migrate_pages", &[V, V, SPECIAL, SPECIAL]).with(memory::migrate_pages).waits(),
    // The pages are only named.
    call(279, 239, "move_pages", &[V, V, In(long(1).of(8)), In(long(1).of(4)), Out(long(1).of(4)), V])
        .waits(),
    call(450, 450, "set_mempolicy_home_node", &[AT, V, V, V]),
    call(462, 462, "mseal", &[AT, V, V]),
    call(329, 288, "pkey_mprotect", &[AT, V, V, V]).hook(Hook::PkeyMprotect),
    call(330, 289, "pkey_alloc", &[V, V]),
    call(331, 290, "pkey_free", &[V]),
    call(440, 440, "process_madvise", &[V, SPECIAL, V, V, V])
        .nested(memory::process_madvise)
        .waits()
        .hook(Hook::ProcessMadvise),
    call(448, 448, "process_mrelease", &[V, V]).waits(),
    call(453, 453, "map_shadow_stack", &[AT, V, V]),
    call(324, 283, "membarrier", &[V, V, V]),
    call(310, 270, "process_vm_readv", &[V, SPECIAL, V, SPECIAL, V, V])
        .nested(vectors::process_read)
        .in_pieces(Vectors(1, 3)),
    call(311, 271, "process_vm_writev", &[V, SPECIAL, V, SPECIAL, V, V])
        .nested(vectors::process_write)
        .in_pieces(Vectors(1, 3))
        .hook(Hook::ProcessVmWritev),
    call(154, NONE, "modify_ldt", &[V, SPECIAL, V]).with(memory::modify_ldt),
];
