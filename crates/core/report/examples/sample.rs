//! Writes a study with each kind of plot, each mark and awkward values, as JSON, which
//! `tests/report/run` renders.
use terapage_report::{
    Answer, Axis, Ends, Finding, Mark, Origin, Parameter, Plot, PlotKind, Series, Study, Table, Verdict,
    Whisker, X, to_json,
};

fn axis(name: &str, unit: &str, log: bool) -> Axis {
    Axis { name: name.into(), unit: unit.into(), log }
}

fn named(name: &str, mark: Mark, points: &[(&str, f64)]) -> Series {
    Series {
        name: name.into(),
        mark,
        points: points.iter().map(|(x, y)| (X::Name((*x).into()), *y)).collect(),
        ..Series::default()
    }
}

fn numbers(name: &str, mark: Mark, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
    Series {
        name: name.into(),
        mark,
        points: points.into_iter().map(|(x, y)| (X::Number(x), y)).collect(),
        ..Series::default()
    }
}

/// The series with whiskers of these shares below and above each value.
fn spread(mut series: Series, below: f64, above: f64, ends: Ends) -> Series {
    let whisker = |(_, y): &(X, f64)| Some(Whisker { low: y * (1.0 - below), high: y * (1.0 + above), ends });
    series.whiskers = series.points.iter().map(whisker).collect();
    series
}

fn plot(title: &str, kind: PlotKind, x: Axis, y: Axis, series: Vec<Series>) -> Plot {
    Plot { title: title.into(), kind, x, y, series, note: String::new() }
}

fn line() -> Plot {
    let sizes = [4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0];
    let rate = |latency: f64, peak: f64| sizes.map(|size| (size, size / (latency + size / peak)));
    Plot {
        note: "Invented values: a transfer takes a latency and its size over the peak.".into(),
        ..plot(
            "Bandwidth by transfer size",
            PlotKind::Line,
            axis("transfer size", "bytes", true),
            axis("bandwidth", "B/s", false),
            vec![
                spread(numbers("SSD", Mark::Measured, rate(80e-6, 1.9e9)), 0.15, 0.1, Ends::Interval),
                numbers("far memory", Mark::Simulated, rate(30e-6, 3.6e9)),
                numbers("far memory (published)", Mark::Published, rate(36e-6, 3.4e9)),
                numbers("swap", Mark::Synthetic, rate(160e-6, 0.4e9)),
            ],
        )
    }
}

fn bars() -> Plot {
    let volumes = ["mail", "proxy", "home", "web", "news", "print", "source"];
    let published = [6.7, 7.1, 5.3, 6.4, -0.1, 1.9, 3.6];
    let other = [6.9, 7.4, 4.8, 6.2, 0.2, 2.3, 3.1];
    let of = |values: [f64; 7]| volumes.into_iter().zip(values).collect::<Vec<_>>();
    plot(
        "Gain by volume",
        PlotKind::Bar,
        axis("volume", "", false),
        axis("gain", "%", false),
        vec![
            spread(named("gain", Mark::Synthetic, &of(other)), 0.1, 0.1, Ends::Deviation),
            named("gain (published)", Mark::Published, &of(published)),
        ],
    )
}

fn scatter() -> Plot {
    let spread = |shift: f64| {
        (0..60).map(move |at| (f64::from(at * 37 % 101), f64::from(at * 53 % 97) / 20.0 + shift))
    };
    plot(
        "Gain against the share of reads",
        PlotKind::Scatter,
        axis("reads that reach the flash", "%", false),
        axis("gain", "%", false),
        vec![
            numbers("real traces", Mark::Simulated, spread(0.0)),
            numbers("profiles", Mark::Synthetic, spread(2.0)),
            numbers("paper", Mark::Published, [(20.0, 6.0), (50.0, 4.0), (90.0, 1.0)]),
        ],
    )
}

