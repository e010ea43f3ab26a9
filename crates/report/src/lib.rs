//! Studies: what was asked, with which parameters, and what came out; as one self-contained page, or in the terminal.
#![forbid(unsafe_code)]

mod study;

pub use study::{Axis, Mark, Origin, Parameter, Plot, PlotKind, Series, Study, Table, X};
