//! The configuration file.

use crate::setting::{Kind, Setting};
use crate::{Error, Partial, SETTINGS};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use toml::Value;

impl Partial {
    /// Reads the configuration file at `path`.
    pub fn from_file(path: &Path) -> Result<Partial, Error> {
        let text =
            std::fs::read_to_string(path).map_err(|cause| Error::Read { file: path.to_owned(), cause })?;
        Partial::from_toml(&text, path)
    }

    /// Reads the configuration files that exist: the user's,
    /// `$XDG_CONFIG_HOME/terapage/config.toml` (`~/.config` without that variable), and the
    /// system's, `/etc/terapage.toml`. The user's settings win.
    pub fn from_default_files(get: impl Fn(&str) -> Option<OsString>) -> Result<Partial, Error> {
        let mut partial = Partial::default();
        for path in user_file(&get).into_iter().chain([PathBuf::from("/etc/terapage.toml")]) {
            match Partial::from_file(&path) {
                Ok(lower) => partial = partial.or(lower),
                Err(Error::Read { cause, .. }) if is_absent(&path, &cause) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(partial)
    }

    /// Reads the text of a configuration file; messages name `file`.
    pub fn from_toml(text: &str, file: &Path) -> Result<Partial, Error> {
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
            let line =
                e.span().and_then(|span| text.get(..span.start)).map_or(1, |s| s.matches('\n').count() + 1);
            let why = e.message().lines().next().unwrap_or("it cannot be read").to_owned();
            Error::Syntax { file: file.to_owned(), line, why }
        })?;
        let mut partial = Partial::default();
        for (name, value) in &table {
            let Some(setting) = known().find(|setting| setting.name == name) else {
                let known: Vec<_> = known().map(|setting| setting.name).collect();
                let key = name.escape_debug().to_string();
                return Err(Error::UnknownKey { key, file: file.to_owned(), known: known.join(", ") });
            };
            set(&mut partial, setting, value)
                .map_err(|why| Error::Value { name: format!("{name} in {}", file.display()), why })?;
        }
        Ok(partial)
    }
}

/// The settings that have a key.
fn known() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(|setting| !setting.hidden)
}

fn user_file(get: &impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name: &str| get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(directory.join("terapage/config.toml"))
}

/// Whether the file does not exist, as far as this user can see. A file that can be seen but not
/// read is an error.
fn is_absent(path: &Path, error: &std::io::Error) -> bool {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => true,
        ErrorKind::PermissionDenied => path.metadata().is_err(),
        _ => false,
    }
}

fn set(partial: &mut Partial, setting: &Setting, value: &Value) -> Result<(), String> {
    match (setting.kind, value) {
        (Kind::List, Value::Array(texts)) => texts.iter().try_for_each(|text| {
            let text = text.as_str().ok_or("it holds a value that is not a path")?;
            partial.add(setting, OsStr::new(text))
        }),
        (Kind::Switch, Value::Boolean(on)) => partial.add(setting, OsStr::new(&on.to_string())),
        (Kind::Switch, _) => Err("it is not true or false".to_owned()),
        (Kind::Number, Value::Integer(number)) => partial.add(setting, OsStr::new(&number.to_string())),
        (_, Value::String(text)) => partial.add(setting, OsStr::new(text)),
        _ => Err(format!("it cannot be of type {}", value.type_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Codec, Heap, Memory, Placement, Size, StoreSize, StoreSpec};

    fn read(text: &str) -> Result<Partial, String> {
        Partial::from_toml(text, Path::new("a.toml")).map_err(|e| e.to_string())
    }

    #[test]
    fn every_setting_can_stand_in_the_file() {
        let partial = read(
            "memory = '25%'\nstore = ['/a', 'file:/b']\nplacement = 'round-robin'\nencrypt = true\ncompress = 'zstd:3'\nstore-size = '1G,strict'\n\
             block = 65536\npolicy = 'lru'\nprefetch = 'off'\nheap = 'large'\n\
             stats = 's.json'\ntrace = 't'\nverbose = true\nper-process = true\n",
        )
        .unwrap();
        // tests/table.rs checks settings that are added later.
        #[allow(clippy::needless_update)]
        let wanted = Partial {
            memory: Some(Memory::Percent(25.0)),
            per_process: Some(true),
            stores: Some(vec![StoreSpec::File("/a".into()), StoreSpec::File("/b".into())]),
            placement: Some(Placement::RoundRobin),
            encrypt: Some(true),
            compress: Some(Some(Codec::Zstd(3))),
            store_size: Some(StoreSize { bytes: Some(Size(1 << 30)), strict: true }),
            block: Some(Some(Size(65536))),
            policy: Some("lru".into()),
            prefetch: Some("off".into()),
            heap: Some(Heap::Large),
            stats: Some("s.json".into()),
            trace: Some("t".into()),
            verbose: Some(true),
            ..Partial::default()
        };
        assert_eq!(partial, wanted);
    }

    #[test]
    fn errors_name_key_and_file() {
        let error = read("memroy = 1").unwrap_err();
        assert!(error.starts_with("a.toml: unknown key 'memroy'"), "{error}");
        for (text, part) in [
            ("memory = 0", "memory in a.toml: "),
            ("memory = -5", "memory in a.toml: "),
            ("heap = 3", "heap in a.toml: "),
            ("store = [3]", "store in a.toml: "),
            ("per-process = 'x'", "per-process in a.toml: "),
            ("\n\nmemory 5", "a.toml, line 3: "),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(part) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn a_file_that_is_missing_is_an_error_only_where_it_was_named() {
        assert!(Partial::from_file(Path::new("/nonexistent/a.toml")).is_err());
        let get = |name: &str| (name == "XDG_CONFIG_HOME").then(|| "/nonexistent".into());
        assert!(Partial::from_default_files(get).is_ok());
    }
}
