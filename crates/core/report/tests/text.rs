//! Text for the terminal: golden examples, and no line that is too wide.

use proptest::prelude::*;
use std::path::Path;
use terapage_report::{
    Answer, Axis, Ends, Finding, Language, Mark, Origin, Parameter, Plot, PlotKind, Series, Study, Table,
    TextOptions, Verdict, Whisker, X, render_text, render_text_with,
};
use unicode_width::UnicodeWidthChar;

fn axis(name: &str, unit: &str, log: bool) -> Axis {
    Axis { name: name.into(), unit: unit.into(), log }
}

fn numbers(name: &str, mark: Mark, points: &[(f64, f64)]) -> Series {
    Series {
        name: name.into(),
        mark,
        points: points.iter().map(|(x, y)| (X::Number(*x), *y)).collect(),
        ..Series::default()
    }
}

fn names(name: &str, mark: Mark, points: &[(&str, f64)]) -> Series {
    Series {
        name: name.into(),
        mark,
        points: points.iter().map(|(x, y)| (X::Name((*x).into()), *y)).collect(),
        ..Series::default()
    }
}

fn line() -> Plot {
    let points = [(4096.0, 40e6), (65536.0, 450e6), (1_048_576.0, 1.4e9), (4_194_304.0, 1.7e9)];
    let printed = points.map(|(x, y)| (x, y * 0.8));
    Plot {
        title: "Bandwidth".into(),
        x: axis("size", "bytes", true),
        y: axis("rate", "B/s", false),
        series: vec![numbers("SSD", Mark::Simulated, &points), numbers("SSD", Mark::Published, &printed)],
        ..Plot::default()
    }
}

fn bars() -> Plot {
    Plot {
        title: "Gain".into(),
        kind: PlotKind::Bar,
        y: axis("gain", "%", false),
        series: vec![
            names("gain", Mark::Synthetic, &[("mail", 6.9), ("news", 0.2)]),
            names("gain", Mark::Published, &[("mail", 6.7), ("news", -0.1)]),
        ],
        note: "Of requests per second.".into(),
        ..Plot::default()
    }
}

fn study() -> Study {
    let cells = |row: [&str; 3]| row.map(String::from).to_vec();
    let parameter = |name: &str, value: &str, origin| Parameter {
        name: name.into(),
        value: value.into(),
        unit: "µs".into(),
        origin,
        source: "the data sheet of a chip whose name is long, and a judgement about what it leaves open"
            .into(),
    };
    Study {
        title: "An example".into(),
        summary: vec![
            "What was asked, and what came out; long enough that it must be wrapped to fit.".into(),
        ],
        command: "terapage sim example --volume mail --requests 100000 --seed 7 --html example.html".into(),
        machine: vec![("kernel".into(), "6.18".into())],
        parameters: vec![
            parameter("read", "50", Origin::Published),
            parameter("program", "700", Origin::Fitted),
        ],
        plots: vec![line(), bars()],
        tables: vec![Table {
            title: "Gains".into(),
            columns: cells(["volume", "gain", "what to think of it"]),
            rows: vec![
                cells([
                    "mail",
                    "+6.9%",
                    "sign and order agree with what is published, within the spread of seeds",
                ]),
                cells(["news", "+0.2%", ""]),
            ],
            note: String::new(),
        }],
        answers: vec![Answer { text: "It takes 1.3 times as long.".into(), command: "terapage run".into() }],
        findings: vec![Finding {
            printed: "a paper, Fig 3".into(),
            claim: "What was found there, in a sentence that is long enough to be wrapped.".into(),
            verdict: Verdict::Differs,
            here: "1.3 (1.2 to 1.4)".into(),
            figures: vec![1],
        }],
        parts: vec![Study { title: "A part".into(), plots: vec![whiskers()], ..Study::default() }],
        ..Study::default()
    }
}

