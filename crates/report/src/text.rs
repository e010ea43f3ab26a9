//! A study as text for the terminal.

mod bars;
mod canvas;
mod chart;
mod paragraph;
mod table;

use crate::number::number_columns;
use crate::study::{Origin, Plot, PlotKind, Study, Table};
use crate::view::View;
use paragraph::Page;

/// How a study is shown in the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextOptions {
    /// The most columns of a line; fewer than 40 count as 40.
    pub columns: usize,
    /// Whether to use only ASCII characters, for terminals and files that have no others.
    pub ascii: bool,
    /// Whether to draw small charts of the plots.
    pub charts: bool,
    /// Whether to list parameters with their origins, the machine and the command at the end.
    pub parameters: bool,
}

impl Default for TextOptions {
    fn default() -> TextOptions {
        TextOptions { columns: 80, ascii: false, charts: true, parameters: true }
    }
}

/// The complete study as text of at most `columns` columns (at least 40).
pub fn render_text(study: &Study, columns: usize) -> String {
    render_text_with(study, &TextOptions { columns, ..TextOptions::default() })
}

/// The study as text, with these options.
pub fn render_text_with(study: &Study, options: &TextOptions) -> String {
    let mut page = Page::new(options.columns.max(40), options.ascii);
    page.heading(&study.title, '=');
    for paragraph in &study.summary {
        page.paragraph(paragraph, "");
        page.gap();
    }
    if options.charts {
        study.plots.iter().for_each(|plot| plot_of(&mut page, plot));
    }
    study.tables.iter().for_each(|table| table_of(&mut page, table));
    if options.parameters {
        parameters_of(&mut page, study);
    }
    page.finish()
}

fn plot_of(page: &mut Page, plot: &Plot) {
    page.heading(&plot.title, '-');
    let view = View::new(plot);
    match plot.kind {
        _ if view.point_count() == 0 => page.paragraph("There are no points to draw.", ""),
        PlotKind::Bar => bars::draw(page, &view),
        PlotKind::Line | PlotKind::Scatter | PlotKind::Step => chart::draw(page, &view),
    }
    page.paragraph(&plot.note, "");
    page.paragraph(&view.left_out, "");
    page.gap();
}

fn table_of(page: &mut Page, table: &Table) {
    page.heading(&table.title, '-');
    table::draw(page, &table.columns, &table.rows, &number_columns(table.columns.len(), &table.rows));
    page.paragraph(&table.note, "");
    page.gap();
}

/// The word for an origin.
pub fn origin_word(origin: Origin) -> &'static str {
    match origin {
        Origin::Published => "published",
        Origin::Measured => "measured",
        Origin::Fitted => "fitted",
        Origin::Estimated => "estimated",
        Origin::Chosen => "chosen",
    }
}

fn parameters_of(page: &mut Page, study: &Study) {
    if !study.parameters.is_empty() {
        page.heading("Parameters", '-');
        let row = |parameter: &crate::study::Parameter| {
            let value = format!("{} {}", parameter.value, parameter.unit).trim().to_owned();
            vec![
                parameter.name.clone(),
                value,
                origin_word(parameter.origin).to_owned(),
                parameter.source.clone(),
            ]
        };
        let rows: Vec<Vec<String>> = study.parameters.iter().map(row).collect();
        let columns = ["parameter", "value", "origin", "source"].map(String::from);
        table::draw(page, &columns, &rows, &[false; 4]);
        page.gap();
    }
    if !study.machine.is_empty() {
        page.heading("Machine", '-');
        study.machine.iter().for_each(|(name, value)| page.pair(name, value));
        page.gap();
    }
    if !study.command.is_empty() {
        page.heading("Command", '-');
        page.verbatim(&study.command);
        page.gap();
    }
}
