//! The stacks: the stages of an I/O, and the locks that they take.

use crate::mechanism::Mechanism;
use crate::program::{Builder, Place, Program};
use crate::setup::Setup;
use std::str::FromStr;

/// A software stack between a program and its volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// SCSI on the single request queue (Linux 3.10).
    Scsi,
    /// NVMe on bios, past the request queue (Linux 3.10).
    Nvme,
    /// SCSI on the multi-queue block layer.
    MqScsi,
    /// NVMe on the multi-queue block layer.
    MqNvme,
    /// io_uring that polls, on the multi-queue block layer.
    Uring,
    /// A null device behind the scheduler mq-deadline, with one lock per volume.
    Deadline,
    /// A null device behind the scheduler BFQ, with one lock per volume.
    Bfq,
    /// A virtual disk (virtio-blk) on the multi-queue block layer, libaio.
    Virtio,
    /// The same by io_uring with interrupts.
    VirtioUring,
}

impl Stack {
    /// All stacks.
    pub const ALL: [Stack; 9] = [
        Stack::Scsi,
        Stack::Nvme,
        Stack::MqScsi,
        Stack::MqNvme,
        Stack::Uring,
        Stack::Deadline,
        Stack::Bfq,
        Stack::Virtio,
        Stack::VirtioUring,
    ];

    /// The stack's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Stack::Scsi => "scsi",
            Stack::Nvme => "nvme",
            Stack::MqScsi => "mq-scsi",
            Stack::MqNvme => "mq-nvme",
            Stack::Uring => "uring",
            Stack::Deadline => "mq-deadline",
            Stack::Bfq => "bfq",
            Stack::Virtio => "virtio",
            Stack::VirtioUring => "virtio-uring",
        }
    }

    /// The stack's name in a report.
    pub fn title(self) -> &'static str {
        match self {
            Stack::Scsi => "SCSI, single queue",
            Stack::Nvme => "NVMe, bio",
            Stack::MqScsi => "SCSI, blk-mq",
            Stack::MqNvme => "NVMe, blk-mq",
            Stack::Uring => "io_uring, polled",
            Stack::Deadline => "mq-deadline",
            Stack::Bfq => "BFQ",
            Stack::Virtio => "virtio-blk, libaio",
            Stack::VirtioUring => "virtio-blk, io_uring",
        }
    }

    /// Whether its threads poll for completions, without interrupts.
    pub fn polls(self) -> bool {
        matches!(self, Stack::Uring | Stack::Deadline | Stack::Bfq)
    }

    /// Whether its completions interrupt any core, instead of only the one that submitted.
    pub(crate) fn completes_anywhere(self) -> bool {
        matches!(self, Stack::Scsi)
    }
}

/// An unknown stack.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown stack '{name}'; known are {}", Stack::ALL.map(Stack::name).join(", "))]
pub struct UnknownStack {
    name: String,
}

impl FromStr for Stack {
    type Err = UnknownStack;

    fn from_str(name: &str) -> Result<Self, UnknownStack> {
        let stack = Stack::ALL.into_iter().find(|stack| stack.name() == name);
        stack.ok_or_else(|| UnknownStack { name: name.into() })
    }
}

/// The programs of the threads and interrupts of a setup.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// A thread issues a system call.
    pub submit: Program,
    /// A thread takes results.
    pub reap: Program,
    /// A thread has been woken by a completion.
    pub woken: Program,
    /// A timer has woken a thread.
    pub timer: Program,
    /// An interrupt begins.
    pub interrupt: Program,
    /// A request is completed: in an interrupt, or by the thread that polls.
    pub complete: Program,
    /// Cycles for waking a thread on the same CPU, and on another CPU.
    pub wake_cycles: [f64; 2],
}

