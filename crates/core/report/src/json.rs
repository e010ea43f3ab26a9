//! Studies as JSON.

use crate::study::Study;

/// Why a text is not a study.
#[derive(Debug, thiserror::Error)]
#[error("not a study in JSON: {0}; give a file that a command wrote with --json")]
pub struct JsonError(serde_json::Error);

/// The study as JSON in one line, which ends in a newline. A number that is not finite is `null`.
pub fn to_json(study: &Study) -> String {
    let text = serde_json::to_string(study).expect("strings and numbers always serialise");
    text + "\n"
}

/// Reads the output of [`to_json`]. `null` in a point becomes NaN; missing fields are empty.
///
/// # Errors
/// The text is not JSON, or not a study.
pub fn from_json(text: &str) -> Result<Study, JsonError> {
    let study: Study = serde_json::from_str(text).map_err(JsonError)?;
    if study.title.is_empty() {
        return Err(JsonError(serde::de::Error::custom("it has no title")));
    }
    Ok(study)
}

/// The form of a number that may not be finite; it is then `null`. `null` then.
pub(crate) mod number {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(*value)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<f64, D::Error> {
        Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
    }
}

/// The form of points: JSON has only finite numbers, so the others are `null`.
pub(crate) mod points {
    use crate::study::X;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Place<'a> {
        Number(Option<f64>),
        #[serde(borrow)]
        Name(std::borrow::Cow<'a, str>),
    }

    pub fn serialize<S: Serializer>(points: impl AsRef<[(X, f64)]>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(points.as_ref().iter().map(|(x, y)| {
            let x = match x {
                X::Number(number) => Place::Number(Some(*number)),
                X::Name(name) => Place::Name(name.into()),
            };
            (x, y)
        }))
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<(X, f64)>, D::Error> {
        let points = Vec::<(Place, Option<f64>)>::deserialize(from)?;
        let read = |(x, y): (Place, Option<f64>)| {
            let x = match x {
                Place::Number(number) => X::Number(number.unwrap_or(f64::NAN)),
                Place::Name(name) => X::Name(name.into_owned()),
            };
            (x, y.unwrap_or(f64::NAN))
        };
        Ok(points.into_iter().map(read).collect())
    }
}
