//! What a user's program takes with less memory than it wants, and whether to run it so.

use crate::experiment::atom;
use crate::result::answers::told_times;
use crate::result::journal::Group;
use crate::result::language::Texts;
use crate::result::number::number;
use crate::result::pairs::{PAIRS_LEAST, Ratio};
use crate::result::solve::{Solved, SolvedCell};
use terapage_config::Size;
use terapage_report::Answer;

/// The slow-down with which less memory is recommended, as `terapage advise` has it by default.
const ACCEPTED: f64 = 1.5;

/// The least share of disturbed runs with which the figures are not trusted. Chosen, not measured.
const DISTURBED: f64 = 0.25;

/// The pass of a user's program.
const PASS: &str = "time";

/// What a user's program takes with half of its memory, and whether to give it less than it wants.
pub fn of_program(group: &Group, solved: &Solved, texts: &Texts) -> Vec<Answer> {
    if !group.head.experiment.program.verbatim {
        return Vec::new();
    }
    let asked = Asked { group, solved, texts };
    let mut answers: Vec<Answer> = asked.with_half().into_iter().collect();
    if let Some((verdict, times)) = asked.verdict() {
        answers.push(verdict);
        answers.extend(asked.again(times));
    }
    answers
}

/// A user's program, and what was measured of it.
struct Asked<'a> {
    group: &'a Group,
    solved: &'a Solved,
    texts: &'a Texts,
}

impl Asked<'_> {
    /// The part of the wanted memory that a cell has.
    fn part(&self, cell: &SolvedCell) -> Option<f64> {
        atom(cell.cell.get("ratio")?)
    }

    /// The same in words, and the memory, bytes.
    fn told_part(&self, cell: &SolvedCell) -> Option<(String, u64)> {
        let bytes = self.group.head.experiment.sizes_of(&cell.cell).ok()?.get("memory").copied()?;
        Some(match cell.cell.get("ratio")?.as_str() {
            "1/2" => (self.texts.say("half", &[]), bytes),
            other => (other.to_owned(), bytes),
        })
    }

    /// The program and its arguments, as a shell takes them.
    fn program(&self) -> String {
        let words = self.group.head.experiment.program.run.iter();
        words.map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }

    /// What it takes with half of the memory that it wants, or with the nearest part with which it
    /// was measured and completes.
    fn with_half(&self) -> Option<Answer> {
        let far = |cell: &&SolvedCell| (self.part(cell).unwrap_or(f64::MAX).ln() - 0.5f64.ln()).abs();
        let nearest = |able: bool| {
            let cells = self.solved.cells.iter().filter(|cell| !able || times(cell, "terapage").is_some());
            cells.min_by(|a, b| far(a).total_cmp(&far(b)))
        };
        let cell = nearest(true).or_else(|| nearest(false))?;
        let (part, bytes) = self.told_part(cell)?;
        let told = self.texts.list(&told_times(cell, PASS, self.texts));
        let (memory, program) = (size(bytes), self.program());
        let values = [("part", part.as_str()), ("memory", &memory), ("program", &program), ("parts", &told)];
        Some(Answer { text: self.texts.say("answer-program", &values), ..Answer::default() })
    }

    /// The least memory with which it is fast enough by Terapage, or that there is none; and how
    /// many times as long it takes there.
    fn verdict(&self) -> Option<(Answer, Ratio)> {
        let is_less = |cell: &&SolvedCell| self.part(cell).is_some_and(|part| part < 1.0);
        let paged = self.solved.cells.iter().filter(is_less);
        let paged: Vec<_> = paged.filter_map(|cell| Some((cell, times(cell, "terapage")?))).collect();
        let fast = paged.iter().filter(|(_, times)| times.center <= ACCEPTED);
        let least = fast
            .min_by(|a, b| self.part(a.0).partial_cmp(&self.part(b.0)).unwrap_or(std::cmp::Ordering::Equal));
        let best = || paged.iter().min_by(|a, b| a.1.center.total_cmp(&b.1.center));
        let (cell, by_terapage) = least.or_else(best)?;
        let (part, bytes) = self.told_part(cell)?;
        let (memory, told, most) = (size(bytes), self.texts.interval(by_terapage), number(ACCEPTED));
        let values = [("part", part.as_str()), ("memory", &memory), ("times", &told), ("most", &most)];
        if least.is_none() {
            let text = self.texts.say("verdict-not", &values);
            return Some((Answer { text, ..Answer::default() }, *by_terapage));
        }
        let mut text = self.texts.say("verdict-use", &values);
        if let Some(by_swap) = times(cell, "swap").filter(|by_swap| by_swap.center < by_terapage.center) {
            let values = [("times", &*self.texts.interval(&by_swap))];
            text = format!("{text} {}", self.texts.say("verdict-swap", &values));
        }
        let command = format!("terapage run --memory {}M -- {}", bytes >> 20, self.program());
        Some((Answer { text, command }, *by_terapage))
    }

    /// That the figures are no ground for a decision yet, and how to get better ones.
    fn again(&self, verdict: Ratio) -> Option<Answer> {
        let (disturbed, runs) = (self.solved.disturbed, self.solved.runs);
        let is_quiet = (disturbed as f64) < DISTURBED * runs as f64;
        if is_quiet && verdict.pairs >= PAIRS_LEAST {
            return None;
        }
        let [pairs, disturbed, runs] = [verdict.pairs, disturbed, runs].map(|count| count.to_string());
        let values = [("pairs", pairs.as_str()), ("disturbed", &disturbed), ("runs", &runs)];
        let command = format!("terapage lab program -- {}", self.program());
        Some(Answer { text: self.texts.say("verdict-again", &values), command })
    }
}

