//! The papers' findings as predicates over results: data in `findings.toml`, texts in `languages`.
//! Nothing is claimed that was not measured.

use crate::experiment::{Cell, Only, SHIPPED, Value, is_in};
use crate::result::answers::AnswerForm;
use crate::result::journal::{Group, Record};
use crate::result::language::Texts;
use crate::result::number::number;
use crate::result::pairs::{PAIRS_LEAST, Ratio, unpaired};
use crate::result::remarks::not_ended;
use crate::result::solve::{Solved, SolvedCell, SolvedFigure, is_disturbed, of_cell, times};
use crate::result::target::Undecided;
use serde::Deserialize;
use std::sync::OnceLock;
use terapage_report::{Finding, Language, Verdict};

/// If there are more places than this, only the smallest and the largest value are listed.
const LISTED: usize = 4;

/// All of `findings.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct All {
    finding: Vec<Form>,
    /// The answers of the first page.
    pub answer: Vec<AnswerForm>,
}

/// A finding: a measure and its bounds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    /// Names its texts.
    id: String,
    /// The paper.
    paper: String,
    /// Its figure, table or section in the paper.
    figure: String,
    /// Whether it can no longer be measured.
    #[serde(default)]
    gone: bool,
    /// The experiment of both sides.
    #[serde(default)]
    experiment: String,
    /// The pass of both sides.
    #[serde(default)]
    pass: String,
    /// The cells of both sides; the bounds apply to each cell.
    #[serde(default)]
    at: Only,
    /// Whose figure.
    of: Option<Whose>,
    /// Against whose.
    to: Option<Whose>,
    /// The measure that is computed from them.
    #[serde(default)]
    measure: Measure,
    /// The smallest value with which the finding holds.
    least: Option<f64>,
    /// The greatest.
    most: Option<f64>,
    /// Headings of plots that show it, in the experiments' words.
    #[serde(default)]
    plots: Vec<String>,
}

/// One side of a comparison; fields that it leaves open come from `at`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Whose {
    experiment: String,
    contender: String,
    pass: String,
    at: Only,
}

/// The number that is compared with bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Measure {
    /// One side's time as a multiple of the other's.
    #[default]
    Cost,
    /// Its time as a multiple of the baseline's; with two sides, one multiple divided by the other.
    Times,
    /// The largest figure over the smallest, of all cells.
    LargestOverSmallest,
}

/// The findings, and the answers of the first page.
pub fn all() -> &'static All {
    static ALL: OnceLock<All> = OnceLock::new();
    ALL.get_or_init(|| {
        toml::from_str(include_str!("../../findings.toml"))
            .expect("the findings are right: a test reads them")
    })
}

/// A group of runs, the results computed from it, and the headings of its plots in the experiment's
/// words, in the order in which they are drawn.
pub struct Part<'a> {
    /// The runs.
    pub group: &'a Group,
    /// The results computed from the runs.
    pub solved: &'a Solved,
    /// Headings of the plots that are drawn.
    pub plots: Vec<String>,
}

/// A value and where it was found.
struct Found {
    /// The keys that distinguish it from the other values.
    place: Cell,
    /// All keys of its cell.
    cell: Cell,
    ratio: Ratio,
}

/// The figures of one side in one cell.
struct Place<'a> {
    part: &'a Part<'a>,
    cell: &'a SolvedCell,
    contender: String,
    pass: String,
}

impl Place<'_> {
    fn figure(&self) -> Option<&SolvedFigure> {
        self.cell.figures.iter().find(|figure| figure.contender == self.contender && figure.pass == self.pass)
    }

    fn runs(&self) -> Vec<&Record> {
        of_cell(&self.part.group.runs, &self.cell.cell)
    }

    /// The cost of its work in each run.
    fn costs(&self) -> Vec<f64> {
        let unit = self.part.solved.unit;
        let own = self.runs().into_iter().filter(|record| record.run.contender == self.contender);
        own.filter_map(|record| record.run.passes.iter().find(|pass| pass.pass == self.pass))
            .map(|pass| unit.cost(pass))
            .collect()
    }

    /// Its time as a multiple of another's: within pairs, if both ran in the same rounds.
    fn over(&self, other: &Place<'_>) -> Option<Ratio> {
        let same = std::ptr::eq(self.part, other.part) && std::ptr::eq(self.cell, other.cell);
        match same && self.pass == other.pass {
            true => times(&self.runs(), self.part.solved.unit, &self.contender, &other.contender, &self.pass),
            false => {
                let disturbed = self.is_disturbed() || other.is_disturbed();
                Some(Ratio { disturbed, ..unpaired(&self.costs(), &other.costs())? })
            }
        }
    }

    fn times(&self) -> Option<Ratio> {
        self.figure()?.times
    }

    fn is_disturbed(&self) -> bool {
        is_disturbed(&self.runs(), &self.contender)
    }
}

