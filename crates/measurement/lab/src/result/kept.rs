//! Published values beside what this machine measured last, from the results that are kept.

use crate::experiment::Experiment;
use crate::result::checks::cross_checks;
use crate::result::findings::{self, Part};
use crate::result::journal::{Group, read};
use crate::result::language::Texts;
use crate::result::solve::{Beside, Solved, beside, solve};
use std::fs;
use std::path::{Path, PathBuf};
use terapage_report::Finding;

/// The results in a directory.
#[derive(Default)]
pub struct Kept {
    groups: Vec<Group>,
    solved: Vec<Solved>,
}

impl Kept {
    /// Reads a directory of results: the last group of each file that has runs. Of an experiment, a
    /// full run is preferred to a quick one. Files that cannot be read are left out.
    pub fn read(directory: &Path) -> Kept {
        let files = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut files: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|is| is == "jsonl")).collect();
        files.sort();
        let last = |path: &PathBuf| {
            let groups = read(std::slice::from_ref(path)).ok()?;
            groups.into_iter().rfind(|group| !group.runs.is_empty())
        };
        let mut groups: Vec<Group> = files.iter().filter_map(last).collect();
        groups.sort_by_key(|group| group.head.experiment.quick.applied);
        let solved = groups.iter().map(solve).collect();
        Kept { groups, solved }
    }

    /// The published values of an experiment, with what was measured here. `text` is the file of an
    /// experiment that does not come with the lab.
    ///
    /// # Errors
    /// There is no such experiment.
    pub fn printed(&self, name: &str, text: Option<&str>) -> anyhow::Result<Vec<Beside>> {
        let own = self.groups.iter().position(|group| group.head.name == name);
        if let Some(at) = own {
            return Ok(beside(&self.groups[at].head.experiment, &self.solved[at].cells));
        }
        let experiment = match text {
            Some(text) => Experiment::parse(text, name)?,
            None => Experiment::find(name)?.1,
        };
        Ok(beside(&experiment, &[]))
    }

    /// How far other tools agreed with the lab in an experiment, a sentence for each.
    pub fn checks(&self, name: &str, texts: &Texts) -> Vec<String> {
        let Some(at) = self.groups.iter().position(|group| group.head.name == name) else {
            return Vec::new();
        };
        let checks = cross_checks(&self.groups[at].head.experiment, &self.solved[at]);
        let say = |values: [(&'static str, String); 7]| {
            let values = values.each_ref().map(|(key, value)| (*key, value.as_str()));
            texts.say("check-fails", &[("experiment", name)].into_iter().chain(values).collect::<Vec<_>>())
        };
        checks.iter().map(|check| say(check.values())).collect()
    }

    /// A finding by its id, with the verdict of these results.
    pub fn finding(&self, id: &str, texts: &Texts) -> Option<Finding> {
        let groups = self.groups.iter().zip(&self.solved);
        let parts: Vec<Part> =
            groups.map(|(group, solved)| Part { group, solved, plots: Vec::new() }).collect();
        findings::one(id, &parts, texts)
    }
}

#[cfg(test)]
mod tests {
    use super::Kept;
    use crate::result::findings::tests::measured;
    use crate::result::journal::{Journal, Line};
    use crate::result::language::Texts;
    use terapage_report::{Language, Verdict};

    #[test]
    fn kept_results_stand_beside_published_ones() {
        let place = tempfile::tempdir().expect("a directory");
        let empty = Kept::read(place.path());
        let printed = empty.printed("stream", None).expect("it is shipped");
        assert!(printed.len() >= 3 && printed.iter().all(|beside| beside.measured.is_none()));
        let group = measured("stream", 6, "time", |_, contender| match contender {
            "swap" => 60.0,
            _ => 2.0,
        });
        let (mut journal, _) = Journal::open(&place.path().join("stream.jsonl")).expect("a journal");
        journal.append(&Line::Head(Box::new(group.head.clone()))).expect("a head");
        for run in &group.runs {
            journal.append(&Line::Run(Box::new(run.clone()))).expect("a run");
        }
        std::fs::write(place.path().join("other.jsonl"), "not the lab's").expect("a file");
        let kept = Kept::read(place.path());
        let printed = kept.printed("stream", None).expect("it is shipped");
        let pcie = printed.iter().find(|beside| beside.published == 52.0).expect("swap on a PCIe SSD");
        assert!(pcie.measured.is_some_and(|times| (times - 30.0).abs() < 1e-6), "{:?}", pcie.measured);
        let finding = kept.finding("midorikawa-swap-factor", Texts::of(Language::En)).expect("a finding");
        assert_eq!(finding.verdict, Verdict::Holds);
        assert!(kept.printed("nothing", None).is_err());
        assert!(kept.finding("nothing", Texts::of(Language::En)).is_none());
    }
}
