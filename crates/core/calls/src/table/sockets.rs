//! Sockets.

use crate::Pieces::Bytes;
use crate::row::Arg::{Both, In, Out};
use crate::row::{Row, SPECIAL, V, bytes, call, int, long};
use crate::special::sockets;
use crate::{Service, When};

/// `struct sockaddr_storage`: the kernel takes and gives no longer address.
const ADDRESS: u32 = 128;

/// The option by which a socket sends without a copy.
const SO_ZEROCOPY: u32 = 60;

pub const ROWS: &[Row] = &[
    call(41, 198, "socket", &[V, V, V]),
    call(53, 199, "socketpair", &[V, V, V, Out(bytes(8))]),
    call(49, 200, "bind", &[V, In(int(2).most(ADDRESS)), V]),
    call(50, 201, "listen", &[V, V]),
    call(42, 203, "connect", &[V, In(int(2).most(ADDRESS)), V]).waits(),
    call(43, 202, "accept", &[V, SPECIAL, Both(bytes(4))]).with(sockets::address_1).waits(),
    call(288, 242, "accept4", &[V, SPECIAL, Both(bytes(4)), V]).with(sockets::address_1).waits(),
    call(51, 204, "getsockname", &[V, SPECIAL, Both(bytes(4))]).with(sockets::address_1),
    call(52, 205, "getpeername", &[V, SPECIAL, Both(bytes(4))]).with(sockets::address_1),
    call(44, 206, "sendto", &[V, In(long(2)), V, V, In(int(5).most(ADDRESS)), V]).in_pieces(Bytes(1)).waits(),
    call(45, 207, "recvfrom", &[V, Out(long(2)), V, V, SPECIAL, Both(bytes(4))])
        .with(sockets::address_4)
        .in_pieces(Bytes(1))
        .waits(),
    call(46, 211, "sendmsg", &[V, SPECIAL, V]).nested(sockets::send_message).waits(),
    call(47, 212, "recvmsg", &[V, SPECIAL, V]).nested(sockets::receive_message).waits(),
    call(307, 269, "sendmmsg", &[V, SPECIAL, V, V]).nested(sockets::send_messages).waits(),
    call(299, 243, "recvmmsg", &[V, SPECIAL, V, V, Both(bytes(16))])
        .nested(sockets::receive_messages)
        .waits(),
    call(54, 208, "setsockopt", &[V, V, V, In(int(4)), V])
        .nested(sockets::set_option)
        .host(Service::SocketOption)
        .when(When::Is(2, SO_ZEROCOPY)),
    call(55, 209, "getsockopt", &[V, V, V, SPECIAL, Both(bytes(4))]).nested(sockets::get_option),
    call(48, 210, "shutdown", &[V, V]),
];