impl Form {
    fn side(&self, whose: &Whose) -> Whose {
        let or = |own: &String, both: &String| if own.is_empty() { both.clone() } else { own.clone() };
        let mut at = self.at.clone();
        at.extend(whose.at.clone());
        Whose {
            experiment: or(&whose.experiment, &self.experiment),
            contender: whose.contender.clone(),
            pass: or(&whose.pass, &self.pass),
            at,
        }
    }

    /// The names of its experiments.
    fn experiments(&self) -> Vec<String> {
        let sides = [&self.of, &self.to].into_iter().flatten().map(|whose| self.side(whose).experiment);
        sides.filter(|name| !name.is_empty()).collect()
    }

    /// The command that measures it.
    fn command(&self) -> String {
        let names = self.experiments();
        let name = names.first().map_or("all", String::as_str);
        let sides = [&self.of, &self.to].into_iter().flatten();
        let far = sides.map(|whose| &whose.contender).any(|contender| contender.starts_with("far"));
        let shipped = name == "all" || SHIPPED.iter().any(|(known, _)| *known == name);
        let command = if shipped { "lab" } else { "paper" };
        format!("terapage {command} run {name}{}", if far { " --far" } else { "" })
    }

    /// Whether the report has only a first impression of one of its experiments.
    fn was_quick(&self, parts: &[Part<'_>]) -> bool {
        let names = self.experiments();
        parts
            .iter()
            .map(|part| &part.group.head)
            .any(|head| head.experiment.quick.applied && names.contains(&head.name))
    }

    /// A run that did not end well, without which there is nothing to compare.
    fn not_ended(&self, parts: &[Part<'_>], texts: &Texts) -> Option<String> {
        let sides = [&self.of, &self.to].into_iter().flatten().map(|whose| self.side(whose));
        let mut all = sides.flat_map(|side| parts.iter().map(move |part| (side.clone(), part)));
        all.find_map(|(side, Part { group, .. })| {
            let is_own = group.head.name == side.experiment;
            is_own.then(|| not_ended(&group.runs, &side.contender, &side.at, texts))?
        })
    }

    /// The values, with their places.
    fn found(&self, parts: &[Part<'_>]) -> Vec<Found> {
        let Some(of) = &self.of else { return Vec::new() };
        let of = self.side(of);
        let ours = places(parts, &of);
        let value = |ratio: Option<Ratio>, place: &Place<'_>| {
            let cell = place.cell.cell.clone();
            Some(Found { place: self.open(&cell), cell, ratio: ratio? })
        };
        if self.measure == Measure::LargestOverSmallest {
            let medians: Vec<f64> =
                ours.iter().filter_map(|place| Some(place.figure()?.spread.median)).collect();
            let (least, most) = medians.iter().fold((f64::MAX, 0f64), |(a, b), of| (a.min(*of), b.max(*of)));
            let runs = ours.iter().filter_map(|place| Some(place.figure()?.runs)).min().unwrap_or(0);
            let (center, disturbed) = (most / least, ours.iter().any(Place::is_disturbed));
            let ratio = Ratio { center, low: center, high: center, pairs: runs, disturbed };
            return match medians.len() {
                0 | 1 => Vec::new(),
                _ => vec![Found { place: Cell::new(), cell: Cell::new(), ratio }],
            };
        }
        let Some(to) = self.to.as_ref().map(|to| self.side(to)) else {
            return ours.iter().filter_map(|place| value(place.times(), place)).collect();
        };
        let theirs = places(parts, &to);
        ours.iter()
            .filter_map(|place| {
                let other = theirs.iter().find(|other| self.belongs(place, other, (&of, &to)))?;
                let ratio = match self.measure {
                    Measure::Times => divided(place.times()?, other.times()?),
                    _ => place.over(other),
                };
                value(ratio, place)
            })
            .collect()
    }

    /// Whether two cells differ only in keys that the sides set themselves.
    fn belongs(&self, one: &Place<'_>, other: &Place<'_>, (of, to): (&Whose, &Whose)) -> bool {
        let free = |key: &String| {
            let own = |whose: &Whose| whose.at.get(key) != self.at.get(key);
            own(of) || own(to)
        };
        let shared = |key: &&String| other.cell.cell.contains_key(*key) && !free(key);
        one.cell.cell.keys().filter(shared).all(|key| one.cell.cell[key] == other.cell.cell[key])
    }

    /// The remaining keys of a cell: those that have several values here.
    fn open(&self, cell: &Cell) -> Cell {
        let fixed = |key: &String| {
            let of = self.of.as_ref().map(|of| self.side(of).at).unwrap_or_default();
            of.get(key).is_some_and(|values| values.len() == 1)
        };
        cell.iter().filter(|(key, _)| !fixed(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    fn holds(&self, value: f64) -> bool {
        self.least.is_none_or(|least| value >= least) && self.most.is_none_or(|most| value <= most)
    }

    /// The greatest noise floor of its experiments.
    fn floor(&self, parts: &[Part<'_>]) -> f64 {
        let names = self.experiments();
        let own = parts.iter().filter(|part| names.contains(&part.group.head.name));
        own.map(|part| part.solved.floor()).fold(1.0, f64::max)
    }

    /// Whether the finding holds; `Err` if the values cannot decide. Values are uncertain by the
    /// noise floor, so a bound that is nearer than the noise floor decides nothing.
    fn judged(&self, found: &[Found], floor: f64) -> Result<bool, Undecided> {
        if found.iter().any(|found| found.ratio.disturbed) {
            return Err(Undecided::Disturbed);
        }
        let ends = |found: &Found| (found.ratio.center / floor, found.ratio.center * floor);
        let inside = |(low, high): (f64, f64)| self.holds(low) && self.holds(high);
        let outside = |(low, high): (f64, f64)| {
            self.least.is_some_and(|least| high < least) || self.most.is_some_and(|most| low > most)
        };
        match found {
            all if all.iter().any(|found| outside(ends(found))) => Ok(false),
            all if all.iter().all(|found| inside(ends(found))) => Ok(true),
            _ => Err(Undecided::Noise),
        }
    }

    fn finding(&self, parts: &[Part<'_>], texts: &Texts) -> Finding {
        let none = Default::default();
        let text = texts.finding(&self.id).unwrap_or(&none);
        let (found, floor) = (self.found(parts), self.floor(parts));
        let mut here = Vec::new();
        let verdict = match found.as_slice() {
            _ if self.gone => Verdict::NoLonger,
            [] => Verdict::NotMeasured,
            all => match self.judged(all, floor) {
                Ok(true) => Verdict::Holds,
                Ok(false) => Verdict::Differs,
                Err(why) => {
                    here.push(match why {
                        Undecided::Disturbed => texts.say("not-decided-disturbed", &[]),
                        Undecided::Noise => texts.say("not-decided-noise", &[("floor", &number(floor))]),
                    });
                    Verdict::NotDecided
                }
            },
        };
        match verdict {
            Verdict::NoLonger => here.push(texts.say("because", &[("why", &text.why)])),
            Verdict::NotMeasured if text.why.is_empty() => {
                let command = self.command();
                let values = [("command", command.as_str())];
                // Without --far, a full report does not include it.
                let by = || match self.was_quick(parts) && !command.ends_with("--far") {
                    true => texts.say("measured-in-full", &values),
                    false => texts.say("measured-by", &values),
                };
                here.push(self.not_ended(parts, texts).unwrap_or_else(by));
            }
            Verdict::NotMeasured => here.push(text.why.clone()),
            Verdict::Holds | Verdict::Differs | Verdict::NotDecided => {}
        }
        if !found.is_empty() {
            here.push(self.values(&found, &text.value, texts));
            here.extend(self.asked(texts).filter(|_| !self.gone));
            here.extend(self.doubt(&found, texts));
        }
        Finding {
            printed: format!("{} {}", self.paper, texts.text(&self.figure)),
            claim: text.claim.clone(),
            verdict,
            here: here.join(" "),
            figures: if found.is_empty() { Vec::new() } else { self.figures(parts) },
        }
    }

    /// The values in words.
    fn values(&self, found: &[Found], what: &str, texts: &Texts) -> String {
        let one = |found: &Found| {
            // A single value is reported with all keys of its cell: a figure may show other cells.
            let place = if found.place.is_empty() { &found.cell } else { &found.place };
            let (value, place) = (texts.interval(&found.ratio), texts.cell(place));
            match place.is_empty() {
                true => value,
                false => texts.say("value-at", &[("value", &value), ("place", &place)]),
            }
        };
        let values = if found.len() <= LISTED {
            texts.list(&found.iter().map(one).collect::<Vec<_>>())
        } else {
            let by = |a: &&Found, b: &&Found| a.ratio.center.total_cmp(&b.ratio.center);
            let ends = [found.iter().min_by(by), found.iter().max_by(by)];
            let [least, most] = ends.map(|end| end.map(one).unwrap_or_default());
            texts.say("from-to", &[("least", &least), ("most", &most)])
        };
        let what = match texts.language() {
            Language::En => capitalised(what),
            Language::Ja => what.to_owned(),
        };
        texts.say("value-is", &[("what", &what), ("values", &values)])
    }

    /// The condition under which it holds.
    fn asked(&self, texts: &Texts) -> Option<String> {
        let (least, most) = (self.least.map(number), self.most.map(number));
        Some(match (&least, &most) {
            (Some(least), Some(most)) => texts.say("asked-between", &[("least", least), ("most", most)]),
            (Some(least), None) => texts.say("asked-least", &[("least", least)]),
            (None, Some(most)) => texts.say("asked-most", &[("most", most)]),
            (None, None) => return None,
        })
    }

    /// Why it may be uncertain.
    fn doubt(&self, found: &[Found], texts: &Texts) -> Option<String> {
        if found.iter().any(|found| found.ratio.pairs < PAIRS_LEAST) {
            return Some(texts.say("few-rounds", &[]));
        }
        let crosses = |ratio: &Ratio| self.holds(ratio.low) != self.holds(ratio.high);
        found.iter().any(|found| crosses(&found.ratio)).then(|| texts.say("not-certain", &[]))
    }

    /// The positions of its plots among those of all parts.
    fn figures(&self, parts: &[Part<'_>]) -> Vec<usize> {
        let names = self.experiments();
        let mut before = 0;
        let mut all = Vec::new();
        for part in parts {
            if names.contains(&part.group.head.name) {
                let own = part.plots.iter().enumerate().filter(|(_, title)| self.plots.contains(title));
                all.extend(own.map(|(at, _)| before + at));
            }
            before += part.plots.len();
        }
        all
    }
}

/// The text with a capital first letter.
fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// One ratio divided by another, whose runs were not pairs.
fn divided(one: Ratio, other: Ratio) -> Option<Ratio> {
    let ratio = Ratio {
        center: one.center / other.center,
        low: one.low / other.high,
        high: one.high / other.low,
        pairs: one.pairs.min(other.pairs),
        disturbed: one.disturbed || other.disturbed,
    };
    ratio.center.is_finite().then_some(ratio)
}

/// The cells of a side. If an experiment has several groups, the first one with any cells counts.
fn places<'a>(parts: &'a [Part<'a>], whose: &Whose) -> Vec<Place<'a>> {
    let of_part = |part: &'a Part<'a>| -> Vec<Place<'a>> {
        let cells = part.solved.cells.iter().filter(|cell| {
            // Keys that the experiment does not vary cannot be selected.
            let known: Only =
                whose.at.iter().filter(|(key, _)| cell.cell.contains_key(*key)).map(owned).collect();
            is_in(&known, &cell.cell)
        });
        let place = |cell: &'a SolvedCell| {
            let (contender, pass) = (whose.contender.clone(), whose.pass.clone());
            Some(Place { part, cell, contender, pass }).filter(|place| place.figure().is_some())
        };
        cells.filter_map(place).collect()
    };
    let of_experiment = parts.iter().filter(|part| part.group.head.name == whose.experiment);
    of_experiment.map(of_part).find(|places| !places.is_empty()).unwrap_or_default()
}

fn owned((key, values): (&String, &Vec<Value>)) -> (String, Vec<Value>) {
    (key.clone(), values.clone())
}

/// The papers' findings: all of them for a report on several experiments, otherwise those of the
/// one experiment.
pub fn findings(parts: &[Part<'_>], texts: &Texts) -> Vec<Finding> {
    let about = |form: &&Form| {
        let names = form.experiments();
        let own = |part: &Part<'_>| names.contains(&part.group.head.name);
        parts.len() > 1 || parts.iter().any(own)
    };
    let mut all: Vec<Finding> =
        all().finding.iter().filter(about).map(|form| form.finding(parts, texts)).collect();
    // Measured findings come first, in the papers' order.
    all.sort_by_key(|finding| finding.verdict == Verdict::NotMeasured);
    all
}

/// A finding by its id.
pub fn one(id: &str, parts: &[Part<'_>], texts: &Texts) -> Option<Finding> {
    Some(all().finding.iter().find(|form| form.id == id)?.finding(parts, texts))
}

#[cfg(test)]
pub mod tests {
    use super::{Measure, Part, all, findings};
    use crate::experiment::tests::every;
    use crate::experiment::{Cell, Experiment, Published, is_in};
    use crate::ground::system::Machine;
    use crate::result::journal::tests::record;
    use crate::result::journal::{Group, Head};
    use crate::result::language::Texts;
    use crate::result::solve::{Solved, solve};
    use std::path::Path;
    use terapage_report::{Finding, Language, Verdict};

    #[test]
    fn what_findings_name_is_there() {
        for language in [Language::En, Language::Ja] {
            let texts = Texts::of(language);
            for form in &all().finding {
                let text = texts.finding(&form.id).unwrap_or_else(|| panic!("{} has no text", form.id));
                let silent = form.gone || form.of.is_none();
                assert_eq!(
                    silent,
                    !text.why.is_empty(),
                    "{}: a reason is only for a value that is \
                                                          not computed",
                    form.id
                );
                assert_eq!(form.of.is_some(), !text.value.is_empty(), "{}: what its value is", form.id);
                assert!(form.gone || form.of.is_none() || form.least.or(form.most).is_some(), "{}", form.id);
            }
            assert!(all().answer.iter().all(|form| !texts.answer(&form.id).is_empty()));
        }
        let known = every();
        for form in &all().finding {
            for side in [&form.of, &form.to].into_iter().flatten() {
                let side = form.side(side);
                let own = known.iter().find(|(name, _)| *name == side.experiment);
                let (_, experiment) = own.unwrap_or_else(|| panic!("{}: {}", form.id, side.experiment));
                let names = experiment.all_contenders().expect("contenders");
                assert!(names.iter().any(|known| known.name == side.contender), "{}", form.id);
                for (key, values) in &side.at {
                    let known = |value: &&crate::experiment::Value| {
                        let of = |experiment: &Experiment| experiment.matrix[key].contains(value);
                        of(experiment) || of(&experiment.clone().quick())
                    };
                    assert!(experiment.matrix.contains_key(key), "{}: {key}", form.id);
                    assert!(values.iter().all(|value| known(&value)), "{}: {values:?}", form.id);
                }
            }
            let titles = |name: &String| -> Vec<String> {
                let own = known.iter().filter(|(known, _)| known == name);
                own.flat_map(|(_, experiment)| experiment.plot.clone()).map(|plot| plot.title).collect()
            };
            let titles: Vec<String> = form.experiments().iter().flat_map(titles).collect();
            let is_known = |title| titles.is_empty() || titles.contains(title);
            assert!(form.plots.iter().all(is_known), "{}: {:?}", form.id, form.plots);
        }
    }

    /// A finding that is held against the baseline is judged where its printed values are drawn.
    #[test]
    fn findings_are_judged_where_their_printed_values_are() {
        let mut judged = 0;
        let alone = |form: &&super::Form| form.measure == Measure::Times && form.to.is_none();
        for form in all().finding.iter().filter(alone) {
            let side = form.side(form.of.as_ref().expect("a side"));
            let (_, experiment) = Experiment::find(&side.experiment).expect("it is shipped");
            let own = |printed: &&Published| {
                let whose = printed.contender == side.contender && printed.pass == side.pass;
                whose && printed.relative && printed.figure.starts_with(&form.paper)
            };
            let printed: Vec<Cell> = experiment
                .published
                .iter()
                .filter(own)
                .map(|printed| {
                    printed.at.iter().map(|(key, value)| (key.clone(), value.to_string())).collect()
                })
                .collect();
            let fits = printed.iter().any(|cell| is_in(&side.at, cell));
            assert!(
                printed.is_empty() || fits,
                "{}: judged at {:?}, printed at {printed:?}",
                form.id,
                side.at
            );
            judged += usize::from(fits);
        }
        assert!(judged >= 3, "{judged} findings have printed values");
    }

    /// A shipped experiment with runs of these times, `rounds` of each.
    pub fn measured(name: &str, rounds: u32, pass: &str, seconds: impl Fn(&Cell, &str) -> f64) -> Group {
        let (_, experiment) = Experiment::find(name).expect("it is shipped");
        let head = Head::new(name, &experiment, Machine::here(Path::new("/")), Vec::new());
        let mut group = Group { head, runs: Vec::new() };
        for cell in experiment.cells() {
            for contender in ["memory", "swap", "mmap", "terapage"] {
                for round in 1..=rounds {
                    let mut run = record(&group.head, &cell, round, contender, seconds(&cell, contender));
                    run.run.passes[0].pass = pass.into();
                    run.run.passes[0].flops = Some(1e9);
                    group.runs.push(run);
                }
            }
        }
        group
    }

    fn found(groups: &[Group], id: &str) -> (Finding, usize) {
        let solved: Vec<Solved> = groups.iter().map(solve).collect();
        let titles =
            |group: &Group| group.head.experiment.plot.iter().map(|plot| plot.title.clone()).collect();
        let parts: Vec<Part> = groups
            .iter()
            .zip(&solved)
            .map(|(group, solved)| Part { group, solved, plots: titles(group) })
            .collect();
        let texts = Texts::of(Language::En);
        let at = all().finding.iter().position(|form| form.id == id).expect("a finding");
        (all().finding[at].finding(&parts, texts), findings(&parts, texts).len())
    }

    #[test]
    fn a_finding_holds_differs_or_was_not_measured() {
        let stream = |swap: f64, rounds: u32| {
            measured("stream", rounds, "time", move |cell, contender| match contender {
                "swap" if cell["ratio"] == "1/4" => swap,
                "swap" => 40.0,
                "mmap" => 9.0,
                _ => 1.0,
            })
        };
        let (finding, count) = found(&[stream(80.0, 6)], "midorikawa-mmap-beats-swap");
        assert_eq!(finding.verdict, Verdict::Holds, "{}", finding.here);
        assert!(finding.here.contains("8.89") && finding.here.contains("1/4"), "{}", finding.here);
        assert!(!finding.here.contains("few rounds") && !finding.figures.is_empty());
        // A report on one experiment has only its own findings.
        assert!(count < 6);
        let (finding, _) = found(&[stream(4.0, 6)], "midorikawa-mmap-beats-swap");
        assert_eq!(finding.verdict, Verdict::Differs, "{}", finding.here);
        let (finding, _) = found(&[stream(80.0, 2)], "midorikawa-mmap-beats-swap");
        assert!(finding.here.contains("Fewer than"), "{}", finding.here);
        let (finding, _) = found(&[stream(80.0, 2)], "teramem-sort");
        assert_eq!(finding.verdict, Verdict::NotMeasured);
        assert!(finding.here.contains("terapage lab run sort") && finding.figures.is_empty());
        let (finding, _) = found(&[stream(80.0, 2)], "teramem-faster-than-disk");
        assert!(finding.here.contains("terapage lab run scan --far measures it"), "{}", finding.here);
        // Repeating a first impression without it does not measure it.
        let (finding, _) = found(&[], "martin-raid");
        assert!(finding.here.ends_with("terapage paper run bonnie measures it."), "{}", finding.here);
        let mut quick = measured("poisson", 1, "flush", |_, _| 1.0);
        let (finding, _) = found(std::slice::from_ref(&quick), "midorikawa-himeno-worse");
        assert!(finding.here.ends_with("poisson measures it."), "{}", finding.here);
        quick.head.experiment.quick.applied = true;
        let (finding, _) = found(&[quick], "midorikawa-himeno-worse");
        assert!(finding.here.contains("poisson measures it in full"), "{}", finding.here);
        let (finding, _) = found(&[], "sato-twice");
        assert_eq!(finding.verdict, Verdict::NoLonger);
        assert!(finding.here.contains("5.0"), "{}", finding.here);
    }

    #[test]
    fn a_finding_within_the_noise_or_of_disturbed_runs_is_not_decided() {
        let stream = |again: f64, disturbed: bool| {
            let mut group = measured("stream", 6, "time", |_, contender| match contender {
                "swap" => 4.86,
                _ => 1.0,
            });
            let cell = group.head.experiment.cells().remove(0);
            for round in 1..=6 {
                let mut run = record(&group.head, &cell, round, "memory again", again);
                run.run.passes[0].pass = "time".into();
                group.runs.push(run);
            }
            if disturbed {
                group.runs.iter_mut().for_each(|run| run.watched.marks.push("load of 9".into()));
            }
            found(&[group], "midorikawa-mmap-beats-swap").0
        };
        let finding = stream(8.64, false);
        assert_eq!(finding.verdict, Verdict::NotDecided, "{}", finding.here);
        assert!(finding.here.contains("8.64"), "the floor is named: {}", finding.here);
        // A baseline that is faster the second time is as noisy.
        assert_eq!(stream(1.0 / 8.64, false).verdict, Verdict::NotDecided);
        assert_eq!(stream(1.1, false).verdict, Verdict::Holds);
        let finding = stream(1.1, true);
        assert_eq!(finding.verdict, Verdict::NotDecided, "{}", finding.here);
        assert!(finding.here.starts_with("Not decided: disturbed"), "{}", finding.here);
    }

    #[test]
    fn a_finding_does_not_stand_on_an_impossible_value() {
        // A run with half the memory is faster than a run with all of it: nothing is divided by
        // such a value.
        let stencil =
            measured("stencil", 6, "stencil", |cell, contender| match (contender, cell["mask"].as_str()) {
                ("swap", "3") => 12.6,
                ("swap", _) => 0.67,
                _ => 1.0,
            });
        let (finding, _) = found(&[stencil], "midorikawa-compute-decides");
        assert_eq!(finding.verdict, Verdict::NotMeasured, "{}", finding.here);
    }

    #[test]
    fn sides_may_be_of_other_cells_and_other_experiments() {
        let stencil =
            measured("stencil", 6, "stencil", |cell, contender| match (contender, cell["mask"].as_str()) {
                ("swap", "3") => 30.0,
                ("swap", _) => 3.0,
                _ => 1.0,
            });
        let (finding, _) = found(std::slice::from_ref(&stencil), "midorikawa-compute-decides");
        assert_eq!(finding.verdict, Verdict::Holds, "{}", finding.here);
        assert!(finding.here.contains("10.0"), "{}", finding.here);
        let poisson = measured("poisson", 6, "poisson", |_, contender| match contender {
            "swap" => 15.0,
            _ => 1.0,
        });
        let groups = [poisson, stencil];
        let (finding, count) = found(&groups, "midorikawa-himeno-worse");
        assert_eq!(finding.verdict, Verdict::Differs, "{}", finding.here);
        assert!(finding.here.contains("0.50"), "{}", finding.here);
        assert_eq!(count, all().finding.len());
        // Its plot is the first one of the first part.
        assert_eq!(finding.figures, [0]);
    }
}
