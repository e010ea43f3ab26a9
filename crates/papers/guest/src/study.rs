//! The counts of two machines as a page: tables, plots, and words.

use crate::init::{Counted, Files, MULTIPLICITIES};
use crate::machine::Boot;
use crate::second::{Arrayed, Limited, MULTIPLICITIES as QUEUE_MULTIPLICITIES, Queued};
use crate::{Told, column, name, together};
use std::iter::zip;
use std::sync::OnceLock;
use terapage_lab::{Texts, number};
use terapage_report::{
    Answer, Axis, Finding, Language, Mark, Origin, Parameter, Plot, PlotKind, Series, Study, Table, Verdict,
    X,
};

/// The ratios with which "close, slightly behind" holds. Chosen, not measured.
const CLOSE: [f64; 2] = [1.0, 1.5];

/// The texts in a language.
pub fn texts(language: Language) -> &'static Texts {
    static ALL: [OnceLock<Texts>; 2] = [OnceLock::new(), OnceLock::new()];
    let read = |file| move || Texts::read(file, language);
    match language {
        Language::En => ALL[0].get_or_init(read(include_str!("../languages/en.toml"))),
        Language::Ja => ALL[1].get_or_init(read(include_str!("../languages/ja.toml"))),
    }
}

/// Two boots may differ by this, as a share. Chosen, not measured.
const BOOTS_DIFFER: f64 = 0.01;

/// The ratio of an I/O's instructions by virtio-scsi to those by nvme, with 1, 4 and 32 I/Os in a
/// call. The experiment of Sato et al. predicts this ratio.
fn scsi_over_nvme(told: &Told) -> Vec<(usize, f64)> {
    let Ok(cells) = together(&told.boots) else { return Vec::new() };
    [1, 4, 32].into_iter().filter_map(|m| Some((m, ratio(&cells, "virtio-scsi", "nvme", m)?))).collect()
}

/// The instructions of a cell.
fn of(cells: &[(Counted, f64)], path: &str, scheduler: &str, m: usize) -> Option<f64> {
    let same = |cell: &&(Counted, f64)| {
        cell.0.path == path && cell.0.scheduler == scheduler && cell.0.multiplicity == m
    };
    cells.iter().find(same).map(|(cell, _)| cell.busy)
}

/// The ratio of one path's instructions to another's, without a scheduler.
fn ratio(cells: &[(Counted, f64)], one: &str, other: &str, m: usize) -> Option<f64> {
    Some(of(cells, one, "none", m)? / of(cells, other, "none", m)?)
}

/// The results, as a page.
///
/// # Errors
/// The machines counted different things.
pub fn study(told: &Told, texts: &Texts) -> anyhow::Result<Study> {
    let (both, cells) = (&told.boots, together(&told.boots)?);
    let seconds = both.iter().map(|boot| format!("{:.0}", boot.seconds)).collect::<Vec<_>>();
    let mut study = Study {
        title: texts.text("guest: Instructions for an I/O, by path, scheduler and I/Os of a call"),
        command: told.command.clone(),
        machine: vec![
            (
                texts.text("emulated"),
                texts.text("qemu without KVM, one processor, -icount shift=0: a count of instructions"),
            ),
            (texts.text("its kernel"), told.kernel.clone()),
            (texts.text("seconds, both at once"), texts.list(&seconds)),
        ],
        language: texts.language(),
        ..Study::default()
    };
    let ratios = scsi_over_nvme(told);
    study.answers.extend(first_answer(&ratios, texts));
    study.findings.extend((!ratios.is_empty()).then(|| finding(&ratios, texts)));
    study.summary.push(answer(&cells, texts));
    let nvme = |m| of(&cells, "nvme", "none", m);
    if let Some(saved) = nvme(1).zip(nvme(32)).map(|(one, many)| 1.0 - many / one) {
        study.summary.push(texts.say("guest-saved", &[("percent", &format!("{:.0}", saved * 100.0))]));
    }
    study.summary.push(differ(&apart(both)?, texts));
    study.summary.push(texts.say("guest-limits", &[]));
    study.summary.extend(both[0].left_out.iter().filter_map(|line| {
        let (name, why) = line.split_once(": ")?;
        Some(texts.say("left-out", &[("name", name), ("why", why)]))
    }));
    study.parameters = [
        ("reads", "8 KiB, at random places, O_DIRECT"),
        ("calls of a cell", "64 to 256; the median, after a quarter to warm up"),
    ]
    .map(|(name, value)| Parameter {
        name: texts.text(name),
        value: texts.text(value),
        origin: Origin::Chosen,
        ..Parameter::default()
    })
    .to_vec();
    study.plots = plots(&cells, texts);
    study.tables = vec![
        table("All that ran", &cells, texts, |cell| cell.busy),
        table("Only the thread that handed them in", &cells, texts, |cell| cell.thread),
    ];
    let files = files_of(both);
    if let [without, with] = &files[..] {
        let times = |one: f64, other: f64| format!("{:.2}", one / other);
        let values =
            [("made", &*times(without.made, with.made)), ("removed", &times(without.removed, with.removed))];
        study.summary.push(texts.say("guest-xfs", &values));
    }
    if !files.is_empty() {
        study.tables.push(table_of_files(&files, texts));
    }
    let (queues, arrays, limits) = more(both);
    if !queues.is_empty() {
        study.summary.extend(more_queues(&queues, texts));
        study.tables.push(table_of_queues(&queues, texts));
    }
    if !arrays.is_empty() {
        study.tables.push(table_of_arrays(&arrays, texts));
    }
    if !limits.is_empty() {
        study.summary.push(held(&limits, texts));
        study.tables.push(table_of_limits(&limits, texts));
    }
    Ok(study)
}

