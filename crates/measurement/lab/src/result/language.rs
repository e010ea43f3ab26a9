//! The lab's texts in the reader's language: one file for each, in `languages`.

use crate::experiment::Cell;
use crate::result::number::number;
use crate::result::pairs::Ratio;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use terapage_report::Language;

/// The texts of a language.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Texts {
    /// Sentences, with `{names}` to be filled in.
    say: BTreeMap<String, String>,
    /// The contenders' names in sentences.
    #[serde(default)]
    contender: BTreeMap<String, String>,
    /// The papers' findings.
    #[serde(default)]
    finding: BTreeMap<String, FindingText>,
    /// The first page's answers.
    #[serde(default)]
    answer: BTreeMap<String, String>,
    /// Translations of the experiments' English texts.
    #[serde(default)]
    text: BTreeMap<String, String>,
    #[serde(skip)]
    language: Language,
}

/// A finding in words.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FindingText {
    /// The finding, a sentence.
    pub claim: String,
    /// The name of the number that decides.
    #[serde(default)]
    pub value: String,
    /// Why it can no longer be measured, or how it can be measured.
    #[serde(default)]
    pub why: String,
}

const ENGLISH: &str = include_str!("../../languages/en.toml");
const JAPANESE: &str = include_str!("../../languages/ja.toml");

