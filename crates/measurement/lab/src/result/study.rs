//! Results as a study: answers in plain words, findings, plots, tables; drawn by
//! `terapage_report`.

use crate::experiment::{Experiment, PlotForm};
use crate::ground::runner::End;
use crate::ground::steady::Steady;
use crate::result::answers::{answers, doubts, noise, overview, short_passes, told_times};
use crate::result::checks::cross_checks;
use crate::result::findings::{Part, findings};
use crate::result::journal::Group;
use crate::result::language::Texts;
use crate::result::number::number;
use crate::result::pairs::PAIRS_LEAST;
use crate::result::plots::plot;
use crate::result::solve::{Solved, SolvedCell};
use crate::result::tables::{figures, published, targets};
use crate::result::{remarks, steady, verdict};
use terapage_config::Size;
use terapage_report::{Answer, Origin, Parameter, Study};

/// The name for the cost of a flush among the machine's properties.
const FLUSH: &str = "4 KiB write and fdatasync";

/// A group's study, and the headings of its plots in the experiment's words.
struct Drawn {
    study: Study,
    titles: Vec<String>,
}

/// The study of groups of runs and the results computed from them; `title` is the title for
/// several.
pub fn study(title: &str, groups: &[Group], solved: &[Solved], texts: &Texts) -> Study {
    let mut drawn: Vec<Drawn> =
        groups.iter().zip(solved).map(|(group, solved)| of_group(group, solved, texts)).collect();
    // One warning for a device is enough.
    let mut told: Vec<&Steady> = Vec::new();
    for (group, drawn) in groups.iter().zip(&mut drawn) {
        if let Some(one) = group.head.machine.steady.as_ref().filter(|one| !told.contains(one)) {
            drawn.study.plots.push(steady::plot(one, texts));
            told.push(one);
        }
    }
    let parts: Vec<Part> = groups
        .iter()
        .zip(solved)
        .zip(&drawn)
        .map(|((group, solved), drawn)| Part { group, solved, plots: drawn.titles.clone() })
        .collect();
    let overview = overview(&parts, texts);
    let mut first: Vec<Answer> = noise(&parts, texts).into_iter().collect();
    first.extend(answers(&parts, texts));
    first.extend(parts.iter().flat_map(|part| verdict::of_program(part.group, part.solved, texts)));
    let findings = findings(&parts, texts);
    first.extend(doubts(&parts, texts));
    let mut study = match drawn.len() {
        1 => drawn.remove(0).study,
        _ => together(title, drawn),
    };
    if groups.len() > 1 && !first.is_empty() {
        first.push(Answer {
            text: texts.say("your-own", &[]),
            command: "terapage lab program -- PROGRAM ARGUMENTS".into(),
        });
    }
    (study.answers, study.findings, study.language) = (first, findings, texts.language());
    study.overview.extend(overview);
    study
}

/// The study of one group.
fn of_group(group: &Group, solved: &Solved, texts: &Texts) -> Drawn {
    let head = &group.head;
    let experiment = &head.experiment;
    let mut study = Study {
        title: format!("{}: {}", head.name, texts.text(&experiment.title)),
        language: texts.language(),
        summary: summary(group, solved, texts),
        command: head.command.clone(),
        machine: head.machine.pairs().into_iter().chain(head.variables.clone()).collect(),
        parameters: parameters(experiment, texts),
        ..Study::default()
    };
    let mut titles = Vec::new();
    for form in &experiment.plot {
        if let Some(plot) = plot(experiment, solved, form, texts) {
            study.plots.push(plot);
            titles.push(form.title.clone());
        }
    }
    if study.plots.is_empty() {
        let form = usual_plot(experiment);
        study.plots.extend(plot(experiment, solved, &form, texts));
        titles.extend(study.plots.iter().map(|_| form.title.clone()));
    }
    study.tables.extend(figures(solved, texts));
    study.tables.extend(targets(solved, texts));
    study.tables.extend(published(solved, texts));
    Drawn { study: remarks::add(study, group), titles }
}

