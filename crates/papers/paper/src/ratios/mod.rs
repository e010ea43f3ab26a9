//! `terapage paper run ratios`: the lab and the simulators beside other tools and theory, in one
//! page. Theory and libCacheSim are computed by the command; the rest is of the lab's last run, or
//! was measured once, which the page says.

mod libcachesim;
mod theory;

use crate::list::tools;
use libcachesim::{Compared, HOW_TO_GET};
use serde::Serialize;
use std::path::PathBuf;
use terapage_report::{Study, Table};
use terapage_sim::progress::Progress;
use terapage_sim::publish::command_line;
use terapage_sim::show::Show;

/// Options of `paper run ratios`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  terapage paper run ratios
  PATH=$PATH:~/libCacheSim/_build/bin terapage paper run ratios --html ratios.html
  PATH=~/lcs/bin:$PATH terapage paper run ratios --trace disk.csv

libCacheSim is the program cachesim in PATH, or the module libcachesim of the python3 in PATH.")]
pub struct Ratios {
    /// Compare the policies with libCacheSim on the blocks of this trace, instead of requests that
    /// are made; can be given several times
    #[arg(long = "trace", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    traces: Vec<PathBuf>,
    #[command(flatten)]
    show: Show,
}

/// A value of ours beside one of theirs.
#[derive(Debug, Serialize)]
struct Beside {
    with: String,
    what: String,
    theirs: f64,
    ours: f64,
    unit: &'static str,
}

impl Beside {
    fn ratio(&self) -> f64 {
        self.ours / self.theirs
    }
}

/// The results, as the JSON has them.
#[derive(Serialize)]
struct Results {
    theory: Vec<Beside>,
    libcachesim: Vec<Beside>,
}

impl Ratios {
    /// Computes what can be computed here, and shows it beside what is known.
    ///
    /// # Errors
    /// A simulation or libCacheSim fails, or a file cannot be written.
    pub fn run(self) -> anyhow::Result<()> {
        self.show.check(self.traces.iter().map(PathBuf::as_path))?;
        let progress = Progress::new("simulating", theory::CASES as u64);
        let theory = theory::all(&|| progress.add(1))?;
        progress.phase("libCacheSim");
        let caches = libcachesim::compared(&self.traces)?;
        drop(progress);
        let study = study(&theory, caches.as_deref())?;
        let caches = caches.into_iter().flatten().flat_map(|caches| caches.all).collect();
        let results = Results { theory, libcachesim: caches };
        self.show.results(&study, &results, || self.show.text(&study, true))
    }
}

/// The page. Without `caches`, libCacheSim is not on this machine.
fn study(theory: &[Beside], caches: Option<&[Compared]>) -> anyhow::Result<Study> {
    let most = theory.iter().map(|one| (one.ratio() - 1.0).abs()).fold(0.0, f64::max);
    let mut summary = vec![format!(
        "Queueing theory and closed forms: within {:.1} % in {} cases.",
        most * 100.0,
        theory.len()
    )];
    summary.push(match caches {
        Some(caches) => {
            let all = || caches.iter().flat_map(|one| &one.all);
            let same = all().filter(|one| libcachesim::is_same(one)).count();
            format!("libCacheSim: {same} of {} miss ratios are the same to four digits.", all().count())
        }
        None => format!(
            "libCacheSim: not run, since there is none in PATH ({HOW_TO_GET}); what was measured once is below."
        ),
    });
    let mut tables = vec![table("Theory, computed now", theory, "")];
    let caches = caches.into_iter().flatten();
    tables.extend(caches.map(|one| {
        let note = format!("{} docs/sim-cache.md says which rule differs where they do.", one.note);
        table("libCacheSim, run now", &one.all, &note)
    }));
    tables.push(Table {
        title: "Other tools: the lab's last run on this machine, or measured once".into(),
        columns: ["with", "what", "ours / theirs", "why"].map(String::from).into(),
        rows: tools()?,
        note: "What was measured once is of November 2026, on a busy machine with two processors.".into(),
    });
    Ok(Study {
        title: "Other tools and theory".into(),
        summary,
        command: command_line(),
        tables,
        ..Study::default()
    })
}

fn table(title: &str, all: &[Beside], note: &str) -> Table {
    let row = |one: &Beside| {
        let (theirs, ours) = (format!("{:.4}", one.theirs), format!("{:.4}", one.ours));
        vec![one.with.clone(), one.what.clone(), theirs, ours, one.unit.into(), format!("{:.3}", one.ratio())]
    };
    Table {
        title: title.into(),
        columns: ["with", "what", "theirs", "ours", "unit", "ratio"].map(String::from).into(),
        rows: all.iter().map(row).collect(),
        note: note.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{study, theory};

    #[test]
    fn the_simulators_agree_with_theory_and_the_page_has_every_tool() {
        let theory = theory::all(&|| {}).unwrap();
        assert_eq!(theory.len(), theory::CASES);
        for one in &theory {
            assert!((one.ratio() - 1.0).abs() < 0.05, "{one:?}");
        }
        let study = study(&theory, None).unwrap();
        let page = terapage_report::render_text(&study, 100);
        for tool in ["fio", "STREAM", "Himeno", "bonnie++", "MQSim", "libCacheSim", "M/D/1", "repairman"] {
            assert!(page.contains(tool), "{tool}: {page}");
        }
        // It says how to get what is missing.
        let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("not run") && words.contains("pip install libcachesim"), "{page}");
    }
}
