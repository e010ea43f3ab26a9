//! The result of a fit as settings, which are saved in a file and applied to cases.

use crate::case::Case;
use crate::settings::{self, SettingError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use terapage_ssd::ProfileError;

/// The built-in result.
const BUILT_IN: &str = include_str!("../fitted.toml");

/// Why a fit cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FittedError {
    /// The file is not a fit.
    #[error("{file}: {}", message.trim().replace('\n', " "))]
    Format {
        /// Its name.
        file: String,
        /// The parser's error.
        message: String,
    },
    /// A setting is refused.
    #[error("{file}: {error}")]
    Setting {
        /// The file's name.
        file: String,
        /// What is wrong.
        error: SettingError,
    },
    /// The chips are unknown.
    #[error(transparent)]
    Chips(#[from] ProfileError),
}

/// Values that were fitted to published results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// The origin of the values.
    pub source: String,
    /// Values for all chips, by parameter.
    pub common: BTreeMap<String, String>,
    /// Values for one kind of chips, by profile, then by parameter.
    pub chips: BTreeMap<String, BTreeMap<String, String>>,
    /// The file from which it was read.
    #[serde(skip)]
    file: String,
}

impl Fitted {
    /// Values for all chips, and for some, each by parameter.
    pub fn new(
        source: String,
        common: BTreeMap<String, String>,
        chips: BTreeMap<String, BTreeMap<String, String>>,
    ) -> Fitted {
        Fitted { source, common, chips, file: String::new() }
    }

    /// The built-in result of `terapage paper run fukuchi-fit`.
    pub fn built_in() -> Fitted {
        Fitted::parse(BUILT_IN, "fitted.toml").expect("a test reads it")
    }

    /// Reads the text of a file; `file` is its name for errors.
    ///
    /// # Errors
    /// The text is not a fit, or a setting is wrong.
    pub fn parse(text: &str, file: &str) -> Result<Fitted, FittedError> {
        let parsed = toml::from_str::<Fitted>(text);
        let mut fitted = parsed
            .map_err(|error| FittedError::Format { file: file.to_owned(), message: error.to_string() })?;
        fitted.file = file.to_owned();
        // Values for all chips are checked with chips that have no own values.
        fitted.case(&Case::default(), "2d-fg-mlc")?;
        for nand in fitted.chips.keys() {
            fitted.case(&Case::default(), nand)?;
        }
        Ok(fitted)
    }

    /// The value as the text of a file.
    pub fn text(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// `base` with these chips and the fitted values.
    ///
    /// # Errors
    /// The chips are unknown, or a setting is wrong.
    pub fn case(&self, base: &Case, nand: &str) -> Result<Case, FittedError> {
        let mut case = base.with_nand(nand)?;
        let chips = self.chips.get(nand).into_iter().flatten();
        let settings: Vec<(String, String)> =
            self.common.iter().chain(chips).map(|(name, value)| (name.clone(), value.clone())).collect();
        settings::apply(&mut case, &settings)
            .map_err(|error| FittedError::Setting { file: self.file.clone(), error })?;
        Ok(case)
    }
}