/// Several studies on one page. The machine, and the command, appear once if they are the same for
/// all.
fn together(title: &str, drawn: Vec<Drawn>) -> Study {
    let mut all = Study { title: title.into(), ..Study::default() };
    all.parts = drawn.into_iter().map(|drawn| drawn.study).collect();
    // The cost of a flush is measured each time, so it stays with its part.
    let fixed = |part: &Study| -> Vec<(String, String)> {
        part.machine.iter().filter(|(name, _)| name != FLUSH).cloned().collect()
    };
    let Some(first) = all.parts.first() else { return all };
    let (machine, command) = (fixed(first), first.command.clone());
    let same_machine = all.parts.iter().all(|part| fixed(part) == machine);
    let same_command = all.parts.iter().all(|part| part.command == command);
    for part in &mut all.parts {
        if same_machine {
            part.machine.retain(|(name, _)| name == FLUSH);
        }
        if same_command {
            part.command.clear();
        }
    }
    if same_machine {
        all.machine = machine;
    }
    if same_command {
        all.command = command;
    }
    all
}

fn usual_plot(experiment: &Experiment) -> PlotForm {
    PlotForm {
        title: experiment.title.clone(),
        x: experiment.matrix.keys().next().cloned().unwrap_or_else(|| "pass".into()),
        only: Default::default(),
        passes: Vec::new(),
        relative: false,
        log: false,
        note: String::new(),
    }
}

fn summary(group: &Group, solved: &Solved, texts: &Texts) -> Vec<String> {
    let experiment = &group.head.experiment;
    let mut all = Vec::new();
    if !experiment.about.is_empty() {
        all.push(texts.text(&experiment.about));
    }
    if experiment.quick.applied {
        all.push(texts.say("first-impression", &[]));
    }
    all.extend(in_words(solved, texts));
    if solved.noise.is_some() {
        let floor = number(solved.floor());
        all.push(texts.say("noise", &[("baseline", &solved.baseline), ("times", &floor)]));
    }
    all.extend(struck(solved, texts));
    all.extend(not_reached(experiment, solved, texts));
    all.push(settled(solved, texts));
    for check in cross_checks(experiment, solved) {
        let values = check.values();
        let values: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
        all.push(texts.say("cross-check", &values));
    }
    all.extend(short_passes(solved, texts));
    if solved.disturbed > 0 {
        let marks: Vec<String> =
            solved.marks.iter().map(|(mark, count)| format!("{} ({count})", texts.text(mark))).collect();
        let (disturbed, runs) = (solved.disturbed.to_string(), solved.runs.to_string());
        let values = [("disturbed", disturbed.as_str()), ("runs", &runs), ("marks", &marks.join(", "))];
        all.push(texts.say("disturbed", &values));
    }
    all.extend(group.head.machine.steady.iter().map(|told| steady::words(told, texts)));
    if group.head.machine.device.is_none() {
        all.push(texts.say("no-device", &[("kind", &group.head.machine.mount.kind)]));
    }
    let mute = mute(group);
    if !mute.is_empty() {
        all.push(texts.say("no-figures", &[("names", &texts.list(&mute))]));
    }
    for (name, why) in &group.head.left_out {
        all.push(texts.say("left-out", &[("name", name), ("why", why)]));
    }
    all
}

/// The impossible values, which are neither drawn nor judged.
fn struck(solved: &Solved, texts: &Texts) -> Option<String> {
    let mut named = Vec::new();
    for cell in &solved.cells {
        let own = cell.figures.iter().filter_map(|figure| Some((figure, figure.struck?)));
        named.extend(own.map(|(figure, times)| {
            let what = [figure.contender.as_str(), &figure.pass, &texts.cell(&cell.cell)];
            let what = what.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
            texts.say("value-at", &[("value", &number(times.center)), ("place", &what)])
        }));
    }
    (!named.is_empty()).then(|| texts.say("struck-values", &[("values", &texts.list(&named))]))
}

