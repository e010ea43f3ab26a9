//! Requests of `ioctl` that do not say by themselves what they touch, or say it wrongly.

use super::ioctl;
use crate::step::{Step, Visit};

/// What a request touches at its argument.
#[derive(Clone, Copy)]
pub enum Shape {
    /// Nothing: it has no argument, or a number.
    Nothing,
    /// The number of bytes that the kernel reads.
    In(usize),
    /// The number of bytes that the kernel writes.
    Out(usize),
    /// The number of bytes that the kernel reads and writes.
    Both(usize),
    /// The number of bytes, and memory to which they point, which is not known.
    Partly(usize),
    /// The kernel would go on to touch memory after the call.
    Refused,
    /// What this function says.
    With(fn(&mut Visit) -> Step),
}

use Shape::{Both, In, Nothing, Out, Partly, Refused, With};

const TERMIOS: usize = 36;
const TERMIO: usize = 18;
/// `struct ifreq`
const INTERFACE: usize = 40;

/// Requests from the first number to the second. The first row that fits counts.
const REQUESTS: &[(u32, u32, Shape)] = &[
    // FIBMAP, FIGETBSZ; HDIO_GETGEO, HDIO_GET_IDENTITY
    (0x0001, 0x0001, Both(4)),
    (0x0002, 0x0002, Out(4)),
    (0x0301, 0x0301, Out(16)),
    (0x030d, 0x030d, Out(512)),
    // BLKROSET, ROGET, RRPART, GETSIZE, FLSBUF, RASET, RAGET, FRASET, FRAGET, SECTSET, SECTGET,
    // SSZGET
    (0x125d, 0x125d, In(4)),
    (0x125e, 0x125e, Out(4)),
    (0x125f, 0x125f, Nothing),
    (0x1260, 0x1260, Out(8)),
    (0x1261, 0x1262, Nothing),
    (0x1263, 0x1263, Out(8)),
    (0x1264, 0x1264, Nothing),
    (0x1265, 0x1265, Out(8)),
    (0x1266, 0x1266, Nothing),
    (0x1267, 0x1268, Out(4)),
    // BLKPG, DISCARD, IOMIN to DISCARDZEROES, SECDISCARD, ROTATIONAL, ZEROOUT
    (0x1269, 0x1269, With(ioctl::partition)),
    (0x1277, 0x1277, In(16)),
    (0x1278, 0x127c, Out(4)),
    (0x127d, 0x127d, In(16)),
    (0x127e, 0x127e, Out(4)),
    (0x127f, 0x127f, In(16)),
    // SG_SET_TIMEOUT, GET_TIMEOUT, GET_RESERVED_SIZE, SET_RESERVED_SIZE, GET_VERSION_NUM, IO
    (0x2201, 0x2201, In(4)),
    (0x2202, 0x2202, Nothing),
    (0x2272, 0x2272, Out(4)),
    (0x2275, 0x2275, In(4)),
    (0x2282, 0x2282, Out(4)),
    (0x2285, 0x2285, With(ioctl::scsi)),
    // PERF_EVENT_IOC_*
    (0x2400, 0x2409, Nothing),
    // Memory for devices: VFIO_IOMMU_MAP_DMA, IOMMU_IOAS_MAP
    (0x3b71, 0x3b71, Refused),
    (0x3b85, 0x3b85, Refused),
    // KDMKTONE, KIOCSOUND, KDGETLED, KDSETLED, KDGKBTYPE, KDSETMODE, KDGETMODE
    (0x4b2f, 0x4b30, Nothing),
    (0x4b31, 0x4b31, Out(1)),
    (0x4b32, 0x4b32, Nothing),
    (0x4b33, 0x4b33, Out(1)),
    (0x4b3a, 0x4b3a, Nothing),
    (0x4b3b, 0x4b3b, Out(4)),
    // KDGKBMODE, KDSKBMODE, KDGKBENT, KDSKBENT; KDGKBLED, KDSKBLED
    (0x4b44, 0x4b44, Out(4)),
    (0x4b45, 0x4b45, Nothing),
    (0x4b46, 0x4b46, Both(4)),
    (0x4b47, 0x4b47, In(4)),
    (0x4b64, 0x4b64, Out(1)),
    (0x4b65, 0x4b65, Nothing),
    // LOOP_SET_FD, CLR_FD, SET_STATUS, GET_STATUS, SET_STATUS64, GET_STATUS64, CHANGE_FD to
    // SET_BLOCK_SIZE, CONFIGURE, CTL_*
    (0x4c00, 0x4c01, Nothing),
    (0x4c02, 0x4c02, In(168)),
    (0x4c03, 0x4c03, Out(168)),
    (0x4c04, 0x4c04, In(232)),
    (0x4c05, 0x4c05, Out(232)),
    (0x4c06, 0x4c09, Nothing),
    (0x4c0a, 0x4c0a, In(304)),
    (0x4c80, 0x4c82, Nothing),
    // CDROMEJECT, MEDIA_CHANGED, DRIVE_STATUS, GET_CAPABILITY; SCSI_IOCTL_GET_IDLUN, GET_BUS_NUMBER
    (0x5309, 0x5309, Nothing),
    (0x5325, 0x5326, Nothing),
    (0x5331, 0x5331, Nothing),
    (0x5382, 0x5382, Out(8)),
    (0x5386, 0x5386, Out(4)),
    // TCGETS, TCSETS*, TCGETA, TCSETA*, TCSBRK to TIOCSCTTY, TIOCGPGRP, TIOCSPGRP, TIOCOUTQ,
    // TIOCSTI
    (0x5401, 0x5401, Out(TERMIOS)),
    (0x5402, 0x5404, In(TERMIOS)),
    (0x5405, 0x5405, Out(TERMIO)),
    (0x5406, 0x5408, In(TERMIO)),
    (0x5409, 0x540e, Nothing),
    (0x540f, 0x540f, Out(4)),
    (0x5410, 0x5410, In(4)),
    (0x5411, 0x5411, Out(4)),
    (0x5412, 0x5412, In(1)),
    // TIOCGWINSZ, TIOCSWINSZ, TIOCMGET, TIOCMBIS, TIOCMBIC, TIOCMSET, TIOCGSOFTCAR, TIOCSSOFTCAR,
    // FIONREAD
    (0x5413, 0x5413, Out(8)),
    (0x5414, 0x5414, In(8)),
    (0x5415, 0x5415, Out(4)),
    (0x5416, 0x5418, In(4)),
    (0x5419, 0x5419, Out(4)),
    (0x541a, 0x541a, In(4)),
    (0x541b, 0x541b, Out(4)),
    // TIOCLINUX, TIOCCONS, TIOCGSERIAL, TIOCSSERIAL, TIOCPKT, FIONBIO, TIOCNOTTY, TIOCSETD,
    // TIOCGETD
    (0x541c, 0x541c, Both(64)),
    (0x541d, 0x541d, Nothing),
    (0x541e, 0x541e, Out(72)),
    (0x541f, 0x541f, In(72)),
    (0x5420, 0x5421, In(4)),
    (0x5422, 0x5422, Nothing),
    (0x5423, 0x5423, In(4)),
    (0x5424, 0x5424, Out(4)),
    // TCSBRKP to TIOCCBRK, TIOCGSID, TIOCGRS485, TIOCSRS485, TCGETX, TCSETX*, TIOCVHANGUP
    (0x5425, 0x5428, Nothing),
    (0x5429, 0x5429, Out(4)),
    (0x542e, 0x542e, Out(32)),
    (0x542f, 0x542f, Both(32)),
    (0x5432, 0x5432, Out(16)),
    (0x5433, 0x5435, In(16)),
    (0x5437, 0x5437, Nothing),
    // FIONCLEX, FIOCLEX, FIOASYNC, TIOCGLCKTRMIOS, TIOCSLCKTRMIOS, TIOCMIWAIT, TIOCGICOUNT,
    // FIOQSIZE
    (0x5450, 0x5451, Nothing),
    (0x5452, 0x5452, In(4)),
    (0x5456, 0x5456, Out(TERMIOS)),
    (0x5457, 0x5457, In(TERMIOS)),
    (0x545c, 0x545c, Nothing),
    (0x545d, 0x545d, Out(80)),
    (0x5460, 0x5460, Out(8)),
    // VT_OPENQRY, GETMODE, SETMODE, GETSTATE, RELDISP to DISALLOCATE, RESIZE, RESIZEX, LOCKSWITCH,
    // ...
    (0x5600, 0x5600, Out(4)),
    (0x5601, 0x5601, Out(8)),
    (0x5602, 0x5602, In(8)),
    (0x5603, 0x5603, Out(6)),
    (0x5605, 0x5608, Nothing),
    (0x5609, 0x5609, In(6)),
    (0x560a, 0x560a, In(12)),
    (0x560b, 0x560c, Nothing),
    // RTC_AIE_ON to RTC_PIE_OFF
    (0x7001, 0x7006, Nothing),
    // FIOSETOWN, SIOCSPGRP, FIOGETOWN, SIOCGPGRP, SIOCATMARK, SIOCGSTAMP, SIOCGSTAMPNS
    (0x8901, 0x8902, In(4)),
    (0x8903, 0x8905, Out(4)),
    (0x8906, 0x8907, Out(16)),
    // SIOCADDRT, SIOCDELRT, SIOCRTMSG, SIOCGIFNAME, SIOCSIFLINK, SIOCGIFCONF
    (0x890b, 0x890c, With(ioctl::route)),
    (0x890d, 0x890d, Nothing),
    (0x8912, 0x8912, With(ioctl::interfaces)),
    // SIOCGIFBR, SIOCSIFBR; SIOCETHTOOL; SIOCWANDEV, SIOCOUTQNSD, SIOCGSKNS; ARP and RARP
    (0x8940, 0x8941, Partly(INTERFACE)),
    (0x8946, 0x8946, Partly(INTERFACE)),
    (0x894a, 0x894a, Partly(INTERFACE)),
    (0x894b, 0x894b, Out(4)),
    (0x894c, 0x894c, Nothing),
    (0x8953, 0x8955, Both(68)),
    (0x8960, 0x8962, Both(68)),
    // SIOCGIFVLAN, SIOCSIFVLAN; SIOCBONDSLAVEINFOQUERY, SIOCBONDINFOQUERY; SIOCBRADDBR, SIOCBRDELBR
    (0x8982, 0x8983, Both(64)),
    (0x8993, 0x8994, Partly(INTERFACE)),
    (0x89a0, 0x89a1, In(16)),
    // SIOCSHWTSTAMP, SIOCGHWTSTAMP; private to protocols and drivers; others about interfaces
    (0x89b0, 0x89b1, With(ioctl::time_stamps)),
    (0x89e0, 0x89ff, Partly(INTERFACE)),
    (0x8910, 0x89af, Both(INTERFACE)),
    // Wireless interfaces: `struct iwreq`
    (0x8b00, 0x8bff, Partly(32)),
    // KVM_CREATE_VM: a guest's memory is touched at any time.
    (0xae01, 0xae01, Refused),
    // Namespaces of a namespace, and of a process.
    (0xb701, 0xb704, Nothing),
    (0xff01, 0xff0a, Nothing),
    // TUNSETIFF, TUNGETIFF, TUNSETQUEUE say a number; TUNSETTXFILTER and TUNATTACHFILTER
    (0x4004_54ca, 0x4004_54ca, Both(INTERFACE)),
    (0x8004_54d2, 0x8004_54d2, Both(INTERFACE)),
    (0x4004_54d9, 0x4004_54d9, Both(INTERFACE)),
    (0x4004_54d1, 0x4004_54d1, With(ioctl::addresses)),
    (0x4010_54d5, 0x4010_54d5, With(ioctl::packets)),
    // FS_IOC_FIEMAP, FIDEDUPERANGE, RNDADDENTROPY, UFFDIO_COPY, PERF_EVENT_IOC_SET_FILTER
    (0xc020_660b, 0xc020_660b, With(ioctl::extents)),
    (0xc018_9436, 0xc018_9436, With(ioctl::duplicates)),
    (0x4008_5203, 0x4008_5203, With(ioctl::entropy)),
    (0xc028_aa03, 0xc028_aa03, With(ioctl::copy)),
    (0x4008_2406, 0x4008_2406, With(ioctl::text)),
    // FUSE_DEV_IOC_CLONE reads, though its number says that it writes.
    (0x8004_e500, 0x8004_e500, In(4)),
];

