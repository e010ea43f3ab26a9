//! `process_vm_readv` and `process_vm_writev` in pieces, with the result of the whole call. The
//! bytes of an array of own buffers are those of an array of buffers of another process, which may
//! be this one, too. Each piece has buffers for the same bytes of both.
//!
//! Natively the kernel reads both arrays before it copies, and no handler runs until the call has
//! ended. So pieces are made from copies of the arrays, with the signals blocked.

use super::copy;
use super::pieces::{self, ALL, SMALLEST};
use super::trap::{self, Origin};
use libc::{c_long, iovec};
use terapage_pager::pins::Pins;
use terapage_sys::{hosting, memory, page_bytes, thread};

/// The most buffers of a piece in each array.
pub(super) const BUFFERS: usize = hosting::BUFFERS / 2;

/// The same of the smallest piece: even if each buffer begins at the end of a page, and the arrays
/// are pinned, too, it may always be pinned.
const FEW: usize = 3;

const NONE: iovec = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// A part of a call.
pub(super) struct Piece {
    pub own: [iovec; BUFFERS],
    pub other: [iovec; BUFFERS],
    /// The numbers of buffers.
    pub counts: [usize; 2],
    pub len: usize,
}

/// Bytes of all buffers, and of the pages on which they lie. `None` if the kernel refuses the
/// array.
fn measure(vector: usize, count: usize) -> Option<(usize, usize)> {
    const BUFFERS_MOST: usize = 1024;
    if count > BUFFERS_MOST {
        return None;
    }
    let page = page_bytes();
    let (mut bytes, mut pages) = (0_usize, 0_usize);
    for index in 0..count {
        let iovec { iov_base, iov_len } =
            pieces::buffer(vector, index).filter(|it| it.iov_len as isize >= 0)?;
        bytes = bytes.saturating_add(iov_len);
        let spread = (iov_base as usize % page).saturating_add(iov_len).div_ceil(page).saturating_mul(page);
        pages = pages.saturating_add(spread);
    }
    Some((bytes, pages))
}

/// Whether a call must be made in pieces, if calls may pin `most` bytes. The kernel touches no
/// buffer of a call that it refuses as a whole, or that copies nothing.
pub(super) fn is_long(given: &[usize; 6], most: usize) -> bool {
    let [_, own, own_count, other, other_count, flags] = *given;
    flags == 0
        && measure(own, own_count).zip(measure(other, other_count)).is_some_and(
            |((own, own_pages), (other, other_pages))| {
                own.min(other) > 0 && own_pages.saturating_add(other_pages) > most
            },
        )
}

/// The kernel's error if it refuses a [long](is_long) call: before it copies, it checks whether
/// each own buffer lies where programs have memory. So `make` makes the call without buffers of the
/// other process, for some own buffers after the others.
pub(super) fn refusal(given: &[usize; 6], mut make: impl FnMut([usize; 6]) -> isize) -> Option<isize> {
    let [process, own, count, ..] = *given;
    for first in (0..count).step_by(BUFFERS) {
        let mut buffers = [NONE; BUFFERS];
        let used = (count - first).min(BUFFERS);
        for (index, buffer) in buffers[..used].iter_mut().enumerate() {
            *buffer = pieces::buffer(own, first + index)?;
        }
        // The kernel shortens the buffer of an array of one before it checks, and no other.
        let used = used.max(count.min(2));
        let answer = make([process, buffers.as_ptr() as usize, used, 0, 0, 0]);
        if answer < 0 {
            return Some(answer);
        }
    }
    None
}

/// Copies of the arrays of a call, which the call names instead.
#[derive(Clone, Copy)]
pub(super) struct Arrays {
    at: usize,
    len: usize,
}

impl Arrays {
    /// Copies the arrays of a [long](is_long) call. If there is no memory, the call names its own.
    pub(super) fn copy(given: &mut [usize; 6]) -> Arrays {
        let [_, own, own_count, other, other_count, _] = *given;
        let split = own_count * size_of::<iovec>();
        let len = split + other_count * size_of::<iovec>();
        let Ok(at) = memory::reserve(len) else { return Arrays { at: 0, len: 0 } };
        let arrays = Arrays { at: at as usize, len };
        // SAFETY: the memory was mapped just now.
        let (first, second) = unsafe { memory::bytes(arrays.at, len) }.split_at_mut(split);
        if copy::read(own, first) && copy::read(other, second) {
            (given[1], given[3]) = (arrays.at, arrays.at + split);
        }
        arrays
    }

