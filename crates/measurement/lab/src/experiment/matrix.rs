//! The cells of an experiment, their sizes, and texts with names filled in.

use crate::experiment::{Cell, Experiment, Only};
use anyhow::{anyhow, bail, ensure};
use std::collections::BTreeMap;
use terapage_config::Size;

impl Experiment {
    /// All combinations of the matrix's values.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = vec![Cell::new()];
        for (key, values) in &self.matrix {
            cells = cells
                .into_iter()
                .flat_map(|cell| {
                    values.iter().map(move |value| {
                        let mut cell = cell.clone();
                        cell.insert(key.clone(), value.to_string());
                        cell
                    })
                })
                .collect();
        }
        cells.retain(|cell| !self.skip.iter().any(|skip| is_in(skip, cell)));
        cells
    }

    /// The sizes of a cell, bytes.
    ///
    /// # Errors
    /// A term that cannot be calculated.
    pub fn sizes_of(&self, cell: &Cell) -> anyhow::Result<BTreeMap<String, u64>> {
        let mut sizes = BTreeMap::new();
        // Each size may depend on others, in any order.
        for _ in 0..self.sizes.len() {
            for (name, term) in &self.sizes {
                if let Ok(bytes) = self.term(name, term, cell, &sizes) {
                    sizes.insert(name.clone(), bytes);
                }
            }
        }
        for (name, term) in &self.sizes {
            self.term(&format!("sizes.{name}"), term, cell, &sizes)?;
        }
        Ok(sizes)
    }

    /// The value of a term such as `data * ratio / 2`: sizes, numbers, fractions and names, with
    /// spaces around each operator, evaluated from left to right.
    ///
    /// # Errors
    /// The text is not a term; `what` says for what it stands.
    pub fn term(
        &self,
        what: &str,
        term: &str,
        cell: &Cell,
        sizes: &BTreeMap<String, u64>,
    ) -> anyhow::Result<u64> {
        let value = |word: &str| -> Option<f64> {
            if let Some(bytes) = sizes.get(word) {
                return Some(*bytes as f64);
            }
            atom(cell.get(word).map_or(word, String::as_str))
        };
        let mut words = term.split_whitespace();
        let wrong = |word: &str| anyhow!("{what} = \"{term}\": {word} is no size, number, name or sign");
        let first = words.next().unwrap_or("0");
        let mut total = value(first).ok_or_else(|| wrong(first))?;
        while let Some(sign) = words.next() {
            let word = words.next().unwrap_or("");
            let next = value(word).ok_or_else(|| wrong(if word.is_empty() { sign } else { word }))?;
            match sign {
                "*" => total *= next,
                "/" => total /= next,
                "+" => total += next,
                "-" => total -= next,
                _ => bail!(wrong(sign)),
            }
        }
        ensure!(total.is_finite() && total >= 0.0, "{what} = \"{term}\": {total} is no size");
        Ok(total as u64)
    }

    /// A text with its `{names}` filled in.
    ///
    /// # Errors
    /// A name is unknown.
    pub fn filled(
        &self,
        text: &str,
        cell: &Cell,
        sizes: &BTreeMap<String, u64>,
        others: &[(&str, &str)],
    ) -> anyhow::Result<String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            out += before;
            let (name, after) =
                after.split_once('}').ok_or_else(|| anyhow!("program.run: \"{text}\" lacks a }}"))?;
            let size = sizes.get(name).map(u64::to_string);
            let other =
                || others.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            let value = size.or_else(|| cell.get(name).cloned()).or_else(other);
            out += &value
                .ok_or_else(|| anyhow!("program.run: {{{name}}} is no size and no key of the matrix"))?;
            rest = after;
        }
        Ok(out + rest)
    }
}

/// A number, a fraction or a size.
pub fn atom(word: &str) -> Option<f64> {
    let fraction = || {
        let (above, below) = word.split_once('/')?;
        Some(above.parse::<f64>().ok()? / below.parse::<f64>().ok()?)
    };
    let size = || word.parse::<Size>().ok().map(|Size(bytes)| bytes as f64);
    word.parse().ok().or_else(fraction).or_else(size)
}

/// Whether a cell is among those of `only`.
pub fn is_in(only: &Only, cell: &Cell) -> bool {
    only.iter().all(|(key, values)| {
        cell.get(key).is_some_and(|found| values.iter().any(|value| value.to_string() == *found))
    })
}

/// A cell in words: `block 4K, ratio 1/8`; empty if there is only one cell.
pub fn words(cell: &Cell) -> String {
    cell.iter().map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{atom, is_in};
    use crate::experiment::tests::TEXT;
    use crate::experiment::{Cell, Experiment, Value};

    #[test]
    fn numbers_fractions_and_sizes_are_values() {
        assert_eq!(atom("1.5"), Some(1.5));
        assert_eq!(atom("1/8"), Some(0.125));
        assert_eq!(atom("4K"), Some(4096.0));
        assert_eq!(atom("x"), None);
    }

    #[test]
    fn cells_are_chosen_by_their_values() {
        let experiment = Experiment::parse(TEXT, "a.toml").expect("it is right");
        let only = [("ratio".to_owned(), vec![Value::Number(0.25)])].into();
        let chosen: Vec<bool> = experiment.cells().iter().map(|cell| is_in(&only, cell)).collect();
        assert_eq!(chosen, [false, true]);
        assert!(!is_in(&only, &Cell::new()));
    }
}
