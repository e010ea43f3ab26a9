//! The costs of all stages, and their sources.

use std::collections::BTreeMap;
use terapage_figures::{Origin, Sourced};

/// The costs of the built-in model.
const DEFAULTS: &str = include_str!("../data/costs.toml");

/// An error in a file of costs.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not TOML, or does not have the form of the model's own file.
    #[error("costs: {cause}")]
    Syntax {
        /// The place and the reason.
        cause: toml::de::Error,
    },
    /// It names a cost that the model does not have.
    #[error("unknown cost '{name}'; known are {}", NAMES.join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// A cost is out of range.
    #[error("cost {name} is {value}; it must lie between 0 and 10000000")]
    Range {
        /// Its name.
        name: String,
        /// Its value.
        value: f64,
    },
}

macro_rules! costs {
    ($($(#[$doc:meta])* $field:ident = $name:literal,)*) => {
        /// Costs of all stages, in CPU cycles unless another unit is named.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Costs {
            $($(#[$doc])* pub $field: f64,)*
            origins: BTreeMap<String, Sourced<f64>>,
        }

        /// The names of all costs.
        pub const NAMES: &[&str] = &[$($name),*];

        impl Costs {
            fn slot(&mut self, name: &str) -> Option<&mut f64> {
                match name {
                    $($name => Some(&mut self.$field),)*
                    _ => None,
                }
            }
        }
    };
}

costs! {
    /// The program's own work for a system call.
    user_call = "user-call",
    /// The program's own work for an I/O.
    user_io = "user-io",
    /// Entry and exit of the submitting system call.
    syscall = "syscall",
    /// The system call that takes the results.
    getevents = "getevents",
    /// Asynchronous direct I/O down to the bio.
    aio_dio = "aio-dio",
    /// From the bio's end to the result in the program's ring.
    dio_complete = "dio-complete",
    /// Going to sleep and coming back.
    switch = "switch",
    /// Waking a thread.
    wake = "wake",
    /// Interrupting the CPU of a waiting thread.
    ipi = "ipi",
    /// A timer that wakes a thread which waits to keep its rate.
    timer = "timer",
    /// A completion interrupt, hard and soft.
    irq = "irq",
    /// NVMe: the command and the doorbell.
    nvme_submit = "nvme-submit",
    /// NVMe: the driver's part of a completion.
    nvme_complete = "nvme-complete",
    /// Single queue: search for a merge, under the queue's lock.
    sq_merge = "sq-merge",
    /// Single queue: a request is allocated and filled.
    sq_request = "sq-request",
    /// Single queue: the queue is run after an unplug, under its lock.
    sq_flush = "sq-flush",
    /// Single queue: a request is inserted, under the queue's lock.
    sq_insert = "sq-insert",
    /// Single queue: a request is taken and prepared, under the queue's lock.
    sq_peek = "sq-peek",
    /// Single queue: back in the dispatch loop, under the queue's lock.
    sq_loop = "sq-loop",
    /// The host's counters at dispatch, under the host's lock.
    host_dispatch = "host-dispatch",
    /// SCSI: middle and lower layer, to the doorbell.
    scsi_dispatch = "scsi-dispatch",
    /// SCSI: the drivers' part of a completion.
    scsi_complete = "scsi-complete",
    /// Single queue: the softirq, and freeing of allocated memory.
    sq_free = "sq-free",
    /// The host's counters at completion, under the host's lock.
    host_unbusy = "host-unbusy",
    /// The volume's counter at completion, under the queue's lock.
    sq_unbusy = "sq-unbusy",
    /// Single queue: the request ends, under the queue's lock.
    sq_end = "sq-end",
    /// The host's list of starved volumes, under the host's lock.
    host_starved = "host-starved",
    /// Single queue: the queue is run again after a completion, under its lock.
    sq_rerun = "sq-rerun",
    /// Multi-queue: tag, request, software queue.
    mq_request = "mq-request",
    /// Multi-queue: from the software queue to the driver, for a flush.
    mq_flush = "mq-flush",
    /// Multi-queue: the same for each request.
    mq_dispatch = "mq-dispatch",
    /// Multi-queue: the request ends, the tag is free.
    mq_end = "mq-end",
    /// Multi-queue: the lock of a hardware queue is held.
    hw_queue = "hw-queue",
    /// An atomic operation on a line that the core has.
    atomic = "atomic",
    /// io_uring: a system call.
    uring_enter = "uring-enter",
    /// io_uring: an I/O down to the driver.
    uring_io = "uring-io",
    /// io_uring: a polled completion.
    uring_reap = "uring-reap",
    /// io_uring: direct I/O down to the bio, with interrupts.
    uring_dio = "uring-dio",
    /// io_uring: waiting for results, and taking them.
    uring_wait = "uring-wait",
    /// virtio-blk: a request is put into the virtual queue.
    virtio_submit = "virtio-submit",
    /// virtio-blk: an idle host is notified of requests: an exit from the virtual machine.
    virtio_kick = "virtio-kick",
    /// virtio-blk: the driver's part of a completion.
    virtio_complete = "virtio-complete",
    /// Scheduler anchor: an I/O outside of the scheduler's lock.
    sched_io = "sched-io",
    /// mq-deadline: a batch is inserted, under the scheduler's lock.
    deadline_insert = "deadline-insert",
    /// mq-deadline: a request is dispatched, under the scheduler's lock.
    deadline_dispatch = "deadline-dispatch",
    /// BFQ: a batch is inserted, under the scheduler's lock.
    bfq_insert = "bfq-insert",
    /// BFQ: a request is dispatched, under the scheduler's lock.
    bfq_dispatch = "bfq-dispatch",
    /// Lines of data behind a volume's lock that a new holder must fetch (a number).
    queue_lines = "queue-lines",
    /// Lines of data behind a host's lock that a new holder must fetch (a number).
    host_lines = "host-lines",
    /// Lines of a request that a completion on another core must fetch (a number).
    request_lines = "request-lines",
    /// The extra time for handing over a ticket lock for each further waiter (a share of a line's
    /// transfer).
    waiter_share = "waiter-share",
}

impl Costs {
    /// The costs of the built-in model.
    pub fn builtin() -> Costs {
        let mut costs = Costs::default();
        costs.read(DEFAULTS).expect("the model's own costs are complete");
        costs
    }

    /// Replaces the costs that `text` names, in the form of the model's own file.
    ///
    /// # Errors
    /// Syntax, unknown names, values out of range.
    pub fn read(&mut self, text: &str) -> Result<(), Error> {
        let read: BTreeMap<String, Sourced<f64>> =
            toml::from_str(text).map_err(|cause| Error::Syntax { cause })?;
        for (name, cost) in read {
            self.put(&name, cost)?;
        }
        Ok(())
    }

    /// Sets one cost; its origin becomes "chosen".
    ///
    /// # Errors
    /// An unknown name, a value out of range.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), Error> {
        let unit = self.origins.get(name).map_or_else(String::new, |cost| cost.unit.clone());
        let source = "given on the command line".into();
        self.put(name, Sourced { value, unit, origin: Origin::Chosen, source })
    }

    /// The cost of that name.
    pub fn get(&self, name: &str) -> Option<&Sourced<f64>> {
        self.origins.get(name)
    }

    /// All costs with their origins, by name.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Sourced<f64>)> {
        self.origins.iter().map(|(name, cost)| (name.as_str(), cost))
    }

    /// Sets one cost, with its origin.
    ///
    /// # Errors
    /// An unknown name, a value out of range.
    pub fn put(&mut self, name: &str, cost: Sourced<f64>) -> Result<(), Error> {
        let slot = self.slot(name).ok_or_else(|| Error::Unknown { name: name.into() })?;
        if !(0.0..=1e7).contains(&cost.value) {
            return Err(Error::Range { name: name.into(), value: cost.value });
        }
        *slot = cost.value;
        self.origins.insert(name.into(), cost);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cost_has_a_value_and_a_source() {
        let costs = Costs::builtin();
        for name in NAMES {
            let cost = costs.get(name).unwrap_or_else(|| panic!("{name} is missing"));
            assert!(!cost.source.is_empty(), "{name}");
        }
        assert_eq!(costs.all().count(), NAMES.len());
    }

    #[test]
    fn a_cost_is_replaced_by_name() {
        let mut costs = Costs::builtin();
        costs.set("user-io", 5.0).unwrap();
        assert_eq!(costs.user_io, 5.0);
        assert_eq!(costs.get("user-io").unwrap().origin, Origin::Chosen);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut costs = Costs::builtin();
        assert!(matches!(costs.set("userio", 5.0), Err(Error::Unknown { .. })));
        assert!(matches!(costs.set("user-io", -1.0), Err(Error::Range { .. })));
        assert!(matches!(costs.set("user-io", f64::NAN), Err(Error::Range { .. })));
        assert!(matches!(costs.read("user-io = 3"), Err(Error::Syntax { .. })));
    }
}