impl Texts {
    /// The texts of a language.
    pub fn of(language: Language) -> &'static Texts {
        static ALL: [OnceLock<Texts>; 2] = [OnceLock::new(), OnceLock::new()];
        match language {
            Language::En => ALL[0].get_or_init(|| Texts::read(ENGLISH, language)),
            Language::Ja => ALL[1].get_or_init(|| Texts::read(JAPANESE, language)),
        }
    }

    /// Reads a file of texts that is built into the program.
    pub fn read(file: &str, language: Language) -> Texts {
        let texts: Texts = toml::from_str(file).expect("the texts are right: a test reads all files");
        Texts { language, ..texts }
    }

    /// The language.
    pub fn language(&self) -> Language {
        self.language
    }

    /// A sentence, filled in. Names within the filled-in values are not replaced.
    pub fn say(&self, key: &str, values: &[(&str, &str)]) -> String {
        let Some(text) = self.say.get(key) else { return key.to_owned() };
        let (mut out, mut rest) = (String::new(), text.as_str());
        while let Some((before, after)) = rest.split_once('{') {
            let Some((name, after)) = after.split_once('}') else { break };
            out += before;
            out += values.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value);
            rest = after;
        }
        out + rest
    }

    /// An experiment's text in this language, if a translation is known; otherwise the text itself,
    /// in one line.
    pub fn text(&self, text: &str) -> String {
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.text.get(&line).cloned().unwrap_or(line)
    }

    /// A contender in a sentence.
    pub fn contender(&self, name: &str) -> String {
        self.contender.get(name).cloned().unwrap_or_else(|| name.to_owned())
    }

    /// A finding's texts.
    pub fn finding(&self, id: &str) -> Option<&FindingText> {
        self.finding.get(id)
    }

    /// The beginning of an answer.
    pub fn answer(&self, id: &str) -> &str {
        self.answer.get(id).map_or("", String::as_str)
    }

    /// A cell in words; empty if there is only one cell.
    pub fn cell(&self, cell: &Cell) -> String {
        let words: Vec<String> =
            cell.iter().map(|(key, value)| format!("{} {value}", self.text(key))).collect();
        words.join(&self.say("and", &[]))
    }

    /// Several parts of a sentence.
    pub fn list(&self, parts: &[String]) -> String {
        parts.join(&self.say("and", &[]))
    }

    /// `1.30 (1.20 to 1.40)`.
    pub fn interval(&self, ratio: &Ratio) -> String {
        self.range(ratio.center, ratio.low, ratio.high)
    }

    /// A value with its ends, if they differ.
    pub fn range(&self, value: f64, low: f64, high: f64) -> String {
        match low == high {
            true => number(value),
            false => {
                let (value, low, high) = (number(value), number(low), number(high));
                self.say("range", &[("value", &value), ("low", &low), ("high", &high)])
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::{ENGLISH, JAPANESE, Texts};
    use crate::experiment::Experiment;
    use crate::experiment::tests::every;
    use std::collections::BTreeSet;
    use terapage_report::Language;

    /// All that a shipped experiment says.
    fn said(experiment: &Experiment) -> Vec<String> {
        let mut all = vec![experiment.title.clone(), experiment.about.clone()];
        all.extend(experiment.matrix.keys().cloned());
        for plot in &experiment.plot {
            all.extend([plot.title.clone(), plot.note.clone()]);
        }
        for printed in &experiment.published {
            all.extend([printed.what.clone(), printed.note.clone()]);
        }
        all.retain(|text| !text.trim().is_empty());
        all.iter().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn what_experiments_say_is_there_in_japanese() {
        let texts = Texts::of(Language::Ja);
        let mut missing = Vec::new();
        for (name, experiment) in every() {
            let open: Vec<String> =
                said(&experiment).into_iter().filter(|text| !texts.text.contains_key(text)).collect();
            if open.contains(&experiment.title) {
                println!("SKIPPED: {name} is not translated: it is shown in English");
                continue;
            }
            missing.extend(open);
        }
        assert!(missing.is_empty(), "not in languages/ja.toml, [text]:\n{}", missing.join("\n"));
    }

    fn names(text: &str) -> BTreeSet<&str> {
        text.split('{').skip(1).filter_map(|part| part.split_once('}')).map(|(name, _)| name).collect()
    }

    #[test]
    fn both_languages_say_the_same() {
        let (english, japanese) = (Texts::of(Language::En), Texts::of(Language::Ja));
        assert!(english.text.is_empty());
        for (key, text) in &english.say {
            let other = japanese.say.get(key).unwrap_or_else(|| panic!("{key} is missing in Japanese"));
            assert_eq!(names(text), names(other), "{key}");
        }
        let keys = |of: &Texts| -> [BTreeSet<String>; 4] {
            [
                of.say.keys().cloned().collect(),
                of.contender.keys().cloned().collect(),
                of.finding.keys().cloned().collect(),
                of.answer.keys().cloned().collect(),
            ]
        };
        assert_eq!(keys(english), keys(japanese));
        for (id, finding) in &english.finding {
            let other = &japanese.finding[id];
            assert_eq!(finding.value.is_empty(), other.value.is_empty(), "{id}");
            assert_eq!(finding.why.is_empty(), other.why.is_empty(), "{id}");
        }
        assert!(ENGLISH.is_ascii() && !JAPANESE.is_ascii());
    }

    #[test]
    fn every_sentence_that_is_asked_for_is_there() {
        let sources = [
            include_str!("study.rs"),
            include_str!("answers.rs"),
            include_str!("plots.rs"),
            include_str!("tables.rs"),
            include_str!("findings.rs"),
            include_str!("remarks.rs"),
            include_str!("language.rs"),
            include_str!("compare.rs"),
            include_str!("steady.rs"),
            include_str!("verdict.rs"),
        ];
        let texts = Texts::of(Language::En);
        let mut asked = BTreeSet::new();
        for source in sources {
            let parts = source.split("say(\"").skip(1).filter_map(|part| part.split_once('"'));
            asked.extend(parts.map(|(key, _)| key.to_owned()));
        }
        let known: BTreeSet<String> = texts.say.keys().cloned().collect();
        assert_eq!(asked, known);
    }

    #[test]
    fn what_is_filled_in_is_not_filled_again() {
        let said = Texts::of(Language::En).say("range", &[("value", "{low}"), ("low", "1"), ("high", "2")]);
        assert_eq!(said, "{low} (1 to 2)");
    }
}
