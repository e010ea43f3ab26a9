//! The description of a setting.

use crate::Partial;
use std::ffi::OsStr;

/// A setting, as the table has it: all of its names, and the form in which it is given.
#[derive(Debug)]
pub struct Setting {
    /// The key in the configuration file. The flag has the same name, see [`flag`](Self::flag).
    pub name: &'static str,
    /// The environment variable.
    pub variable: &'static str,
    /// What the flag takes.
    pub flag: Flag,
    /// The flag's short form.
    pub short: Option<char>,
    /// What the setting does, for `--help`. The text `{choices}` stands for the names in
    /// [`choices`](Self::choices).
    pub help: &'static str,
    /// The type of the key in the configuration file.
    pub kind: Kind,
    /// The possible values, if they are known.
    pub choices: Choices,
    /// The default, as text. `None` if the default is no value, or if it depends on the machine.
    pub default: Option<&'static str>,
    /// The text that the documentation has instead of the default, if words are needed.
    pub default_note: Option<&'static str>,
    /// Whether the setting is only for `terapage run`. If not, programs that call the pager may use
    /// it, too.
    pub run_only: bool,
    /// Whether the setting is only for tests, recordings and measurements: then it has a variable,
    /// and no flag, key or row in the documents.
    pub hidden: bool,
    /// The place of the flag in `--help`.
    pub group: Group,
    /// Reads the setting's value from a text.
    pub(crate) set: fn(&mut Partial, &OsStr) -> Result<(), String>,
}

/// The groups of flags in `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// How much memory.
    Memory,
    /// The stores for blocks without a frame.
    Stores,
    /// What is paged.
    Paged,
    /// What is reported and written.
    Output,
    /// What few need.
    Advanced,
}

impl Group {
    /// All groups, in the order of `--help`.
    pub const ALL: [Group; 5] = [Group::Memory, Group::Stores, Group::Paged, Group::Output, Group::Advanced];

    /// The heading.
    pub fn heading(self) -> &'static str {
        match self {
            Group::Memory => "Memory",
            Group::Stores => "Stores",
            Group::Paged => "What is paged",
            Group::Output => "Output",
            Group::Advanced => "Advanced",
        }
    }
}

/// What a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// `--NAME VALUE`: a value; `--help` shows this name for it.
    Value(&'static str),
    /// `--NAME`: nothing. The flag switches the setting on.
    On,
}

/// The type of a key in the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text.
    Text,
    /// A number, or a text.
    Number,
    /// True or false.
    Switch,
    /// One text, or an array of them. The flag can be repeated.
    List,
}

/// The possible values of a setting, for completions and messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choices {
    /// Any text.
    Any,
    /// These names, and perhaps others.
    Names(&'static [&'static str]),
    /// A file.
    File,
    /// A file or a directory.
    Path,
}

impl Setting {
    /// The flag, without the dashes.
    pub fn long(&self) -> &'static str {
        self.name
    }

    /// The possible names; none if the setting accepts any text.
    pub fn names(&self) -> &'static [&'static str] {
        match self.choices {
            Choices::Names(names) => names,
            Choices::Any | Choices::File | Choices::Path => &[],
        }
    }

    /// What `--help` says about the flag.
    pub fn help(&self) -> String {
        self.help.replace("{choices}", &self.names().join(", "))
    }
}

/// The table of these settings, as docs/configuration.md has it.
pub fn markdown(settings: &[Setting]) -> String {
    let mut text = "| flag | variable | TOML key | default |\n| --- | --- | --- | --- |\n".to_owned();
    for setting in settings.iter().filter(|setting| !setting.hidden) {
        let short = setting.short.map_or(String::new(), |letter| format!(", `-{letter}`"));
        let default = match (setting.default_note, setting.default) {
            (Some(note), _) => note.to_owned(),
            (None, Some(default)) => format!("`{default}`"),
            (None, None) => "none".to_owned(),
        };
        let (long, variable, name) = (setting.long(), setting.variable, setting.name);
        text += &format!("| `--{long}`{short} | `{variable}` | `{name}` | {default} |\n");
    }
    text
}
