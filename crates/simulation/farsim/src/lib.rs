//! Far memory, simulated: clients that page to servers, each with a processor and a network card.
//!
//! An operation passes through queues: the pager's thread, the client's card, the wire, the
//! server's card, the server's processor, and back. Each queue is first come, first served. A
//! message passes through both cards at the same time, as packets do: it arrives when the slower
//! card has finished. `docs/sim-far.md` describes the results, and what the model leaves out.
#![forbid(unsafe_code)]

mod model;
mod outcome;
mod parameters;
mod placement;

pub use model::simulate;
pub use outcome::{Load, Outcome, Part};
pub use parameters::{Error, NAMES, Parameter, Parameters, Setup};