    /// Frees the copies. The call has ended.
    pub(super) fn free(self) {
        if self.len > 0 {
            // SAFETY: the memory was reserved, and nobody uses it any more.
            unsafe { memory::unmap(self.at as *mut u8, self.len) }.ok();
        }
    }

    /// The same in words, and back.
    pub(super) fn words(self) -> [usize; 2] {
        [self.at, self.len]
    }

    pub(super) fn of([at, len]: [usize; 2]) -> Arrays {
        Arrays { at, len }
    }
}

/// Shortens buffers to `len` bytes. Returns their number.
fn cut(buffers: &mut [iovec], mut len: usize) -> usize {
    let shorten = |buffer: &mut iovec| {
        buffer.iov_len = buffer.iov_len.min(len);
        len -= buffer.iov_len;
        (buffer.iov_len > 0).then_some(())
    };
    buffers.iter_mut().map_while(shorten).count()
}

/// The part of a call that follows the first `done` bytes, if the piece may pin `most` bytes or is
/// the smallest. The kernel copies between an own buffer and one page of the other process at a
/// time, so a piece ends with such a page, or with a buffer: if the memory overlaps, the same bytes
/// arrive.
pub(super) fn piece(given: &[usize; 6], done: usize, most: usize) -> Piece {
    let [_, own_vector, own_count, other_vector, other_count, _] = *given;
    let most = (most / 2).max(SMALLEST);
    let buffers = if most > SMALLEST { BUFFERS } else { FEW };
    let most = most.min(ALL - done);
    let (mut own, mut other) = ([NONE; BUFFERS], [NONE; BUFFERS]);
    let (_, len) = pieces::part(own_vector, own_count, done, most, &mut own[..buffers]);
    let (_, other_len) = pieces::part(other_vector, other_count, done, most, &mut other[..buffers]);
    let mut len = len.min(other_len);
    let count = cut(&mut other, len);
    if let Some(last) = other[..count].last().filter(|_| len == most) {
        let beyond = (last.iov_base as usize).wrapping_add(last.iov_len) % page_bytes();
        let beyond = beyond.min(last.iov_len);
        len = if beyond < len { len - beyond } else { len };
    }
    let counts = [cut(&mut own, len), cut(&mut other, len)];
    Piece { own, other, counts, len }
}

/// Makes a call, in pieces if it is long.
///
/// # Safety
/// The same as for the system call.
pub(super) unsafe fn transfer(
    pins: &Pins,
    origin: Origin,
    number: c_long,
    mut arguments: [usize; 6],
) -> isize {
    let mut most = pieces::piece_bytes();
    if !is_long(&arguments, most)
        // SAFETY: the caller answers for the call.
        && let Some(answer) = unsafe { pieces::make(pins, origin, number, arguments, &mut most) }
    {
        return answer;
    }
    // SAFETY: nothing is copied.
    let make = |arguments| unsafe { trap::whole(pins, origin, number, arguments) };
    if let Some(error) = refusal(&arguments, make) {
        return error;
    }
    let signals = thread::block_signals();
    let arrays = Arrays::copy(&mut arguments);
    // SAFETY: the caller answers for the call.
    let answer = unsafe { by_pieces(pins, origin, number, &arguments, most) };
    arrays.free();
    thread::restore_signals(&signals);
    answer
}

