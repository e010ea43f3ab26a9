//! `ioctl`. Newer requests say how many bytes they have and who writes them, in their number.

use super::requests::{self, Shape};
use super::sockets::filter;
use crate::Direction::{In, InOut, Out};
use crate::Outcome;
use crate::step::{Step, Visit, not_negative};

/// No address is so low (`vm.mmap_min_addr`): it is a number.
const LOWEST: usize = 65536;

/// `ioctl`, by its request.
pub fn visit(visit: &mut Visit) -> Step {
    let (request, argument) = (visit.int(1), visit.long(2));
    if argument < LOWEST {
        return if matches!(requests::find(request), Some(Shape::Refused)) {
            Err(Outcome::Asynchronous)
        } else {
            Ok(())
        };
    }
    match requests::find(request) {
        Some(Shape::Nothing) => Ok(()),
        Some(Shape::In(len)) => visit.reads(argument, len),
        Some(Shape::Out(len)) => visit.writes(argument, len),
        Some(Shape::Both(len)) => visit.changes(argument, len),
        Some(Shape::Partly(len)) => {
            visit.changes(argument, len)?;
            Err(Outcome::Partly)
        }
        Some(Shape::Refused) => Err(Outcome::Asynchronous),
        Some(Shape::With(function)) => function(visit),
        None => by_number(visit, request, argument),
    }
}

/// Bits 30 and 31 are the direction, seen from the program; the length has the 14 bits below.
fn by_number(visit: &mut Visit, request: u32, argument: usize) -> Step {
    let len = (request >> 16 & 0x3fff) as usize;
    match request >> 30 {
        1 => visit.touch(argument, len, In)?,
        2 => visit.touch(argument, len, Out)?,
        3 => visit.touch(argument, len, InOut)?,
        _ => return Err(Outcome::Unknown),
    }
    if requests::is_plain(request) { Ok(()) } else { Err(Outcome::Partly) }
}

/// BLKPG: an operation, the length of its data, the data.
pub fn partition(visit: &mut Visit) -> Step {
    let [_, len, data] = visit.structure(visit.long(2))?;
    visit.reads(data, not_negative(len as u32))
}

/// SG_IO: a command, its data, and room for what the device says of errors.
pub fn scsi(visit: &mut Visit) -> Step {
    let header: [usize; 11] = visit.structure_as(visit.long(2), InOut)?;
    let (data_len, buffers) = (header[1] >> 32, header[1] >> 16 & 0xffff);
    let [data, command, sense] = [header[2], header[3], header[4]];
    visit.reads(command, header[1] & 0xff)?;
    visit.writes(sense, header[1] >> 8 & 0xff)?;
    if buffers > 0 { visit.buffers(data, buffers, InOut) } else { visit.changes(data, data_len) }
}

/// SIOCADDRT, SIOCDELRT: a route with the name of an interface. That of IPv6 is shorter.
pub fn route(visit: &mut Visit) -> Step {
    let route: [usize; 15] = visit.structure(visit.long(2))?;
    visit.text(route[11], 16)
}

/// SIOCGIFCONF: a length and a buffer.
pub fn interfaces(visit: &mut Visit) -> Step {
    let [len, buffer] = visit.structure_as(visit.long(2), InOut)?;
    visit.writes(buffer, not_negative(len as u32))
}

/// SIOCSHWTSTAMP, SIOCGHWTSTAMP: the name of an interface, and settings.
pub fn time_stamps(visit: &mut Visit) -> Step {
    let [_, _, settings, ..] = visit.structure_as::<5>(visit.long(2), InOut)?;
    visit.changes(settings, 12)
}

/// TUNSETTXFILTER: flags, a count, that number of addresses of 6 bytes.
pub fn addresses(visit: &mut Visit) -> Step {
    let list = visit.long(2);
    visit.reads(list, 4)?;
    let count = visit.u32(list, 0)? >> 16;
    visit.reads(list, 4 + count as usize * 6)
}

/// TUNATTACHFILTER
pub fn packets(visit: &mut Visit) -> Step {
    filter(visit, visit.long(2))
}

/// FS_IOC_FIEMAP: room for the extents follows.
pub fn extents(visit: &mut Visit) -> Step {
    let header: [usize; 4] = visit.structure_as(visit.long(2), InOut)?;
    visit.writes(visit.long(2).saturating_add(32), (header[3] as u32 as usize).saturating_mul(56))
}

/// FIDEDUPERANGE: the files follow.
pub fn duplicates(visit: &mut Visit) -> Step {
    let header: [usize; 3] = visit.structure_as(visit.long(2), InOut)?;
    visit.changes(visit.long(2).saturating_add(24), (header[2] & 0xffff) * 32)
}

/// RNDADDENTROPY: a count of bits, a length, the bytes.
pub fn entropy(visit: &mut Visit) -> Step {
    let [header] = visit.structure(visit.long(2))?;
    visit.reads(visit.long(2).saturating_add(8), not_negative((header >> 32) as u32))
}

/// UFFDIO_COPY: the source is read.
pub fn copy(visit: &mut Visit) -> Step {
    let [_, source, len, ..] = visit.structure_as::<5>(visit.long(2), InOut)?;
    visit.reads(source, len)
}

/// PERF_EVENT_IOC_SET_FILTER
pub fn text(visit: &mut Visit) -> Step {
    visit.text(visit.long(2), 4096)
}