/// The answer of the first page.
fn first_answer(ratios: &[(usize, f64)], texts: &Texts) -> Option<Answer> {
    let times = ratios.iter().map(|(_, times)| *times);
    let (least, most) = (times.clone().min_by(f64::total_cmp)?, times.max_by(f64::total_cmp)?);
    let values = [("least", &*format!("{least:.2}")), ("most", &*format!("{most:.2}"))];
    Some(Answer { text: texts.say("guest", &values), command: "terapage paper run stack-guest".into() })
}

/// The prediction of Sato et al., and whether it holds.
fn finding(ratios: &[(usize, f64)], texts: &Texts) -> Finding {
    let [least, most] = CLOSE;
    let holds = ratios.iter().all(|(_, times)| (least..=most).contains(times));
    let values: Vec<String> = ratios
        .iter()
        .map(|(m, times)| texts.say("value-at", &[("value", &number(*times)), ("place", &column(*m))]))
        .collect();
    let found = texts.say("finding-value", &[("values", &texts.list(&values))]);
    let asked = texts.say("asked-between", &[("least", &number(least)), ("most", &number(most))]);
    Finding {
        printed: format!("Sato et al. {}", texts.text("section 4")),
        claim: texts.say("finding-claim", &[]),
        verdict: if holds { Verdict::Holds } else { Verdict::Differs },
        here: format!("{found} {asked}"),
        figures: vec![0],
    }
}

/// The differences between two boots in each cell, as shares, with the cell's name.
fn apart(both: &[Boot]) -> anyhow::Result<Vec<(String, f64)>> {
    let mut all: Vec<(String, f64)> =
        together(both)?.into_iter().map(|(cell, distance)| (name(&cell), distance)).collect();
    let [one, other] = both else { return Ok(all) };
    let far = |a: f64, b: f64| (a / b).ln().abs();
    for (a, b) in zip(&one.queues, &other.queues) {
        let name = format!("{}, queues: {}, {}", a.path, a.queues, column(a.multiplicity));
        all.push((name, far(a.busy, b.busy)));
    }
    for (a, b) in zip(&one.arrays, &other.arrays) {
        all.extend(a.one.zip(b.one).map(|(x, y)| (a.operation.clone(), far(x, y))));
        all.push((format!("RAID-6: {}", a.operation), far(a.array, b.array)));
    }
    for (a, b) in zip(&one.files, &other.files) {
        all.push((a.system.clone(), far(a.made, b.made)));
        all.push((a.system.clone(), far(a.removed, b.removed)));
    }
    Ok(all)
}

/// The means of both boots for the counts of the second machines.
fn more(both: &[Boot]) -> (Vec<Queued>, Vec<Arrayed>, Vec<Limited>) {
    let [one, other] = both else { return Default::default() };
    let mean = |a: f64, b: f64| (a + b) / 2.0;
    let queued = |(a, b): (&Queued, &Queued)| Queued { busy: mean(a.busy, b.busy), ..a.clone() };
    let arrayed = |(a, b): (&Arrayed, &Arrayed)| Arrayed {
        one: a.one.zip(b.one).map(|(a, b)| mean(a, b)),
        array: mean(a.array, b.array),
        ..a.clone()
    };
    // The result that is further from its limit.
    let limited = |(a, b): (&Limited, &Limited)| {
        if (a.rate / a.limit).ln().abs() > (b.rate / b.limit).ln().abs() { a.clone() } else { b.clone() }
    };
    (
        zip(&one.queues, &other.queues).map(queued).collect(),
        zip(&one.arrays, &other.arrays).map(arrayed).collect(),
        zip(&one.limits, &other.limits).map(limited).collect(),
    )
}

