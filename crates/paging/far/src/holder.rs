//! Claims on a namespace: which processes need its blocks, on each server by itself.
//!
//! A namespace is what one process, its *owner*, keeps on one server; of n copies each has its own.
//! A *claim* is a field of the namespace's registry, `h:ID`, and says that the process of this ID
//! needs the blocks. The owner's ID is the namespace's name. A fork's child has the ID of its
//! parent, a dot, and the number of the fork, whether or not a server has noted the fork. So no
//! two of m processes have one ID, and nobody can take back a claim but its own process, or the
//! parent of that process once it has ended.
//!
//! The parent notes a child's claim before the fork, on each server that it knows to answer. There
//! is no fork unless one copy of each block has it (`share`). A claim that a server has not
//! acknowledged may or may not be there: it counts as held, and is made again by both who know of
//! it, by the parent until it is acknowledged or the child has ended, and by the child with each
//! sign of life. Who takes back a claim first makes those again that he alone may know of. A
//! namespace is removed only if its description is there, and no claim. Where the description is
//! missing (the server was started again, or flushed), there is nothing to remove.
//!
//! Slots that a child needs stay as they are until it has ended. While the owner lives, only the
//! owner writes them, also again after a loss; children read them again, and compare checksums.
//! When the owner has ended, all who hold claims are its *heirs*, and write what a server has lost:
//! the same bytes to the same places, whoever it is, since no slot gets new contents any more.

use crate::namespace::Namespace;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The prefix of a claim's field, and of the fields with numbers of values: an heir's own number
/// may be lower than the owner's was.
pub(crate) const FIELD: &str = "h:";
pub(crate) const VALUES: &str = "values";

/// The mark of a holder that was about to execute another program, and the age of its last sign of
/// life, seconds, from which on it counts as gone: three beats.
const LEFT: &str = "exec";
const LEFT_S: u64 = 30;

/// The mark of a claim that a parent has noted for its child, which repeats it under its own name
/// within a second or two, and the time after which it counts as gone if the parent has ended,
/// seconds.
const FORKED: &str = "forked";
const FORKED_S: u64 = 300;

/// A child's claim, as far as its parent knows.
#[derive(Clone, Debug)]
struct Child {
    fork: u32,
    /// The server has acknowledged it.
    is_noted: bool,
}

/// A process that holds a namespace.
#[derive(Clone, Debug)]
pub struct Holder {
    id: String,
    /// Children that have ended and are still noted there.
    gone: Vec<String>,
    /// Children that have ended, whose claims may still arrive there.
    late: Vec<String>,
    /// The last fork.
    next: Option<u32>,
    /// Living children that hold it.
    children: Vec<Child>,
}

/// This machine since its last boot, and a process of it since the process's start.
fn this_boot() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim();
    // In another PID namespace, numbers mean other processes.
    let numbers = std::fs::read_link("/proc/self/ns/pid").map(|link| link.display().to_string());
    format!("{boot}/{}", numbers.unwrap_or_default())
}

/// The kernel's information about a process.
#[derive(PartialEq, Eq)]
enum Told {
    /// It has ended.
    Gone,
    /// The process began at this time, in the kernel's ticks.
    Began(u64),
    /// The process exists; nothing else is known.
    There,
}

fn told_of(pid: u32) -> Told {
    // Negative numbers mean groups of processes.
    let Ok(number) = i32::try_from(pid) else { return Told::Gone };
    // SAFETY: no signal is sent.
    let is_there = unsafe { libc::kill(number, 0) } == 0;
    if !is_there && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
        return Told::Gone;
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, rest)) = stat.rsplit_once(')') else { return Told::There };
    let mut fields = rest.split_ascii_whitespace();
    let is_zombie = fields.next() == Some("Z");
    let threads = fields.nth(16).and_then(|threads| threads.parse::<u32>().ok());
    // A zombie process has nothing left. A process of which only the first thread has ended looks
    // the same, but continues.
    if is_zombie && threads.is_some_and(|threads| threads <= 1) {
        return Told::Gone;
    }
    fields.nth(1).and_then(|start| start.parse().ok()).map_or(Told::There, Told::Began)
}