fn steps() -> Plot {
    let tail = |scale: f64| (0..400).map(move |at| (scale * 1.02f64.powi(at), 1.0 - 0.985f64.powi(at)));
    plot(
        "Distribution of the latency of page-ins",
        PlotKind::Step,
        axis("latency", "ns", true),
        axis("share at most so slow", "", false),
        vec![
            numbers("64 KiB", Mark::Measured, tail(70_000.0)),
            numbers("1 MiB", Mark::Simulated, tail(300_000.0)),
        ],
    )
}

fn many_bars() -> Plot {
    let name = |at: usize| format!("a volume with a long name {at}");
    let points = (0..24).map(|at| (X::Name(name(at)), 800.0 * 1.3f64.powi(at as i32)));
    let series = Series {
        name: "requests".into(),
        mark: Mark::Simulated,
        points: points.collect(),
        ..Series::default()
    };
    plot(
        "Many categories with long names",
        PlotKind::Bar,
        axis("", "", false),
        axis("requests", "requests", true),
        vec![series],
    )
}

fn awkward() -> Plot {
    let points =
        [(1.0, 0.0), (2.0, f64::NAN), (3.0, 10.0), (4.0, f64::INFINITY), (5.0, 900.0), (6.0, 1300.0)];
    Plot {
        note: "</script><script>document.documentElement.dataset.hacked = 1</script> & <b>bold</b>".into(),
        ..plot(
            "Awkward: gaps, zeros on a logarithmic axis, <b>markup</b>, \u{2028} and 'quotes'",
            PlotKind::Line,
            axis("x", "", false),
            axis("rate", "kIOPS", true),
            vec![numbers("</script><img src=x onerror=alert(1)> {b} \"q\"", Mark::Measured, points)],
        )
    }
}

fn large() -> Plot {
    let wave = |at: i32| {
        (f64::from(at), 1e6 * (2.0 + (f64::from(at) / 900.0).sin()) + f64::from(at * 7919 % 10007) * 40.0)
    };
    plot(
        "Twenty thousand points",
        PlotKind::Line,
        axis("time", "ms", false),
        axis("rate", "requests/s", false),
        vec![numbers("load", Mark::Simulated, (0..20_000).map(wave))],
    )
}

fn parameters() -> Vec<Parameter> {
    let parameter = |name: &str, value: &str, unit: &str, origin, source: &str| Parameter {
        name: name.into(),
        value: value.into(),
        unit: unit.into(),
        origin,
        source: source.into(),
    };
    vec![
        parameter("program time", "750", "us", Origin::Published, "a data sheet"),
        parameter("SCM share", "5", "%", Origin::Fitted, "published gains"),
        parameter("minor fault", "4.1", "us", Origin::Measured, "this machine"),
        parameter("lock hold", "1.1", "us", Origin::Estimated, "throughput of one contended lock"),
        parameter("block", "64", "KiB", Origin::Chosen, "--block"),
    ]
}

fn finding(printed: &str, claim: &str, verdict: Verdict, here: &str, figures: Vec<usize>) -> Finding {
    Finding { printed: printed.into(), claim: claim.into(), verdict, here: here.into(), figures }
}

fn part(title: &str, plot: Plot) -> Study {
    let summary = vec!["A part has its own summary, plots and tables.".into()];
    Study { title: title.into(), summary, plots: vec![plot], ..Study::default() }
}

/// Bars in groups, some without whisker, on a logarithmic axis.
fn groups() -> Plot {
    let of = |name: &str, factor: f64, ends: Ends| {
        let points = [("1", factor), ("1/2", factor * 2.0), ("1/4", factor * 5.0)];
        spread(named(name, Mark::Measured, &points), 0.3, 0.4, ends)
    };
    plot(
        "Time by the part of memory",
        PlotKind::Bar,
        axis("ratio", "", false),
        axis("time against memory", "times", true),
        vec![
            of("terapage", 1.1, Ends::Interval),
            of("swap", 4.0, Ends::Range),
            named("swap", Mark::Published, &[("1", 52.0)]),
        ],
    )
}

