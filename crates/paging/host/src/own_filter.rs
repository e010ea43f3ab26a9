//! Filters that the program sets for itself. The host works in the program's threads, by calls that
//! such a filter does not know. So the host adds steps before the program's filter, which let calls
//! from the host's code pass.

use crate::calls::Outcome;
use crate::raw::{self, error};
use crate::{filter, guard};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terapage_sys::seccomp::{STEPS_MOST, Step, Steps};

/// Whether the program has set a filter.
static HAS_FILTER: AtomicBool = AtomicBool::new(false);

const STRICT: usize = 0;
const FILTER: usize = 1;
/// Modes of `prctl(PR_SET_SECCOMP)`.
const MODE_STRICT: usize = 1;
const MODE_FILTER: usize = 2;

/// Serves `seccomp`, and `prctl(PR_SET_SECCOMP)`.
///
/// # Safety
/// The same as for the system call.
pub unsafe fn set(number: i64, arguments: [usize; 6]) -> Outcome {
    let [first, second, third, ..] = arguments;
    let (operation, flags, given) = match (number, first, second) {
        (libc::SYS_seccomp, STRICT | FILTER, flags) => (first, flags, third),
        (libc::SYS_prctl, _, MODE_STRICT) => (STRICT, 0, 0),
        (libc::SYS_prctl, _, MODE_FILTER) => (FILTER, 0, third),
        // SAFETY: the caller is responsible for the call, which only queries.
        _ => return unsafe { guard::plain(number, arguments) },
    };
    if operation == STRICT {
        // As with the kernel, which has only one of the modes at a time.
        if flags != 0 || given != 0 || HAS_FILTER.load(Relaxed) {
            return Outcome::Answer(error(libc::EINVAL));
        }
        // SAFETY: the program has asked for this.
        return Outcome::Answer(unsafe { filter::set(0, &filter::strict()) });
    }
    let Some((len, first)) = read(given) else {
        // The call fails. The kernel knows whether its flags are wrong first.
        let arguments = [arguments[0], arguments[1], raw::NOWHERE, arguments[3], arguments[4], arguments[5]];
        // SAFETY: as above.
        return Outcome::Answer(unsafe { raw::call(number, arguments) });
    };
    let before = filter::before_own();
    if len == 0 || before.len() + len > STEPS_MOST {
        return Outcome::Answer(error(libc::EINVAL));
    }
    let bytes = (before.len() + len) * size_of::<Step>();
    let Some(at) = raw::map(bytes) else { return Outcome::Answer(error(libc::ENOMEM)) };
    // SAFETY: the mapping has room for all steps; any bytes are steps, which the kernel checks.
    unsafe {
        let steps = std::slice::from_raw_parts_mut(at as *mut Step, before.len() + len);
        steps[..before.len()].copy_from_slice(&before);
        let own = &mut steps[before.len()..];
        let into = std::slice::from_raw_parts_mut(own.as_mut_ptr().cast::<u8>(), size_of_val(own));
        let answer = if raw::read(first, into) { filter::set(flags, steps) } else { error(libc::EFAULT) };
        if answer >= 0 {
            HAS_FILTER.store(true, Relaxed);
        }
        raw::raw!(libc::SYS_munmap, at, bytes);
        Outcome::Answer(answer)
    }
}

/// The length of the program's filter, and the address of its first step.
fn read(at: usize) -> Option<(usize, usize)> {
    let mut bytes = [0_u8; size_of::<Steps>()];
    raw::read(at, &mut bytes).then(|| {
        // SAFETY: any bytes are a length and an address.
        let steps: Steps = unsafe { std::mem::transmute_copy(&bytes) };
        (usize::from(steps.len), steps.first as usize)
    })
}