/// The cost of more queues, with one I/O a call: the largest number of queues compared with one.
fn more_queues(queues: &[Queued], texts: &Texts) -> Option<String> {
    let of = |path: &str, count: u32| {
        let same = |q: &&Queued| q.path == path && q.queues == count && q.multiplicity == 1;
        queues.iter().find(same).map(|q| q.busy)
    };
    let times = |path: &str| {
        let most = queues.iter().map(|q| q.queues).max()?;
        Some(format!("{:.2}", of(path, most)? / of(path, 1)?))
    };
    let values = [("null", times("null_blk")?), ("nvme", times("nvme")?)];
    Some(texts.say("guest-queues", &values.each_ref().map(|(key, value)| (*key, &**value))))
}

fn table_of_queues(queues: &[Queued], texts: &Texts) -> Table {
    let mut columns = vec![texts.text("path"), texts.text("queues")];
    columns.extend(QUEUE_MULTIPLICITIES.map(column));
    let row = |same: &[Queued]| {
        let mut row = vec![same[0].path.clone(), same[0].queues.to_string()];
        row.extend(same.iter().map(|queued| number(queued.busy.round())));
        row
    };
    let rows = queues.chunk_by(|a, b| (&a.path, a.queues) == (&b.path, b.queues)).map(row).collect();
    let note = "Instructions for an I/O. One processor submits I/Os, in its own queue.";
    Table {
        title: texts.text("By queues of the device (Sato et al.)"),
        columns,
        rows,
        note: texts.text(note),
    }
}

fn table_of_arrays(arrays: &[Arrayed], texts: &Texts) -> Table {
    let value = |value: f64| number(value.round());
    let row = |arrayed: &Arrayed| {
        let one = arrayed.one.map_or_else(|| "-".to_owned(), value);
        vec![texts.text(&arrayed.operation), one, value(arrayed.array)]
    };
    let note = "Instructions for each, with the copies to and from the memory of the devices. With \
                two devices gone all bytes were right.";
    Table {
        title: texts.text("RAID-6 by md, six devices in memory (Martin)"),
        columns: ["operation", "one device", "RAID-6"].map(|name| texts.text(name)).to_vec(),
        rows: arrays.iter().map(row).collect(),
        note: texts.text(note),
    }
}

/// Whether the limits are kept, in words.
fn held(limits: &[Limited], texts: &Texts) -> String {
    let off = |limited: &Limited| limited.rate / limited.limit - 1.0;
    let worst = limits.iter().max_by(|a, b| off(a).abs().total_cmp(&off(b).abs()));
    let Some(worst) = worst else { return String::new() };
    let (percent, place) = (format!("{:+.1}", off(worst) * 100.0), texts.text(&worst.limited));
    texts.say("guest-held", &[("percent", &percent), ("place", &place)])
}

fn table_of_limits(limits: &[Limited], texts: &Texts) -> Table {
    let row = |limited: &Limited| {
        let values = [limited.limit, limited.rate, limited.free].map(|value| format!("{value:.2}"));
        [vec![texts.text(&limited.limited)], values.to_vec()].concat()
    };
    Table {
        title: texts.text("Limits of cgroups of version 2 (io.max)"),
        columns: ["what moves", "limit, MiB/s", "rate, MiB/s", "without a limit"]
            .map(|name| texts.text(name))
            .to_vec(),
        rows: limits.iter().map(row).collect(),
        note: texts.text("By the machine's own clock; of two boots the one further from the limit."),
    }
}

/// The mean of both boots for each file system.
fn files_of(both: &[Boot]) -> Vec<Files> {
    let [one, other] = both else { return Vec::new() };
    let pairs = one.files.iter().zip(&other.files).filter(|(a, b)| a.system == b.system);
    pairs
        .map(|(a, b)| Files {
            system: a.system.clone(),
            made: (a.made + b.made) / 2.0,
            removed: (a.removed + b.removed) / 2.0,
        })
        .collect()
}

fn table_of_files(files: &[Files], texts: &Texts) -> Table {
    let value = |value: f64| number(value.round());
    let row = |files: &Files| vec![files.system.clone(), value(files.made), value(files.removed)];
    Table {
        title: texts.text("Files on XFS of version 4 (Martin)"),
        columns: ["file system", "making a file", "removing it"].map(|name| texts.text(name)).to_vec(),
        rows: files.iter().map(row).collect(),
        note: texts.text("Instructions for a file, the mean of two boots, with all later writes."),
    }
}