/// How many cells were not measured, if the time did not suffice for all.
fn not_reached(experiment: &Experiment, solved: &Solved, texts: &Texts) -> Option<String> {
    let cells = experiment.cells().len();
    let missing = cells.saturating_sub(solved.cells.len());
    let [cells, told] = [cells, missing].map(|count| count.to_string());
    (missing > 0).then(|| texts.say("not-reached", &[("missing", &told), ("cells", &cells)]))
}

/// Contenders that ran well but gave no figures: cross-checks whose program is missing.
fn mute(group: &Group) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let has_none = |name: &String| {
        let own = group.runs.iter().filter(|record| record.run.contender == *name);
        // Contenders that give the reason are listed elsewhere.
        own.clone().all(|record| {
            record.run.end == End::Done && record.run.passes.is_empty() && record.run.notes.is_empty()
        })
    };
    for record in &group.runs {
        if !names.contains(&record.run.contender) {
            names.push(record.run.contender.clone());
        }
    }
    names.retain(has_none);
    names
}

/// Whether all ratios are known well enough, and the ratios that are not.
fn settled(solved: &Solved, texts: &Texts) -> String {
    let open: Vec<String> =
        solved.cells.iter().filter(|cell| !cell.settled).map(|c| texts.cell(&c.cell)).collect();
    if open.is_empty() {
        return texts.say("settled", &[("runs", &solved.runs.to_string())]);
    }
    let named = match open.iter().all(String::is_empty) {
        true => String::new(),
        false if open.len() > 4 => {
            let rest = (open.len() - 4).to_string();
            texts.say("and-more", &[("names", &open[..4].join("; ")), ("count", &rest)])
        }
        false => texts.say("named", &[("names", &open.join("; "))]),
    };
    let [cells, open, pairs] = [solved.cells.len(), open.len(), PAIRS_LEAST].map(|count| count.to_string());
    let values = [("cells", cells.as_str()), ("open", &open), ("pairs", &pairs), ("named", &named)];
    texts.say("not-settled", &values)
}

/// The contenders' times as multiples of the baseline's, in some of the cells, if the baseline is a
/// program with all data in memory.
fn in_words(solved: &Solved, texts: &Texts) -> Vec<String> {
    const MOST: usize = 4;
    if solved.baseline != "memory" {
        return Vec::new();
    }
    let last = |cell: &SolvedCell| {
        cell.figures.iter().rev().find(|figure| figure.times.is_some()).map(|f| f.pass.clone())
    };
    let told = solved.cells.iter().filter_map(|cell| {
        let pass = last(cell)?;
        let parts = told_times(cell, &pass, texts);
        let place = texts.cell(&cell.cell);
        let place = if place.is_empty() { pass.clone() } else { format!("{place}, {pass}") };
        let told = texts.list(&parts);
        let values = [("place", place.as_str()), ("baseline", &solved.baseline), ("parts", &told)];
        (!parts.is_empty()).then(|| texts.say("in-words", &values))
    });
    told.take(MOST).collect()
}

fn parameters(experiment: &Experiment, texts: &Texts) -> Vec<Parameter> {
    let parameter = |name: String, value: String, source: String| Parameter {
        name,
        value,
        origin: Origin::Chosen,
        source,
        ..Parameter::default()
    };
    let run = experiment.program.run.join(" ");
    let mut all = vec![parameter(texts.say("program", &[]), run, String::new())];
    for (name, term) in &experiment.sizes {
        let sizes = experiment.cells().first().and_then(|cell| experiment.sizes_of(cell).ok());
        let bytes = sizes.and_then(|sizes| sizes.get(name).copied()).unwrap_or(0);
        // A plain number is no size: milliseconds, or a count.
        let source = match term.parse::<u64>() {
            Ok(_) => String::new(),
            Err(_) => texts.say("first-cell", &[("size", &Size(bytes).to_string())]),
        };
        all.push(parameter(name.clone(), term.clone(), source));
    }
    for (key, values) in &experiment.matrix {
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        all.push(parameter(texts.text(key), values.join(", "), texts.say("matrix", &[])));
    }
    let (least, most) = (experiment.repetitions.least.to_string(), experiment.repetitions.most.to_string());
    let rounds = match least == most {
        true => most,
        false => texts.say("range-of", &[("least", &least), ("most", &most)]),
    };
    all.push(parameter(texts.say("rounds", &[]), rounds, String::new()));
    all
}

