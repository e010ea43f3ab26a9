//! A study as text for the terminal.

mod bars;
mod canvas;
mod chart;
mod paragraph;
mod table;

use crate::number::number_columns;
use crate::study::{Plot, PlotKind, Study, Table};
use crate::view::View;
use crate::words::Words;
use paragraph::Page;

/// How a study is shown in the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextOptions {
    /// The most columns of a line; fewer than 40 count as 40.
    pub columns: usize,
    /// Whether to draw small charts of the plots.
    pub charts: bool,
    /// Whether to list parameters with their origins, the machine and the command at the end.
    pub parameters: bool,
}

impl Default for TextOptions {
    fn default() -> TextOptions {
        TextOptions { columns: 80, charts: true, parameters: true }
    }
}

/// The complete study as text of at most `columns` columns (at least 40).
pub fn render_text(study: &Study, columns: usize) -> String {
    render_text_with(study, &TextOptions { columns, ..TextOptions::default() })
}

/// The study as text, with these options.
pub fn render_text_with(study: &Study, options: &TextOptions) -> String {
    let words = Words::of(study.language);
    let mut page = Page::new(options.columns.max(40));
    page.heading(&study.title, '=');
    for answer in &study.answers {
        page.paragraph(&answer.text, "");
        page.verbatim(&answer.command);
        page.gap();
    }
    study.overview.iter().for_each(|table| table_of(&mut page, table));
    paragraphs(&mut page, &study.summary);
    findings(&mut page, study, words);
    contents(&mut page, study, options, words);
    page.finish()
}

fn paragraphs(page: &mut Page, summary: &[String]) {
    for paragraph in summary {
        page.paragraph(paragraph, "");
        page.gap();
    }
}

/// The plots and tables of a study, its parts, and its end.
fn contents(page: &mut Page, study: &Study, options: &TextOptions, words: &'static Words) {
    if options.charts {
        study.plots.iter().for_each(|plot| plot_of(page, plot, words));
    }
    study.tables.iter().for_each(|table| table_of(page, table));
    for part in &study.parts {
        page.heading(&part.title, '=');
        paragraphs(page, &part.summary);
        contents(page, part, options, words);
    }
    if options.parameters {
        ending(page, study, words);
    }
}

fn findings(page: &mut Page, study: &Study, words: &Words) {
    if study.findings.is_empty() {
        return;
    }
    page.heading(&words.findings, '-');
    let heads = [&words.printed, &words.claim, &words.verdict, &words.here].map(String::clone);
    let rows: Vec<Vec<String>> = study
        .findings
        .iter()
        .map(|finding| {
            let verdict = words.verdict(finding.verdict).to_owned();
            vec![finding.printed.clone(), finding.claim.clone(), verdict, finding.here.clone()]
        })
        .collect();
    table::draw(page, &heads, &rows, &[false; 4]);
    page.gap();
}

fn plot_of(page: &mut Page, plot: &Plot, words: &'static Words) {
    page.heading(&plot.title, '-');
    let view = View::new(plot, words);
    match plot.kind {
        _ if view.point_count() == 0 => page.paragraph(&words.nothing, ""),
        PlotKind::Bar => bars::draw(page, &view),
        PlotKind::Line | PlotKind::Scatter | PlotKind::Step => chart::draw(page, &view),
    }
    page.paragraph(&plot.note, "");
    page.paragraph(&view.remarks, "");
    page.gap();
}

fn table_of(page: &mut Page, table: &Table) {
    page.heading(&table.title, '-');
    table::draw(page, &table.columns, &table.rows, &number_columns(table.columns.len(), &table.rows));
    page.paragraph(&table.note, "");
    page.gap();
}

/// Parameters, machine and command.
fn ending(page: &mut Page, study: &Study, words: &Words) {
    if !study.parameters.is_empty() {
        page.heading(&words.parameters, '-');
        let row = |parameter: &crate::study::Parameter| {
            let value = format!("{} {}", parameter.value, parameter.unit).trim().to_owned();
            vec![
                parameter.name.clone(),
                value,
                words.origin(parameter.origin).to_owned(),
                parameter.source.clone(),
            ]
        };
        let rows: Vec<Vec<String>> = study.parameters.iter().map(row).collect();
        let columns =
            [&words.parameter, &words.value, &words.origin, &words.source].map(|w| w.to_lowercase());
        table::draw(page, &columns, &rows, &[false; 4]);
        page.gap();
    }
    if !study.machine.is_empty() {
        page.heading(&words.machine, '-');
        study.machine.iter().for_each(|(name, value)| page.pair(name, value));
        page.gap();
    }
    if !study.command.is_empty() {
        page.heading(&words.command, '-');
        page.verbatim(&study.command);
        page.gap();
    }
}
