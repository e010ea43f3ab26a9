//! `terapage completions`.

use crate::print;
use clap::{Args, Command, ValueHint, builder::PossibleValuesParser};
use clap_complete::Shell;
use std::process::ExitCode;
use terapage_config::SETTINGS;

/// The words after `--` are a separate command line, which bash's script of `clap_complete` does
/// not know.
const BASH: &str = r#"
_terapage_or_program() {
    local at
    for ((at = 2; at < COMP_CWORD; at++)); do
        [[ ${COMP_WORDS[at]} == -- ]] || continue
        if declare -F _command_offset > /dev/null; then
            _command_offset $((at + 1))
        elif ((at + 1 == COMP_CWORD)); then
            COMPREPLY=($(compgen -c -- "${COMP_WORDS[COMP_CWORD]}"))
        else
            COMPREPLY=()
        fi
        return
    done
    _terapage "$@"
}
"#;

/// The same for fish.
const FISH: &str = r#"
function __fish_terapage_program
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words)
    complete -C (string join ' ' -- (string escape -- $words[(math $at + 1)..-1]) (commandline -ct))
end
complete -c terapage -n "contains -- -- (commandline -opc)" -f -a "(__fish_terapage_program)"
"#;

/// The arguments of `terapage completions`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  terapage completions bash > ~/.local/share/bash-completion/completions/terapage
  terapage completions zsh > ~/.zfunc/_terapage
  terapage completions fish > ~/.config/fish/completions/terapage.fish")]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    /// Prints the script for `command`.
    pub fn run(self, command: Command) -> anyhow::Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut with_names(command), "terapage", &mut script);
        let mut script = String::from_utf8(script)?;
        match self.shell {
            Shell::Bash => {
                script = script.replace("complete -F _terapage ", "complete -F _terapage_or_program ") + BASH;
            }
            Shell::Fish => script += FISH,
            _ => {}
        }
        print(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The names that a setting accepts; none if it accepts any text.
fn names(setting: &str) -> Vec<&'static str> {
    let found = SETTINGS.iter().find(|known| known.name == setting);
    found.map_or(Vec::new(), |setting| setting.names().to_vec())
}

/// The command with the names that a shell offers. The names are only for shells: flags accept any
/// text, and refuse wrong texts with their own messages.
fn with_names(command: Command) -> Command {
    let command = command.mut_subcommand("run", |run| offer(run, |_, flag| names(flag)));
    #[cfg(feature = "sim")]
    let predicted = |_: &str, flag: &str| if flag == "policy" { names(flag) } else { Vec::new() };
    #[cfg(feature = "sim")]
    let command = command
        .mut_subcommand("advise", |advise| offer(advise, predicted))
        .mut_subcommand("sim", |sim| offer(sim, terapage_sim::names));
    #[cfg(feature = "papers")]
    let command = command.mut_subcommand("paper", |paper| offer(paper, terapage_paper::names));
    for_shells(command)
}

/// Gives a flag, or another argument with a name, the values `names` of the command, in subcommands
/// too.
fn offer(command: Command, names: fn(&str, &str) -> Vec<&'static str>) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|arg| {
        let names = names(&name, &arg.get_id().as_str().replace('_', "-"));
        if names.is_empty() { arg } else { arg.value_parser(PossibleValuesParser::new(names)) }
    });
    command.mut_subcommands(|command| offer(command, names))
}

/// Offers no files for a number or a size, and no value's name with a colon, at which zsh ends the
/// name.
fn for_shells(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let takes_any = arg.get_action().takes_values() && arg.get_value_hint() == ValueHint::Unknown;
        let arg = if takes_any { arg.value_hint(ValueHint::Other) } else { arg };
        match arg.get_value_names() {
            Some([name]) if name.contains(':') => arg.value_name("PATH"),
            _ => arg,
        }
    });
    command.mut_subcommands(for_shells)
}

#[cfg(test)]
mod tests {
    use super::names;
    use terapage_config::{Partial, SETTINGS};

    #[test]
    fn what_is_offered_is_taken() {
        let mut offered = 0;
        for key in SETTINGS {
            for name in names(key.name) {
                assert_eq!(Partial::default().set(key.name, name.as_ref()), Ok(()), "{} {name}", key.name);
                offered += 1;
            }
        }
        assert!(offered > 20, "{offered}");
    }
}