/// The questions of Sato et al. and the results, with one I/O a call and with 32.
fn answer(cells: &[(Counted, f64)], texts: &Texts) -> String {
    let pairs =
        [("a", "virtio-scsi", "nvme"), ("b", "scsi_debug", "null_blk"), ("c", "virtio-scsi", "virtio-blk")];
    let mut values = Vec::new();
    for (key, one, other) in pairs {
        for m in [1, 32] {
            let value = ratio(cells, one, other, m).map_or_else(|| "-".to_owned(), |v| format!("{v:.2}"));
            values.push((format!("{key}{m}"), value));
        }
    }
    let values: Vec<(&str, &str)> = values.iter().map(|(key, value)| (&**key, &**value)).collect();
    texts.say("guest-answer", &values)
}

/// The difference of the boots, in words.
fn differ(cells: &[(String, f64)], texts: &Texts) -> String {
    let worst = cells.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let far = cells.iter().filter(|(_, distance)| *distance > BOOTS_DIFFER).count();
    let Some((cell, distance)) = worst else { return String::new() };
    let (all, near) = (cells.len().to_string(), (cells.len() - far).to_string());
    let percent = format!("{:.1}", distance * 100.0);
    let values = [("all", &*all), ("met", &near), ("percent", &percent), ("place", cell)];
    match far {
        0 if percent == "0.0" => texts.say("guest-same", &values),
        0 => texts.say("guest-agree", &values),
        _ => texts.say("guest-apart", &values),
    }
}

/// The paths, in order.
fn paths(cells: &[(Counted, f64)]) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for (cell, _) in cells {
        let key = (cell.path.clone(), cell.scheduler.clone());
        if !all.contains(&key) {
            all.push(key);
        }
    }
    all
}

fn table(title: &str, cells: &[(Counted, f64)], texts: &Texts, value: impl Fn(&Counted) -> f64) -> Table {
    let mut columns = vec![texts.text("path"), texts.text("scheduler")];
    columns.extend(MULTIPLICITIES.map(column));
    let rows = paths(cells).into_iter().map(|(path, scheduler)| {
        let own = |m: &usize| {
            let mut found = cells.iter().map(|(cell, _)| cell);
            let found = found.find(|c| c.path == path && c.scheduler == scheduler && c.multiplicity == *m);
            found.map_or_else(|| "-".to_owned(), |cell| number(value(cell).round()))
        };
        let values: Vec<String> = MULTIPLICITIES.iter().map(own).collect();
        [vec![path.clone(), scheduler.clone()], values].concat()
    });
    Table {
        title: texts.text(title),
        rows: rows.collect(),
        columns,
        note: texts.text("Instructions for an I/O, the mean of two boots; m: I/Os of an io_submit."),
    }
}