fn whiskers() -> Plot {
    let mut series = names("time", Mark::Measured, &[("mail", 6.9), ("news", 2.0)]);
    let whisker = |low, high| Some(Whisker { low, high, ends: Ends::Interval });
    series.whiskers = vec![whisker(6.0, 7.4), None];
    Plot { title: "Spread".into(), kind: PlotKind::Bar, series: vec![series], ..Plot::default() }
}

/// Compares with a kept file, or writes it with BLESS=1.
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, kept, "differs from {}: look at it, then run with BLESS=1", path.display());
}

#[test]
fn golden_examples() {
    for columns in [60, 80, 100] {
        golden(&format!("{columns}.txt"), &render_text(&study(), columns));
    }
}

#[test]
fn charts_and_parameters_are_on_request() {
    let options = TextOptions { charts: false, parameters: false, ..TextOptions::default() };
    let text = render_text_with(&study(), &options);
    assert!(text.contains("Gains") && !text.contains("Bandwidth") && !text.contains("Parameters"), "{text}");
}

#[test]
fn what_would_move_the_cursor_is_not_shown() {
    let evil = "a\u{1b}[2Jb\tc\u{202e}d\u{7}".to_owned();
    let table = Table {
        title: evil.clone(),
        columns: vec![evil.clone()],
        rows: vec![vec![evil.clone()]],
        note: evil.clone(),
    };
    let plot =
        Plot { title: evil.clone(), series: vec![numbers(&evil, Mark::Measured, &[(1.0, 1.0)])], ..line() };
    let study = Study {
        title: evil.clone(),
        command: evil.clone(),
        plots: vec![plot],
        tables: vec![table],
        ..study()
    };
    let text = render_text(&study, 80);
    let moves = |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
    assert!(!text.contains(moves), "{text:?}");
}

#[test]
fn an_empty_study_is_no_trouble() {
    assert_eq!(render_text(&Study::default(), 80), "\n");
    let plot = Plot { title: "Nothing".into(), ..Plot::default() };
    let text = render_text(&Study { plots: vec![plot], ..Study::default() }, 0);
    assert_eq!(text, "Nothing\n-------\nThere are no points to draw.\n");
}

fn text() -> BoxedStrategy<String> {
    prop_oneof!["[a-z]{0,12}( [a-z]{1,9}){0,8}", "\\PC{0,30}", "[a-z]{50,120}", "[表示幅]{1,60}"].boxed()
}

fn a_series() -> impl Strategy<Value = Series> {
    let x = prop_oneof![
        any::<f64>().prop_map(X::Number),
        (0..99u8).prop_map(|x| X::Number(x.into())),
        text().prop_map(X::Name)
    ];
    let y = prop_oneof![any::<f64>(), -9.0..9.0, Just(f64::NAN)];
    let mark = prop::sample::select(vec![Mark::Measured, Mark::Simulated, Mark::Synthetic, Mark::Published]);
    let ends = prop::sample::select(vec![Ends::Interval, Ends::Range, Ends::Deviation]);
    let whisker = prop::option::of((-9.0..9.0, any::<f64>(), ends));
    let whisker = whisker.prop_map(|found| found.map(|(low, high, ends)| Whisker { low, high, ends }));
    let whiskers = prop::collection::vec(whisker, 0..9);
    (text(), mark, prop::collection::vec((x, y), 0..30), whiskers).prop_map(
        |(name, mark, points, whiskers)| Series { name, mark, points, whiskers, ..Series::default() },
    )
}

fn a_plot() -> impl Strategy<Value = Plot> {
    let kind = prop::sample::select(vec![PlotKind::Line, PlotKind::Bar, PlotKind::Scatter, PlotKind::Step]);
    let unit = prop::sample::select(vec!["", "ns", "bytes", "B/s", "IOPS", "%", "a unit of its own"]);
    let axis = (text(), unit, any::<bool>())
        .prop_map(|(name, unit, log)| Axis { name, unit: unit.into(), log })
        .boxed();
    let axes = (axis.clone(), axis);
    (text(), kind, axes, prop::collection::vec(a_series(), 0..4), text())
        .prop_map(|(title, kind, (x, y), series, note)| Plot { title, kind, x, y, series, note })
}

