//! The line of the summary that says what may help.

use super::{Collected, Numbers, Run};
use std::collections::BTreeMap;

/// The number of runs, trials or reads that is significant. Chosen, not measured.
const FEW: u64 = 64;

impl Numbers {
    /// The part of the runs read ahead that was not used, per cent; `None` if there were few.
    fn wasted_percent(&self) -> Option<u64> {
        let runs = self.used_runs + self.wasted_runs;
        (runs >= FEW).then(|| self.wasted_runs * 100 / runs)
    }

    /// Why smaller blocks may help, in words: touches are scattered. Trials have found that only
    /// one page of most blocks is wanted. Without trials, more blocks were read for a waiting
    /// thread than were usefully read ahead.
    fn scattered(&self) -> Option<String> {
        let trials = self.together + self.apart;
        if trials >= FEW {
            let share = self.apart * 100 / trials;
            return (share >= 60).then(|| {
                format!(
                    "only one page was touched of {share}% of the blocks that were \
                                  tried"
                )
            });
        }
        let useful = self.ahead * (100 - self.wasted_percent().unwrap_or(0)) / 100;
        let is_so = self.demand >= FEW && self.demand > useful;
        is_so.then(|| {
            format!(
                "{} blocks were read because a thread waited, {useful} were read ahead and used",
                self.demand
            )
        })
    }
}

/// The line with advice, for a program that waits much, or for whose mapped files memory was too
/// small; empty if nothing is known to help.
pub fn line(collected: &Collected, run: &Run, all: &Numbers, most: u64) -> String {
    let mut ways = Vec::from_iter(rereads(&collected.rereads));
    if all.paged > 0 && all.waited_percent() >= 20.0 {
        let is_one = collected.ended.len() == 1 && collected.others.is_empty();
        let peak = run.peak_of_all.filter(|_| !is_one).map_or(most, |peak| peak.max(most));
        ways.extend(what_speeds_up(all, run, peak));
    }
    if ways.is_empty() {
        return String::new();
    }
    format!("terapage: what may help: {}\n", ways.join(", or "))
}

/// Files that are named, at most.
const NAMED: usize = 3;

/// `--files`, if the kernel read mapped files more than once.
fn rereads(files: &BTreeMap<String, u64>) -> Option<String> {
    let mut files: Vec<_> = files.iter().collect();
    files.sort_by_key(|(_, percent)| std::cmp::Reverse(**percent));
    let named =
        files.iter().take(NAMED).map(|(path, percent)| format!("{percent}% of the checked pages of {path}"));
    let mut named = named.collect::<Vec<_>>().join(", ");
    if files.len() > NAMED {
        named += &format!(", pages of {} more files", files.len() - NAMED);
    }
    (!files.is_empty()).then(|| format!("--files (the kernel read mapped files more than once: {named})"))
}

/// What may help a program that waits much.
fn what_speeds_up(all: &Numbers, run: &Run, peak: u64) -> Vec<String> {
    let mut ways = Vec::new();
    if run.block > 4 << 10
        && let Some(why) = all.scattered()
    {
        ways.push(format!("--block 4K ({why})"));
    }
    if let Some(wasted) = all.wasted_percent()
        && wasted >= 40
        && all.ahead * 4 >= all.demand
    {
        ways.push(format!("--prefetch off ({wasted}% of the runs that were read ahead were not used)"));
    }
    // A budget that was mostly empty, or from which nothing was taken that was wanted again, was
    // large enough.
    if all.bytes_in > 0 && peak > run.budget / 2 && !run.is_auto {
        ways.push("a larger budget (terapage advise tells how large)".to_owned());
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::super::tests::{numbers, run};
    use super::super::{read, show};
    use super::*;

    #[test]
    fn what_helps_follows_from_density_and_waste() {
        let hint = |all: Numbers, block| {
            let collected = Collected { ended: vec![all], ..Collected::default() };
            show(&collected, &run(None, block), |_| false).lines().nth(1).unwrap_or("").to_owned()
        };
        assert!(hint(numbers(), 16 << 10).contains("--block 4K (100 blocks"), "more on demand than ahead");
        assert!(!hint(numbers(), 4 << 10).contains("--block"), "they are small already");
        assert!(
            !hint(Numbers { demand: 24, ..numbers() }, 16 << 10).contains("--block"),
            "hardly any was read"
        );
        assert!(!hint(Numbers { ahead: 200, ..numbers() }, 16 << 10).contains("--block"), "it is read ahead");
        let wasted = Numbers { ahead: 200, used_runs: 43, wasted_runs: 57, ..numbers() };
        let collected = hint(wasted, 16 << 10);
        assert!(
            collected.contains("--block 4K (100 blocks") && collected.contains("--prefetch off (57%"),
            "{collected}"
        );
        let dense = Numbers { together: 90, apart: 10, ..wasted };
        assert!(!hint(dense, 16 << 10).contains("--block"), "trials have found the pages used");
        let sparse = Numbers { together: 10, apart: 90, ahead: 1000, ..numbers() };
        assert!(hint(sparse, 16 << 10).contains("of 90% of the blocks"));
        assert_eq!(hint(Numbers { program_us: 20_000_000, ..numbers() }, 16 << 10), "", "it waits little");
    }

    #[test]
    fn a_larger_budget_is_advised_only_where_the_budget_was_full() {
        let hint = |all: Numbers| {
            let collected = Collected { ended: vec![all], ..Collected::default() };
            show(&collected, &run(None, 4 << 10), |_| false).lines().nth(1).unwrap_or("").to_owned()
        };
        let full = Numbers { resident_peak: 60 << 20, ..numbers() };
        assert_eq!(hint(full), "terapage: what may help: a larger budget (terapage advise tells how large)");
        assert_eq!(hint(Numbers { bytes_in: 0, demand: 0, ahead: 0, ..full }), "", "nothing was paged in");
        assert_eq!(hint(Numbers { resident_peak: 30 << 20, ..full }), "", "the budget was mostly empty");
    }

    #[test]
    fn mapped_files_that_were_read_again_are_named() {
        let hint = |text: &str, all: Numbers| {
            let collected = Collected { ended: vec![all], ..read(text, 1) };
            show(&collected, &run(None, 4 << 10), |_| false).lines().nth(1).unwrap_or("").to_owned()
        };
        let small = Numbers { resident_peak: 2 << 20, ..Numbers::default() };
        assert_eq!(hint("r 7\nr 7 x /a\nr 7 5\n", small), "", "broken lines");
        let one = "r 7 20 /a b\nr 8 90 /a b\nr 9 30 /a b\n";
        let line = "terapage: what may help: --files (the kernel read mapped files more than once: 90% of the checked pages of /a b)";
        assert_eq!(hint(one, small), line);
        let paged = hint(one, Numbers { resident_peak: 60 << 20, ..numbers() });
        assert_eq!(paged, format!("{line}, or a larger budget (terapage advise tells how large)"));
        let many = hint("r 7 10 /d\nr 7 40 /a\nr 7 30 /b\nr 7 20 /c\nr 7 10 /e\n", small);
        let named = [("40", "a"), ("30", "b"), ("20", "c")]
            .map(|(percent, file)| format!("{percent}% of the checked pages of /{file}, "));
        let named = named.concat() + "pages of 2 more files)";
        assert!(many.ends_with(&named), "{many}");
    }
}