/// How many times as long a contender takes as the program in memory.
fn times(cell: &SolvedCell, name: &str) -> Option<Ratio> {
    cell.figures.iter().find(|figure| figure.contender == name && figure.pass == PASS)?.times
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Whole MiB in words.
fn size(bytes: u64) -> String {
    Size(bytes >> 20 << 20).to_string()
}

#[cfg(test)]
mod tests {
    use super::of_program;
    use crate::result::journal::tests::{group, record};
    use crate::result::language::Texts;
    use crate::result::solve::solve;
    use terapage_report::{Answer, Language};

    const TEXT: &str = "title = \"A\"\nunit = \"s\"\ncontenders = [\"memory\", \"swap\", \"terapage\"]\n\
        [program]\nrun = [\"./mine\"]\nverbatim = true\n[sizes]\nmemory = \"data * ratio\"\ndata = \"400M\"\n\
        [matrix]\nratio = [\"1\", \"1/2\", \"1/4\"]\n";

    /// The answers for a slow-down by `half` with half the memory, by `quarter` with a quarter.
    fn told(rounds: u32, half: f64, quarter: f64, disturbed: bool) -> Vec<Answer> {
        let mut group = group(TEXT);
        for cell in group.head.experiment.cells() {
            for round in 1..=rounds {
                let by_terapage = match cell["ratio"].as_str() {
                    "1/2" => half,
                    "1/4" => quarter,
                    _ => 1.0,
                };
                for (name, seconds) in [("memory", 1.0), ("swap", 1.4), ("terapage", by_terapage)] {
                    let mut run = record(&group.head, &cell, round, name, seconds);
                    if disturbed && name == "memory" {
                        run.watched.marks.push("steal 9 %".into());
                    }
                    group.runs.push(run);
                }
            }
        }
        of_program(&group, &solve(&group), Texts::of(Language::En))
    }

    #[test]
    fn the_least_memory_that_is_fast_enough_is_recommended() {
        let answers = told(6, 1.2, 1.45, false);
        assert_eq!(answers.len(), 2, "{answers:?}");
        assert_eq!(answers[1].command, "terapage run --memory 100M -- ./mine");
        assert!(answers[1].text.contains("Swap is faster there"), "{answers:?}");
        let answers = told(6, 1.2, 9.0, false);
        assert_eq!(answers[1].command, "terapage run --memory 200M -- ./mine");
        assert!(!answers[1].text.contains("Swap"), "{answers:?}");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, wanted) in [("./a-b=c", "./a-b=c"), ("", "''"), ("x y", "'x y'"), ("it's", "'it'\\''s'")] {
            assert_eq!(super::quoted(word), wanted);
        }
    }

    #[test]
    fn do_not_and_measure_again_are_answers_too() {
        let answers = told(6, 78.5, 90.0, false);
        assert_eq!((answers.len(), answers[1].command.as_str()), (2, ""), "{answers:?}");
        assert!(answers[1].text.starts_with("Do not give it less memory"), "{answers:?}");
        for (rounds, disturbed) in [(1, false), (6, true)] {
            let answers = told(rounds, 1.2, 1.4, disturbed);
            assert!(answers[2].text.starts_with("Measure again"), "{answers:?}");
            assert_eq!(answers[2].command, "terapage lab program -- ./mine");
        }
    }
}