#[cfg(test)]
mod tests {
    use super::study;
    use crate::experiment::Cell;
    use crate::experiment::tests::every;
    use crate::ground::runner::End;
    use crate::result::journal::Group;
    use crate::result::journal::tests::{group, record};
    use crate::result::language::Texts;
    use crate::result::plots::{far_apart, printed_points};
    use crate::result::solve::solve;
    use terapage_report::{
        Ends, Language, Mark, Series, Study, X, render_html, render_markdown, render_text,
    };

    const TEXT: &str = r#"
title = "A test"
about = "What is asked."
unit = "s"
contenders = ["memory", "swap", "terapage"]
[program]
run = ["true"]
verbatim = true
[sizes]
memory = "data * ratio"
data = "1G"
[matrix]
ratio = ["1/2", "1/4"]
[[plot]]
title = "By ratio"
x = "ratio"
relative = true
[[target]]
of = "terapage"
pass = "time"
to = "swap"
side = "within"
value = 0.05
[[published]]
figure = "Fig 5"
what = "swap at half"
contender = "swap"
at = { ratio = "1/2" }
value = 52
relative = true
note = "faster SSDs"
[[published]]
figure = "Fig 5"
what = "swap at half, another disk"
contender = "swap"
at = { ratio = "1/2" }
value = 96
relative = true
"#;

    fn whole(rounds: u32) -> Group {
        let mut group = group(TEXT);
        for cell in group.head.experiment.cells() {
            for round in 1..=rounds {
                for (contender, seconds) in [("memory", 1.0), ("swap", 8.0), ("terapage", 1.3)] {
                    let slow = 1.0 + 0.01 * f64::from(round % 3);
                    let seconds = if contender == "memory" { seconds } else { seconds * slow };
                    group.runs.push(record(&group.head, &cell, round, contender, seconds));
                }
            }
        }
        group
    }

    fn drawn(group: &Group, language: Language) -> Study {
        let solved = [solve(group)];
        study("", std::slice::from_ref(group), &solved, Texts::of(language))
    }

