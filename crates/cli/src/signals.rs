//! Signals that wait while this command works, and those by which a user ends it, one by one.

use std::time::Duration;

/// The signals by which a user ends a command. They wait from the beginning of this value on, until
/// the command ends, and are taken one by one.
pub struct Ends(libc::sigset_t);

impl Ends {
    /// Begins to take them.
    pub fn begin() -> Ends {
        // SAFETY: a set is plain data, for which zeros are a value; the calls change and read it.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            Ends(set)
        }
    }

    /// The first that comes within this time, for which this waits.
    pub fn come_within(&self, time: Duration) -> Option<i32> {
        let time = libc::timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos().into() };
        // SAFETY: the set and the time are read; more about what came is not asked for.
        let came = unsafe { libc::sigtimedwait(&raw const self.0, std::ptr::null_mut(), &raw const time) };
        (came > 0).then_some(came)
    }
}

/// While this lives, all signals wait.
pub struct Quiet(libc::sigset_t);

impl Quiet {
    /// Begins to let them wait.
    pub fn begin() -> Quiet {
        // SAFETY: sets are plain data, for which zeros are a value, and have room for the answer.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            Quiet(before)
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: the set is the one from before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}