impl Programs {
    /// The programs of `setup`.
    pub fn of(setup: &Setup) -> Programs {
        let costs = &setup.costs;
        let ios = f64::from(setup.load.multiplicity);
        let shared = if setup.mechanisms.has(Mechanism::CallSharing) { 1.0 } else { ios };
        let polls = setup.stack.polls();
        let kernel = |cycles: f64| {
            let mut builder = Builder::new(setup);
            builder.kernel(0, cycles);
            builder.build()
        };
        let sleep = if polls { 0.0 } else { shared };
        Programs {
            submit: submit(setup, shared),
            reap: kernel(reap_cycles(setup) * sleep),
            woken: kernel(costs.switch * sleep),
            timer: kernel((costs.switch + costs.timer) * sleep),
            interrupt: kernel(if polls { 0.0 } else { costs.irq }),
            complete: complete(setup),
            wake_cycles: [costs.wake * sleep, (costs.wake + costs.ipi) * sleep],
        }
    }
}

/// The groups in which the requests of one call enter the block layer: one group, or each
/// separately.
fn groups(setup: &Setup) -> Vec<std::ops::Range<u8>> {
    let ios = setup.load.multiplicity as u8;
    let together = setup.mechanisms.has(Mechanism::Plugging) && !setup.load.spread;
    if together { std::iter::once(0..ios).collect() } else { (0..ios).map(|io| io..io + 1).collect() }
}

/// A system call with its I/Os.
fn submit(setup: &Setup, shared: f64) -> Program {
    let costs = &setup.costs;
    let mut builder = Builder::new(setup);
    if setup.stack.polls() {
        builder.kernel(0, costs.uring_enter * shared);
    } else {
        let enter = if setup.stack == Stack::VirtioUring { costs.uring_enter } else { 0.0 };
        builder.user(0, costs.user_call * shared);
        builder.kernel(0, (costs.syscall + enter) * shared);
    }
    for group in groups(setup) {
        match setup.stack {
            Stack::Scsi => submit_scsi(&mut builder, setup, group),
            Stack::Nvme => submit_nvme(&mut builder, setup, group),
            Stack::MqScsi | Stack::MqNvme | Stack::Virtio | Stack::VirtioUring => {
                submit_mq(&mut builder, setup, group);
            }
            Stack::Uring => submit_uring(&mut builder, setup, group),
            Stack::Deadline => {
                submit_scheduler(&mut builder, setup, group, costs.deadline_insert, costs.deadline_dispatch);
            }
            Stack::Bfq => submit_scheduler(&mut builder, setup, group, costs.bfq_insert, costs.bfq_dispatch),
        }
    }
    builder.build()
}

/// An I/O as far as the bio.
fn down_to_bio(builder: &mut Builder, setup: &Setup, io: u8) {
    let by_ring = setup.stack == Stack::VirtioUring;
    builder.user(io, setup.costs.user_io);
    builder.kernel(io, if by_ring { setup.costs.uring_dio } else { setup.costs.aio_dio });
}

/// The system call that takes results.
fn reap_cycles(setup: &Setup) -> f64 {
    let costs = &setup.costs;
    if setup.stack == Stack::VirtioUring { costs.syscall + costs.uring_wait } else { costs.getevents }
}

/// Linux 3.10: `blk_queue_bio`, the unplugging, `scsi_request_fn`.
fn submit_scsi(builder: &mut Builder, setup: &Setup, group: std::ops::Range<u8>) {
    let costs = &setup.costs;
    for io in group.clone() {
        down_to_bio(builder, setup, io);
        builder.locked(io, Place::Queue, costs.sq_merge);
        builder.request().kernel(io, costs.sq_request);
    }
    let first = group.start;
    builder.acquire(first, Place::Queue);
    builder.kernel(first, costs.sq_flush);
    for io in group.clone() {
        builder.request().kernel(io, costs.sq_insert);
    }
    for io in group {
        builder.request().kernel(io, costs.sq_peek);
        builder.request().release(io, Place::Queue);
        builder.request().locked(io, Place::Host, costs.host_dispatch);
        builder.request().kernel(io, costs.scsi_dispatch);
        builder.request().issue(io);
        builder.request().acquire(io, Place::Queue);
        builder.request().kernel(io, costs.sq_loop);
    }
    builder.release(first, Place::Queue);
}

/// Linux 3.10: `nvme_make_request`. The queue is the core's own.
fn submit_nvme(builder: &mut Builder, setup: &Setup, group: std::ops::Range<u8>) {
    for io in group {
        down_to_bio(builder, setup, io);
        builder.kernel(io, setup.costs.nvme_submit);
        builder.issue(io);
    }
}

