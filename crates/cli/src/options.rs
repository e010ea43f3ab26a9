//! The flags that are settings.

use anyhow::{Context, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint, value_parser};
use std::ffi::OsString;
use std::path::PathBuf;
use terapage_config::{
    Choices, Flag, Group, Kind, Partial, SETTINGS, Setting, Settings, UnknownVariable, unknown_variables,
};

/// The settings from the flags of a command line. Flags accept any text, so that an error has the
/// same words wherever the text came from: flag, variable or file.
#[derive(Default)]
pub struct Options {
    given: Vec<(&'static Setting, OsString)>,
    config: Option<PathBuf>,
}

impl Args for Options {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .value_hint(ValueHint::FilePath)
            .help_heading(Group::Advanced.heading())
            .help("Read this configuration file instead of the user's and the system's");
        let of = |group: Group| shown().filter(move |setting| setting.group == group);
        command.args(Group::ALL.into_iter().flat_map(of).map(flag)).arg(config)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Options::augment_args(command)
    }
}

/// The settings that have flags.
fn shown() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(|setting| !setting.hidden)
}

/// Variables of the environment that look like settings but are not.
pub fn strange_variables() -> Vec<UnknownVariable> {
    let names: Vec<_> = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    unknown_variables(names.iter().map(String::as_str))
}

/// The flag of a setting.
fn flag(setting: &Setting) -> Arg {
    let arg = Arg::new(setting.name).long(setting.long()).help(setting.help());
    let arg = arg.help_heading(setting.group.heading());
    let arg = match setting.short {
        Some(letter) => arg.short(letter),
        None => arg,
    };
    let Flag::Value(name) = setting.flag else { return arg.action(ArgAction::SetTrue) };
    arg.value_name(name)
        .value_parser(value_parser!(OsString))
        .allow_hyphen_values(true)
        .action(if setting.kind == Kind::List { ArgAction::Append } else { ArgAction::Set })
        .value_hint(match setting.choices {
            Choices::File => ValueHint::FilePath,
            Choices::Path => ValueHint::AnyPath,
            Choices::Any | Choices::Names(_) => ValueHint::Unknown,
        })
}

impl FromArgMatches for Options {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Options, clap::Error> {
        let mut options = Options::default();
        options.update_from_arg_matches(matches)?;
        Ok(options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for setting in shown() {
            let switched = |text: &str| matches.get_flag(setting.name).then(|| text.into());
            match setting.flag {
                Flag::Value(_) => {
                    let texts = matches.get_many::<OsString>(setting.name).into_iter().flatten();
                    self.given.extend(texts.map(|text| (setting, text.clone())));
                }
                Flag::On => self.given.extend(switched("true").map(|text| (setting, text))),
            }
        }
        self.config = matches.get_one("config").cloned();
        Ok(())
    }
}

impl Options {
    /// Only stores.
    pub fn with_stores(stores: Vec<OsString>) -> Options {
        let lists = SETTINGS.iter().filter(|setting| setting.name == "store");
        let given = lists.flat_map(|setting| stores.iter().map(move |store| (setting, store.clone())));
        Options { given: given.collect(), config: None }
    }

    /// Flags over variables over files over defaults.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let get = |name: &str| std::env::var_os(name);
        let flags = self.flags()?;
        let variables = Partial::from_variables(get)?;
        let files = match &self.config {
            Some(path) => Partial::from_file(path).context("--config")?,
            None => Partial::from_default_files(get)?,
        };
        Ok(flags.or(variables).or(files).resolve(&terapage_far::shelf(), get)?)
    }

    fn flags(&self) -> anyhow::Result<Partial> {
        let mut flags = Partial::default();
        for (setting, text) in &self.given {
            flags.add(setting, text).map_err(|why| anyhow!("--{}: {why}", setting.name))?;
        }
        Ok(flags)
    }
}
