//! Far memory, simulated: clients that page to servers, each with a processor and a network card.
//!
//! An operation passes through queues: the pager's thread, the client's card, the wire, the
//! server's card, the server's processor, and back. Each serves one after the other, in the order
//! in which they come. A message goes through both cards at once, as packets do: it is through when
//! the slower one is. `docs/sim-far.md` says what comes of it, and what it leaves out.
#![forbid(unsafe_code)]

mod model;
mod outcome;
mod parameters;
mod placement;

pub use model::simulate;
pub use outcome::{Load, Outcome, Part};
pub use parameters::{Error, NAMES, Parameter, Parameters, Setup};
