//! Studies: what was asked, with which parameters, and what came out; as one self-contained page, or in the terminal.
#![forbid(unsafe_code)]

mod html;
mod json;
mod number;
mod scale;
mod study;
mod text;
mod view;

pub use html::render_html;
pub use json::{JsonError, from_json, to_json};
pub use study::{Axis, Mark, Origin, Parameter, Plot, PlotKind, Series, Study, Table, X};
pub use text::{TextOptions, render_text, render_text_with};
