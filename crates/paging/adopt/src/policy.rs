//! How urgent a thread is: while a program is stopped, what works for it goes first on a busy
//! machine.

/// A thread that is urgent as long as this value lives, if this process may do that. Threads that
/// it makes are urgent, too.
pub struct Policy {
    thread: libc::pid_t,
    before: Option<Before>,
}

/// The policy and the priority that a thread had before.
#[derive(Clone, Copy)]
pub struct Before {
    policy: i32,
    parameters: libc::sched_param,
}

impl Before {
    /// Gives a thread this policy.
    pub fn give(&self, thread: u32) {
        // SAFETY: the call reads the parameters.
        unsafe { libc::sched_setscheduler(thread as libc::pid_t, self.policy, &raw const self.parameters) };
    }
}

impl Policy {
    /// Makes a thread urgent; 0 is the calling one. Those that are more urgent than ordinary ones
    /// stay as they are.
    pub fn urgent(thread: u32) -> Policy {
        Policy::changed(thread, libc::SCHED_RR)
    }

    /// Makes a process urgent, but none that it makes.
    pub fn urgent_alone(process: u32) -> Policy {
        Policy::changed(process, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK)
    }

    fn changed(thread: u32, to: i32) -> Policy {
        let thread = thread as libc::pid_t;
        let mut known_parameters = parameters(0);
        let is_ordinary =
            |policy: i32| [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&policy);
        // SAFETY: the calls read or write parameters.
        let before = unsafe {
            let policy = libc::sched_getscheduler(thread);
            let known = is_ordinary(policy) && libc::sched_getparam(thread, &raw mut known_parameters) == 0;
            let first = parameters(1);
            let urgent = || libc::sched_setscheduler(thread, to, &raw const first);
            (known && urgent() == 0).then_some(Before { policy, parameters: known_parameters })
        };
        Policy { thread, before }
    }

    /// The thread.
    pub fn thread(&self) -> u32 {
        self.thread as u32
    }

    /// What the thread had before, if it is urgent now.
    pub fn before(&self) -> Option<Before> {
        self.before
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
        if let Some(before) = self.before {
            before.give(self.thread());
        }
    }
}