/// The multi-queue block layer: a software queue for each core, hardware queues, and for SCSI the
/// atomic counters of host and volume.
fn submit_mq(builder: &mut Builder, setup: &Setup, group: std::ops::Range<u8>) {
    let costs = &setup.costs;
    let scsi = setup.stack == Stack::MqScsi;
    for io in group.clone() {
        down_to_bio(builder, setup, io);
        builder.request().shared_line(io, Place::Tags);
        builder.request().kernel(io, costs.mq_request);
    }
    builder.kernel(group.start, costs.mq_flush);
    for io in group {
        builder.request().locked(io, Place::HardwareQueue, costs.hw_queue);
        builder.request().kernel(io, costs.mq_dispatch);
        if scsi {
            builder.request().shared_line(io, Place::VolumeCounter);
            builder.request().shared_line(io, Place::HostCounter);
        }
        match setup.stack {
            Stack::MqScsi => builder.request().kernel(io, costs.scsi_dispatch),
            Stack::Virtio | Stack::VirtioUring => {
                builder.request().kernel(io, costs.virtio_submit);
                builder.request().kick(io);
            }
            _ => builder.request().kernel(io, costs.nvme_submit),
        }
        builder.request().issue(io);
    }
}

/// io_uring: registered buffers and files, no interrupts.
fn submit_uring(builder: &mut Builder, setup: &Setup, group: std::ops::Range<u8>) {
    for io in group {
        builder.user(io, setup.costs.user_io.min(setup.costs.uring_io / 8.0));
        builder.kernel(io, setup.costs.uring_io);
        builder.issue(io);
    }
}

/// A scheduler with one lock per volume, under which a batch is inserted and each request is
/// dispatched.
fn submit_scheduler(
    builder: &mut Builder,
    setup: &Setup,
    group: std::ops::Range<u8>,
    insert: f64,
    dispatch: f64,
) {
    for io in group.clone() {
        builder.kernel(io, setup.costs.sched_io);
    }
    builder.locked(group.start, Place::Scheduler, insert);
    for io in group {
        builder.request().locked(io, Place::Scheduler, dispatch);
        builder.request().issue(io);
    }
}

/// The end of a request.
fn complete(setup: &Setup) -> Program {
    let costs = &setup.costs;
    let mut builder = Builder::new(setup);
    match setup.stack {
        Stack::Scsi => {
            builder.fetch_request();
            builder.kernel(0, costs.scsi_complete + costs.sq_free);
            builder.locked(0, Place::Host, costs.host_unbusy);
            builder.locked(0, Place::Queue, costs.sq_unbusy);
            builder.kernel(0, costs.dio_complete);
            builder.locked(0, Place::Queue, costs.sq_end);
            builder.locked(0, Place::Host, costs.host_starved);
            builder.locked(0, Place::Queue, costs.sq_rerun);
        }
        Stack::Nvme => builder.kernel(0, costs.nvme_complete + costs.dio_complete),
        Stack::MqScsi => {
            builder.fetch_request();
            builder.kernel(0, costs.scsi_complete);
            builder.shared_line(0, Place::HostCounter);
            builder.shared_line(0, Place::VolumeCounter);
            builder.kernel(0, costs.dio_complete + costs.mq_end);
            builder.shared_line(0, Place::Tags);
        }
        Stack::MqNvme => {
            builder.kernel(0, costs.nvme_complete + costs.dio_complete + costs.mq_end);
            builder.shared_line(0, Place::Tags);
        }
        Stack::Virtio | Stack::VirtioUring => {
            builder.kernel(0, costs.virtio_complete + costs.dio_complete + costs.mq_end);
            builder.shared_line(0, Place::Tags);
        }
        Stack::Uring => builder.kernel(0, costs.uring_reap),
        Stack::Deadline | Stack::Bfq => {}
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        for stack in Stack::ALL {
            assert_eq!(stack.name().parse(), Ok(stack));
        }
        let error = "scsi2".parse::<Stack>().unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown stack 'scsi2'; known are scsi, nvme, mq-scsi, mq-nvme, uring, mq-deadline, bfq, virtio, virtio-uring"
        );
    }
}
