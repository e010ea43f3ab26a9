//! The `terapage` command: a thin layer over the other crates.
//!
//! Errors of this command are one line on standard error and exit status 125, as env(1) has it, so
//! that they differ from those of the program that it runs.

#[cfg(target_arch = "x86_64")]
mod adopt;
#[cfg(target_arch = "x86_64")]
mod cgroup;
mod completions;
mod doctor;
mod far;
#[cfg(target_arch = "x86_64")]
mod guard;
mod library;
mod manual;
mod options;
mod program;
#[cfg(target_arch = "x86_64")]
mod release;
mod ring;
mod run;
#[cfg(target_arch = "x86_64")]
mod signals;
mod userfaultfd;
mod version;
mod watch;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;
use terapage_config::nearest;

/// The exit status of terapage's own errors.
const OWN_ERROR: u8 = 125;

/// Run unmodified Linux programs on data larger than memory, by paging in user space.
#[derive(Parser)]
#[command(
    name = "terapage",
    version,
    long_version = version::long(),
    max_term_width = 100,
    after_help = "\
Examples:
  terapage run --memory 4G -- ./simulation input.dat
  terapage top
  terapage doctor

Settings also come from TERAPAGE_* variables and ~/.config/terapage/config.toml."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program with a budget of memory; the rest of its data is kept in a store.
    Run(Box<run::Run>),
    /// Page a program that is already running (x86-64, experimental).
    #[cfg(target_arch = "x86_64")]
    Adopt(Box<adopt::Adopt>),
    /// Take all memory of a paged program back, and let it go on unpaged (x86-64, experimental).
    #[cfg(target_arch = "x86_64")]
    Release(release::Release),
    /// Adopt the largest program of a list when memory is short (x86-64, experimental).
    #[cfg(target_arch = "x86_64")]
    Guard(Box<guard::Guard>),
    /// Show the counters of a paged process.
    Stat(watch::stat::Stat),
    /// Watch paged processes live.
    Top(watch::top::Top),
    /// Print the counters of all paged processes for Prometheus, or export them to a file or by
    /// HTTP.
    Metrics(watch::metrics::Metrics),
    /// Serve memory to other machines, and list or remove the blocks on a server.
    #[command(subcommand)]
    Far(far::Command),
    /// Check whether paging works here, and say how to fix what is missing.
    Doctor(doctor::Doctor),
    /// Measure programs larger than memory: in memory, on swap, with mmap, with Terapage.
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Lab(terapage_lab::Command),
    /// Predict how much memory a program needs, which settings suit it, and how long it then takes.
    #[cfg(feature = "sim")]
    Advise(Box<terapage_sim::Advise>),
    /// Simulate other hardware: SSDs, memory servers, replacement policies.
    #[cfg(feature = "sim")]
    #[command(subcommand)]
    Sim(terapage_sim::Command),
    /// Repeat figures of papers, by simulation or measurement, beside the published values.
    #[cfg(feature = "papers")]
    #[command(subcommand)]
    Paper(terapage_paper::Command),
    /// Print a completion script for a shell.
    Completions(completions::Completions),
    /// Print the man page, or write all man pages to a directory.
    Man(manual::Man),
}

/// Bytes of stack that a command may need: some 100 KiB are seen.
const STACK: usize = 2 << 20;

fn main() -> ExitCode {
    // The main thread's stack follows `ulimit -s`, which is meant for the program. Another thread
    // is used only if that stack is too small, since some attributes belong to a thread
    // (PR_SET_PDEATHSIG) and must last until the program runs.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
    if limit.is_some_and(|bytes| bytes < STACK as u64) {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn(command);
        return thread.map_or_else(|_| command(), |thread| thread.join().unwrap_or(OWN_ERROR.into()));
    }
    command()
}

/// Executes the command line.
fn command() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return usage(&error),
    };
    let result = match command {
        Command::Run(run) => run.run(),
        #[cfg(target_arch = "x86_64")]
        Command::Adopt(adopt) => adopt.run(),
        #[cfg(target_arch = "x86_64")]
        Command::Release(release) => release.run(),
        #[cfg(target_arch = "x86_64")]
        Command::Guard(guard) => guard.run(),
        Command::Stat(stat) => stat.run(),
        Command::Top(top) => top.run(),
        Command::Metrics(metrics) => metrics.run(),
        Command::Far(far) => far.run(),
        Command::Doctor(doctor) => doctor.run(),
        #[cfg(feature = "lab")]
        Command::Lab(lab) => lab.run(),
        #[cfg(feature = "sim")]
        Command::Advise(advise) => advise.run().map(|()| ExitCode::SUCCESS),
        #[cfg(feature = "sim")]
        Command::Sim(sim) => sim.run().map(|()| ExitCode::SUCCESS),
        #[cfg(feature = "papers")]
        Command::Paper(paper) => paper.run(),
        Command::Completions(completions) => completions.run(Cli::command()),
        Command::Man(man) => man.run(Cli::command()),
    };
    result.unwrap_or_else(|error| {
        if is_broken_pipe(&error) {
            return ExitCode::SUCCESS;
        }
        complain(&format!("{error:#}"));
        ExitCode::from(OWN_ERROR)
    })
}

/// Writes one line to standard error. A failure to write it is ignored.
fn complain(message: &str) {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ").replace(" ;", ";");
    // By one write, so that the program's own lines do not come between.
    let _ = std::io::stderr().write_all(format!("terapage: {line}\n").as_bytes());
}

/// Prints to standard output.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Answers `--help` and `--version`, and puts errors of usage on one line.
fn usage(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(OWN_ERROR);
    }
    if let Some(name) = left_out(error) {
        complain(&format!(
            "{name}: this build has the pager alone (cargo build --release: the whole command)"
        ));
        return ExitCode::from(OWN_ERROR);
    }
    let text = error.to_string();
    let lines = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let lines = lines.filter(|line| !line.contains("as a value, use"));
    let message = lines.collect::<Vec<_>>().join(" ").replace("  tip: ", "; ");
    let near = nearest_command(error).map_or(String::new(), |near| format!("; did you mean '{near}'?"));
    complain(&format!("{}{near} (see {} --help)", message.trim_start_matches("error: ").trim(), asked()));
    ExitCode::from(OWN_ERROR)
}

/// The command that was asked for, if the whole `terapage` has it and this build leaves it out.
fn left_out(error: &clap::Error) -> Option<&str> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    ["lab", "sim", "advise", "paper"].contains(&word.as_str()).then_some(word)
}

/// The most similar existing command, if clap does not name it itself.
fn nearest_command(error: &clap::Error) -> Option<String> {
    let unnamed = error.get(ContextKind::SuggestedSubcommand).is_none();
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let mut command = Cli::command();
    for word in asked().split(' ').skip(1) {
        command = command.find_subcommand(word)?.clone();
    }
    let known: Vec<_> = command.get_subcommands().map(|known| known.get_name().to_owned()).collect();
    nearest(word, known.iter().map(String::as_str)).filter(|_| unnamed).map(str::to_owned)
}

/// The requested command with its subcommands, as in `terapage lab run`.
fn asked() -> String {
    let mut command = Cli::command();
    let mut name = command.get_name().to_owned();
    for word in std::env::args_os().skip(1) {
        let Some(subcommand) = command.find_subcommand(&word).cloned() else { break };
        name = format!("{name} {}", subcommand.get_name());
        command = subcommand;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
