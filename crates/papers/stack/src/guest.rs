//! Counted instructions per I/O in a virtual machine, and the model's work for the same paths: a
//! check with figures to which no cost was fitted.

use crate::costs::Costs;
use crate::machines::machine;
use crate::mechanism::Mechanisms;
use crate::meter::{Activity, Outcome};
use crate::setup::{Load, Setup, Variation};
use crate::stacks::Stack;
use terapage_event::MILLISECOND;

/// I/Os per system call in the counts.
pub const GUEST_MULTIPLICITIES: [u32; 5] = [1, 2, 4, 8, 32];

/// A path through the kernel whose instructions were counted.
#[derive(Clone, Copy, Debug)]
pub struct GuestPath {
    /// The driver.
    pub name: &'static str,
    /// The model's stack for the path.
    pub stack: Stack,
    /// Instructions for a random direct read of 8 KiB by libaio, at each multiplicity.
    pub instructions: [u32; GUEST_MULTIPLICITIES.len()],
}

/// The source of the figures.
pub const GUEST_SOURCE: &str = "counted by qemu (TCG, icount), Linux 6.1, 1 CPU, null-co devices, no scheduler; \
    terapage paper run stack-guest counts them again";

/// The paths. The others are compared with the first.
pub const GUEST_PATHS: [GuestPath; 3] = [
    GuestPath { name: "nvme", stack: Stack::MqNvme, instructions: [8_195, 7_581, 6_722, 6_469, 6_400] },
    GuestPath { name: "virtio-blk", stack: Stack::Virtio, instructions: [9_634, 9_024, 8_032, 7_765, 7_667] },
    GuestPath {
        name: "virtio-scsi",
        stack: Stack::MqScsi,
        instructions: [10_891, 10_284, 9_569, 9_343, 9_292],
    },
];

/// The device is so slow that each call waits, as in the guest.
const LATENCY_NS: f64 = 20_000.0;

/// The setup of a path in the model: one CPU, one call at a time.
pub fn guest_setup(costs: &Costs, mechanisms: Mechanisms, path: &GuestPath, multiplicity: u32) -> Setup {
    let mut machine = machine("polled").expect("a machine of the model");
    machine.latency_fixed_ns = LATENCY_NS;
    let mut costs = costs.clone();
    // The host's instructions are not the guest's.
    costs.virtio_kick = 0.0;
    let load = Load { variation: Variation::Fixed, ..Load::unpaced(1, 1, multiplicity) };
    Setup {
        stack: path.stack,
        machine,
        load,
        costs,
        mechanisms,
        warm_ns: 2 * MILLISECOND,
        measure_ns: 20 * MILLISECOND,
    }
}

/// The kernel's cycles per I/O. The program's own cycles are left out, since the load tools differ.
pub fn kernel_cycles(setup: &Setup, outcome: &Outcome) -> f64 {
    (outcome.total_us() - outcome.us(Activity::User)) * 1e3 * setup.machine.ghz
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::run;

    #[test]
    fn the_model_pays_for_every_stage_of_a_path_once() {
        let costs = Costs::builtin();
        let setup = guest_setup(&costs, Mechanisms::all(), &GUEST_PATHS[0], 1);
        let found = kernel_cycles(&setup, &run(&setup, 1).unwrap());
        let c = &setup.costs;
        let submit = c.syscall + c.aio_dio + c.mq_request + c.mq_flush + c.hw_queue + c.mq_dispatch;
        let ends = c.irq + c.nvme_submit + c.nvme_complete + c.dio_complete + c.mq_end;
        let waits = c.wake + c.switch + c.getevents;
        let wanted = submit + ends + waits;
        // Beside these there are a few atomic operations.
        assert!((found / wanted - 1.0).abs() < 0.02, "{found} instead of {wanted}");
    }

    #[test]
    fn a_call_of_several_is_cheaper_on_every_path() {
        for path in &GUEST_PATHS {
            let cycles = GUEST_MULTIPLICITIES.map(|ios| {
                let setup = guest_setup(&Costs::builtin(), Mechanisms::all(), path, ios);
                kernel_cycles(&setup, &run(&setup, 1).unwrap())
            });
            assert!(cycles.windows(2).all(|pair| pair[1] < pair[0]), "{}: {cycles:?}", path.name);
            assert!(path.instructions[4] < path.instructions[0]);
        }
    }
}
