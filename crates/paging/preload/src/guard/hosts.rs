//! Guarded calls of hosted programs. A thread of the program makes its call itself, on its own
//! stack (crate `host`: `guard.rs`): this part pins before and unpins after. It is called in the
//! host's seat, with all signals blocked, by one thread at a time. Calls between [two
//! arrays](vectors) in pieces are made here.

use super::pieces::{self, BUFFERS, FOURTHS, File, Header, SMALLEST};
use super::trap::{self, Limit, MOST_FOURTHS};
use super::vectors::{self, Arrays};
use super::{copy, gate, is_active, is_on, pins};
use crate::arena::ARENA;
use crate::{adopted, locked, setup, statics};
use libc::{c_int, c_long, iovec};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terapage_calls::Pieces;
use terapage_pager::pins::{Caller, Pins};
use terapage_sys::hosting::{GuardedCall, IS_CROWDED, MADE_BY_THREAD};
use terapage_sys::page_bytes;

const WHOLE: usize = 0;
const BYTES: usize = 1;
const VECTOR: usize = 2;
const MESSAGE: usize = 3;
const VECTORS: usize = 4;
/// Added if the call reads from a stream: then one piece is enough.
const ONE_PIECE: usize = 8;

/// What a call without pins sets to 0 instead.
static NOTHING: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Who pins in the thread that forks.
static FORKING: AtomicUsize = AtomicUsize::new(0);

/// Notes that a hosted program is about to fork, in the thread that pins as `owner`.
pub fn forks(owner: usize) {
    FORKING.store(owner, Relaxed);
}

pub(super) fn forking() -> usize {
    FORKING.load(Relaxed)
}

/// Whether the filter of guarded mode is in force.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub extern "C" fn terapage_hosted_guards() -> bool {
    is_active()
}

/// Pins what a call touches, or its next piece. The answer is the call's, or [`MADE_BY_THREAD`], or
/// [`IS_CROWDED`]: also if a piece was made, and there is another.
///
/// # Safety
/// The call has no other user.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn terapage_hosted_pin(call: *mut GuardedCall) -> isize {
    // SAFETY: the host passes its call.
    let call = unsafe { &mut *call };
    let _near = copy::near(call.depth);
    if call.done == 0 {
        call.way = way(call.number, &call.given, pieces::piece_bytes());
    }
    call.arguments = call.given;
    call.words = NOTHING.each_ref().map(|word| word.as_ptr() as usize);
    let Some(pins) = pins().filter(|_| is_on()) else { return MADE_BY_THREAD };
    if call.way == VECTORS { make_piece(pins, call) } else { begin_piece(pins, call) }
}

/// Unpins after the call, or a piece of it, with the kernel's answer. The answer is the call's, or,
/// if there is another piece, [`MADE_BY_THREAD`] or [`IS_CROWDED`].
///
/// # Safety
/// As for [`terapage_hosted_pin`], which was called before.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn terapage_hosted_unpin(call: *mut GuardedCall, answer: isize) -> isize {
    // SAFETY: the host passes its call.
    let call = unsafe { &mut *call };
    let _near = copy::near(call.depth);
    let Some(pins) = pins() else { return answer };
    end_piece(pins, call, answer).unwrap_or_else(|| begin_piece(pins, call))
}

/// Unpins after the call, or a piece of it. `None` if there is another piece.
fn end_piece(pins: &Pins, call: &mut GuardedCall, answer: isize) -> Option<isize> {
    pins.forget(call.owner, |_, depth| depth == call.depth);
    if call.way == WHOLE {
        return Some(answer);
    }
    if answer < 0 {
        return Some(if call.done > 0 { call.done as isize } else { answer });
    }
    call.done += answer as usize;
    if call.number == libc::SYS_recvmsg {
        return Some(if received(call) { answer } else { -(libc::EFAULT as isize) });
    }
    let is_over = call.way & ONE_PIECE != 0 || (answer as usize) < call.len || call.len == 0;
    is_over.then_some(call.done as isize)
}

/// Makes a call between two arrays, or its next piece. The answer is the call's, or [`IS_CROWDED`]
/// if there is another piece: other threads may have the seat before.
fn make_piece(pins: &Pins, call: &mut GuardedCall) -> isize {
    let given = call.given;
    if call.done == 0 {
        // SAFETY: nothing is copied, and the arguments lie on this stack, which is not paged.
        let make = |arguments| unsafe { gate::call(call.number, arguments) };
        if let Some(error) = vectors::refusal(&call.given, make) {
            return error;
        }
        // There is no message.
        call.header[..2].copy_from_slice(&Arrays::copy(&mut call.given).words());
    }
    let answer = match begin_piece(pins, call) {
        MADE_BY_THREAD => {
            // SAFETY: the program answers for the call, whose memory is there.
            let answer = unsafe { gate::call(call.number, call.arguments) };
            end_piece(pins, call, answer)
        }
        answer => Some(answer),
    };
    match answer.unwrap_or(IS_CROWDED) {
        IS_CROWDED if call.done > 0 => IS_CROWDED,
        answer => {
            Arrays::of([call.header[0], call.header[1]]).free();
            call.given = given;
            answer
        }
    }
}

