//! Parameters given as `--set NAME=VALUE`: there are many of them, and a run sets few.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::fmt::Write;
use std::ops::Deref;
use terapage_config::nearest;

/// The flag.
pub const SET: &str = "set";

/// The parameters of a command. `T` has each of them as a long flag with the name, value, default
/// and help of the parameter.
#[derive(Clone, Debug)]
pub struct Set<T>(T);

impl<T> Set<T> {
    /// The parameters, to change them.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Deref for Set<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The parameters as the flags of a separate command.
fn flags<T: Args>() -> Command {
    T::augment_args(Command::new(SET).no_binary_name(true).disable_help_flag(true))
}

/// The text for `--help`: a line for each parameter.
fn list(flags: &Command) -> String {
    let mut text = "Change a parameter; can be given several times. The parameters:".to_owned();
    for flag in flags.get_arguments() {
        let about = flag.get_help().map(ToString::to_string).unwrap_or_default();
        let _ = write!(text, "\n  {}: {about}", flag.get_id().as_str().replace('_', "-"));
        let names: Vec<_> = flag.get_possible_values();
        let names: Vec<_> = names.iter().map(|name| name.get_name()).collect();
        if !names.is_empty() {
            let _ = write!(text, ": {}", names.join(", "));
        }
        if let [default] = flag.get_default_values() {
            let _ = write!(text, " [default: {}]", default.display());
        }
    }
    text
}

/// Reads the parameters from texts such as `line=4K`. The error is one line.
fn read<T: Args>(texts: &[String]) -> Result<T, String> {
    let flags = flags::<T>();
    let known = |name: &str| flags.get_arguments().any(|flag| flag.get_long() == Some(name));
    for text in texts {
        let Some((name, _)) = text.split_once('=') else {
            return Err(format!("--set {text}: NAME=VALUE is expected"));
        };
        if !known(name) {
            let all: Vec<_> = flags.get_arguments().filter_map(Arg::get_long).collect();
            let near = nearest(name, all.iter().copied());
            let near = near.map_or(String::new(), |near| format!("did you mean {near}? "));
            return Err(format!("--set: there is no parameter {name} ({near}there are {})", all.join(", ")));
        }
    }
    let words = texts.iter().map(|text| format!("--{text}"));
    let matches = flags.clone().try_get_matches_from(words);
    matches.and_then(|matches| T::from_arg_matches(&matches)).map_err(|error| {
        let text = error.to_string();
        let lines =
            text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
        let line = lines.collect::<Vec<_>>().join(" ");
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("--set: {}", line.trim_start_matches("error: ").replace("--", ""))
    })
}

impl<T: Args> Args for Set<T> {
    fn augment_args(command: Command) -> Command {
        let flag = Arg::new(SET).long(SET).value_name("NAME=VALUE").action(ArgAction::Append);
        let flag = flag.help("Change a parameter; --help lists them").long_help(list(&flags::<T>()));
        command.arg(flag)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Args> FromArgMatches for Set<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Set<T>, clap::Error> {
        let texts: Vec<String> = matches.get_many(SET).into_iter().flatten().cloned().collect();
        let values = read(&texts).map_err(|why| clap::Error::raw(ErrorKind::InvalidValue, why + "\n"))?;
        Ok(Set(values))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Set::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Reads a switch.
pub fn yes(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("write yes or no".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Args, Debug, PartialEq)]
    struct Some {
        /// Bytes
        #[arg(long, default_value_t = 7)]
        line_bytes: u32,
        /// A switch
        #[arg(long, action = ArgAction::Set, value_parser = yes, default_value = "no")]
        wrap: bool,
    }

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        set: Set<Some>,
    }

    #[test]
    fn parameters_are_read_by_name() {
        let parse = |line: &str| Line::try_parse_from(line.split(' ')).map(|line| line.set.0);
        assert_eq!(parse("x").unwrap(), Some { line_bytes: 7, wrap: false });
        let wanted = Some { line_bytes: 9, wrap: true };
        assert_eq!(parse("x --set line-bytes=9 --set wrap=yes").unwrap(), wanted);
        for (line, part) in [
            ("x --set line", "NAME=VALUE is expected"),
            ("x --set lines=9", "there is no parameter lines (there are line-bytes, wrap"),
            ("x --set wrapp=yes", "no parameter wrapp (did you mean wrap? there are"),
            ("x --set line_bytes=9", "(did you mean line-bytes?"),
            ("x --set line-bytes=x", "invalid value 'x'"),
            ("x --set wrap=maybe", "write yes or no"),
        ] {
            let said = parse(line).unwrap_err().to_string();
            // clap's text on usage is removed.
            let said = said.split("Usage:").next().unwrap_or_default().trim_end();
            assert!(said.contains(part) && said.lines().count() == 1, "{line}: {said}");
        }
    }

    #[test]
    fn the_help_lists_all_of_them() {
        let text = list(&flags::<Some>());
        assert!(text.contains("\n  line-bytes: Bytes [default: 7]"), "{text}");
        assert!(text.contains("\n  wrap: A switch [default: no]"), "{text}");
    }
}
