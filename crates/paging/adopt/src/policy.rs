//! How urgent a thread is: while a program is stopped, what works for it goes first on a busy
//! machine.

/// A thread that is urgent as long as this value lives, if this process may do that. Threads that
/// it makes are urgent, too.
pub struct Policy {
    thread: libc::pid_t,
    /// The policy and the priority from before.
    before: Option<(i32, libc::sched_param)>,
}

impl Policy {
    /// Makes a thread urgent; 0 is the calling one. Those that are more urgent than ordinary ones
    /// stay as they are.
    pub fn urgent(thread: u32) -> Policy {
        let thread = thread as libc::pid_t;
        let mut known_parameters = parameters(0);
        let is_ordinary =
            |policy: i32| [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&policy);
        // SAFETY: the calls read or write parameters.
        let before = unsafe {
            let policy = libc::sched_getscheduler(thread);
            let known = is_ordinary(policy) && libc::sched_getparam(thread, &raw mut known_parameters) == 0;
            let first = parameters(1);
            let urgent = || libc::sched_setscheduler(thread, libc::SCHED_RR, &raw const first);
            (known && urgent() == 0).then_some((policy, known_parameters))
        };
        Policy { thread, before }
    }

    /// The thread.
    pub fn thread(&self) -> u32 {
        self.thread as u32
    }

    /// Gives another thread, which was made by this one, the policy from before.
    pub fn end_for(&self, thread: u32) {
        if let Some((policy, parameters)) = &self.before {
            // SAFETY: the call reads the parameters.
            unsafe { libc::sched_setscheduler(thread as libc::pid_t, *policy, parameters) };
        }
    }
}

/// Parameters with a priority. With musl they have other fields, too.
fn parameters(priority: i32) -> libc::sched_param {
    // SAFETY: the fields are numbers, for which zero is a value.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    parameters
}

impl Drop for Policy {
    fn drop(&mut self) {
        self.end_for(self.thread());
    }
}