fn a_table() -> impl Strategy<Value = Table> {
    (1..12usize).prop_flat_map(|columns| {
        let row = prop::collection::vec(text(), columns);
        (text(), row.clone(), prop::collection::vec(row, 0..6), text())
            .prop_map(|(title, columns, rows, note)| Table { title, columns, rows, note })
    })
}

prop_compose! {
    fn a_study()(
        title in text(),
        summary in prop::collection::vec(text(), 0..3),
        command in text(),
        machine in prop::collection::vec((text(), text()), 0..3),
        parameters in prop::collection::vec((text(), text(), text(), text()), 0..3),
        japanese: bool,
        findings in prop::collection::vec((text(), text(), text()), 0..3),
        plots in prop::collection::vec(a_plot(), 0..3),
        tables in prop::collection::vec(a_table(), 0..3),
    ) -> Study {
        let parameter = |(name, value, unit, source)| Parameter { name, value, unit, source, origin: Origin::Chosen };
        let finding = |(printed, claim, here)| Finding { printed, claim, here, figures: vec![0, 7], ..Finding::default() };
        let part = Study { title: command.clone(), plots: plots.clone(), ..Study::default() };
        Study {
            title,
            language: if japanese { Language::Ja } else { Language::En },
            summary,
            command,
            machine,
            parameters: parameters.into_iter().map(parameter).collect(),
            findings: findings.into_iter().map(finding).collect(),
            plots,
            tables,
            parts: vec![part],
            ..Study::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_line_is_too_wide(study in a_study(), columns in 40..120usize) {
        let text = render_text(&study, columns);
        for line in text.lines() {
            let width: usize = line.chars().map(|letter| letter.width().unwrap_or(0)).sum();
            prop_assert!(width <= columns, "{width} columns, not {columns}: {line}");
        }
    }

    #[test]
    fn json_gives_back_the_study(study in a_study()) {
        let named = Study { title: format!("{}.", study.title), ..study };
        let json = terapage_report::to_json(&named);
        let back = terapage_report::from_json(&json).unwrap();
        // Numbers that are not finite are not equal to anything, so the texts are compared as well.
        prop_assert_eq!(terapage_report::to_json(&back), json);
        let series = || named.plots.iter().flat_map(|plot| &plot.series);
        let finite = series().flat_map(|series| &series.points)
            .all(|(x, y)| y.is_finite() && !matches!(x, X::Number(x) if !x.is_finite()))
            && series().flat_map(|series| series.whiskers.iter().flatten()).all(|whisker| whisker.high.is_finite());
        if finite {
            prop_assert_eq!(back, named);
        }
    }

    #[test]
    fn a_page_is_made_of_any_study(study in a_study()) {
        let page = terapage_report::render_html(&study);
        prop_assert_eq!(page.matches("<figure").count(), study.all_plots().len());
        terapage_report::render_markdown(&study);
        let points = study.all_plots().iter().flat_map(|plot| &plot.series).map(|series| series.points.len()).sum::<usize>();
        let rows = terapage_report::render_csv(&study).matches("\r\n").count();
        prop_assert!(rows > points, "{rows} rows of {points} points");
    }
}

#[test]
fn what_is_no_study_is_refused() {
    for text in
        ["", "[]", "{", "{}", "{\"title\": 3}", "{\"title\": \"a\", \"plots\": [{\"kind\": \"pie\"}]}"]
    {
        let error = terapage_report::from_json(text).unwrap_err().to_string();
        assert!(error.starts_with("not a study in JSON: ") && !error.contains('\n'), "{error}");
    }
    let short = terapage_report::from_json("{\"title\": \"a\"}").unwrap();
    assert_eq!(short, Study { title: "a".into(), ..Study::default() });
}