    #[test]
    fn the_first_page_answers_in_plain_words() {
        let study = drawn(&whole(6), Language::En);
        let answer = &study.answers[0];
        assert!(answer.text.starts_with("With half of the memory that it wants (512 MiB), true takes"));
        assert!(answer.text.contains("1.31 (1.31 to 1.32) times as long by Terapage"), "{}", answer.text);
        assert!(answer.command.is_empty(), "half is not the least memory that will do");
        assert_eq!(study.answers[1].command, "terapage run --memory 256M -- true");
        let text = render_text(&study, 80);
        let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in ["Settled", "missed", "Cross-check: terapage time / swap time: 0 of 2", "52.0 times"] {
            assert!(plain.contains(part), "{part} is not in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(
            study.tables.iter().any(|table| table.title.contains("Published") && table.rows[0][3] == "8.08")
        );
        assert!(render_html(&study).contains("By ratio") && render_markdown(&study).contains("By ratio"));
    }

    #[test]
    fn cells_that_were_not_reached_are_said() {
        let said = |group: &Group| drawn(group, Language::En).summary.join(" ").contains("1 of 2 cells");
        let mut group = whole(6);
        assert!(!said(&group));
        group.runs.retain(|record| record.cell["ratio"] == "1/2");
        assert!(said(&group));
    }

    #[test]
    fn figures_have_whiskers_and_ghosts_that_can_be_told_apart() {
        let study = drawn(&whole(6), Language::En);
        let series = &study.plots[0].series;
        let swap = series.iter().find(|series| series.name == "swap").expect("swap was measured");
        let whisker = swap.whiskers[0].expect("a spread");
        assert!(whisker.ends == Ends::Interval && whisker.low < whisker.high, "{whisker:?}");
        let ghosts: Vec<&Series> = series.iter().filter(|series| series.mark == Mark::Published).collect();
        assert_eq!(ghosts.len(), 2, "{ghosts:?}");
        assert!(
            ghosts[1].name.contains("another disk") && ghosts[1].points == [(X::Name("1/2".into()), 96.0)]
        );
        assert!(study.plots[0].y.log, "from 1.3 to 96");
        let few = drawn(&whole(3), Language::En);
        assert_eq!(few.plots[0].series[0].whiskers[0].map(|whisker| whisker.ends), Some(Ends::Range));
        assert!(!far_apart(&[Series {
            points: vec![(X::Number(1.0), 0.0), (X::Number(2.0), 9.0)],
            ..Series::default()
        }]));
    }

    #[test]
    fn contenders_have_their_place_and_their_end_in_every_figure() {
        let mut group = whole(6);
        // Swap ran first, and ends well only with half of the memory.
        group.runs.sort_by_key(|record| record.run.contender != "swap");
        for record in group.runs.iter_mut().filter(|record| record.run.contender == "swap") {
            if record.cell["ratio"] == "1/4" {
                record.run.end = End::Killed;
                record.run.passes.clear();
            }
        }
        let study = drawn(&group, Language::En);
        let series = &study.plots[0].series;
        let names: Vec<&str> = series.iter().map(|series| series.owner.as_str()).collect();
        assert_eq!(names, ["swap", "swap", "swap", "terapage"], "with what is published of each");
        assert_eq!(series[0].gaps, [(X::Name("1/4".into()), "killed".to_owned())]);
        assert!(render_text(&study, 80).contains("swap at 1/4: killed"));
    }

    #[test]
    fn every_printed_value_has_a_figure() {
        let texts = Texts::of(Language::En);
        for (name, experiment) in every() {
            let forms = experiment.plot.iter();
            let drawn: Vec<f64> = forms
                .flat_map(|form| printed_points(&experiment, form, true, texts))
                .map(|printed| printed.value)
                .collect();
            let missing: Vec<&str> = experiment
                .published
                .iter()
                .filter(|printed| printed.is_drawn() && !drawn.contains(&printed.value))
                .map(|printed| printed.what.as_str())
                .collect();
            assert!(missing.is_empty(), "{name}: no figure shows {missing:?}");
        }
    }

    #[test]
    fn several_studies_are_parts_of_one_in_japanese_too() {
        let groups = [whole(6), whole(6)];
        let solved: Vec<_> = groups.iter().map(solve).collect();
        let all = study("All", &groups, &solved, Texts::of(Language::Ja));
        assert_eq!((all.parts.len(), all.all_plots().len()), (2, 2));
        assert!(!all.machine.is_empty() && all.parts.iter().all(|part| part.machine.is_empty()));
        assert!(all.findings.len() > 30 && all.answers.len() == 6);
        let text = render_text(&all, 80);
        for part in ["スワップ", "倍", "論文の知見", "terapage run --memory 256M -- true"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(render_html(&all).contains("<html lang=\"ja\">"));
    }

    #[test]
    fn what_is_open_disturbed_or_left_out_is_said() {
        let mut group = group(TEXT);
        let cell: Cell = group.head.experiment.cells().remove(0);
        let mut disturbed = record(&group.head, &cell, 1, "memory", 1.0);
        disturbed.watched.marks = vec!["steal 9 %".into()];
        group.runs.extend([disturbed, record(&group.head, &cell, 1, "terapage", 2.0)]);
        group.head.left_out.push(("swap".into(), "no root".into()));
        let summary = drawn(&group, Language::En).summary.join("\n");
        let mut failed = group.clone();
        for record in &mut failed.runs {
            record.run.end = End::Failed("no space".into());
            record.run.passes.clear();
        }
        let text = render_text(&drawn(&failed, Language::En), 80);
        assert!(text.contains("failed: no space"), "nobody has figures, so nobody says why: {text}");
        for part in ["Not settled", "Disturbed: 1 of 2 runs", "steal (1)", "Left out: swap: no root."] {
            assert!(summary.contains(part), "{part}: {summary}");
        }
    }
}
