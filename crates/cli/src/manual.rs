//! `terapage man`.

use crate::print;
use anyhow::Context;
use clap::{Args, Command, ValueHint};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

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
                clap_mangen::generate_to(command, &directory).context(shown.clone())?;
                for page in std::fs::read_dir(&directory).context(shown)?.flatten().map(|entry| entry.path())
                {
                    let ours = page.file_name().is_some_and(|name| name.as_bytes().starts_with(b"terapage"));
                    if ours && page.extension().is_some_and(|section| section == "1") {
                        let text = std::fs::read_to_string(&page)?;
                        std::fs::write(&page, with_sections(&text))?;
                    }
                }
            }
            None => {
                let mut page = Vec::new();
                // The subcommand `help` has no page.
                let command = command.disable_help_subcommand(true);
                clap_mangen::Man::new(command).render(&mut page)?;
                print(&with_sections(&String::from_utf8(page)?))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A page's text, in which the parts after the options, such as `Examples:`, are sections whose
/// lines stay as they are: in one paragraph, examples would run into each other.
fn with_sections(page: &str) -> String {
    let mut text = String::new();
    // Words after PROGRAM belong to it.
    let page = page.replace("<\\fIPROGRAM\\fR>", "[\\-\\-] \\fIPROGRAM\\fR [\\fIARGS\\fR]...");
    let mut extra = false;
    for line in page.lines() {
        if let Some(section) = line.strip_prefix(".SH ") {
            if extra {
                text.push_str(".fi\n");
            }
            extra = section == "EXTRA";
            if extra {
                text.push_str(".SH NOTES\n.nf\n");
                continue;
            }
        } else if let Some(head) = line.strip_suffix(':').filter(|head| extra && !head.starts_with(' ')) {
            let head = format!(".SH {}\n.nf\n", head.to_uppercase());
            match text.strip_suffix(".SH NOTES\n.nf\n") {
                Some(before) => text = before.to_owned() + &head,
                None => text = format!("{}\n.fi\n{head}", text.trim_end()),
            }
            continue;
        }
        text.push_str(line.strip_prefix("  ").filter(|_| extra).unwrap_or(line));
        text.push('\n');
    }
    if extra {
        text.push_str(".fi\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::with_sections;

    #[test]
    fn examples_are_a_section_whose_lines_stay() {
        let page =
            ".SH OPTIONS\nall\n.SH EXTRA\nExamples:\n  one\n  two\n\nKeys:\n  q quits.\n.SH VERSION\nv1\n";
        let wanted = ".SH OPTIONS\nall\n.SH EXAMPLES\n.nf\none\ntwo\n.fi\n.SH KEYS\n.nf\nq quits.\n.fi\n.SH VERSION\nv1\n";
        assert_eq!(with_sections(page), wanted);
        assert_eq!(with_sections(".SH EXTRA\nMore.\n"), ".SH NOTES\n.nf\nMore.\n.fi\n");
    }
}
