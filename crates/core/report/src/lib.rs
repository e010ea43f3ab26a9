//! Studies: a question, its parameters and its results, as one self-contained page or as text for
//! the terminal.
//!
//! ```
//! use terapage_report::{Axis, Mark, Plot, Series, Study, X, render_html, render_text, to_json};
//!
//! let points = vec![(X::Number(4096.0), 52e6), (X::Number(65536.0), 610e6)];
//! let plot = Plot {
//!     title: "Bandwidth by transfer size".into(),
//!     x: Axis { name: "transfer size".into(), unit: "bytes".into(), log: true },
//!     y: Axis { name: "bandwidth".into(), unit: "B/s".into(), log: false },
//!     series: vec![Series { name: "SSD".into(), mark: Mark::Simulated, points, ..Series::default() }],
//!     ..Plot::default()
//! };
//! let study = Study { title: "An SSD".into(), plots: vec![plot], ..Study::default() };
//! println!("{}", render_text(&study, 80));
//! let (page, data) = (render_html(&study), to_json(&study));
//! # assert!(page.contains("Bandwidth by transfer size") && data.contains("4096"));
//! ```
#![forbid(unsafe_code)]

mod csv;
mod html;
mod json;
mod markdown;
mod number;
mod scale;
mod study;
mod terminal;
mod text;
mod view;
mod words;

pub use csv::render_csv;
pub use html::render_html;
pub use json::{JsonError, from_json, to_json};
pub use markdown::render_markdown;
pub use study::{
    Answer, Axis, Ends, Finding, Language, Mark, Parameter, Plot, PlotKind, Series, Study, Table, Verdict,
    Whisker, X,
};
pub use terapage_figures::Origin;
pub use terminal::columns;
pub use text::{TextOptions, render_text, render_text_with};
