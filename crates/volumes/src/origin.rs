//! Values that say where they are from.

use serde::{Deserialize, Serialize};

/// Where a value is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// It is printed in a paper or in the description of the traces.
    Published,
    /// Several people repeat it, computed from the traces; the source names one of them.
    Cited,
    /// It was chosen so that the generator meets a published or cited value.
    Calibrated,
    /// Somebody's judgement.
    Estimated,
}

impl Origin {
    /// Its name, as in the profiles.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Published => "published",
            Origin::Cited => "cited",
            Origin::Calibrated => "calibrated",
            Origin::Estimated => "estimated",
        }
    }
}

/// A value and where it is from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    /// The value, in the unit that its name says.
    pub value: T,
    /// What kind of value it is.
    pub origin: Origin,
    /// Who says so.
    pub source: String,
}
