//! A study as one self-contained HTML page: it needs no network and no other file.

mod data;
mod points;

use crate::number::number_columns;
use crate::study::{Answer, Finding, Mark, Parameter, Study, Table, Verdict};
use crate::view::{View, share_slots};
use crate::words::{Words, filled};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Apache ECharts, as published; see `assets/echarts/README.md`.
const ECHARTS: &str = include_str!("../assets/echarts/echarts.common.min.js");
const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");

/// The page's content policy: it loads nothing, runs only its own scripts, and can save its own
/// drawings.
const POLICY: &str =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:";

/// The study as one self-contained HTML page: about 0.8 MB, plus the data.
pub fn render_html(study: &Study) -> String {
    let words = Words::of(study.language);
    let mut views: Vec<View> = study.all_plots().into_iter().map(|plot| View::new(plot, words)).collect();
    share_slots(&mut views);
    let page = html! {
        (DOCTYPE)
        html lang=(study.language.code()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="color-scheme" content="light dark";
                meta name="generator" content=(concat!("terapage ", env!("CARGO_PKG_VERSION")));
                title { (study.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (body(study, &views, words))
                script type="application/json" id="plots" { (PreEscaped(data::embedded(&views))) }
                script type="application/json" id="words" { (PreEscaped(data::json(words))) }
                @if !views.is_empty() { script { (PreEscaped(ECHARTS)) } }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn body(study: &Study, views: &[View], words: &Words) -> Markup {
    let themes = [("auto", &words.auto), ("light", &words.light), ("dark", &words.dark)];
    let footer = filled(&words.footer, &[("version", env!("CARGO_PKG_VERSION"))]);
    let mut next = 0;
    html! {
        header.top {
            h1 { (study.title) }
            fieldset.theme {
                legend.unseen { (words.colours) }
                @for (value, label) in themes {
                    label { input type="radio" name="theme" value=(value) checked[value == "auto"]; span { (label) } }
                }
            }
        }
        main {
            (answers(&study.answers, words))
            @for table in &study.overview { (table_of(table)) }
            (summary(&study.summary, words))
            (contents(study, words))
            (findings(&study.findings, views, words))
            (marks(views, words))
            noscript { p.warning { (words.no_script) } }
            (shown(study, views, &mut next, "part", words))
            (ending(study, words))
        }
        footer { (footer) }
    }
}

/// The plots and tables of a study, followed by its parts. `next` is the number of its first plot;
/// `id` is the beginning of the names of its parts.
fn shown(study: &Study, views: &[View], next: &mut usize, id: &str, words: &Words) -> Markup {
    let first = *next;
    *next += study.plots.len();
    html! {
        @for (at, view) in views.iter().enumerate().take(*next).skip(first) { (figure(at, view)) }
        @for table in &study.tables { (table_of(table)) }
        @for (at, part) in study.parts.iter().enumerate() {
            @let id = format!("{id}-{at}");
            section.part id=(id) {
                h2.part { a href=(format!("#{id}")) { (part.title) } }
                (summary(&part.summary, words))
                (shown(part, views, next, &id, words))
                (ending(part, words))
            }
        }
    }
}

/// The end of a study: its parameters, its machine and its command.
fn ending(study: &Study, words: &Words) -> Markup {
    html! {
        (parameters(&study.parameters, words))
        (machine(&study.machine, words))
        (command(&study.command, words))
    }
}

fn answers(answers: &[Answer], words: &Words) -> Markup {
    html! {
        @if !answers.is_empty() {
            section.answers aria-label=(words.answers) {
                @for answer in answers {
                    div.answer {
                        p { (answer.text) }
                        @if !answer.command.is_empty() { (to_copy(&answer.command, words)) }
                    }
                }
            }
        }
    }
}

fn summary(paragraphs: &[String], words: &Words) -> Markup {
    html! {
        @if !paragraphs.is_empty() {
            section.summary aria-label=(words.summary) {
                @for paragraph in paragraphs { p { (paragraph) } }
            }
        }
    }
}

fn contents(study: &Study, words: &Words) -> Markup {
    html! {
        @if study.parts.len() > 1 {
            nav.contents aria-label=(words.contents) {
                ol {
                    @for (at, part) in study.parts.iter().enumerate() {
                        li { a href=(format!("#part-{at}")) { (part.title) } }
                    }
                }
            }
        }
    }
}

/// The table of findings, each with links to its figures.
fn findings(findings: &[Finding], views: &[View], words: &Words) -> Markup {
    let heads = [&words.printed, &words.claim, &words.verdict, &words.here];
    html! {
        @if !findings.is_empty() {
            section.table.findings id="findings" {
                h2 { a href="#findings" { (words.findings) } }
                div.scroll tabindex="0" role="region" aria-label=(words.findings) {
                    table {
                        thead { tr { @for head in heads { th scope="col" { (head) } } } }
                        tbody {
                            @for finding in findings { tr {
                                td { (finding.printed) }
                                td data-head=(words.claim) { (finding.claim) }
                                td data-head=(words.verdict) { span.verdict data-verdict=(verdict_name(finding.verdict)) { (words.verdict(finding.verdict)) } }
                                td data-head=(words.here) {
                                    (finding.here)
                                    @for at in finding.figures.iter().filter(|at| **at < views.len()) {
                                        " " a.figure href=(format!("#plot-{at}")) title=(views[*at].plot.title) { (words.figure) " " (at + 1) }
                                    }
                                }
                            } }
                        }
                    }
                }
            }
        }
    }
}

fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Differs => "differs",
        Verdict::NotDecided => "not-decided",
        Verdict::NoLonger => "no-longer",
        Verdict::NotMeasured => "not-measured",
    }
}

/// A mark's name in attributes, for styles and the script.
fn mark_name(mark: Mark) -> &'static str {
    match mark {
        Mark::Measured => "measured",
        Mark::Simulated => "simulated",
        Mark::Synthetic => "synthetic",
        Mark::Published => "published",
    }
}

/// The legend of the marks that the study uses.
fn marks(views: &[View], words: &Words) -> Markup {
    let has = |mark: Mark| views.iter().flat_map(|view| &view.series).any(|series| series.mark == mark);
    let all = [
        (Mark::Measured, &words.measured_long),
        (Mark::Simulated, &words.simulated_long),
        (Mark::Synthetic, &words.synthetic_long),
        (Mark::Published, &words.published_long),
    ];
    let shown: Vec<_> = all.into_iter().filter(|(mark, _)| has(*mark)).collect();
    html! {
        @if !shown.is_empty() {
            ul.marks aria-label=(words.marks) {
                @for (mark, text) in shown { li { span.swatch data-mark=(mark_name(mark)) {} (text) } }
            }
        }
    }
}

fn figure(at: usize, view: &View) -> Markup {
    let (plot, words) = (view.plot, view.words);
    let id = format!("plot-{at}");
    html! {
        figure id=(id) aria-labelledby=(format!("{id}-title")) {
            h2 id=(format!("{id}-title")) { a href=(format!("#{id}")) { (plot.title) } }
            @if view.point_count() == 0 {
                p.nothing { (words.nothing) }
            } @else {
                div.legend role="group" aria-label=(words.series_hint) {}
                div.chart role="img" aria-label=(description(view)) data-plot=(at) {}
            }
            @if !(plot.note.is_empty() && view.remarks.is_empty()) {
                figcaption { (plot.note) @if !plot.note.is_empty() { " " } (view.remarks) }
            }
            div.tools {
                details { summary { (words.data) } (points::table(view)) }
                @if view.point_count() > 0 {
                    span.buttons {
                        button type="button" data-do="reset" hidden { (words.reset_zoom) }
                        button type="button" data-do="png" { "PNG" }
                        button type="button" data-do="svg" { "SVG" }
                        button type="button" data-do="csv" { "CSV" }
                    }
                }
            }
        }
    }
}

/// A description of a plot for readers who cannot see it.
fn description(view: &View) -> String {
    let words = view.words;
    let names: Vec<&str> = view.series.iter().map(|series| series.label.as_str()).collect();
    let axes = [&view.y.title, &view.x.title].into_iter().filter(|title| !title.is_empty());
    let axes = axes.cloned().collect::<Vec<_>>().join(&words.over);
    let values = [
        ("title", view.plot.title.as_str()),
        ("kind", words.kind(view.plot.kind)),
        ("axes", &axes),
        ("names", &names.join(", ")),
    ];
    filled(&words.description, &values)
}

fn table_of(table: &Table) -> Markup {
    let right = number_columns(table.columns.len(), &table.rows);
    let class = |column: usize| if right.get(column) == Some(&true) { Some("number") } else { None };
    html! {
        section.table {
            @if !table.title.is_empty() { h2 { (table.title) } }
            div.scroll tabindex="0" role="region" aria-label=(table.title) {
                table {
                    thead { tr {
                        @for (column, head) in table.columns.iter().enumerate() {
                            th scope="col" class=[class(column)] { (head) }
                        }
                    } }
                    tbody {
                        @for row in &table.rows { tr {
                            @for (column, cell) in row.iter().enumerate() {
                                td class=[class(column)] data-head=[head(table, column)] { (cell) }
                            }
                        } }
                    }
                }
            }
            @if !table.note.is_empty() { p.note { (table.note) } }
        }
    }
}

/// The heading of a column, for narrow screens, where each cell shows the heading of its column.
fn head(table: &Table, column: usize) -> Option<&String> {
    table.columns.get(column).filter(|head| !head.is_empty())
}

fn parameters(parameters: &[Parameter], words: &Words) -> Markup {
    let heads = [&words.parameter, &words.value, &words.origin, &words.source];
    html! {
        @if !parameters.is_empty() {
            section.table {
                h2 { (words.parameters) }
                div.scroll tabindex="0" role="region" aria-label=(words.parameters) {
                    table.parameters {
                        thead { tr { @for head in heads { th scope="col" { (head) } } } }
                        tbody {
                            @for parameter in parameters { tr {
                                th scope="row" { (parameter.name) }
                                td.value data-head=(words.value) { (parameter.value) @if !parameter.unit.is_empty() { " " (parameter.unit) } }
                                td data-head=(words.origin) { span.origin data-origin=(parameter.origin.name()) { (words.origin(parameter.origin)) } }
                                td data-head=(words.source) { (parameter.source) }
                            } }
                        }
                    }
                }
            }
        }
    }
}

fn machine(machine: &[(String, String)], words: &Words) -> Markup {
    html! {
        @if !machine.is_empty() {
            section {
                h2 { (words.machine) }
                dl { @for (name, value) in machine { dt { (name) } dd { (value) } } }
            }
        }
    }
}

fn command(command: &str, words: &Words) -> Markup {
    html! {
        @if !command.is_empty() {
            section {
                h2 { (words.command) }
                p { (words.command_again) }
                (to_copy(command, words))
            }
        }
    }
}

/// A command with a button that copies it.
fn to_copy(command: &str, words: &Words) -> Markup {
    html! {
        div.command { pre tabindex="0" { code { (command) } } button type="button" data-do="copy" { (words.copy) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{Language, Plot, PlotKind, Series, X};
    use sha2::{Digest, Sha256};

    const EVIL: &str = "</script><img src=x onerror=alert(1)> & \"quoted\" 'too' \u{2028}";

    fn evil() -> Study {
        let text = || EVIL.to_owned();
        let cells = || vec![text(), text()];
        let axis = || crate::study::Axis { name: text(), unit: text(), log: false };
        let series = Series {
            name: text(),
            mark: Mark::Measured,
            points: vec![(X::Name(text()), 1.0)],
            ..Series::default()
        };
        let plot = Plot {
            title: text(),
            kind: PlotKind::Bar,
            x: axis(),
            y: axis(),
            series: vec![series],
            note: text(),
        };
        let parameter =
            Parameter { name: text(), value: text(), unit: text(), source: text(), ..Parameter::default() };
        Study {
            title: text(),
            summary: vec![text()],
            command: text(),
            machine: vec![(text(), text())],
            parameters: vec![parameter],
            plots: vec![plot],
            overview: vec![Table { title: text(), columns: cells(), rows: vec![cells()], note: text() }],
            tables: vec![Table { title: text(), columns: cells(), rows: vec![cells()], note: text() }],
            answers: vec![Answer { text: text(), command: text() }],
            findings: vec![Finding { printed: text(), claim: text(), here: text(), ..Finding::default() }],
            ..Study::default()
        }
    }

    #[test]
    fn nothing_in_a_study_becomes_markup() {
        let page = render_html(&evil()).replace(ECHARTS, "").replace(SCRIPT, "");
        assert!(!page.contains("<img"));
        assert_eq!(page.matches("</script>").count(), 4);
        assert!(page.contains("&lt;/script&gt;&lt;img"));
        assert!(!page.contains("alert(1)>"));
    }

    #[test]
    fn the_page_loads_nothing() {
        let own = render_html(&evil()).replace(ECHARTS, "").replace(SCRIPT, "");
        for word in ["http://", "https://", "src=\"", "@import", "url("] {
            assert!(!own.contains(word), "{word}");
        }
    }

    #[test]
    fn scripts_cannot_end_early() {
        for script in [ECHARTS, SCRIPT] {
            let script = script.to_lowercase();
            assert!(!script.contains("</script") && !script.contains("<!--"));
        }
        assert!(!STYLE.to_lowercase().contains("</style"));
    }

    #[test]
    fn echarts_is_the_published_file() {
        let sum: String = Sha256::digest(ECHARTS).iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(include_str!("../assets/echarts/README.md").contains(&sum), "{sum}");
    }

    #[test]
    fn findings_lead_to_the_figures_of_the_parts() {
        let plot = |title: &str| Plot { title: title.into(), ..Plot::default() };
        let part = |title: &str, plots: Vec<Plot>| Study { title: title.into(), plots, ..Study::default() };
        let finding = Finding { figures: vec![2, 9], verdict: Verdict::NoLonger, ..Finding::default() };
        let study = Study {
            language: Language::Ja,
            findings: vec![finding],
            parts: vec![part("one", vec![plot("a"), plot("b")]), part("two", vec![plot("c")])],
            ..Study::default()
        };
        let page = render_html(&study);
        assert!(page.contains("<html lang=\"ja\">") && page.contains("もはや検証できない"));
        assert!(page.contains("href=\"#plot-2\" title=\"c\"") && !page.contains("#plot-9"));
        let places = ["id=\"part-0\"", "id=\"plot-0\"", "id=\"plot-1\"", "id=\"part-1\"", "id=\"plot-2\""];
        let found: Vec<usize> = places.iter().filter_map(|place| page.find(place)).collect();
        assert!(found.len() == places.len() && found.is_sorted(), "{found:?}");
    }

    #[test]
    fn an_empty_study_is_a_page() {
        let page = render_html(&Study::default());
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
        assert!(!page.contains(ECHARTS));
    }
}
