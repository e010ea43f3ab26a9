//! Values with their origins.

use serde::{Deserialize, Serialize};

/// The origin of a value: it says how far the value can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The value is printed in a paper or a data sheet.
    Published,
    /// Several publications repeat the value, but its first source is not available; the source
    /// names one of them.
    Cited,
    /// The value was measured on a machine.
    Measured,
    /// The value was chosen so that a model reproduces published or measured results.
    Fitted,
    /// The value is estimated: it is usual for such things.
    #[default]
    Estimated,
    /// The user chose the value.
    Chosen,
}

impl Origin {
    /// The name of the origin, as in files.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Published => "published",
            Origin::Cited => "cited",
            Origin::Measured => "measured",
            Origin::Fitted => "fitted",
            Origin::Estimated => "estimated",
            Origin::Chosen => "chosen",
        }
    }
}

/// A value with its origin, as in data files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    /// The value, in `unit`, or in the unit that the field's name says.
    pub value: T,
    /// The unit; empty if the value has none, or the field's name says it.
    #[serde(default = "String::new", skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// The kind of the origin.
    pub origin: Origin,
    /// The source, and the meaning of the value.
    pub source: String,
}

#[cfg(test)]
mod tests {
    use super::Origin;
    use serde::Deserialize;
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, StrDeserializer};

    #[test]
    fn files_have_the_names() {
        for origin in ["published", "cited", "measured", "fitted", "estimated", "chosen"] {
            let text: StrDeserializer<Error> = origin.into_deserializer();
            assert_eq!(Origin::deserialize(text).expect("a known name").name(), origin);
        }
    }
}
