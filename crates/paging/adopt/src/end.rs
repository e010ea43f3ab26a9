//! How a process has ended that is no child of this one.

use crate::trace;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// What the kernel tells of an ended process that its parent has waited for, from Linux 6.15 on: a
/// `struct pidfd_info`, of which only these fields count.
const INFO_WORDS: usize = 16;
const EXIT: u32 = 8;
const EXIT_CODE: usize = 15;
/// `PIDFD_GET_INFO`.
const GET_INFO: u64 = 0xc040_ff0b;

/// `PF_EXITING`: a thread that will not go on.
const EXITING: u64 = 4;

/// The longest time that a process may take to end, as seen from here, and the time between two
/// looks at it.
const END_MOST: Duration = Duration::from_secs(10);
const LOOK_MS: i32 = 10;

/// How a process has ended, as wait(2) has it; `None` if that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending(Option<i32>);

impl Ending {
    /// The signal that has ended it.
    pub fn signal(self) -> Option<i32> {
        self.0.filter(|&status| libc::WIFSIGNALED(status)).map(|status| libc::WTERMSIG(status))
    }

    /// Its exit status, if no signal has ended it.
    pub fn status(self) -> Option<i32> {
        self.0.filter(|&status| libc::WIFEXITED(status)).map(|status| libc::WEXITSTATUS(status))
    }
}

/// A process, whatever becomes of its number.
pub struct Handle {
    pid: u32,
    fd: OwnedFd,
}

impl Handle {
    /// A handle of a process.
    pub fn of(pid: u32) -> io::Result<Handle> {
        // SAFETY: the call touches no memory.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, i64::from(pid), 0_i64) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has made the descriptor just now.
        Ok(Handle { pid, fd: unsafe { OwnedFd::from_raw_fd(fd as i32) } })
    }

    /// How the process has ended. `None` if it goes on, perhaps with another program.
    pub fn ending(&self) -> Option<Ending> {
        let until = Instant::now() + END_MOST;
        while !self.ends_within(0) {
            let threads = self.threads();
            if !self.is_ending(&threads) {
                return None;
            }
            // Those that this process still traces stay until it has seen their end.
            threads.into_iter().for_each(|thread| drop(trace::look(thread)));
            if Instant::now() > until {
                return Some(Ending(None));
            }
            self.ends_within(LOOK_MS);
        }
        // Its parent may wait for it between two of these.
        Some(Ending(self.of_waited_for().or_else(|| self.of_zombie()).or_else(|| self.of_waited_for())))
    }

    /// Waits until the process has ended, with all of its threads, or the time is over. Returns
    /// whether it has.
    fn ends_within(&self, ms: i32) -> bool {
        let mut polled = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the call reads and writes one entry.
        unsafe { libc::poll(&raw mut polled, 1, ms) > 0 }
    }

    fn threads(&self) -> Vec<u32> {
        let entries = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    fn stat(&self, of: &str) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{}/{of}stat", self.pid)).ok()?)
    }

    /// Whether a signal that nobody handles has come, or no thread goes on.
    fn is_ending(&self, threads: &[u32]) -> bool {
        let goes_on =
            |thread: &u32| self.stat(&format!("task/{thread}/")).is_some_and(|stat| !stat.is_exiting);
        self.stat("").is_some_and(|stat| stat.is_killed()) || !threads.iter().any(goes_on)
    }

    /// The status of a process for which its parent has waited.
    fn of_waited_for(&self) -> Option<i32> {
        let mut info = [0_u32; INFO_WORDS];
        info[0] = EXIT;
        // SAFETY: the request writes no more bytes than its number says.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), GET_INFO as _, info.as_mut_ptr()) };
        (done == 0 && info[0] & EXIT != 0).then_some(info[EXIT_CODE] as i32)
    }

    /// The status of a process for which its parent has not waited yet.
    fn of_zombie(&self) -> Option<i32> {
        self.stat("").filter(|stat| stat.is_exiting).map(|stat| stat.code)
    }
}

/// What `/proc/PID/stat` says.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    is_exiting: bool,
    /// The status as wait(2) has it, or the signal by which the process was stopped.
    code: i32,
}

impl Stat {
    fn parse(text: &str) -> Option<Stat> {
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
        let flags: u64 = fields.get(6)?.parse().ok()?;
        Some(Stat { is_exiting: flags & EXITING != 0, code: fields.last()?.parse().ok()? })
    }

    fn is_killed(&self) -> bool {
        let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        libc::WIFSIGNALED(self.code) && !stops.contains(&self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::{Ending, Handle, Stat};
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_tells_how_it_has_ended_before_and_after_its_parent_has_waited() {
        for (words, signal, status) in [("kill -TERM $$", Some(15), None), ("exit 7", None, Some(7))] {
            let mut child = Command::new("sh");
            child.args(["-c", &format!("read line; {words}")]).stdin(Stdio::piped());
            let mut child = child.spawn().unwrap();
            let handle = Handle::of(child.id()).unwrap();
            assert_eq!(handle.ending(), None);
            drop(child.stdin.take());
            assert!(handle.ends_within(600_000));
            let before = handle.ending().unwrap();
            assert_eq!((before.signal(), before.status()), (signal, status));
            child.wait().unwrap();
            // Kernels before Linux 6.15 do not tell.
            let after = handle.ending().unwrap();
            assert!([before, Ending(None)].contains(&after), "{after:?}");
        }
    }

    #[test]
    fn a_stopped_process_has_not_ended() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let handle = Handle::of(child.id()).unwrap();
        // SAFETY: the call stops a child of this process.
        unsafe { libc::kill(child.id() as i32, libc::SIGSTOP) };
        let looks = (0..20).map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            handle.ending()
        });
        let found: Vec<_> = looks.collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, vec![None; 20]);
        assert!(handle.ending().is_some());
    }

    #[test]
    fn the_end_is_read_past_the_name() {
        let stat = |flags: u32, code: i32| Stat::parse(&format!("7 (a) Z (b) R 1 7 7 0 -1 {flags} 9 {code}"));
        assert_eq!(stat(0x40_0104, 9), Some(Stat { is_exiting: true, code: 9 }));
        assert!(stat(0x40_0100, 9).unwrap().is_killed() && stat(0, 15).unwrap().is_killed());
        assert!(!stat(0, 0).unwrap().is_killed() && !stat(0, 19).unwrap().is_killed());
        assert!(!stat(0, 7 << 8).unwrap().is_killed() && Stat::parse("").is_none());
    }
}
