//! Reads and writes, commands, attributes, waiting.

use crate::world::{Case, World, case, checked};

/// The two ends of a pipe, with this number of bytes in it.
fn pipe(bytes: usize) -> [usize; 2] {
    let mut ends = [0; 2];
    // SAFETY: the array is as long as the call needs, and so are the bytes.
    unsafe {
        checked(libc::pipe(ends.as_mut_ptr()) as isize);
        checked(libc::write(ends[1], vec![b'y'; bytes].as_ptr().cast(), bytes));
    }
    ends.map(|end| end as usize)
}

/// An array of buffers of random lengths, each a piece of memory, and their number.
fn buffers(w: &mut World) -> [usize; 2] {
    let count = w.between(1, 5);
    let mut vector = Vec::new();
    for _ in 0..count {
        let len = w.between(1, 5000);
        vector.extend([w.mem(&vec![b'z'; len]), len]);
    }
    [w.words(&vector), count]
}

fn open(path: &str) -> usize {
    use std::os::fd::IntoRawFd;
    std::fs::File::open(path).unwrap().into_raw_fd() as usize
}

/// A request about a file.
fn about_file(w: &mut World, request: usize) -> [usize; 6] {
    let file = w.file(10);
    ioctl(w, file, request)
}

/// A terminal: the end of its user.
fn terminal() -> usize {
    // SAFETY: the calls touch the arrays, which are long enough, and texts.
    unsafe {
        let leader = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY);
        checked(libc::grantpt(leader) as isize);
        checked(libc::unlockpt(leader) as isize);
        let mut name = [0; 64];
        checked(-libc::ptsname_r(leader, name.as_mut_ptr(), 64) as isize);
        checked(libc::open(name.as_ptr(), libc::O_RDWR | libc::O_NOCTTY) as isize)
    }
}

/// A request about a terminal, with these bytes.
fn ioctl(w: &mut World, fd: usize, request: usize) -> [usize; 6] {
    [fd, request, w.out(), 0, 0, 0]
}

const CURRENT: usize = libc::AT_FDCWD as usize;

/// A file `f` with an attribute `user.a` of 5 bytes.
fn attributed() -> &'static str {
    std::fs::write("f", "x").unwrap();
    // SAFETY: texts, and a value of 5 bytes.
    unsafe { libc::setxattr(c"f".as_ptr(), c"user.a".as_ptr(), b"value".as_ptr().cast(), 5, 0) };
    "f"
}

