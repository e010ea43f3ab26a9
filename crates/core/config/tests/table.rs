//! Rules for each entry of the table of settings, including entries that are added later.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use terapage_config::{
    Choices, Flag, Kind, Partial, SETTINGS, Setting, Settings, Size, StoreSpec, Stores, markdown,
};

/// The store check accepts any directory.
struct AnyStore;

impl Stores for AnyStore {
    fn check(&self, _store: &StoreSpec) -> Result<(), String> {
        Ok(())
    }

    fn room(&self, _stores: &[StoreSpec]) -> Option<u64> {
        None
    }
}

/// Texts that the setting must accept.
fn texts(setting: &Setting) -> Vec<&'static str> {
    let of_kind: &[&str] = match setting.kind {
        Kind::Switch => &["true", "no"],
        Kind::List => &["/a"],
        Kind::Text | Kind::Number => &[],
    };
    setting.default.iter().chain(setting.names()).chain(of_kind).copied().collect()
}

/// The settings that result from one variable.
fn of_variable(setting: &Setting, text: &str) -> Settings {
    let get = |name: &str| (name == setting.variable).then(|| OsString::from(text));
    Settings::from_variables(&AnyStore, get).unwrap()
}

#[test]
fn the_document_has_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/configuration.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("<!-- settings -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end of settings -->\n").unwrap();
    let table = markdown(SETTINGS);
    let wanted = format!("{before}<!-- settings -->\n{table}<!-- end of settings -->\n{after}");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    } else {
        assert!(text == wanted, "docs/configuration.md has another table of settings: run with BLESS=1");
    }
}

#[test]
fn names_are_those_of_one_setting() {
    let mut seen = HashSet::new();
    for setting in SETTINGS {
        let upper = setting.name.to_uppercase().replace('-', "_");
        assert_eq!(setting.variable, format!("TERAPAGE_{upper}"));
        let short = setting.short.map(String::from);
        for name in [Some(setting.name.to_owned()), short].into_iter().flatten() {
            assert!(seen.insert(name.clone()), "{name} stands twice");
        }
        let help = setting.help();
        assert!(!help.is_empty() && !help.contains('{') && !help.ends_with('.'), "{}: {help}", setting.name);
        let switch = setting.kind == Kind::Switch;
        assert!(switch || matches!(setting.flag, Flag::Value(_)), "{} is no switch", setting.name);
    }
}

#[test]
fn the_default_is_what_absence_means() {
    let absent = Settings::from_variables(&AnyStore, |_| None).unwrap();
    for setting in SETTINGS {
        if let Some(default) = setting.default {
            assert_eq!(of_variable(setting, default), absent, "{}", setting.name);
        }
    }
}

#[test]
fn variables_carry_each_setting() {
    for setting in SETTINGS {
        for text in texts(setting) {
            let settings = of_variable(setting, text);
            let variables: HashMap<_, _> = settings.to_variables().into_iter().collect();
            let read = Settings::from_variables(&AnyStore, |name| variables.get(name).cloned());
            assert_eq!(read.unwrap(), settings, "{} {text}", setting.name);
        }
    }
}

/// A program that changes its directory finds each file that a setting names.
#[test]
fn paths_become_whole() {
    let named = SETTINGS.iter().filter(|setting| matches!(setting.choices, Choices::File | Choices::Path));
    let mut count = 0;
    for setting in named {
        let get = |name: &str| (name == setting.variable).then(|| OsString::from("not-there"));
        let settings = Partial::from_variables(get).unwrap().resolve(&AnyStore, get).unwrap();
        let variables: HashMap<_, _> = settings.to_variables().into_iter().collect();
        let written = &variables[setting.variable];
        let here = std::env::current_dir().unwrap().join("not-there");
        assert!(written.to_string_lossy().contains(here.to_str().unwrap()), "{}: {written:?}", setting.name);
        count += 1;
    }
    assert!(count >= 4, "{count} settings name files");
}

#[test]
fn flag_and_file_take_what_the_variable_takes() {
    for setting in SETTINGS {
        for text in texts(setting) {
            let mut variable = Partial::default();
            variable.set(setting.name, OsStr::new(text)).unwrap();
            let mut flag = Partial::default();
            flag.add(setting, OsStr::new(text)).unwrap();
            assert_eq!(flag, variable, "--{} {text}", setting.name);
            let value = match (setting.kind, text) {
                (Kind::Switch, "true" | "yes" | "on") => "true".to_owned(),
                (Kind::Switch, _) => "false".to_owned(),
                _ => format!("'{text}'"),
            };
            let line = format!("{} = {value}", setting.name);
            let file = Partial::from_toml(&line, Path::new("a.toml"));
            match setting.hidden {
                true => assert!(file.unwrap_err().to_string().contains("unknown key"), "{line}"),
                false => assert_eq!(file.unwrap(), variable, "{line}"),
            }
        }
    }
}

#[test]
fn upper_layers_win() {
    for setting in SETTINGS {
        for text in texts(setting) {
            let mut layer = Partial::default();
            layer.set(setting.name, OsStr::new(text)).unwrap();
            assert_eq!(layer.clone().or(Partial::default()), layer);
            assert_eq!(Partial::default().or(layer.clone()), layer);
        }
    }
}

/// A page of the project.
fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The README's table of settings has the defaults that the settings have.
#[test]
fn the_readme_quotes_the_defaults() {
    let bare = |text: &str| text.replace(['`', ' '], "").replace("KiB", "K").replace("MiB", "M");
    let mut found = 0;
    for line in page("README.md").lines().filter(|line| line.starts_with("| `--")) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let flags = cells[1].split([' ', ',', '`']).filter_map(|word| word.strip_prefix("--"));
        for flag in flags {
            let setting = SETTINGS.iter().find(|setting| setting.long() == flag);
            let Some(default) = setting.and_then(|setting| setting.default) else { continue };
            assert!(bare(cells[3]).starts_with(&bare(default)), "--{flag}: {default}, and not {}", cells[3]);
            found += 1;
        }
    }
    assert!(found >= 6, "{found} defaults are in README.md");
}

/// The least size that a setting takes, by trying.
fn least(name: &str) -> u64 {
    let takes = |bytes: u64| Partial::default().set(name, OsStr::new(&bytes.to_string())).is_ok();
    let (mut refused, mut taken) = (0, 1 << 30);
    assert!(takes(taken), "{name}");
    while taken - refused > 1 {
        let middle = refused + (taken - refused) / 2;
        if takes(middle) { taken = middle } else { refused = middle }
    }
    taken
}

/// Each page says the same of the least sizes as the settings do.
#[test]
fn the_pages_quote_the_least_sizes() {
    let text = page("docs/configuration.md");
    for (name, heading) in [("memory", "\n## Memory\n"), ("store-size", "\n## Store\n")] {
        let section = text.split_once(heading).unwrap_or_else(|| panic!("no {heading}")).1;
        let section = section.split("\n## ").next().unwrap();
        let said = format!("at least {}", Size(least(name)));
        let section = section.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(section.contains(&said), "docs/configuration.md, {heading:?}, does not say '{said}'");
    }
}