fn plots(cells: &[(Counted, f64)], texts: &Texts) -> Vec<Plot> {
    let y = Axis { name: texts.text("instructions for an I/O"), unit: String::new(), log: false };
    let series = |wanted: &dyn Fn(&Counted) -> bool, across: &dyn Fn(&Counted) -> String| {
        let mut all: Vec<Series> = Vec::new();
        for (cell, _) in cells.iter().filter(|(cell, _)| wanted(cell)) {
            let point = (X::Name(across(cell)), cell.busy);
            match all.iter_mut().find(|known| known.name == cell.path) {
                Some(known) => known.points.push(point),
                None => all.push(Series {
                    name: cell.path.clone(),
                    mark: Mark::Measured,
                    points: vec![point],
                    ..Series::default()
                }),
            }
        }
        all
    };
    let plot = |title: &str, x: &str, series: Vec<Series>| Plot {
        title: texts.text(title),
        kind: PlotKind::Bar,
        x: Axis { name: texts.text(x), ..Axis::default() },
        y: y.clone(),
        series,
        ..Plot::default()
    };
    vec![
        plot(
            "By I/Os of a call, without a scheduler (Sato et al. Fig 7)",
            "call",
            series(&|c| c.scheduler == "none", &|c| column(c.multiplicity)),
        ),
        plot(
            "By scheduler, 4 I/Os a call",
            "scheduler",
            series(&|c| c.multiplicity == 4, &|c| c.scheduler.clone()),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::{apart, differ, scsi_over_nvme, study, texts, together};
    use crate::Told;
    use crate::init::{Counted, Files};
    use crate::machine::Boot;
    use crate::second::{Arrayed, Limited, Queued};
    use std::collections::BTreeSet;
    use terapage_report::{Language, Verdict};

    fn counted(path: &str, multiplicity: usize, busy: f64) -> Counted {
        Counted { path: path.into(), scheduler: "none".into(), multiplicity, busy, thread: busy / 2.0 }
    }

    fn boot(factor: f64) -> Boot {
        let paths = [
            ("null_blk", 7000.0),
            ("scsi_debug", 8400.0),
            ("nvme", 8000.0),
            ("virtio-blk", 9000.0),
            ("virtio-scsi", 10800.0),
        ];
        let cells = paths.iter().flat_map(|(path, busy)| {
            [1, 4, 32].map(|m| counted(path, m, busy * factor / if m == 32 { 1.25 } else { 1.0 }))
        });
        let files = [("lazy-count=0", 1.1), ("lazy-count=1", 1.0)].map(|(system, times)| Files {
            system: system.into(),
            made: 9000.0 * times,
            removed: 8000.0 * times * times,
        });
        let left_out = vec!["bfq: none".into()];
        let queued = |queues: u32| {
            ["null_blk", "nvme"].map(|path| Queued {
                path: path.into(),
                queues,
                multiplicity: 1,
                busy: factor * (8000.0 - 500.0 * f64::from(queues)),
            })
        };
        let operation = "read of 8 KiB".to_owned();
        let rate = if factor > 1.0 { 4.2 } else { 4.0 };
        Boot {
            cells: cells.collect(),
            files: files.to_vec(),
            queues: [1, 4].map(queued).concat(),
            arrays: vec![Arrayed { operation, one: Some(7000.0 * factor), array: 9000.0 * factor }],
            limits: vec![Limited { limited: "swap-out".into(), limit: 4.0, rate, free: 900.0 }],
            left_out,
            seconds: 9.0,
        }
    }

    #[test]
    fn the_open_question_is_answered_from_two_boots() {
        let told = Told {
            kernel: "a kernel".into(),
            command: "terapage paper run stack-guest".into(),
            terapage: "1".into(),
            started_s: 1,
            boots: vec![boot(1.0), boot(1.004)],
        };
        let ratios = scsi_over_nvme(&told);
        assert!(
            ratios.len() == 3 && ratios.iter().all(|(_, ratio)| (ratio - 1.35).abs() < 1e-9),
            "{ratios:?}"
        );
        let english = texts(Language::En);
        let found = study(&told, english).expect("a study").findings;
        assert_eq!((found.len(), found[0].verdict), (1, Verdict::Holds), "{found:?}");
        assert!(found[0].here.contains("1.35 at m = 4") && found[0].here.contains("between 1.00 and 1.50"));
        let text = terapage_report::render_text(&study(&told, english).expect("a study"), 100);
        let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "takes 1.35 (one I/O a call) to 1.35 (32)",
            "takes 1.35 to 1.35 times as many instructions by virtio-scsi as by nvme",
            "null_blk) 1.20 to 1.20 times",
            "save 20 %",
            "agree within 0.4 %",
            "Left out: bfq",
            "0.80 times",
            "by +5.0 % (swap-out)",
            "1.10 times as many instructions to make a file without lazy-count, 1.21 times to remove",
        ] {
            assert!(plain.contains(part), "{part}: {text}");
        }
        let far = differ(&apart(&[boot(1.0), boot(1.02)]).expect("the same cells"), english);
        assert!(far.contains("in 4 of 25 cells") && far.contains("2.0 %"), "{far}");
        let same = differ(&apart(&[boot(1.0), boot(1.0)]).expect("the same cells"), english);
        assert!(same.contains("the same in all 25 cells"), "{same}");
        let japanese = study(&told, texts(Language::Ja)).expect("a study");
        let titles = japanese.plots.iter().map(|plot| &plot.title).chain(&japanese.summary);
        let titles = titles.chain(japanese.tables.iter().flat_map(|table| [&table.title, &table.note]));
        let plain: Vec<&String> = titles.filter(|text| text.is_ascii()).collect();
        assert!(plain.is_empty() && !japanese.title.is_ascii(), "not translated: {plain:?}");
        let mut short = boot(1.0);
        short.cells.pop();
        assert!(together(&[boot(1.0), short]).is_err());
    }

    #[test]
    fn every_sentence_that_is_asked_for_is_there() {
        let parts = include_str!("study.rs").split("say(\"").skip(1).filter_map(|part| part.split_once('"'));
        let keys: BTreeSet<&str> = parts.map(|(key, _)| key).collect();
        for language in [Language::En, Language::Ja] {
            let missing: Vec<&&str> =
                keys.iter().filter(|key| texts(language).say(key, &[]) == ***key).collect();
            assert!(missing.is_empty(), "{language:?}: {missing:?}");
        }
    }
}
