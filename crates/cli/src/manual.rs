//! `terapage completions` and `terapage man`.

use crate::print;
use anyhow::Context;
use clap::{Args, Command, ValueHint};
use clap_complete::Shell;
use std::path::PathBuf;
use std::process::ExitCode;

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
    pub fn run(self, mut command: Command) -> anyhow::Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "terapage", &mut script);
        print(&String::from_utf8(script)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The arguments of `terapage man`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  terapage man | man -l -
  terapage man --dir ~/.local/share/man/man1")]
pub struct Man {
    /// Write the pages of all commands to this directory
    #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

impl Man {
    /// Prints or writes the pages for `command`.
    pub fn run(self, command: Command) -> anyhow::Result<ExitCode> {
        match self.dir {
            Some(directory) => {
                let shown = directory.display().to_string();
                std::fs::create_dir_all(&directory).with_context(|| shown.clone())?;
                clap_mangen::generate_to(command, &directory).context(shown)?;
            }
            None => {
                let mut page = Vec::new();
                clap_mangen::Man::new(command).render(&mut page)?;
                print(&String::from_utf8(page)?)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
