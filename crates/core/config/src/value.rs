//! Values of settings, read from texts and written as texts. A reader's error says in one line what
//! is wrong with the text.

use crate::choices::Named;
use crate::{Budget, Codec, Faults, Memory, Size, StoreSize, StoreSpec, store};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The least budget, bytes.
pub(crate) const MEMORY_MIN: Size = Size(1 << 20);
/// The least and the greatest block, bytes.
const BLOCK_MAX: Size = Size(2 << 20);

/// Reads the default of the setting `name`.
///
/// # Panics
/// There is no default, or the setting's own reader refuses it.
pub(crate) fn default<T>(name: &str, text: Option<&str>, read: fn(&OsStr) -> Result<T, String>) -> T {
    let text = text.unwrap_or_else(|| panic!("{name} has no default"));
    read(text.as_ref()).unwrap_or_else(|why| panic!("the default of {name}: {why}"))
}

/// The bytes of a text, which must not be empty.
fn some(text: &OsStr) -> Result<&OsStr, String> {
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(text) }
}

fn utf8(text: &OsStr) -> Result<&str, String> {
    some(text)?.to_str().ok_or_else(|| "it is not UTF-8".to_owned())
}

/// A text that a message may quote. A message is one line, so texts that would break the line are
/// refused and not quoted.
fn line(text: &OsStr) -> Result<&str, String> {
    let text = utf8(text)?;
    if text.contains(char::is_control) {
        return Err("it contains a control character".to_owned());
    }
    Ok(text)
}

/// The error that a value is none of the names.
pub(crate) fn unknown(value: &str, names: &[&str]) -> String {
    format!("'{}' is unknown (one of {})", value.escape_debug(), names.join(", "))
}

pub(crate) fn memory(text: &OsStr) -> Result<Memory, String> {
    let text = line(text)?;
    if text == "auto" {
        return Ok(Memory::Auto);
    }
    if let Some(number) = text.trim().strip_suffix('%') {
        let percent: f64 =
            number.trim().parse().map_err(|_| format!("'{text}' is not a percentage (write 50%)"))?;
        // This form of the condition also refuses NaN.
        if !(percent > 0.0 && percent <= 100.0) {
            return Err(format!("'{text}' is not a percentage above 0% and at most 100% (write 50%)"));
        }
        return Ok(Memory::Percent(percent));
    }
    let size = size(text)?;
    if size < MEMORY_MIN {
        return Err(format!(
            "{} is less than the minimum of {MEMORY_MIN} (write 64M, 4G, 50% or auto)",
            text.trim()
        ));
    }
    Ok(Memory::Bytes(size))
}

fn size(text: &str) -> Result<Size, String> {
    text.parse().map_err(|error: crate::ParseSizeError| error.to_string())
}

pub(crate) fn store_size(text: &OsStr) -> Result<StoreSize, String> {
    let text = line(text)?;
    let (text, strict) = match text.strip_suffix(",strict") {
        Some(before) => (before, true),
        None => (text, false),
    };
    if text == "auto" {
        return Ok(StoreSize { bytes: None, strict });
    }
    let size = size(text)?;
    if size < MEMORY_MIN {
        return Err(format!("{} is less than the minimum of {MEMORY_MIN} (write 100G or auto)", text.trim()));
    }
    Ok(StoreSize { bytes: Some(size), strict })
}

pub(crate) fn block(text: &OsStr) -> Result<Option<Size>, String> {
    let text = line(text)?;
    if text == "auto" {
        return Ok(None);
    }
    let size = size(text)?;
    let page = Size(rustix::param::page_size() as u64);
    if !size.0.is_power_of_two() || size < page || size > BLOCK_MAX {
        let range = format!("a power of two from {page} to {BLOCK_MAX}");
        return Err(format!("'{text}' is not {range} (write 64K or auto)"));
    }
    Ok(Some(size))
}

pub(crate) fn number(text: &OsStr) -> Result<u64, String> {
    let text = line(text)?;
    text.trim().parse().map_err(|_| format!("'{text}' is not a whole number"))
}

