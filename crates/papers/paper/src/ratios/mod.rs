//! `terapage paper run ratios`: the lab and the simulators beside other tools and theory, in one
//! page. Theory and libCacheSim are computed by the command; the rest is of the lab's last run, or
//! was measured once, which the page says.

mod libcachesim;
mod theory;

use crate::list::tools;
use serde::Serialize;
use terapage_report::{Study, Table};
use terapage_sim::progress::Progress;
use terapage_sim::publish::command_line;
use terapage_sim::show::Show;

/// Options of `paper run ratios`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  terapage paper run ratios
  PATH=$PATH:~/libCacheSim/_build/bin terapage paper run ratios --html ratios.html")]
pub struct Ratios {
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
        self.show.check(None)?;
        let progress = Progress::new("simulating", theory::CASES as u64);
        let theory = theory::all(&|| progress.add(1))?;
        progress.phase("libCacheSim");
        let caches = libcachesim::compared()?;
        drop(progress);
        let study = study(&theory, caches.as_deref())?;
        let results = Results { theory, libcachesim: caches.unwrap_or_default() };
        self.show.results(&study, &results, || self.show.text(&study, true))
    }
}

/// The page. Without `caches`, libCacheSim is not on this machine.
fn study(theory: &[Beside], caches: Option<&[Beside]>) -> anyhow::Result<Study> {
    let most = theory.iter().map(|one| (one.ratio() - 1.0).abs()).fold(0.0, f64::max);
    let mut summary = vec![format!(
        "Queueing theory and closed forms: within {:.1} % in {} cases.",
        most * 100.0,
        theory.len()
    )];
    summary.push(match caches {
        Some(caches) => {
            let same = caches.iter().filter(|one| libcachesim::is_same(one)).count();
            format!("libCacheSim: {same} of {} miss ratios are the same to its four digits.", caches.len())
        }
        None => "libCacheSim: not run, since there is no cachesim in PATH; what was measured once is below."
            .to_owned(),
    });
    let mut tables = vec![table("Theory, computed now", theory, "")];
    tables.extend(caches.map(|caches| table("libCacheSim, run now", caches, libcachesim::NOTE)));
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
    use super::{libcachesim, study, theory};

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
        assert!(page.contains("no cachesim in PATH"), "{page}");
    }

    #[test]
    fn what_libcachesim_prints_is_read() {
        let line = "/tmp/x/trace LRU cache size     1000,           200000 req, miss ratio 0.4071, throughput 4.21 MQPS\n";
        assert_eq!(libcachesim::miss_ratio(line), Some(0.4071));
        assert_eq!(libcachesim::miss_ratio("no such policy"), None);
    }
}
