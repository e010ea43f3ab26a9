//! `terapage sim ssd`: block traces against hybrid SSDs.

mod arguments;
mod source;
mod study;
mod unused;

use std::path::PathBuf;

use anyhow::Context;
use serde::Serialize;
use terapage_figures::try_map;
use terapage_hybrid::{Outcome, Setup, Storage, Survey, simulate};
use terapage_ssd::{Profile, Provision};

use crate::progress::Progress;
use arguments::PlacementArgument;
pub use arguments::Ssd;
use source::Source;
use study::Prices;

/// One SSD with one trace.
#[derive(Serialize)]
struct Run {
    trace: String,
    synthetic: bool,
    survey: Survey,
    device_bytes: u64,
    skipped: u64,
    /// Whether the data of each volume should be kept apart.
    asks_placement: bool,
    /// Bytes of the temporary file in which standard input was kept.
    temporary_bytes: u64,
    nand: String,
    setup: Setup,
    /// The flash as it was built, or `None` if there is none.
    flash: Option<Provision>,
    outcome: Outcome,
}

impl Ssd {
    /// Runs the command.
    ///
    /// # Errors
    /// A profile, a trace or a setup is wrong, or a report cannot be written.
    pub fn run(self) -> anyhow::Result<()> {
        self.show.check(self.traces.iter().map(PathBuf::as_path))?;
        self.check()?;
        let nands = self.profiles()?;
        let prices = self.prices.as_ref().map(|path| Prices::read(path, &nands)).transpose()?;
        let sources = self.sources()?;
        let runs = self.runs(&sources, &nands)?;
        let study = study::of(&self, &runs, prices.as_ref());
        self.show.results(&study, &runs, || self.show.text(&study, true))
    }

    fn sources(&self) -> anyhow::Result<Vec<Source>> {
        let progress = Progress::files(self.traces.iter().map(PathBuf::as_path));
        let (options, limit) = (self.read.options(), self.requests.unwrap_or(u64::MAX));
        let sources = try_map(self.traces.len(), |at| {
            Source::survey(&self.traces[at], &options, limit, self.line_bytes()?, self.layout(), &progress)
        })?;
        self.read.check_used(&sources.iter().map(|source| source.format).collect::<Vec<_>>())?;
        Ok(sources)
    }

