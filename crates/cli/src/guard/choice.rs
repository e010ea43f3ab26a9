//! Which program is adopted: the largest that the list allows.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// A program with less memory is left alone: a pager would need about as much as it could free.
const SMALL: u64 = 64 << 20;
/// After a first refusal a program is tried again after this time, after each further one after
/// twice the time ...
const PAUSE: Duration = Duration::from_secs(2);
/// ... as before, but at most this.
const PAUSE_MOST: Duration = Duration::from_secs(512);

/// A process: its number, and when it began, in the kernel's ticks. The kernel uses numbers again.
pub type Who = (u32, u64);

/// A process that the list allows.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub who: Who,
    /// Its private memory.
    pub bytes: u64,
    pub is_paged: bool,
    /// Whether memory is short around it.
    pub is_short: bool,
}

/// The processes that were refused: how often, and until when they are left alone. Times are those
/// since the command began.
#[derive(Debug, Default)]
pub struct Refusals(BTreeMap<Who, (u32, Duration)>);

impl Refusals {
    /// Notes that a process was refused, and returns for how long it is left alone.
    pub fn note(&mut self, who: Who, now: Duration) -> Duration {
        let (count, until) = self.0.entry(who).or_default();
        let pause = PAUSE.saturating_mul(1 << (*count).min(30)).min(PAUSE_MOST);
        (*count, *until) = (*count + 1, now + pause);
        pause
    }

    /// Forgets the processes that have ended.
    pub fn keep(&mut self, is_there: impl Fn(Who) -> bool) {
        self.0.retain(|&who, _| is_there(who));
    }

    fn is_left_alone(&self, who: Who, now: Duration) -> bool {
        self.0.get(&who).is_some_and(|&(_, until)| now < until)
    }
}

/// The number of the candidate that is to be adopted now, if there is one.
pub fn choose(candidates: &[Candidate], refusals: &Refusals, now: Duration) -> Option<usize> {
    let may_be = |one: &Candidate| {
        one.is_short && !one.is_paged && one.bytes >= SMALL && !refusals.is_left_alone(one.who, now)
    };
    (0..candidates.len())
        .filter(|&at| may_be(&candidates[at]))
        .max_by_key(|&at| (candidates[at].bytes, Reverse(candidates[at].who)))
}

/// Whether a name has the form of a pattern, in which `*` stands for any characters and `?` for
/// one.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // The last star, and the place in the name up to which that star reaches.
    let (mut at, mut from, mut star) = (0, 0, None);
    while from < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(&one) if one == '?' || one == name[from] => (at, from) = (at + 1, from + 1),
            _ => {
                let Some((stars, reach)) = star else { return false };
                star = Some((stars, reach + 1));
                (at, from) = (stars + 1, reach + 1);
            }
        }
    }
    pattern[at..].iter().all(|&one| one == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naively(pattern: &[char], name: &[char]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, _) => name.is_empty(),
            (Some((&'*', rest)), next) => {
                naively(rest, name) || next.is_some_and(|(_, left)| naively(pattern, left))
            }
            (Some((one, rest)), Some((first, left))) => (*one == '?' || one == first) && naively(rest, left),
            (Some(_), None) => false,
        }
    }

    #[test]
    fn a_pattern_is_a_whole_name() {
        for (pattern, name, is_so) in [
            ("sort", "sort", true),
            ("sort", "resort", false),
            ("python*", "python3.11", true),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, name), is_so, "{pattern} {name}");
        }
    }

    /// What happens: a process is refused, time passes, or one is chosen.
    #[derive(Clone, Debug)]
    enum Step {
        Refuse(usize),
        Pass(u64),
        Choose(Vec<Candidate>),
    }

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        let one = (0..6u32, 0..2u64, 0..5u64, any::<bool>(), any::<bool>());
        let one = one.prop_map(|(pid, began, size, is_paged, is_short)| Candidate {
            who: (pid, began),
            bytes: size * SMALL / 2,
            is_paged,
            is_short,
        });
        proptest::collection::vec(one, 0..8)
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..12usize).prop_map(Step::Refuse),
            (0..5000u64).prop_map(Step::Pass),
            candidates().prop_map(Step::Choose),
        ];
        proptest::collection::vec(step, 1..60)
    }

    proptest! {
        #[test]
        fn patterns_match_as_a_naive_matcher_has_it(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches(&pattern, &name), naively(&chars(&pattern), &chars(&name)));
        }

        #[test]
        fn the_largest_that_is_allowed_unpaged_and_not_refused_lately_is_chosen(steps in steps()) {
            let mut refusals = Refusals::default();
            // Each refusal ever, in order: who, when, s.
            let (mut all, mut now) = (Vec::new(), 0);
            for step in steps {
                match step {
                    Step::Refuse(number) => {
                        let who = ((number % 6) as u32, (number / 6) as u64);
                        let before = all.iter().filter(|&&(other, _)| other == who).count();
                        let pause = refusals.note(who, Duration::from_secs(now));
                        prop_assert_eq!(pause.as_secs(), (2 << before.min(20)).min(512));
                        all.push((who, now));
                    }
                    Step::Pass(seconds) => now += seconds % 700,
                    Step::Choose(candidates) => {
                        let is_alone = |who: Who| {
                            let times: Vec<u64> =
                                all.iter().filter(|&&(other, _)| other == who).map(|&(_, at)| at).collect();
                            times.last().is_some_and(|at| now < at + (1 << times.len().min(20)).min(512))
                        };
                        let mut largest: Option<&Candidate> = None;
                        for one in &candidates {
                            let may = one.is_short && !one.is_paged && one.bytes >= SMALL && !is_alone(one.who);
                            let is_larger = largest.is_none_or(|best| {
                                one.bytes > best.bytes || one.bytes == best.bytes && one.who < best.who
                            });
                            if may && is_larger {
                                largest = Some(one);
                            }
                        }
                        let chosen = choose(&candidates, &refusals, Duration::from_secs(now));
                        prop_assert_eq!(chosen.map(|at| candidates[at].who), largest.map(|one| one.who));
                    }
                }
            }
        }
    }
}