/// This process, as in the fields of claims; what it is does not change.
pub(crate) fn this_process() -> String {
    static KNOWN: Mutex<(u32, String)> = Mutex::new((0, String::new()));
    let pid = std::process::id();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.0 != pid {
        let start = if let Told::Began(start) = told_of(pid) { start } else { 0 };
        *known = (pid, format!("{} {pid} {start}", this_boot()));
    }
    known.1.clone()
}

/// Whether the field of a claim is that of a forked process.
pub(crate) fn is_of_child(field: &str) -> bool {
    field.contains('.')
}

/// Whether the process in a holder's field has certainly ended.
pub(crate) fn is_gone(field: &str) -> bool {
    let mut words = field.split(' ');
    let (boot, pid, start) = (words.next(), words.next(), words.next());
    let (Some(boot), Some(pid), Some(start)) = (boot, pid, start) else { return false };
    let (Ok(pid), Ok(start)) = (pid.parse(), start.parse::<u64>()) else { return false };
    // Without /proc all machines look the same, and processes have no start time.
    let is_here = boot == this_boot() && boot.len() > 32 && start > 0;
    let has_ended = || match told_of(pid) {
        Told::Gone => true,
        Told::Began(began) => began != start,
        Told::There => false,
    };
    // What a parent has noted for its child names the parent.
    let may_be_gone = match (words.next(), words.next()) {
        (None | Some(LEFT), _) => true,
        (Some(FORKED), Some(since_s)) => {
            since_s.parse().is_ok_and(|since_s| up_s().saturating_sub(since_s) > FORKED_S)
        }
        _ => false,
    };
    is_here && may_be_gone && has_ended()
}

/// Whether it was about to execute another program, and has given no sign of life since.
pub(crate) fn has_left(field: &str, beat_age_s: u64) -> bool {
    field.split(' ').nth(3) == Some(LEFT) && beat_age_s > LEFT_S
}

/// Seconds since this machine was started, also those in which it slept.
fn up_s() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one time.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    u64::try_from(now.tv_sec).unwrap_or(0)
}

impl Holder {
    /// This process, which has made the namespace.
    pub fn of_this_process(space: &Namespace) -> Holder {
        Holder { id: space.name(), gone: Vec::new(), late: Vec::new(), next: None, children: Vec::new() }
    }

    /// The field of its own claim.
    pub(crate) fn field(&self) -> String {
        format!("{FIELD}{}", self.id)
    }

    /// The field with the number of values that this process knows of.
    pub(crate) fn values_field(&self, is_owner: bool) -> String {
        if is_owner { VALUES.to_owned() } else { format!("{VALUES}:{}", self.id) }
    }

    /// Its own claim: a field and its contents.
    pub fn claim(&self) -> (String, String) {
        (self.field(), this_process())
    }

    /// Its own claim with the mark that it is about to leave. The next sign of life takes the mark
    /// away, if there is one.
    pub fn leave(&self) -> (String, String) {
        (self.field(), format!("{} {LEFT}", this_process()))
    }

    fn field_of_child(&self, fork: u32) -> String {
        format!("{FIELD}{}.{fork}", self.id)
    }

    /// Before a fork: its child will have a claim, if there is anything to claim.
    pub fn will_fork(&mut self, fork: u32, holds: bool) {
        self.next = Some(fork);
        if holds && !self.children.iter().any(|child| child.fork == fork) {
            self.children.push(Child { fork, is_noted: false });
        }
    }

    /// The claims of living children that are not acknowledged, and the last fork among them.
    pub(crate) fn unnoted(&self) -> (Vec<(String, String)>, u32) {
        let all = self.children.iter().filter(|child| !child.is_noted);
        let last = all.clone().map(|child| child.fork).max().unwrap_or(0);
        let what = format!("{} {FORKED} {}", this_process(), up_s());
        (all.map(|child| (self.field_of_child(child.fork), what.clone())).collect(), last)
    }

    /// The claims of the children of all forks up to `last` are acknowledged.
    pub(crate) fn noted(&mut self, last: u32) {
        self.children.iter_mut().filter(|child| child.fork <= last).for_each(|child| child.is_noted = true);
    }

    /// The server has lost its notes.
    pub(crate) fn forgotten(&mut self) {
        self.children.iter_mut().for_each(|child| child.is_noted = false);
    }