/// Multiples. Some have no value, and two are published values of one owner.
fn ended() -> Plot {
    let mut swap = named("swap", Mark::Measured, &[("1", 8.0)]);
    swap.gaps = vec![(X::Name("1/2".into()), "killed".into()), (X::Name("1/4".into()), "timed out".into())];
    let printed = |what: &str, value: f64| Series {
        owner: "swap".into(),
        ..named(&format!("swap: on a {what} SSD"), Mark::Published, &[("1", value)])
    };
    let of = |name: &str, factor: f64| {
        let points = [("1", factor), ("1/2", factor * 1.7), ("1/4", factor * 2.4)];
        spread(named(name, Mark::Measured, &points), 0.12, 0.05, Ends::Range)
    };
    plot(
        "Who was killed has a place",
        PlotKind::Bar,
        axis("ratio", "", false),
        axis("time against memory", "times", true),
        vec![swap, printed("SATA", 96.0), printed("PCIe", 52.0), of("mmap", 1.1), of("terapage", 1.3)],
    )
}

/// Lines over names.
fn lines() -> Plot {
    let of = |name: &str, factor: f64| {
        let points = [("one", factor), ("two", factor * 1.7), ("four", factor * 2.4)];
        spread(named(name, Mark::Measured, &points), 0.12, 0.05, Ends::Range)
    };
    plot(
        "Lines over names",
        PlotKind::Line,
        axis("threads", "", false),
        axis("speed", "MFLOPS", false),
        vec![of("memory", 1000.0), of("terapage", 900.0)],
    )
}

fn main() {
    let cells = |row: [&str; 4]| row.map(String::from).to_vec();
    let study = Study {
        title: "A sample study".into(),
        answers: vec![Answer {
            text: "With half of its memory the program takes 1.3 (1.2 to 1.4) times as long.".into(),
            command: "terapage run --memory 512M -- ./program".into(),
        }],
        findings: vec![
            finding("Midorikawa, Tan 2013, Fig 5", "Swap takes 52 to 96 times as long.", Verdict::Differs, "8.0 times", vec![0]),
            finding("Midorikawa, Tan 2013, Fig 6", "A mapped file is faster.", Verdict::NotDecided, "The runs were disturbed.", vec![0]),
            finding("Martin, Fig 2", "Barriers cost a factor of ten.", Verdict::NoLonger, "The option is gone.", vec![]),
            finding("Fukuchi et al., Table 2", "Seven volumes gain.", Verdict::Holds, "All but one.", vec![1, 2]),
            finding("Sato et al., Fig 7", "Several I/Os in a call pay.", Verdict::NotMeasured, "", vec![]),
        ],
        summary: vec![
            "It shows each kind of plot and each mark with invented values, so that the page and the terminal can be checked."
                .into(),
            "Be careful: nothing here was measured. Published values are ghosts; synthetic ones are dotted or hatched."
                .into(),
        ],
        command: "cargo run -p terapage-report --example sample > sample.json && terapage sim report sample.json -o sample.html"
            .into(),
        machine: vec![("cores".into(), "2".into()), ("kernel".into(), "6.18.5".into())],
        parameters: parameters(),
        plots: vec![line(), bars(), scatter(), steps(), many_bars(), awkward(), large()],
        tables: vec![Table {
            title: "Gains".into(),
            columns: cells(["volume", "published", "simulated", "note"]),
            rows: vec![
                cells(["mail", "+6.7%", "+6.9%", "sign and order agree"]),
                cells(["news", "-0.1%", "+0.2%", "the sign differs: the volume hardly reaches the flash, so that the difference is within the spread"]),
                cells(["requests", "12,000,000", "100,000", ""]),
            ],
            note: "Gains are of requests per second.".into(),
        }],
        parts: vec![part("The first part", groups()), part("The second part", lines()), part("The third part", ended())],
        ..Study::default()
    };
    print!("{}", to_json(&study));
}