/// Unpins for a call that a handler has left.
///
/// # Safety
/// As for [`terapage_hosted_pin`].
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn terapage_hosted_forget(call: *mut GuardedCall) {
    // SAFETY: the host passes its call.
    let call = unsafe { &*call };
    if let Some(pins) = pins() {
        pins.forget(call.owner, |_, depth| depth == call.depth);
    }
}

/// How a call is divided into pieces of `most` bytes.
fn way(number: c_long, given: &[usize; 6], most: usize) -> usize {
    let (way, is_long) = match number {
        libc::SYS_sendmsg | libc::SYS_recvmsg => {
            let header = pieces::plain::<Header>(given[1]);
            let len = header.map_or(0, |header| pieces::total(header.msg_iov as usize, header.msg_iovlen));
            let is_stream = || pieces::kind(given[0]) == File::Stream;
            return if len > most && is_stream() { MESSAGE } else { WHOLE };
        }
        _ => match terapage_calls::pieces(number as usize) {
            Pieces::Bytes(at) => (BYTES, given[usize::from(at) + 1] > most),
            Pieces::Vector(at) => {
                (VECTOR, pieces::total(given[usize::from(at)], given[usize::from(at) + 1]) > most)
            }
            Pieces::Vectors(..) => return if vectors::is_long(given, most) { VECTORS } else { WHOLE },
            Pieces::Whole => return WHOLE,
        },
    };
    if !is_long {
        return WHOLE;
    }
    match pieces::kind(given[0]) {
        File::Messages => WHOLE,
        File::Stream if !pieces::is_write(number) => way | ONE_PIECE,
        File::Stream | File::Regular => way,
    }
}

/// Begins the next piece of a call, or the whole call. If other calls have pinned much memory, the
/// piece is smaller.
fn begin_piece(pins: &Pins, call: &mut GuardedCall) -> isize {
    let caller = Caller { owner: call.owner, thread: call.thread, depth: call.depth, hint: call.hint };
    let mut most = pieces::piece_bytes();
    let held = loop {
        call.arguments = call.given;
        if call.way != WHOLE {
            divide(call, most);
            if call.len == 0 && call.done > 0 {
                return call.done as isize;
            }
        }
        let limit = Limit::fourths(if most > SMALLEST { FOURTHS } else { MOST_FOURTHS });
        let named = match call.at_position {
            0 => pieces::named_by_offset(call.number, &call.arguments),
            _ => pieces::named_by_position(call.number, &call.arguments),
        };
        let held = trap::hold(pins, caller, call.number, call.arguments, named, limit);
        if !held.is_crowded {
            break held;
        }
        pins.end(held.call);
        if most == SMALLEST {
            return IS_CROWDED;
        }
        most = (most / 2).max(SMALLEST);
        if call.way == WHOLE {
            call.way = way(call.number, &call.given, most);
            if call.way == VECTORS {
                return make_piece(pins, call);
            }
        }
    };
    call.hint = held.call.hint();
    if let Some(errno) = held.refusal {
        pins.end(held.call);
        return if call.done > 0 { call.done as isize } else { -(errno as isize) };
    }
    call.words = match pins.words(&held.call) {
        Some(words) if call.way == WHOLE => words,
        None if call.way == WHOLE && Pins::bytes(&held.call) == 0 => {
            NOTHING.each_ref().map(|word| word.as_ptr() as usize)
        }
        _ => [0; 2],
    };
    MADE_BY_THREAD
}

/// Puts the next piece, of `most` bytes at most, into the arguments.
fn divide(call: &mut GuardedCall, most: usize) {
    let (most, number) = (most.min(pieces::ALL - call.done), call.number);
    if call.way == MESSAGE {
        return divide_message(call, most);
    }
    if let Some(offset) = pieces::offset(number, &call.given) {
        call.arguments[offset] = call.given[offset].wrapping_add(call.done);
    }
    match terapage_calls::pieces(number as usize) {
        Pieces::Bytes(at) => {
            let at = usize::from(at);
            call.len = most.min(call.given[at + 1] - call.done);
            (call.arguments[at], call.arguments[at + 1]) = (call.given[at].wrapping_add(call.done), call.len);
        }
        Pieces::Vector(at) => {
            let at = usize::from(at);
            let (count, len) = buffers(call, call.given[at], call.given[at + 1], most);
            call.len = len;
            (call.arguments[at], call.arguments[at + 1]) = (call.buffers.as_ptr() as usize, count);
        }
        Pieces::Vectors(own, other) => {
            let piece = vectors::piece(&call.given, call.done, most);
            let all = piece.own.iter().chain(&piece.other);
            for (place, buffer) in call.buffers.iter_mut().zip(all) {
                *place = [buffer.iov_base as usize, buffer.iov_len];
            }
            for (at, first, count) in [(own, 0, piece.counts[0]), (other, vectors::BUFFERS, piece.counts[1])]
            {
                let place = call.buffers[first..].as_ptr() as usize;
                call.arguments[usize::from(at)..][..2].copy_from_slice(&[place, count]);
            }
            call.len = piece.len;
        }
        Pieces::Whole => {}
    }
}