/// Kinds of requests (their bits 8 to 15, and numbers from the second to the third) whose size and
/// direction are right, and whose memory has no pointers.
const PLAIN: &[(u8, u8, u8)] = &[
    // Terminals and TUN; block devices; flags and versions of files; attributes, freezing, trimming
    (b'T', 0, 255),
    (0x12, 112, 115),
    (0x12, 131, 136),
    (b'f', 1, 4),
    (b'X', 31, 32),
    (b'X', 119, 121),
    // Labels, clones; identity of a file system
    (0x94, 9, 9),
    (0x94, 13, 13),
    (0x94, 49, 50),
    (0x15, 0, 1),
    // Input devices, joysticks, raw HID; clocks; watchdogs; random numbers
    (b'E', 0, 127),
    (b'E', 144, 145),
    (b'E', 160, 160),
    (b'E', 192, 255),
    (b'j', 0, 255),
    (b'H', 1, 15),
    (b'p', 0, 32),
    (b'W', 0, 15),
    (b'R', 0, 2),
    // seccomp's notifications, perf's numbers, sockets, epoll, userfaultfd, namespaces, processes
    (b'!', 0, 7),
    (b'$', 4, 8),
    (0x89, 0, 255),
    (0x8a, 0, 15),
    (0xaa, 0, 255),
    (0xb7, 0, 255),
    (0xff, 0, 255),
];

/// What a request touches, if it is listed.
pub fn find(request: u32) -> Option<Shape> {
    let row = REQUESTS.iter().find(|(first, last, _)| (*first..=*last).contains(&request));
    row.map(|(_, _, shape)| *shape)
}

/// Whether a request that says what it touches can be believed.
pub fn is_plain(request: u32) -> bool {
    let (kind, number) = ((request >> 8) as u8, request as u8);
    PLAIN.iter().any(|(of, first, last)| *of == kind && (*first..=*last).contains(&number))
}
