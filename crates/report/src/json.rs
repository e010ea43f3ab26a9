//! Studies as JSON.

use crate::study::Study;

/// Why a text is not a study.
#[derive(Debug, thiserror::Error)]
#[error("not a study in JSON: {0}; give a file that --json of a study command wrote")]
pub struct JsonError(#[from] serde_json::Error);

/// The study as JSON, indented, with a newline at its end. A value that is no finite number is `null`.
pub fn to_json(study: &Study) -> String {
    let text = serde_json::to_string_pretty(study).expect("strings and numbers always serialise");
    text + "\n"
}

/// Reads what [`to_json`] wrote; `null` among the values is not-a-number. Fields that are absent are empty.
///
/// # Errors
/// Where the text is not JSON, or not a study.
pub fn from_json(text: &str) -> Result<Study, JsonError> {
    Ok(serde_json::from_str(text)?)
}
