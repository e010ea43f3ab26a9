//! Tables in the terminal.

use super::paragraph::{Page, padded, width};

/// The space between two columns.
const BETWEEN: usize = 2;
/// A column of words that is wider than this is not made narrower than this.
const NARROW: usize = 10;

/// Draws a table with aligned columns; if these do not fit, each row as a list.
pub fn draw(page: &mut Page, heads: &[String], rows: &[Vec<String>], right: &[bool]) {
    if heads.is_empty() {
        return;
    }
    match fit(page, heads, rows, right) {
        Some(widths) => aligned(page, heads, rows, right, &widths),
        None => listed(page, heads, rows),
    }
}

/// A width for each column; `None` if they do not fit. The widest column of words is narrowed
/// first.
fn fit(page: &Page, heads: &[String], rows: &[Vec<String>], right: &[bool]) -> Option<Vec<usize>> {
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let widest = |column: usize| cells(column).map(|cell| width(page.clean(cell).trim())).max().unwrap_or(0);
    let longest_word = |text: &str| text.split_whitespace().map(width).max().unwrap_or(0);
    let mut widths = Vec::new();
    let mut least = Vec::new();
    for (column, head) in heads.iter().enumerate() {
        let head = page.clean(head);
        let (cell, word) = (widest(column), longest_word(&head));
        let natural = cell.max(width(head.trim())).max(1);
        widths.push(natural);
        least.push(if right[column] { cell.max(word).max(1) } else { natural.min(NARROW.max(word)) });
    }
    let spare = page.columns().checked_sub(BETWEEN * (heads.len() - 1))?;
    if least.iter().sum::<usize>() > spare {
        return None;
    }
    while widths.iter().sum::<usize>() > spare {
        let shrinkable = (0..widths.len()).filter(|column| widths[*column] > least[*column]);
        let column = shrinkable.max_by_key(|column| widths[*column])?;
        widths[column] -= 1;
    }
    Some(widths)
}

fn aligned(page: &mut Page, heads: &[String], rows: &[Vec<String>], right: &[bool], widths: &[usize]) {
    if heads.iter().any(|head| !head.trim().is_empty()) {
        row(page, heads, right, widths);
        let rules: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
        page.line(&rules.join(&" ".repeat(BETWEEN)));
    }
    rows.iter().for_each(|cells| row(page, cells, right, widths));
}

/// One row, with as many lines as its highest cell.
fn row(page: &mut Page, cells: &[String], right: &[bool], widths: &[usize]) {
    let cell = |(column, width): (usize, &usize)| {
        let text = cells.get(column).map_or("", String::as_str);
        page.wrapped(text, *width)
    };
    let wrapped: Vec<Vec<String>> = widths.iter().enumerate().map(cell).collect();
    let height = wrapped.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..height {
        let cell = |(column, lines): (usize, &Vec<String>)| {
            padded(lines.get(line).map_or("", String::as_str), widths[column], right[column])
        };
        let cells: Vec<String> = wrapped.iter().enumerate().map(cell).collect();
        page.line(&cells.join(&" ".repeat(BETWEEN)));
    }
}

fn listed(page: &mut Page, heads: &[String], rows: &[Vec<String>]) {
    for (at, row) in rows.iter().enumerate() {
        if at > 0 {
            page.gap();
        }
        heads
            .iter()
            .zip(row)
            .filter(|(_, cell)| !cell.trim().is_empty())
            .for_each(|(head, cell)| page.pair(head, cell));
    }
}
