//! Finds the options that the user gave, whatever their values.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::set::SET;

/// The options that the user gave. It must be the first part of a command's options, because the
/// other parts take their values out of the parsed arguments.
#[derive(Clone, Debug, Default)]
pub struct Given(Vec<String>);

impl Given {
    /// Whether the user gave the option: `--depth`, or `--set line`; several are separated by
    /// commas.
    pub fn has(&self, option: &str) -> bool {
        let (set, names) = match option.strip_prefix("--set ") {
            Some(names) => ("--set ", names),
            None => ("", option),
        };
        names.split(", ").any(|name| self.0.iter().any(|given| *given == format!("{set}{name}")))
    }

    /// Returns those of `options` that the user gave.
    pub fn of<'a>(&self, options: &[&'a str]) -> Vec<&'a str> {
        options.iter().copied().filter(|option| self.has(option)).collect()
    }
}

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Given, clap::Error> {
        let by_hand = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let ids: Vec<&str> = matches.ids().map(clap::Id::as_str).filter(by_hand).collect();
        let mut given: Vec<String> = ids.iter().map(|id| format!("--{}", id.replace('_', "-"))).collect();
        if ids.contains(&SET) {
            let texts = matches.get_many::<String>(SET).into_iter().flatten();
            given.extend(texts.filter_map(|text| Some(format!("--set {}", text.split_once('=')?.0))));
        }
        Ok(Given(given))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Given::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::Set;
    use clap::Parser;

    #[derive(Args, Clone, Debug)]
    struct Model {
        /// Bytes
        #[arg(long, default_value_t = 7)]
        #[allow(dead_code)]
        line_bytes: u32,
    }

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        given: Given,
        #[arg(long, default_value_t = 1)]
        deep: u32,
        #[arg(long = "as")]
        taken_as: Option<u32>,
        #[command(flatten)]
        set: Set<Model>,
    }

    #[test]
    fn what_is_given_is_known_also_if_it_is_the_default() {
        let line = Line::try_parse_from(["x", "--deep", "1", "--set", "line-bytes=7"]).unwrap();
        assert_eq!((line.deep, line.taken_as, line.set.line_bytes), (1, None, 7));
        assert!(line.given.has("--deep") && line.given.has("--set lines, line-bytes"));
        assert!(!line.given.has("--line-bytes") && !line.given.has("--as"));
        assert_eq!(line.given.of(&["--as", "--deep"]), ["--deep"]);
        let none = Line::try_parse_from(["x"]).unwrap().given;
        assert!(!none.has("--deep") && !none.has("--set line-bytes"));
    }
}
