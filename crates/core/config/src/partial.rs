//! Settings of one layer: flags, variables, or a file.

use crate::setting::{Kind, Setting};
use crate::{Error, Partial, SETTINGS, Size, StoreSpec};
use std::ffi::{OsStr, OsString};

/// A budget, as asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Memory {
    /// Bytes.
    Bytes(Size),
    /// A share of the memory of the machine, or of the container, in percent.
    Percent(f64),
    /// As much as is free, at any time.
    Auto,
}

/// A budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The budget; if it follows the free memory, the most that it can be.
    pub size: Size,
    /// It follows the free memory.
    pub is_auto: bool,
}

impl Partial {
    /// Sets the setting that the configuration file calls `name`, from a text. The error says in
    /// one line what is wrong with the text.
    ///
    /// # Panics
    /// If `name` is not in [`SETTINGS`].
    pub fn set(&mut self, name: &str, text: &OsStr) -> Result<(), String> {
        let setting = SETTINGS.iter().find(|setting| setting.name == name);
        let setting = setting.unwrap_or_else(|| panic!("no setting is called {name}"));
        (setting.set)(self, text)
    }

    /// Sets a setting from one text of a flag or of a file; for a list, the text is added as one
    /// more item.
    pub fn add(&mut self, setting: &Setting, text: &OsStr) -> Result<(), String> {
        match setting.kind {
            Kind::List => self.add_store(text),
            Kind::Text | Kind::Number | Kind::Switch => (setting.set)(self, text),
        }
    }

    /// Adds a store to the stores set so far, as read by [`StoreSpec::parse`].
    fn add_store(&mut self, text: &OsStr) -> Result<(), String> {
        self.stores.get_or_insert_default().push(StoreSpec::parse(text)?);
        Ok(())
    }

    /// Reads the `TERAPAGE_*` variables; an empty one counts as absent.
    pub fn from_variables(get: impl Fn(&str) -> Option<OsString>) -> Result<Partial, Error> {
        let mut partial = Partial::default();
        for setting in SETTINGS {
            if let Some(text) = get(setting.variable).filter(|text| !text.is_empty()) {
                let error = |why| Error::Value { name: setting.variable.to_owned(), why };
                (setting.set)(&mut partial, &text).map_err(error)?;
            }
        }
        Ok(partial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_in_one_line() {
        for (name, text) in [
            ("memory", "0"),
            ("memory", "-5M"),
            ("memory", "nan"),
            ("memory", "nan%"),
            ("memory", "0%"),
            ("memory", "101%"),
            ("memory", "-1%"),
            ("memory", "4611686018427387905"),
            ("memory", "1M1"),
            ("memory", ""),
            ("memory", "1023K"),
            ("block", "5000"),
            ("block", "2K"),
            ("block", "4M"),
            ("io", "posix"),
            ("heap", "small"),
            ("placement", "random"),
            ("compress", "gzip"),
            ("compress", "zstd:10"),
            ("compress", "lz4:1"),
            ("verify", "maybe"),
            ("store-size", "0"),
            ("store-size", "1G,lax"),
            ("store-size", ",strict"),
            ("store", "far:host"),
            ("stats", ""),
        ] {
            let why = Partial::default().set(name, OsStr::new(text)).expect_err(text);
            assert!(!why.is_empty() && !why.contains('\n'), "{name} {text}: {why}");
        }
    }
}