pub(crate) fn per_mille(text: &OsStr) -> Result<u64, String> {
    let share = number(text)?;
    if share > 1000 { Err(format!("{share} is more than 1000 per mille")) } else { Ok(share) }
}

pub(crate) fn faults(text: &OsStr) -> Result<Faults, String> {
    line(text)?.parse()
}

/// One of the names of `T`.
pub(crate) fn name<T: Named>(text: &OsStr) -> Result<T, String> {
    let text = line(text)?;
    let value = T::VALUES.iter().copied().find(|value| value.text() == text);
    value.ok_or_else(|| unknown(text, T::TEXTS))
}

/// The name of a policy. Whether the policy exists is checked later: the library in a program need
/// not check it again.
pub(crate) fn policy(text: &OsStr) -> Result<String, String> {
    utf8(text).map(str::to_owned)
}

pub(crate) fn codec(text: &OsStr) -> Result<Option<Codec>, String> {
    let text = line(text)?;
    if matches!(text, "off" | "none" | "false" | "no" | "0") {
        Ok(None)
    } else {
        Codec::parse(text).map(Some)
    }
}

pub(crate) fn boolean(text: &OsStr) -> Result<bool, String> {
    match line(text)? {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        text => Err(format!("'{text}' is unknown (true or false)")),
    }
}

pub(crate) fn path(text: &OsStr) -> Result<PathBuf, String> {
    some(text).map(PathBuf::from)
}

/// Stores, one in a line.
pub(crate) fn stores(text: &OsStr) -> Result<Vec<StoreSpec>, String> {
    let stores = store::split(text)?;
    if stores.is_empty() { Err("it is empty".to_owned()) } else { Ok(stores) }
}

/// A value that a variable passes on.
pub(crate) trait Written {
    /// The text from which the setting's reader reads the value; `None`: the variable is not set.
    fn written(&self) -> Option<OsString>;
}

impl Written for Size {
    fn written(&self) -> Option<OsString> {
        Some(self.0.to_string().into())
    }
}

impl Written for Budget {
    fn written(&self) -> Option<OsString> {
        if self.is_auto { Some("auto".into()) } else { self.size.written() }
    }
}

impl Written for Option<Size> {
    fn written(&self) -> Option<OsString> {
        self.map_or(Some("auto".into()), |size| size.written())
    }
}

impl Written for StoreSize {
    fn written(&self) -> Option<OsString> {
        let mut text = self.bytes.written()?;
        text.push(if self.strict { ",strict" } else { "" });
        Some(text)
    }
}

impl Written for Option<Codec> {
    fn written(&self) -> Option<OsString> {
        Some(self.map_or("off".into(), |codec| codec.to_text().into()))
    }
}

impl Written for Option<PathBuf> {
    fn written(&self) -> Option<OsString> {
        self.clone().map(OsString::from)
    }
}

impl Written for Vec<StoreSpec> {
    fn written(&self) -> Option<OsString> {
        Some(store::join(self))
    }
}

impl Written for bool {
    fn written(&self) -> Option<OsString> {
        Some(if *self { "1" } else { "0" }.into())
    }
}

impl Written for Option<bool> {
    fn written(&self) -> Option<OsString> {
        self.and_then(|on| on.written())
    }
}

impl Written for Option<u64> {
    fn written(&self) -> Option<OsString> {
        self.map(|number| number.to_string().into())
    }
}

impl Written for Option<Faults> {
    fn written(&self) -> Option<OsString> {
        self.map(|faults| faults.to_string().into())
    }
}

impl Written for u32 {
    fn written(&self) -> Option<OsString> {
        Some(self.to_string().into())
    }
}

impl Written for Option<u32> {
    fn written(&self) -> Option<OsString> {
        self.map_or(Some("auto".into()), |number| number.written())
    }
}

impl Written for String {
    fn written(&self) -> Option<OsString> {
        Some(self.into())
    }
}

impl<T: Named> Written for T {
    fn written(&self) -> Option<OsString> {
        Some(self.text().into())
    }
}