    fn runs(&self, sources: &[Source], nands: &[Profile]) -> anyhow::Result<Vec<Run>> {
        let mut jobs: Vec<(&Source, &Profile, u64)> = Vec::new();
        for source in sources {
            let capacity = self.capacity(nands, source)?;
            jobs.extend(nands.iter().map(|nand| (source, nand, capacity)));
        }
        let total = jobs.iter().map(|(source, ..)| source.survey.requests).sum();
        let progress = Progress::new("simulating", total);
        try_map(jobs.len(), |at| {
            let (source, nand, capacity) = jobs[at];
            let setup = self.setup(nand, source, capacity)?;
            let requests = progress.over(source.requests()?);
            let outcome =
                simulate(&setup, requests).with_context(|| format!("{} on {}", source.name, nand.name))?;
            Ok(Run {
                trace: source.name.clone(),
                synthetic: source.synthetic,
                survey: source.survey.clone(),
                device_bytes: source.device_bytes(),
                skipped: source.skipped,
                asks_placement: self.set.placement == PlacementArgument::Volumes,
                temporary_bytes: source.file_bytes(),
                nand: nand.name.clone(),
                flash: match &setup.storage {
                    Storage::Scm(_) => None,
                    _ => Some(setup.ssd.provision()?),
                },
                setup,
                outcome,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::fs;

    use clap::Parser;
    use terapage_report::{Origin, render_text};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        ssd: Ssd,
    }

    /// A trace of 3000 requests in SSDsim's format, half of them writes, to a hot and a cold part.
    fn trace() -> tempfile::NamedTempFile {
        let mut text = String::new();
        for n in 0..3_000_u64 {
            let sector = if n % 3 == 0 { n * 7919 % 400_000 * 8 } else { n * 31 % 500 * 8 };
            let _ = writeln!(text, "{} 0 {sector} 8 {}", n * 10_000, n % 2);
        }
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), text).expect("it is written");
        file
    }

    fn parse(trace: &tempfile::NamedTempFile, flags: &str) -> Ssd {
        let path = trace.path().to_str().expect("plain");
        let line = ["ssd", path].into_iter().chain(flags.split_whitespace());
        Line::try_parse_from(line).expect("good flags").ssd
    }

    fn run(flags: &str) -> anyhow::Result<(Ssd, Vec<Run>)> {
        let trace = trace();
        let ssd = parse(&trace, flags);
        ssd.check()?;
        let runs = ssd.runs(&ssd.sources()?, &ssd.profiles()?)?;
        Ok((ssd, runs))
    }

    #[test]
    fn all_nands_are_compared_with_the_first() {
        let (ssd, runs) = run("--nand all --set warm-up=10%").expect("it runs");
        let nands: Vec<&str> = runs.iter().map(|run| run.nand.as_str()).collect();
        assert_eq!(nands, arguments::ALL);
        let study = study::of(&ssd, &runs, None);
        assert_eq!(study.tables[0].rows[0][2], "0.0");
        assert_eq!(runs[0].outcome.requests, 2_700);
        let text = render_text(&study, 100);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn prices_say_what_the_money_buys() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let text = "[[price]]\nnand = '3d-ct-tlc'\nprice = 60\ncapacity = '1T'\nerases = 3000\n\
                    [[price]]\nnand = 'intel-144l-qlc'\nprice = 40\ncapacity = '1T'\nerases = 1000\n";
        fs::write(file.path(), text).expect("it is written");
        let (ssd, runs) = run("--nand all").expect("it runs");
        let said = study::of(&ssd, &runs, None).summary.join("\n");
        assert!(said.contains("--prices FILE"), "{said}");
        let prices = Prices::read(file.path(), &ssd.profiles().unwrap()).unwrap();
        let study = study::of(&ssd, &runs, Some(&prices));
        let said = study.summary.join("\n");
        let iops = |name: &str| runs.iter().find(|run| run.nand == name).map_or(0.0, |run| run.outcome.iops);
        let fastest = match iops("3d-ct-tlc") / 60.0 > iops("intel-144l-qlc") / 40.0 {
            true => "3d-ct-tlc",
            false => "intel-144l-qlc",
        };
        let best = format!("most capacity for the money intel-144l-qlc, most IOPS {fastest}, most replays");
        assert!(said.contains(&best), "{said}");
        let table = study.tables.last().expect("of prices");
        let of = |name: &str| table.rows.iter().find(|row| row[0] == name).expect("a row").clone();
        let (run, row) = (runs.iter().find(|run| run.nand == "3d-ct-tlc").expect("it ran"), of("3d-ct-tlc"));
        let price = 60.0 * run.flash.expect("flash").capacity_bytes as f64 / (1_u64 << 40) as f64;
        assert_eq!(
            row[1..4],
            [price, 1024.0 / 0.6, run.outcome.iops / price * 100.0]
                .iter()
                .zip([2, 1, 0])
                .map(|(value, digits)| format!("{value:.digits$}"))
                .collect::<Vec<_>>()
        );
        assert_eq!(of("2d-fg-mlc")[1..], ["-"; 4]);
        for (text, word) in [
            ("[[price]]\nnand = 'tlc'\nprice = 1\ncapacity = '1T'\n", "there is no chip tlc"),
            ("[[price]]\nnand = '3d-ct-tlc'\nprice = 0\ncapacity = '1T'\n", "must be above 0"),
            ("[[price]]\nnand = '3d-ct-tlc'\nprice = 1\ncapacity = 'much'\n", "capacity: "),
            ("[[price]]\nnand = '3d-ct-tlc'\ncost = 1\n", "line 3: "),
        ] {
            fs::write(file.path(), text).expect("it is written");
            let error =
                Prices::read(file.path(), &[]).err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(error.contains(word) && !error.contains('\n'), "{text}: {error:?}");
        }
    }

    #[test]
    fn parameters_tell_what_was_chosen() {
        let (ssd, runs) =
            run("--scm 5% --set channels=8 --cache dram --set gc=cost-benefit").expect("it runs");
        let study = study::of(&ssd, &runs, None);
        let origin = |name: &str| {
            let mut named = study.parameters.iter().filter(|parameter| parameter.name == name);
            named.next().map(|found| (found.value.as_str(), found.origin))
        };
        assert_eq!(origin("cache's size"), Some(("5 % of what is touched", Origin::Chosen)));
        assert_eq!(origin("channels x dies"), Some(("8 x 2", Origin::Chosen)));
        assert_eq!(origin("garbage collection"), Some(("cost-benefit", Origin::Chosen)));
        assert_eq!(origin("low-water mark"), Some(("20", Origin::Published)));
        assert_eq!(origin("over-provisioning"), Some(("7", Origin::Estimated)));
        assert_eq!(origin("flushed after"), Some(("5000", Origin::Estimated)));
    }

    #[test]
    fn what_is_given_is_chosen_also_if_it_is_the_default() {
        let (ssd, runs) = run("--policy lru --set line=4K --set over-provisioning=7%").expect("it runs");
        let parameters = study::of(&ssd, &runs, None).parameters;
        for (name, origin) in [
            ("cache's policy", Origin::Chosen),
            ("line", Origin::Chosen),
            ("over-provisioning", Origin::Chosen),
            ("padding", Origin::Estimated),
        ] {
            let found = parameters.iter().find(|parameter| parameter.name == name);
            assert_eq!(found.map(|found| found.origin), Some(origin), "{name}");
        }
    }

    /// By default all chips have the spare flash that was asked for, and enough blocks.
    #[test]
    fn the_flash_is_as_asked_for_and_said() {
        for asked in ["1%", "7%", "28%"] {
            let (ssd, runs) = run(&format!("--nand all --set over-provisioning={asked}")).expect("it runs");
            let study = study::of(&ssd, &runs, None);
            for run in &runs {
                let flash = run.flash.expect("there is flash");
                assert!(flash.is_within(0.02) && flash.blocks_per_die >= 50, "{flash:?}");
                assert_eq!(flash.capacity_bytes, runs[0].setup.ssd.capacity_bytes);
                let rows = &study.tables.last().expect("of the flash").rows;
                let row = rows.iter().find(|row| row[0] == run.nand).expect("a row for each chip");
                assert_eq!(row[4], flash.blocks_per_die.to_string());
                let name = format!("{}: super-blocks a die", run.nand);
                let told = study.parameters.iter().find(|parameter| parameter.name == name);
                assert_eq!(told.expect("a parameter for each chip").value, row[4]);
            }
            assert!(!study.summary.iter().any(|text| text.contains("has only")), "{:?}", study.summary);
        }
        let (ssd, runs) = run("--nand all --capacity 1070M").expect("it runs");
        let summary = study::of(&ssd, &runs, None).summary.join("\n");
        assert!(summary.contains("A die of 3d-fg-tlc has only 3 super-blocks."), "{summary}");
        assert!(runs.iter().all(|run| run.flash.is_some_and(|flash| flash.is_within(0.1))));
    }

    #[test]
    fn options_without_effect_are_named() {
        for (flags, said) in [
            (
                "--cache none --policy arc --set pad=yes",
                "Without effect: --policy, --set pad (there is no cache).",
            ),
            ("--cache none --scm 10%", "Without effect: --scm (there is no cache)."),
            ("--scm 0 --set scm-banks=1", "Without effect: --set scm-banks (there is no cache)."),
            ("--set copy-above=1%", "Without effect: --set copy-above (it is for --cache space)."),
            ("--set flush-after=1s", "Without effect: --set flush-after (it is for --cache dram and cxl)."),
            ("--cache write-only --set whole-lines=yes", "--set whole-lines (reads are not copied)."),
            ("--set open=yes --depth 4", "Without effect: --depth (requests come at their time stamps)."),
            (
                "--set precondition=fresh --seed 3",
                "Without effect: --seed (nothing in this flash is random).",
            ),
            (
                "--cache scm-only --nand 3d-ct-tlc",
                "Without effect: --nand (SCM holds everything: there is no flash).",
            ),
            ("--set wrap=yes", "Without effect: --set wrap (the SSD holds all that the trace touches)."),
        ] {
            let (ssd, runs) = run(flags).expect(flags);
            let summary = study::of(&ssd, &runs, None).summary.join("\n");
            assert!(summary.contains(said), "{flags}: {summary}");
        }
        let (ssd, runs) = run("--cache space --set copy-above=1% --seed 2 --depth 4").expect("it runs");
        assert!(!study::of(&ssd, &runs, None).summary.join("").contains("Without effect"));
    }

    #[test]
    fn each_cache_and_load_runs() {
        for flags in [
            "--cache write-only",
            "--cache space --set high-water=40%",
            "--cache dram --set flush-after=1ms --set open=yes",
            "--cache scm-only",
            "--cache none --set front=sata",
            "--scm 0",
            "--scm 5%nand --policy arc --set gc=cost-benefit",
            "--set idle-gc=1ms --set wear-gap=4 --set bad-blocks=2% --set erase-failures=0.1% --set over-provisioning=15%",
            "--set open=yes --set speed=2 --set layout=as-is --set precondition=fresh",
            "--capacity 1070M --set wrap=yes --set layout=as-is --requests 1000",
        ] {
            let (ssd, runs) = run(flags).unwrap_or_else(|error| panic!("{flags}: {error:#}"));
            assert_eq!(runs.len(), 1);
            assert!(runs[0].outcome.iops > 0.0, "{flags}");
            assert!(!render_text(&study::of(&ssd, &runs, None), 80).is_empty());
        }
    }

    /// The same trace as CSV, by its columns.
    #[test]
    fn csv_is_read_by_its_columns() {
        let (_, plain) = run("--requests 500").expect("it runs");
        let columns = "--columns time=1:ns,volume=2,offset=3:512,size=4:512,op=5:0";
        let (_, runs) = run(&format!("--requests 500 {columns}")).expect("it runs");
        assert_eq!(runs[0].survey, plain[0].survey);
        assert_eq!(runs[0].outcome.iops, plain[0].outcome.iops);
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (flags, word) in [
            ("--nand 4d-mlc", "4d-mlc"),
            ("--set line=5000", "line="),
            ("--set evict=5000", "5000"),
            ("--set low-water=50% --set high-water=20%", "water"),
            ("--capacity 1070M --set layout=as-is", "wrap"),
            ("--capacity 1G --nand 3d-fg-tlc --set over-provisioning=15%", "50 % of spare flash, not 15 %"),
            ("--capacity 1G --nand all", "--capacity 1070M would do"),
            ("--capacity 100T", "SSD: capacity: 100.0 TiB: with pages of "),
            ("--set over-provisioning=0%", "over-provisioning: 0 %: must be 1 to 10000 % of the capacity"),
            ("--set warm-up=100%", "nothing to measure"),
            ("--depth 0", "depth"),
            ("--set channels=0", "channels"),
            ("--set bad-blocks=50%", "bad-blocks: "),
            ("--set idle-gc=1ms --set idle-blocks=1", "idle-blocks: "),
            ("--set idle-blocks=9", "idle-gc"),
            ("--set speed=2", "open=yes"),
            ("--unit 4096", "--unit: it is for arc"),
            ("--action D", "--action: it is for blkparse"),
            ("--format ssdsim --columns offset=1,size=2", "--columns: it is for CSV"),
        ] {
            let error = run(flags).err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(error.contains(word) && !error.contains('\n'), "{flags}: {error:?}");
        }
    }
}