/// Puts the buffers of the next piece into the call. Returns their number, and their bytes.
fn buffers(call: &mut GuardedCall, vector: usize, count: usize, most: usize) -> (usize, usize) {
    let mut all = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BUFFERS];
    let answer = pieces::part(vector, count, call.done, most, &mut all);
    call.buffers = all.map(|buffer| [buffer.iov_base as usize, buffer.iov_len]);
    answer
}

/// The next piece of a message on a stream: the address and the control data go with the first.
fn divide_message(call: &mut GuardedCall, most: usize) {
    let Some(mut header) = pieces::plain::<Header>(call.given[1]) else { return };
    let (count, len) = buffers(call, header.msg_iov as usize, header.msg_iovlen, most);
    (header.msg_iov, header.msg_iovlen) = (call.buffers.as_mut_ptr().cast(), count);
    if call.done > 0 {
        (header.msg_name, header.msg_namelen) = (std::ptr::null_mut(), 0);
        (header.msg_control, header.msg_controllen) = (std::ptr::null_mut(), 0);
    }
    call.len = len;
    // SAFETY: a header is seven words, any of which are valid.
    call.header = unsafe { std::mem::transmute::<Header, [usize; 7]>(header) };
    call.arguments[1] = call.header.as_ptr() as usize;
}

/// Passes the header on that the kernel has written. Whether that is possible.
fn received(call: &GuardedCall) -> bool {
    const BUFFERS_AT: usize = 2;
    let Some(given) = pieces::plain::<[usize; 7]>(call.given[1]) else { return false };
    let mut header = call.header;
    header[BUFFERS_AT..BUFFERS_AT + 2].copy_from_slice(&given[BUFFERS_AT..BUFFERS_AT + 2]);
    // SAFETY: words are plain data.
    let bytes = unsafe { std::slice::from_raw_parts(header.as_ptr().cast::<u8>(), size_of_val(&header)) };
    copy::write(call.given[1], bytes)
}

/// The most bytes behind the start of a thread's stack in which its own data lie.
const ABOVE: usize = 256 << 10;

/// The part of a stack that begins at `top` and has `most` bytes at most that is paged, or will be.
/// The last bytes may lie in a block that is not, beside other memory.
fn stack_below(top: usize, most: usize) -> Option<(usize, usize)> {
    let from = top.saturating_sub(most);
    let len = top.saturating_add(ABOVE) - from;
    let gap = 2 * setup::block();
    let is_near = |&(_, to): &(usize, usize)| top.saturating_sub(to) < gap;
    if adopted::is_taking_over() {
        // It is not paged yet.
        let parts = statics::within(from, len).filter(|&(from, _)| from < top);
        if let Some(part) = parts.max().filter(is_near) {
            return Some(part);
        }
    }
    let mut last = None;
    copy::paged_parts(from, len, |from, to| {
        if from < top {
            last = last.max(Some((from, to)));
        }
    });
    // Neighbours of the stack may be out: free memory, which others will get, and mapped files.
    last.filter(is_near).and_then(|(from, to)| ARENA.lock().in_use_around(from, to, top.min(to) - 1))
}

/// Before a thread begins: its stack, which begins at `top` and has `most` bytes at most, and its
/// words stay in memory. The kernel puts frames of signals there, and writes the words, at times
/// when it cannot wait. Returns an error (`errno`), or 0.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub extern "C" fn terapage_hosted_thread(top: usize, most: usize, words: &[usize; 2]) -> c_int {
    let stack = if top == 0 { None } else { stack_below(top, most) };
    let words = words.iter().filter(|&&word| word != 0).map(|&word| (word, word + size_of::<u32>()));
    let kept = stack.into_iter().chain(words).try_for_each(|(from, to)| locked::keep_in_memory(from, to));
    if let Some(pins) = pins() {
        let _arena = ARENA.lock();
        // A child of `vfork` pins, too, and is no thread of this process.
        pins.forget_ended(|thread| {
            // SAFETY: no signal is sent.
            unsafe { gate::call(libc::SYS_tkill, [thread, 0, 0, 0, 0, 0]) == -(libc::ESRCH as isize) }
        });
    }
    kept.err().map_or(0, |error| error.errno())
}

/// Copies memory of the program from or, if `writes`, to `at`, as far as it is there. Returns the
/// number of bytes.
///
/// # Safety
/// `own` has `len` bytes, of the host.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn terapage_hosted_copy(at: usize, own: usize, len: usize, writes: bool) -> usize {
    let mut done = 0;
    while done < len {
        let Some(place) = at.checked_add(done) else { break };
        let part = (page_bytes() - place % page_bytes()).min(len - done);
        // SAFETY: the caller's memory.
        let is_copied = unsafe {
            match writes {
                true => copy::write(place, std::slice::from_raw_parts((own + done) as *const u8, part)),
                false => copy::read(place, std::slice::from_raw_parts_mut((own + done) as *mut u8, part)),
            }
        };
        if !is_copied {
            break;
        }
        done += part;
    }
    done
}
