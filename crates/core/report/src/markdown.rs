//! A study as Markdown, for wikis, issues and mail: text and tables; plots as the tables of their
//! data.

use crate::number::{number, number_columns};
use crate::study::{Plot, Study, Table, X};
use crate::view::{View, category};
use crate::words::Words;

/// The study as Markdown (GitHub's, which has tables). Texts of the study have no effect as markup,
/// because signs are escaped.
pub fn render_markdown(study: &Study) -> String {
    let words = Words::of(study.language);
    let mut page = Page(String::new());
    page.heading(1, &study.title);
    for answer in &study.answers {
        page.paragraph(&answer.text);
        page.code(&answer.command);
    }
    study.overview.iter().for_each(|one| table(&mut page, 2, one));
    study.summary.iter().for_each(|text| page.paragraph(text));
    if !study.findings.is_empty() {
        page.heading(2, &words.findings);
        let heads = [&words.printed, &words.claim, &words.verdict, &words.here].map(String::clone);
        let rows = study.findings.iter().map(|finding| {
            let verdict = words.verdict(finding.verdict).to_owned();
            vec![finding.printed.clone(), finding.claim.clone(), verdict, finding.here.clone()]
        });
        page.table(&heads, &rows.collect::<Vec<_>>());
    }
    contents(&mut page, study, 2, words);
    page.0.trim_end().to_owned() + "\n"
}

fn contents(page: &mut Page, study: &Study, level: usize, words: &'static Words) {
    for plot in &study.plots {
        page.heading(level, &plot.title);
        let (heads, rows) = data(&View::new(plot, words));
        match rows.is_empty() {
            true => page.paragraph(&words.nothing),
            false => page.table(&heads, &rows),
        }
        page.paragraph(&plot.note);
    }
    study.tables.iter().for_each(|one| table(page, level, one));
    for part in &study.parts {
        page.heading(level, &part.title);
        part.summary.iter().for_each(|text| page.paragraph(text));
        contents(page, part, level + 1, words);
    }
    if !study.parameters.is_empty() {
        page.heading(level, &words.parameters);
        let heads = [&words.parameter, &words.value, &words.origin, &words.source].map(String::clone);
        let rows = study.parameters.iter().map(|of| {
            let value = format!("{} {}", of.value, of.unit).trim().to_owned();
            vec![of.name.clone(), value, words.origin(of.origin).to_owned(), of.source.clone()]
        });
        page.table(&heads, &rows.collect::<Vec<_>>());
    }
    if !study.machine.is_empty() {
        page.heading(level, &words.machine);
        let rows = study.machine.iter().map(|(name, value)| vec![name.clone(), value.clone()]);
        page.table(&[String::new(), words.value.clone()], &rows.collect::<Vec<_>>());
    }
    if !study.command.is_empty() {
        page.heading(level, &words.command);
        page.code(&study.command);
    }
}

fn table(page: &mut Page, level: usize, Table { title, columns, rows, note }: &Table) {
    page.heading(level, title);
    page.table(columns, rows);
    page.paragraph(note);
}

/// The data of a plot: a row for each place, a column for each series.
fn data(view: &View) -> (Vec<String>, Vec<Vec<String>>) {
    let Plot { x, y, series, .. } = view.plot;
    let mut places: Vec<&X> = Vec::new();
    for (place, _) in series.iter().flat_map(|series| &series.points) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let unit = if y.unit.is_empty() { String::new() } else { format!(" ({})", y.unit) };
    let heads = std::iter::once(x.name.clone())
        .chain(view.series.iter().map(|series| format!("{}{unit}", series.label)))
        .collect();
    let row = |place: &&X| {
        let of = |series: &crate::study::Series| {
            let at = series.points.iter().position(|(known, _)| known == *place)?;
            let value = number(series.points[at].1, 4);
            Some(match series.whisker(at) {
                Some(ends) => view.words.with_ends(&value, &number(ends.low, 4), &number(ends.high, 4)),
                None => value,
            })
        };
        let cells = series.iter().map(|series| of(series).unwrap_or_default());
        std::iter::once(category(place, x)).chain(cells).collect()
    };
    (heads, places.iter().map(row).collect())
}

struct Page(String);

impl Page {
    fn heading(&mut self, level: usize, text: &str) {
        if !text.trim().is_empty() {
            self.0 += &format!("{} {}\n\n", "#".repeat(level.min(6)), escaped(text));
        }
    }

    fn paragraph(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.0 += &(escaped(text) + "\n\n");
        }
    }

    fn code(&mut self, text: &str) {
        if !text.trim().is_empty() {
            let lines: String = text.lines().map(|line| format!("    {line}\n")).collect();
            self.0 += &(lines + "\n");
        }
    }

    fn table(&mut self, heads: &[String], rows: &[Vec<String>]) {
        let right = number_columns(heads.len(), rows);
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rule: Vec<&str> = right.iter().map(|right| if *right { "--:" } else { "---" }).collect();
        self.0 += &(line(heads) + &format!("| {} |\n", rule.join(" | ")));
        rows.iter().for_each(|row| self.0 += &line(row));
        self.0 += "\n";
    }
}

/// A text in one line, with its signs escaped.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.split_whitespace().collect::<Vec<_>>().join(" ").chars() {
        if matches!(letter, '|' | '*' | '_' | '`' | '<' | '>' | '[' | ']' | '#' | '\\' | '~') {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::render_markdown;
    use crate::study::{Answer, Finding, Mark, Plot, Series, Study, Verdict, X};

    #[test]
    fn answers_findings_and_data_are_tables_and_text() {
        let series = Series {
            name: "swap".into(),
            mark: Mark::Measured,
            points: vec![(X::Name("1/2".into()), 8.0)],
            ..Series::default()
        };
        let finding = Finding { printed: "Fig 5".into(), verdict: Verdict::Differs, ..Finding::default() };
        let study = Study {
            title: "The <b>lab</b>".into(),
            answers: vec![Answer { text: "It takes *8* times.".into(), command: "terapage run".into() }],
            findings: vec![finding],
            plots: vec![Plot { title: "Time | all".into(), series: vec![series], ..Plot::default() }],
            ..Study::default()
        };
        let text = render_markdown(&study);
        for part in [
            "# The \\<b\\>lab",
            "takes \\*8\\* times",
            "    terapage run",
            "| Fig 5 |  | differs |",
            "| 1/2 | 8 |",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(text.contains("## Time \\| all"), "{text}");
    }
}
