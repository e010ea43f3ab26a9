//! Values with their origins.

use serde::{Deserialize, Serialize};

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// It is printed in a paper or in the description of the traces.
    Published,
    /// It was computed from the traces, and several publications repeat it; the source names one.
    Cited,
    /// It was chosen so that the generator reproduces a published or cited value.
    Calibrated,
    /// It is estimated.
    Estimated,
}

impl Origin {
    /// The name of the origin, as in the profiles.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Published => "published",
            Origin::Cited => "cited",
            Origin::Calibrated => "calibrated",
            Origin::Estimated => "estimated",
        }
    }
}

/// A value and its origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    /// The value, in the unit that the field's name says.
    pub value: T,
    /// What kind of value it is.
    pub origin: Origin,
    /// The source.
    pub source: String,
}
