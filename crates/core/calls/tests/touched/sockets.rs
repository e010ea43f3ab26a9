//! Sockets.

use crate::world::{Case, World, case, checked};

/// Two sockets that are connected; the second has received this number of bytes.
fn pair(kind: i32, bytes: usize) -> [usize; 2] {
    let mut ends = [0; 2];
    // SAFETY: two numbers; as many bytes as are sent.
    unsafe {
        checked(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) as isize);
        if bytes > 0 {
            checked(libc::send(ends[0], vec![b'y'; bytes].as_ptr().cast(), bytes, 0));
        }
    }
    ends.map(|end| end as usize)
}

fn socket(family: i32, kind: i32) -> usize {
    // SAFETY: the call touches no memory.
    checked(unsafe { libc::socket(family, kind, 0) } as isize)
}

/// An address of 127.0.0.1, and a port.
fn local(port: u16) -> [u8; 16] {
    let [high, low] = port.to_be_bytes();
    let mut address = [0; 16];
    address[..8].copy_from_slice(&[2, 0, high, low, 127, 0, 0, 1]);
    address
}

/// A socket that has the address of a free port, and the port.
fn bound(kind: i32) -> (usize, u16) {
    let fd = socket(libc::AF_INET, kind);
    let (mut address, mut len) = (local(0), 16);
    // SAFETY: addresses of 16 bytes.
    unsafe {
        checked(libc::bind(fd as i32, address.as_ptr().cast(), 16) as isize);
        checked(libc::getsockname(fd as i32, address.as_mut_ptr().cast(), &mut len) as isize);
        if kind == libc::SOCK_STREAM {
            checked(libc::listen(fd as i32, 5) as isize);
        }
    }
    (fd, u16::from_be_bytes([address[2], address[3]]))
}

/// A socket with a peer that waits to be accepted.
fn called() -> usize {
    let (fd, port) = bound(libc::SOCK_STREAM);
    let caller = socket(libc::AF_INET, libc::SOCK_STREAM);
    // SAFETY: an address of 16 bytes.
    checked(unsafe { libc::connect(caller as i32, local(port).as_ptr().cast(), 16) } as isize);
    fd
}

/// A socket that has received this number of bytes from another address.
fn received(bytes: usize) -> usize {
    let (fd, port) = bound(libc::SOCK_DGRAM);
    let sender = socket(libc::AF_INET, libc::SOCK_DGRAM);
    let data = vec![b'y'; bytes];
    // SAFETY: as many bytes as are sent; an address of 16 bytes.
    checked(unsafe {
        libc::sendto(sender as i32, data.as_ptr().cast(), bytes, 0, local(port).as_ptr().cast(), 16)
    });
    fd
}

/// The words of a message whose buffers, name and control data are pieces of memory.
fn message(w: &mut World, name: Option<&[u8]>, bytes: usize, control: usize) -> Vec<usize> {
    let first = bytes / 2;
    let (a, b) = (w.out(), w.out());
    let vector = w.words(&[a, first, b, bytes - first]);
    let (name, name_len) = name.map_or((0, 0), |name| (w.mem(name), 16));
    let control_at = if control > 0 { w.out() } else { 0 };
    vec![name, name_len, vector, 2, control_at, control, 0]
}

/// An address and its length, as `accept` and its kin give them.
fn named(w: &mut World, fd: usize) -> [usize; 6] {
    [fd, w.out(), w.ints(&[16]), 0, 0, 0]
}