pub const CASES: &[Case] = &[
    case("read", |w| {
        let len = w.between(1, 9000);
        [w.file(10_000), w.out(), len, 0, 0, 0]
    }),
    case("write", |w| {
        let len = w.between(1, 9000);
        [w.file(0), w.out(), len, 0, 0, 0]
    }),
    case("read", |w| {
        let len = w.between(1, 9000);
        [pipe(len)[0], w.out(), len, 0, 0, 0]
    }),
    case("pread64", |w| {
        let len = w.between(1, 9000);
        [w.file(10_000), w.out(), len, 3, 0, 0]
    }),
    case("pwrite64", |w| {
        let len = w.between(1, 9000);
        [w.file(0), w.out(), len, 3, 0, 0]
    }),
    case("readv", |w| {
        let [vector, count] = buffers(w);
        [w.file(30_000), vector, count, 0, 0, 0]
    }),
    case("writev", |w| {
        let [vector, count] = buffers(w);
        [w.file(0), vector, count, 0, 0, 0]
    }),
    case("preadv", |w| {
        let [vector, count] = buffers(w);
        [w.file(30_000), vector, count, 0, 0, 0]
    }),
    case("pwritev", |w| {
        let [vector, count] = buffers(w);
        [w.file(0), vector, count, 0, 0, 0]
    }),
    case("preadv2", |w| {
        let [vector, count] = buffers(w);
        [w.file(30_000), vector, count, 0, 0, 0]
    }),
    case("pwritev2", |w| {
        let [vector, count] = buffers(w);
        [w.file(0), vector, count, 0, 0, 0]
    }),
    case("sendfile", |w| [w.file(0), w.file(100), w.words(&[3]), 50, 0, 0]),
    case("splice", |w| [w.file(100), w.words(&[3]), pipe(0)[1], 0, 50, 0]),
    case("splice", |w| [pipe(50)[0], 0, w.file(0), w.words(&[3]), 50, 0]),
    case("copy_file_range", |w| [w.file(100), w.words(&[3]), w.file(0), w.words(&[5]), 50, 0]),
    case("cachestat", |w| [w.file(100), w.words(&[0, 50]), w.out(), 0, 0, 0]),
    case("pipe", |w| [w.out(), 0, 0, 0, 0, 0]),
    case("pipe2", |w| [w.out(), 0, 0, 0, 0, 0]),
    case("getdents", |w| {
        let memory = w.out();
        w.loose();
        [open("/proc/self"), memory, 500, 0, 0, 0]
    }),
    case("getdents64", |w| {
        let memory = w.out();
        w.loose();
        [open("/proc/self"), memory, 500, 0, 0, 0]
    }),
    case("memfd_create", |w| [w.text("a name"), 0, 0, 0, 0, 0]),
    case("fcntl", |w| [w.file(9), 5, w.mem(&[0; 32]), 0, 0, 0]),
    case("fcntl", |w| [w.file(9), 6, w.mem(&[0; 32]), 0, 0, 0]),
    case("fcntl", |w| [w.file(9), 36, w.mem(&[0; 32]), 0, 0, 0]),
    case("fcntl", |w| [w.file(9), 37, w.mem(&[0; 32]), 0, 0, 0]),
    case("fcntl", |w| [pipe(0)[0], 15, w.ints(&[0, 0]), 0, 0, 0]),
    case("fcntl", |w| [pipe(0)[0], 16, w.out(), 0, 0, 0]),
    case("fcntl", |w| [pipe(0)[0], 17, w.out(), 0, 0, 0]),
    case("fcntl", |w| [w.file(9), 1035, w.out(), 0, 0, 0]),
    case("fcntl", |w| [w.file(9), 1036, w.words(&[2]), 0, 0, 0]),
    case("ioctl", |w| ioctl(w, terminal(), 0x5401)),
    case("ioctl", |w| ioctl(w, terminal(), 0x5402)),
    case("ioctl", |w| ioctl(w, terminal(), 0x5405)),
    case("ioctl", |w| ioctl(w, terminal(), 0x5406)),
    case("ioctl", |w| ioctl(w, terminal(), 0x802c_542a)),
    case("ioctl", |w| ioctl(w, terminal(), 0x5411)),
    case("ioctl", |w| ioctl(w, terminal(), 0x5413)),
    case("ioctl", |w| ioctl(w, terminal(), 0x5414)),
    case("ioctl", |w| ioctl(w, terminal(), 0x541b)),
    case("ioctl", |w| ioctl(w, terminal(), 0x5424)),
    case("ioctl", |w| ioctl(w, terminal(), 0x5423)),
    case("ioctl", |w| ioctl(w, terminal(), 0x8004_5440)),
    case("ioctl", |w| ioctl(w, pipe(3)[0], 0x541b)),
    case("ioctl", |w| ioctl(w, pipe(3)[0], 0x5421)),
    case("ioctl", |w| ioctl(w, pipe(3)[0], 0x5452)),
    case("ioctl", |w| about_file(w, 2)),
    case("ioctl", |w| about_file(w, 0x5460)),
    case("ioctl", |w| ioctl(w, open("/dev/random"), 0x8004_5200)),
    case("ioctl", |w| {
        // FS_IOC_FIEMAP of a directory's or file's blocks, with room for extents.
        let file = open(attributed());
        let memory = w.words(&[0, usize::MAX, 0, 2]);
        w.loose();
        [file, 0xc020_660b, memory, 0, 0, 0]
    }),
    case("setxattr", |w| {
        let path = attributed();
        let len = w.between(1, 100);
        [w.text(path), w.text("user.b"), w.out(), len, 0, 0]
    }),
    case("lsetxattr", |w| {
        let path = attributed();
        let len = w.between(1, 100);
        [w.text(path), w.text("user.b"), w.out(), len, 0, 0]
    }),
    case("fsetxattr", |w| {
        let path = attributed();
        let len = w.between(1, 100);
        [open(path), w.text("user.b"), w.out(), len, 0, 0]
    }),
    case("getxattr", |w| [w.text(attributed()), w.text("user.a"), w.out(), 5, 0, 0]),
    case("lgetxattr", |w| [w.text(attributed()), w.text("user.a"), w.out(), 5, 0, 0]),
    case("fgetxattr", |w| [open(attributed()), w.text("user.a"), w.out(), 5, 0, 0]),
    case("listxattr", |w| [w.text(attributed()), w.out(), 7, 0, 0, 0]),
    case("llistxattr", |w| [w.text(attributed()), w.out(), 7, 0, 0, 0]),
    case("flistxattr", |w| [open(attributed()), w.out(), 7, 0, 0, 0]),
    case("removexattr", |w| [w.text(attributed()), w.text("user.a"), 0, 0, 0, 0]),
    case("lremovexattr", |w| [w.text(attributed()), w.text("user.a"), 0, 0, 0, 0]),
    case("fremovexattr", |w| [open(attributed()), w.text("user.a"), 0, 0, 0, 0]),
    case("setxattrat", |w| {
        let value = w.mem(b"abc");
        let path = attributed();
        [CURRENT, w.text(path), 0, w.text("user.b"), w.words(&[value, 3]), 16]
    }),
    case("getxattrat", |w| {
        let value = w.out();
        let path = attributed();
        [CURRENT, w.text(path), 0, w.text("user.a"), w.words(&[value, 5]), 16]
    }),
    case("listxattrat", |w| [CURRENT, w.text(attributed()), 0, w.out(), 7, 0]),
    case("removexattrat", |w| [CURRENT, w.text(attributed()), 0, w.text("user.a"), 0, 0]),
];
