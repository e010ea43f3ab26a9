//! A study as one self-contained HTML page: it needs no network and no other file.

mod data;
mod points;

use crate::number::number_columns;
use crate::study::{Mark, Parameter, Plot, PlotKind, Study, Table};
use crate::text::origin_word;
use crate::view::{View, word};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Apache ECharts, as it is published; see `assets/echarts/README.md`.
const ECHARTS: &str = include_str!("../assets/echarts/echarts.common.min.js");
const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");

/// The page's content policy: it loads nothing, runs only its own scripts, and can save its own
/// drawings.
const POLICY: &str =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:";

/// The study as one self-contained HTML page: about 0.8 MB, plus the data.
pub fn render_html(study: &Study) -> String {
    let views: Vec<View> = study.plots.iter().map(View::new).collect();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
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
                (body(study, &views))
                script type="application/json" id="plots" { (PreEscaped(data::embedded(&views))) }
                @if !views.is_empty() { script { (PreEscaped(ECHARTS)) } }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn body(study: &Study, views: &[View]) -> Markup {
    html! {
        header.top {
            h1 { (study.title) }
            fieldset.theme {
                legend.unseen { "Colours" }
                @for (value, label) in [("auto", "Auto"), ("light", "Light"), ("dark", "Dark")] {
                    label { input type="radio" name="theme" value=(value) checked[value == "auto"]; span { (label) } }
                }
            }
        }
        main {
            @if !study.summary.is_empty() {
                section.summary aria-label="Summary" {
                    @for paragraph in &study.summary { p { (paragraph) } }
                }
            }
            (marks(views))
            noscript { p.warning { "Plots are drawn by a script, which is off. Their data are in the tables below them." } }
            @for (at, view) in views.iter().enumerate() { (figure(at, view)) }
            @for table in &study.tables { (table_of(table)) }
            (parameters(&study.parameters))
            (machine(&study.machine))
            (command(&study.command))
        }
        footer { "Made by Terapage " (env!("CARGO_PKG_VERSION")) ". This page holds its data and loads nothing." }
    }
}

/// The legend of the marks that the study uses.
fn marks(views: &[View]) -> Markup {
    let has = |mark: Mark| views.iter().flat_map(|view| &view.series).any(|series| series.mark == mark);
    let all = [
        (Mark::Measured, "measured on a machine"),
        (Mark::Simulated, "simulated from a real trace, or from a model alone"),
        (Mark::Synthetic, "simulated from a synthetic trace"),
        (Mark::Published, "published: printed in a paper"),
    ];
    let shown: Vec<_> = all.into_iter().filter(|(mark, _)| has(*mark)).collect();
    html! {
        @if !shown.is_empty() {
            ul.marks aria-label="How series are marked" {
                @for (mark, text) in shown { li { span.swatch data-mark=(word(mark)) {} (text) } }
            }
        }
    }
}

fn figure(at: usize, view: &View) -> Markup {
    let plot = view.plot;
    let id = format!("plot-{at}");
    html! {
        figure id=(id) aria-labelledby=(format!("{id}-title")) {
            h2 id=(format!("{id}-title")) { a href=(format!("#{id}")) { (plot.title) } }
            @if view.point_count() == 0 {
                p.nothing { "There are no points to draw." }
            } @else {
                div.legend role="group" aria-label="Series: press to hide or show" {}
                div.chart role="img" aria-label=(description(view)) data-plot=(at) {}
            }
            @if !(plot.note.is_empty() && view.left_out.is_empty()) {
                figcaption { (plot.note) @if !plot.note.is_empty() { " " } (view.left_out) }
            }
            div.tools {
                details { summary { "Data" } (points::table(view)) }
                @if view.point_count() > 0 {
                    span.buttons {
                        button type="button" data-do="reset" hidden { "Reset zoom" }
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
    let Plot { title, kind, .. } = view.plot;
    let kind = match kind {
        PlotKind::Line => "Lines",
        PlotKind::Bar => "Bars",
        PlotKind::Scatter => "Points",
        PlotKind::Step => "Steps",
    };
    let names: Vec<&str> = view.series.iter().map(|series| series.label.as_str()).collect();
    let axes = [&view.y.title, &view.x.title].into_iter().filter(|title| !title.is_empty());
    let axes = axes.cloned().collect::<Vec<_>>().join(" over ");
    format!("{title}. {kind}: {axes}. Series: {}. The values are in the table below.", names.join(", "))
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
                            @for (column, cell) in row.iter().enumerate() { td class=[class(column)] { (cell) } }
                        } }
                    }
                }
            }
            @if !table.note.is_empty() { p.note { (table.note) } }
        }
    }
}

fn parameters(parameters: &[Parameter]) -> Markup {
    html! {
        @if !parameters.is_empty() {
            section.table {
                h2 { "Parameters" }
                div.scroll tabindex="0" role="region" aria-label="Parameters" {
                    table.parameters {
                        thead { tr {
                            th scope="col" { "Parameter" }
                            th scope="col" { "Value" }
                            th scope="col" { "Origin" }
                            th scope="col" { "Source" }
                        } }
                        tbody {
                            @for parameter in parameters { tr {
                                th scope="row" { (parameter.name) }
                                td.value { (parameter.value) @if !parameter.unit.is_empty() { " " (parameter.unit) } }
                                td { span.origin data-origin=(origin_word(parameter.origin)) { (origin_word(parameter.origin)) } }
                                td { (parameter.source) }
                            } }
                        }
                    }
                }
            }
        }
    }
}

fn machine(machine: &[(String, String)]) -> Markup {
    html! {
        @if !machine.is_empty() {
            section {
                h2 { "Machine" }
                dl { @for (name, value) in machine { dt { (name) } dd { (value) } } }
            }
        }
    }
}

fn command(command: &str) -> Markup {
    html! {
        @if !command.is_empty() {
            section {
                h2 { "Command" }
                p { "This makes the report again:" }
                div.command { pre tabindex="0" { code { (command) } } button type="button" data-do="copy" { "Copy" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{Series, X};
    use sha2::{Digest, Sha256};

    const EVIL: &str = "</script><img src=x onerror=alert(1)> & \"quoted\" 'too' \u{2028}";

    fn evil() -> Study {
        let text = || EVIL.to_owned();
        let cells = || vec![text(), text()];
        let axis = || crate::study::Axis { name: text(), unit: text(), log: false };
        let series = Series { name: text(), mark: Mark::Measured, points: vec![(X::Name(text()), 1.0)] };
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
            tables: vec![Table { title: text(), columns: cells(), rows: vec![cells()], note: text() }],
        }
    }

    #[test]
    fn nothing_in_a_study_becomes_markup() {
        let page = render_html(&evil()).replace(ECHARTS, "").replace(SCRIPT, "");
        assert!(!page.contains("<img"));
        assert_eq!(page.matches("</script>").count(), 3);
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
    fn an_empty_study_is_a_page() {
        let page = render_html(&Study::default());
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
        assert!(!page.contains(ECHARTS));
    }
}
