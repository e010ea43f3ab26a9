//! Lines of limited width, whose characters a terminal only displays.

use textwrap::{Options, wrap};
use unicode_width::UnicodeWidthChar;

/// The text so far.
pub struct Page {
    columns: usize,
    lines: Vec<String>,
}

impl Page {
    pub fn new(columns: usize) -> Page {
        Page { columns, lines: Vec::new() }
    }

    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Adds a line that fits and has only characters that a terminal displays.
    pub fn line(&mut self, line: &str) {
        debug_assert!(width(line) <= self.columns, "{line}");
        self.lines.push(line.trim_end().to_owned());
    }

    /// Adds an empty line, unless the last one is empty.
    pub fn gap(&mut self) {
        if self.lines.last().is_some_and(|line| !line.is_empty()) {
            self.lines.push(String::new());
        }
    }

    /// Adds a heading with a line below it; only a gap if the heading is empty.
    pub fn heading(&mut self, text: &str, rule: char) {
        self.gap();
        if text.trim().is_empty() {
            return;
        }
        let lines = self.wrapped(text, self.columns);
        let longest = lines.iter().map(|line| width(line)).max().unwrap_or(0);
        lines.iter().for_each(|line| self.line(line));
        if longest > 0 {
            self.line(&String::from(rule).repeat(longest));
        }
    }

    /// Adds a wrapped text; nothing if it is empty. All lines but the first begin with `indent`.
    pub fn paragraph(&mut self, text: &str, indent: &str) {
        for part in text.lines() {
            let part = self.clean(part);
            let options = Options::new(self.columns).subsequent_indent(indent);
            wrap(part.trim_end(), options).iter().for_each(|line| self.line(line));
        }
    }

    /// Adds a name and its value.
    pub fn pair(&mut self, name: &str, value: &str) {
        self.paragraph(&format!("{}: {}", name.replace('\n', " "), value.replace('\n', " ")), "    ");
    }

    /// Adds a command; words are split only if they do not fit.
    pub fn verbatim(&mut self, text: &str) {
        for part in text.lines() {
            let part = self.clean(part);
            let options = Options::new(self.columns).initial_indent("  ").subsequent_indent("    ");
            wrap(&part, options).iter().for_each(|line| self.line(line));
        }
    }

    /// A text as lines of at most this many columns; at least one line.
    pub fn wrapped(&self, text: &str, columns: usize) -> Vec<String> {
        let text = self.clean(text);
        wrap(text.trim(), columns.max(2)).into_iter().map(|line| line.into_owned()).collect()
    }

    /// A text in one line of at most this many columns. A text that is too long is cut in the
    /// middle, with a sign there, since its end may distinguish it.
    pub fn cut(&self, text: &str, columns: usize) -> String {
        let text = self.clean(text);
        let text = text.trim();
        if width(text) <= columns {
            return text.to_owned();
        }
        let spare = columns.saturating_sub(1);
        let begin: String = first(text.chars(), spare - spare / 3).collect();
        let end: Vec<char> = first(text.chars().rev(), spare / 3).collect();
        let sign = if columns > 0 { Some('…') } else { None };
        begin.chars().chain(sign).chain(end.into_iter().rev()).collect()
    }

    /// The text without characters that move the cursor, change the order of letters or have no
    /// certain width.
    pub fn clean(&self, text: &str) -> String {
        let shown = |letter: char| if letter.width().is_none() { ' ' } else { letter };
        let moves = |letter: char| matches!(letter, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}');
        text.chars().filter(|letter| !moves(*letter)).map(shown).collect()
    }

    pub fn finish(mut self) -> String {
        while self.lines.last().is_some_and(String::is_empty) {
            self.lines.pop();
        }
        self.lines.join("\n") + "\n"
    }
}

/// As many characters as fit into this many columns.
fn first(text: impl Iterator<Item = char>, columns: usize) -> impl Iterator<Item = char> {
    text.scan(0, |taken, letter| {
        *taken += letter.width().unwrap_or(0);
        Some((*taken, letter))
    })
    .take_while(move |(taken, _)| *taken <= columns)
    .map(|(_, letter)| letter)
}

/// The columns that a text occupies.
pub fn width(text: &str) -> usize {
    text.chars().map(|letter| letter.width().unwrap_or(0)).sum()
}

/// A text, filled with spaces to this many columns.
pub fn padded(text: &str, columns: usize, right: bool) -> String {
    let spaces = " ".repeat(columns.saturating_sub(width(text)));
    if right { spaces + text } else { text.to_owned() + &spaces }
}
