//! What a fit found, as settings: kept in a file, and applied to cases.

use crate::case::Case;
use crate::settings::{self, SettingError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use terapage_ssd::ProfileError;

/// The one that is built in.
const BUILT_IN: &str = include_str!("../fitted.toml");

/// Why a fit cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FittedError {
    /// The file is not one.
    #[error("{file}: {}", message.trim().replace('\n', " "))]
    Format {
        /// Its name.
        file: String,
        /// What the parser says.
        message: String,
    },
    /// A setting is not taken.
    #[error("{file}: {error}")]
    Setting {
        /// The file's name.
        file: String,
        /// What is wrong.
        error: SettingError,
    },
    /// The chips are not known.
    #[error(transparent)]
    Chips(#[from] ProfileError),
}

/// Values that were fitted to published results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// How they came about.
    pub source: String,
    /// For all chips, by parameter.
    pub common: BTreeMap<String, String>,
    /// For one kind of chips: by profile, then by parameter.
    pub chips: BTreeMap<String, BTreeMap<String, String>>,
    /// Where it was read.
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

    /// The one that is built in: what `terapage sim fit` found.
    pub fn built_in() -> Fitted {
        Fitted::parse(BUILT_IN, "fitted.toml").expect("a test reads it")
    }

    /// From the text of a file; `file` is what errors call it.
    ///
    /// # Errors
    /// If it is not one, or a setting is wrong.
    pub fn parse(text: &str, file: &str) -> Result<Fitted, FittedError> {
        let parsed = toml::from_str::<Fitted>(text);
        let mut fitted = parsed
            .map_err(|error| FittedError::Format { file: file.to_owned(), message: error.to_string() })?;
        fitted.file = file.to_owned();
        // Values for all chips are tried with chips that have none of their own.
        fitted.case(&Case::default(), "2d-fg-mlc")?;
        for nand in fitted.chips.keys() {
            fitted.case(&Case::default(), nand)?;
        }
        Ok(fitted)
    }

    /// As the text of a file.
    pub fn text(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// `base` with such chips and the fitted values.
    ///
    /// # Errors
    /// If the chips are not known or a setting is wrong.
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