    /// Whether processes other than this one have claims in a registry, or may have.
    pub(crate) fn has_others(&self, described: &HashMap<String, String>) -> bool {
        let own = self.field();
        let is_others = |name: &String| name.starts_with(FIELD) && *name != own;
        described.keys().any(is_others) || self.children.iter().any(|child| !child.is_noted)
    }

    /// In the child: it becomes the holder that was meant before the fork. Returns whether one was:
    /// otherwise it has no claim, but a name that nobody else has.
    pub fn inherit(&mut self) -> bool {
        let fork = self.next.take();
        let name = fork.map_or_else(|| format!("p{}", std::process::id()), |fork| fork.to_string());
        self.id = format!("{}.{name}", self.id);
        self.children.clear();
        self.gone.clear();
        self.late.clear();
        fork.is_some()
    }

    /// The child of that fork, and all its descendants, have ended, or it will need nothing there.
    pub fn child_gone(&mut self, fork: u32) {
        self.next = None;
        let Some(index) = self.children.iter().position(|child| child.fork == fork) else { return };
        let child = self.children.remove(index);
        self.gone.push(self.field_of_child(fork));
        if !child.is_noted {
            self.late.push(self.field_of_child(fork));
        }
    }

    /// The claims of ended children, which must be removed.
    pub fn take_gone(&mut self) -> Vec<String> {
        std::mem::take(&mut self.gone)
    }

    /// All claims that end with this process: its own, and those of its ended children.
    pub(crate) fn ended(&self) -> impl Iterator<Item = String> {
        std::iter::once(self.field()).chain(self.gone.iter().chain(&self.late).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_was_about_to_leave_is_gone_if_it_shows_no_life() {
        let holder = Holder::of_this_process(&Namespace::of("", 1));
        let (field, left) = holder.leave();
        assert!(!is_gone(&left) && !has_left(&left, LEFT_S) && has_left(&left, LEFT_S + 1));
        let (same, stays) = holder.claim();
        assert_eq!(same, field);
        assert!(!is_gone(&stays) && !has_left(&stays, 1000));
        let none = format!("{} {} 1", this_boot(), u32::MAX);
        assert!(is_gone(&none) && is_gone(&format!("{none} {LEFT}")));
    }

    #[test]
    fn the_note_of_a_fork_does_not_outlive_its_family_for_long() {
        let none = format!("{} {} 1", this_boot(), u32::MAX);
        let noted =
            |process: &str, age_s: u64| format!("{process} {FORKED} {}", up_s().saturating_sub(age_s));
        assert!(!is_gone(&noted(&none, 0)), "the child may live, and make its claim soon");
        assert!(up_s() <= FORKED_S || is_gone(&noted(&none, FORKED_S + 1)));
        assert!(!is_gone(&noted(&this_process(), FORKED_S + 1)), "the parent lives");
        assert!(!is_gone(&format!("{none} {FORKED}")), "of an earlier version: it has no time");
    }

    #[test]
    fn no_two_processes_have_one_claim() {
        let mut parent = Holder::of_this_process(&Namespace::of("", 1));
        parent.will_fork(7, true);
        // No server has noted it.
        let mut child = parent.clone();
        child.inherit();
        assert_eq!(child.field(), format!("{}.7", parent.field()));
        child.will_fork(1, true);
        let mut grandchild = child.clone();
        grandchild.inherit();
        assert_eq!(grandchild.field(), format!("{}.7.1", parent.field()));
        let (unnoted, last) = parent.unnoted();
        assert_eq!((unnoted.len(), &unnoted[0].0, last), (1, &child.field(), 7));
        parent.noted(7);
        assert!(parent.unnoted().0.is_empty());
        parent.forgotten();
        parent.child_gone(7);
        assert!(parent.unnoted().0.is_empty(), "nobody claims for who has ended");
        assert_eq!(parent.ended().collect::<Vec<_>>()[1..], [child.field(), child.field()]);
        let mut other = parent.clone();
        assert!(!other.inherit() && other.field() != parent.field(), "nothing was meant for it");
        parent.will_fork(8, false);
        assert!(parent.unnoted().0.is_empty(), "there is nothing to claim");
    }
}
