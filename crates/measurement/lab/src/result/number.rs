//! Numbers in the form for sentences and tables.

/// A number with three or more digits that matter.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_written_plainly() {
        for (value, text) in
            [(1234.5, "1234"), (12.34, "12.3"), (0.957, "0.96"), (0.0012, "0.0012"), (0.0, "0.00")]
        {
            assert_eq!(number(value), text);
        }
    }
}