unsafe fn by_pieces(
    pins: &Pins,
    mut origin: Origin,
    number: c_long,
    arguments: &[usize; 6],
    mut most: usize,
) -> isize {
    let mut done = 0;
    loop {
        let Piece { own, other, counts, len } = piece(arguments, done, most);
        if len == 0 {
            return done as isize;
        }
        let (own, other) = (own.as_ptr() as usize, other.as_ptr() as usize);
        let part = [arguments[0], own, counts[0], other, counts[1], 0];
        // SAFETY: the caller answers for the call, of which this is a piece.
        let Some(answer) = (unsafe { pieces::make(pins, origin, number, part, &mut most) }) else { continue };
        if answer < 0 {
            return if done > 0 { done as isize } else { answer };
        }
        done += answer as usize;
        origin.place = 0;
        if (answer as usize) < len {
            return done as isize;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers from a seed (xorshift).
    fn next(seed: &mut u64, below: usize) -> usize {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        (*seed % below as u64) as usize
    }

    const MOST: usize = 40;

    /// Buffers of which nothing is touched. The array lies on the stack, from which it is read.
    fn buffers(seed: &mut u64, start: usize) -> ([iovec; MOST], usize) {
        let (mut all, count) = ([NONE; MOST], next(seed, MOST) + 1);
        for buffer in &mut all[..count] {
            let len = match next(seed, 4) {
                0 => 0,
                1 => next(seed, 9),
                2 => next(seed, 9000),
                _ => next(seed, 300_000),
            };
            *buffer = iovec { iov_base: (start + next(seed, 1 << 30)) as *mut libc::c_void, iov_len: len };
        }
        (all, count)
    }

    /// The addresses of the stream's bytes from `done` on, with the number of bytes up to the end
    /// of their buffer.
    fn at(buffers: &[iovec], mut done: usize) -> (usize, usize) {
        for buffer in buffers {
            if done < buffer.iov_len {
                return (buffer.iov_base as usize + done, buffer.iov_len - done);
            }
            done -= buffer.iov_len;
        }
        panic!("beyond the end")
    }

    fn pages(buffers: &[iovec]) -> usize {
        let page = |at: usize| at / page_bytes();
        let of = |it: &iovec| page(it.iov_base as usize + it.iov_len - 1) - page(it.iov_base as usize) + 1;
        buffers.iter().map(of).sum()
    }

    #[test]
    fn pieces_have_the_same_bytes_of_both_arrays_in_order() {
        let mut seed = 1;
        for _ in 0..2000 {
            let ((own, own_count), (other, other_count)) =
                (buffers(&mut seed, 1 << 32), buffers(&mut seed, 1 << 40));
            let given = [0, own.as_ptr() as usize, own_count, other.as_ptr() as usize, other_count, 0];
            let sum = |of: &[iovec]| of.iter().map(|it| it.iov_len).sum::<usize>();
            let all = sum(&own).min(sum(&other));
            let mut done = 0;
            loop {
                let most = SMALLEST << next(&mut seed, 7);
                let piece = piece(&given, done, most);
                if piece.len == 0 {
                    break;
                }
                let parts = [&piece.own[..piece.counts[0]], &piece.other[..piece.counts[1]]];
                for (part, whole) in parts.into_iter().zip([&own, &other]) {
                    assert_eq!(sum(part), piece.len);
                    let mut behind = done;
                    for it in part {
                        let (place, room) = at(whole, behind);
                        assert!(place == it.iov_base as usize && (1..=room).contains(&it.iov_len));
                        behind += it.iov_len;
                    }
                }
                done += piece.len;
                let ends = |whole: &[iovec], page: usize| {
                    let (place, room) = at(whole, done - 1);
                    room == 1 || page > 0 && (place + 1) % page == 0
                };
                assert!(ends(&own, 0) || ends(&other, page_bytes()), "{done} of {all}");
                assert!(most > 2 * SMALLEST || parts.map(pages).iter().sum::<usize>() <= 20);
                assert!(piece.len <= (most / 2).max(SMALLEST));
            }
            assert_eq!(done, all);
        }
    }

    #[test]
    fn calls_are_long_by_the_pages_that_they_name() {
        let near = [iovec { iov_base: 4095 as *mut libc::c_void, iov_len: 2 }; 64];
        let far = [iovec { iov_base: 4096 as *mut libc::c_void, iov_len: usize::MAX >> 1 }; 2];
        let bad = [iovec { iov_base: 4096 as *mut libc::c_void, iov_len: 1 << 63 }; 1];
        let given = |own: &[iovec], other: &[iovec], flags: usize| {
            [0, own.as_ptr() as usize, own.len(), other.as_ptr() as usize, other.len(), flags]
        };
        let each = pages(&near[..1]) * page_bytes();
        assert!(
            !is_long(&given(&near, &near, 0), 128 * each) && is_long(&given(&near, &near, 0), 128 * each - 1)
        );
        assert!(is_long(&given(&near[..1], &far, 0), 1 << 40));
        assert!(!is_long(&given(&near, &near, 1), 0), "flags");
        assert!(!is_long(&given(&near, &bad, 0), 0) && !is_long(&given(&bad, &near, 0), 0));
        assert!(!is_long(&given(&near, &[], 0), 0) && !is_long(&given(&[], &near, 0), 0));
        let mut many = given(&near, &near, 0);
        many[4] = 1025;
        assert!(!is_long(&many, 0));
    }
}
