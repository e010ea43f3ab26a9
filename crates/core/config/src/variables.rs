//! Variables whose names begin like those of settings, but that no setting reads.

use crate::SETTINGS;

/// The beginning of the names of all variables of Terapage.
const PREFIX: &str = "TERAPAGE_";

/// Variables that are not settings: those of the command and of the library in a program.
const OTHERS: &[&str] = &[
    "TERAPAGE_BIN",
    "TERAPAGE_DEVICE",
    "TERAPAGE_FAR",
    "TERAPAGE_GUARD",
    "TERAPAGE_HOSTED",
    "TERAPAGE_JOB",
    "TERAPAGE_LAB_STATE",
    "TERAPAGE_LIBRARY",
    "TERAPAGE_ROOT",
    "TERAPAGE_STORE_PASSWORD_FILE",
    "TERAPAGE_SUMMARY",
];

/// Variables, beside those of settings, that name a file or a directory. Programs get them with
/// their whole paths, since they may change their directory.
pub const PATH_VARIABLES: &[&str] =
    &["TERAPAGE_BIN", "TERAPAGE_LAB_STATE", "TERAPAGE_LIBRARY", "TERAPAGE_STORE_PASSWORD_FILE"];

/// Variables that only the tests of this project read.
const OF_TESTS: &[&str] = &[
    "TERAPAGE_ALLOCATORS",
    "TERAPAGE_FUZZ_S",
    "TERAPAGE_INSTALLED",
    "TERAPAGE_KEEP",
    "TERAPAGE_LAB_RETRIES",
    "TERAPAGE_NATIVE",
    "TERAPAGE_RUNS",
    "TERAPAGE_SEED",
    "TERAPAGE_SLURM_CONF",
    "TERAPAGE_STEPS",
    "TERAPAGE_TEST_SERVER",
    "TERAPAGE_TEST_SERVER_WITHOUT_TLS",
    "TERAPAGE_TRACES",
];

/// A variable whose name begins like those of settings, but that no setting reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVariable {
    /// Its name, in which control characters are escaped.
    pub name: String,
    /// The variable that was probably meant.
    pub nearest: Option<&'static str>,
}

/// Those of `names` that no setting reads, in the given order.
pub fn unknown_variables<'a>(names: impl Iterator<Item = &'a str>) -> Vec<UnknownVariable> {
    let settings = || SETTINGS.iter().map(|setting| setting.variable);
    let known = |name: &str| OTHERS.iter().chain(OF_TESTS).any(|other| *other == name);
    let mut unknown: Vec<_> = names
        .filter(|name| name.starts_with(PREFIX) && !known(name) && !settings().any(|own| own == *name))
        .map(|name| {
            let short = |own: &'static str| &own[PREFIX.len()..];
            let visible = SETTINGS.iter().filter(|setting| !setting.hidden);
            let visible = visible.map(|setting| setting.variable).chain(OTHERS.iter().copied());
            let words: Vec<_> = visible.map(short).collect();
            let near = nearest(&name[PREFIX.len()..], words.iter().copied());
            let nearest = near.and_then(|near| {
                let all = settings().chain(OTHERS.iter().copied());
                all.into_iter().find(|own| short(own) == near)
            });
            UnknownVariable { name: name.escape_debug().to_string(), nearest }
        })
        .collect();
    unknown.sort_by(|one, other| one.name.cmp(&other.name));
    unknown
}

/// The most similar word in `known`: a third of the letters of `word`, and at least one, may be
/// wrong, missing, superfluous, or swapped with the next one.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (word.chars().count() / 3).max(1);
    let distances = known.into_iter().map(|own| (distance(word, own), own));
    distances
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, own)| own)
}

/// The number of letters that must be changed, added, removed or swapped with the next to turn one
/// word into the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    // Rows of the table of distances between prefixes: the last two and the current one.
    let mut before_last = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for at in 1..=one.len() {
        let mut row = vec![at];
        for to in 1..=other.len() {
            let same = one[at - 1] == other[to - 1];
            let mut best = (last[to - 1] + usize::from(!same)).min(last[to] + 1).min(row[to - 1] + 1);
            if at > 1 && to > 1 && one[at - 1] == other[to - 2] && one[at - 2] == other[to - 1] {
                let swapped: &Vec<usize> = &before_last;
                best = best.min(swapped[to - 2] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_variables_are_named_with_the_nearest() {
        let names = [
            "PATH",
            "TERAPAGE",
            "TERAPAGE_POLCY",
            "TERAPAGE_MEMROY",
            "TERAPAGE_MEMORY",
            "TERAPAGE_TURNS",
            "TERAPAGE_SEED",
            "TERAPAGE_QQQQQQQQ",
            "TERAPAGE_STORESIZE",
        ];
        let found = unknown_variables(names.into_iter());
        let found: Vec<_> = found.iter().map(|unknown| (&*unknown.name, unknown.nearest)).collect();
        assert_eq!(
            found,
            [
                ("TERAPAGE_MEMROY", Some("TERAPAGE_MEMORY")),
                ("TERAPAGE_POLCY", Some("TERAPAGE_POLICY")),
                ("TERAPAGE_QQQQQQQQ", None),
                ("TERAPAGE_STORESIZE", Some("TERAPAGE_STORE_SIZE")),
            ]
        );
    }

    #[test]
    fn variables_that_name_files_are_known() {
        assert!(PATH_VARIABLES.iter().all(|name| OTHERS.contains(name)));
    }

    #[test]
    fn a_word_is_near_if_a_third_of_it_is_wrong() {
        let commands = ["run", "stat", "top", "doctor"];
        for (word, near) in
            [("rn", Some("run")), ("nur", None), ("urn", Some("run")), ("docter", Some("doctor"))]
        {
            assert_eq!(nearest(word, commands), near, "{word}");
        }
        assert_eq!(nearest("", ["run"]), None);
    }
}
