//! The words around a study, in its language; each language has a file in `assets/words`.

use crate::study::{Ends, Language, Mark, PlotKind, Verdict};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use terapage_figures::Origin;

/// All words of a language. Names in braces are filled in.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Words {
    pub colours: String,
    pub auto: String,
    pub light: String,
    pub dark: String,
    pub summary: String,
    pub answers: String,
    pub contents: String,
    pub marks: String,
    pub series_hint: String,
    pub nothing: String,
    pub no_script: String,
    pub data: String,
    pub data_of: String,
    pub rows_cut: String,
    pub reset_zoom: String,
    pub copy: String,
    pub copied: String,
    pub parameters: String,
    pub parameter: String,
    pub value: String,
    pub origin: String,
    pub source: String,
    pub machine: String,
    pub command: String,
    pub command_again: String,
    pub footer: String,
    pub series: String,
    pub mark: String,
    pub low: String,
    pub high: String,
    pub ends: String,
    pub part: String,
    pub plot: String,
    pub unit: String,
    pub at: String,
    pub over: String,
    pub by: String,
    pub more_bars: String,
    pub range: String,
    pub whiskers: String,
    pub whiskers_of: String,
    pub interval: String,
    pub least_greatest: String,
    pub deviation: String,
    pub description: String,
    pub lines: String,
    pub bars: String,
    pub points: String,
    pub steps: String,
    pub log_scale: String,
    pub gaps: String,
    pub gap: String,
    pub below_log_one: String,
    pub below_log: String,
    pub without_value_one: String,
    pub without_value: String,
    pub measured: String,
    pub simulated: String,
    pub synthetic: String,
    pub published: String,
    pub cited: String,
    pub measured_long: String,
    pub simulated_long: String,
    pub synthetic_long: String,
    pub published_long: String,
    pub fitted: String,
    pub estimated: String,
    pub chosen: String,
    pub findings: String,
    pub printed: String,
    pub claim: String,
    pub verdict: String,
    pub here: String,
    pub figure: String,
    pub holds: String,
    pub differs: String,
    pub not_decided: String,
    pub no_longer: String,
    pub not_measured: String,
}

const ENGLISH: &str = include_str!("../assets/words/en.json");
const JAPANESE: &str = include_str!("../assets/words/ja.json");

fn read(text: &str) -> Words {
    serde_json::from_str(text).expect("the words are complete: a test reads both files")
}

impl Words {
    /// The words of a language.
    pub fn of(language: Language) -> &'static Words {
        static ALL: [OnceLock<Words>; 2] = [OnceLock::new(), OnceLock::new()];
        match language {
            Language::En => ALL[0].get_or_init(|| read(ENGLISH)),
            Language::Ja => ALL[1].get_or_init(|| read(JAPANESE)),
        }
    }

    /// The word for a mark.
    pub fn mark(&self, mark: Mark) -> &str {
        match mark {
            Mark::Measured => &self.measured,
            Mark::Simulated => &self.simulated,
            Mark::Synthetic => &self.synthetic,
            Mark::Published => &self.published,
        }
    }

    /// The word for an origin.
    pub fn origin(&self, origin: Origin) -> &str {
        match origin {
            Origin::Published => &self.published,
            Origin::Cited => &self.cited,
            Origin::Measured => &self.measured,
            Origin::Fitted => &self.fitted,
            Origin::Estimated => &self.estimated,
            Origin::Chosen => &self.chosen,
        }
    }

    /// The word for a verdict.
    pub fn verdict(&self, verdict: Verdict) -> &str {
        match verdict {
            Verdict::Holds => &self.holds,
            Verdict::Differs => &self.differs,
            Verdict::NotDecided => &self.not_decided,
            Verdict::NoLonger => &self.no_longer,
            Verdict::NotMeasured => &self.not_measured,
        }
    }

    /// What the ends of a whisker are.
    pub fn ends(&self, ends: Ends) -> &str {
        match ends {
            Ends::Interval => &self.interval,
            Ends::Range => &self.least_greatest,
            Ends::Deviation => &self.deviation,
        }
    }

    /// The word for a kind of plot.
    pub fn kind(&self, kind: PlotKind) -> &str {
        match kind {
            PlotKind::Line => &self.lines,
            PlotKind::Bar => &self.bars,
            PlotKind::Scatter => &self.points,
            PlotKind::Step => &self.steps,
        }
    }

    /// A value with the ends of its whisker: `1.3 (1.2 to 1.4)`.
    pub fn with_ends(&self, value: &str, low: &str, high: &str) -> String {
        filled(&self.range, &[("value", value), ("low", low), ("high", high)])
    }
}

/// A text with its `{names}` filled in. The values that are filled in are not searched for names.
pub fn filled(text: &str, values: &[(&str, &str)]) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else { break };
        out += before;
        out += values.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value);
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::{ENGLISH, JAPANESE, Words, filled};
    use crate::study::Language;
    use std::collections::{BTreeMap, BTreeSet};

    fn names(text: &str) -> BTreeSet<&str> {
        text.split('{').skip(1).filter_map(|part| part.split_once('}')).map(|(name, _)| name).collect()
    }

    #[test]
    fn both_languages_have_all_words_with_the_same_names() {
        let texts = |json| serde_json::from_str::<BTreeMap<String, String>>(json).unwrap();
        let (english, japanese) = (texts(ENGLISH), texts(JAPANESE));
        for (key, text) in &english {
            assert_eq!(names(text), names(&japanese[key]), "{key}");
            assert!(!text.trim().is_empty() && !japanese[key].trim().is_empty(), "{key}");
        }
        assert!(Words::of(Language::Ja).holds != Words::of(Language::En).holds);
    }

    #[test]
    fn what_is_filled_in_is_not_filled_again() {
        assert_eq!(filled("{a} and {b}{c}", &[("a", "{b}"), ("b", "2")]), "{b} and 2");
        assert_eq!(filled("an open {", &[]), "an open {");
    }
}