pub const CASES: &[Case] = &[
    case("socketpair", |w| [1, 1, 0, w.out(), 0, 0]),
    case("bind", |w| [socket(2, 2), w.mem(&local(0)), 16, 0, 0, 0]),
    case("connect", |w| [socket(2, 2), w.mem(&local(9)), 16, 0, 0, 0]),
    case("connect", |w| [socket(2, 1), w.mem(&local(bound(1).1)), 16, 0, 0, 0]),
    case("accept", |w| named(w, called())),
    case("accept4", |w| named(w, called())),
    case("getsockname", |w| named(w, bound(2).0)),
    case("getsockname", |w| [bound(2).0, w.out(), w.ints(&[5]), 0, 0, 0]),
    case("getpeername", |w| {
        let fd = socket(2, 2);
        // SAFETY: an address of 16 bytes.
        checked(unsafe { libc::connect(fd as i32, local(9).as_ptr().cast(), 16) } as isize);
        named(w, fd)
    }),
    case("sendto", |w| {
        let len = w.between(1, 3000);
        [pair(1, 0)[0], w.out(), len, 0, 0, 0]
    }),
    case("sendto", |w| {
        let (len, port) = (w.between(1, 3000), bound(2).1);
        [socket(2, 2), w.out(), len, 0, w.mem(&local(port)), 16]
    }),
    case("recvfrom", |w| {
        let len = w.between(1, 3000);
        [pair(1, len)[1], w.out(), len, 0, 0, 0]
    }),
    case("recvfrom", |w| {
        let len = w.between(1, 3000);
        [received(len), w.out(), len, 0, w.out(), w.ints(&[16])]
    }),
    case("sendmsg", |w| {
        let len = w.between(2, 3000);
        let words = message(w, None, len, 0);
        [pair(1, 0)[0], w.words(&words), 0, 0, 0, 0]
    }),
    case("sendmsg", |w| {
        let (len, port) = (w.between(2, 3000), bound(2).1);
        let words = message(w, Some(&local(port)), len, 0);
        [socket(2, 2), w.words(&words), 0, 0, 0, 0]
    }),
    case("sendmsg", |w| {
        // A descriptor as control data.
        let fd = w.file(1);
        let control = w.words(&[20, 1 | 1 << 32, fd]);
        let mut words = message(w, None, 8, 0);
        words[4..6].copy_from_slice(&[control, 24]);
        [pair(1, 0)[0], w.words(&words), 0, 0, 0, 0]
    }),
    case("recvmsg", |w| {
        let len = w.between(2, 3000);
        let words = message(w, Some(&[0; 16]), len, 0);
        [received(len), w.words(&words), 0, 0, 0, 0]
    }),
    case("recvmsg", |w| {
        // The time of arrival as control data, of 32 bytes.
        let (fd, port) = bound(2);
        let sender = socket(2, 2);
        // SAFETY: a number; a few bytes; an address of 16 bytes.
        unsafe {
            checked(libc::setsockopt(fd as i32, 1, 29, (&raw const ONE).cast(), 4) as isize);
            checked(libc::sendto(
                sender as i32,
                c"abcd".as_ptr().cast(),
                4,
                0,
                local(port).as_ptr().cast(),
                16,
            ));
        }
        // What does not fit is cut off.
        let control = w.out();
        w.loose();
        let mut words = message(w, None, 4, 0);
        words[4..6].copy_from_slice(&[control, 32]);
        [fd, w.words(&words), 0, 0, 0, 0]
    }),
    case("sendmmsg", |w| {
        let mut words = message(w, None, 10, 0);
        words.push(0);
        let more = message(w, None, 20, 0);
        words.extend(more);
        words.push(0);
        [pair(1, 0)[0], w.words(&words), 2, 0, 0, 0]
    }),
    case("recvmmsg", |w| {
        let fd = received(10);
        let mut words = message(w, None, 10, 0);
        words.push(0);
        [fd, w.words(&words), 1, 0, w.words(&[1, 0]), 0]
    }),
    case("setsockopt", |w| [socket(2, 1), 1, 9, w.ints(&[1]), 4, 0]),
    case("setsockopt", |w| [socket(2, 1), 1, 20, w.words(&[1, 0]), 16, 0]),
    case("setsockopt", |w| {
        let instructions = w.words(&[0xffff_0000_0000_0006]);
        [socket(2, 2), 1, 26, w.words(&[1, instructions]), 16, 0]
    }),
    case("getsockopt", |w| [socket(2, 1), 1, 3, w.out(), w.ints(&[4]), 0]),
    case("getsockopt", |w| [socket(2, 1), 1, 20, w.out(), w.ints(&[16]), 0]),
    case("getsockopt", |w| {
        let fd = socket(2, 2);
        let (instruction, program) = (0xffff_0000_0000_0006_usize, &mut [1_usize, 0]);
        program[1] = (&raw const instruction) as usize;
        // SAFETY: a filter of one instruction.
        checked(unsafe { libc::setsockopt(fd as i32, 1, 26, program.as_ptr().cast(), 16) } as isize);
        [fd, 1, 26, w.out(), w.ints(&[1]), 0]
    }),
    case("ioctl", |w| [socket(2, 2), 0x8912, interfaces(w), 0, 0, 0]),
    case("ioctl", |w| {
        let mut interface = [0; 40];
        interface[..2].copy_from_slice(b"lo");
        [socket(2, 2), 0x8913, w.mem(&interface), 0, 0, 0]
    }),
    case("ioctl", |w| [socket(2, 1), 0x8905, w.out(), 0, 0, 0]),
    case("ioctl", |w| [socket(2, 2), 0x8903, w.out(), 0, 0, 0]),
];

static ONE: i32 = 1;

fn interfaces(w: &mut World) -> usize {
    let buffer = w.out();
    w.loose();
    w.words(&[400, buffer])
}
