//! The meaning of a server's refusal for an operation.

/// The remedy for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// It may pass: send the command again after a pause.
    Wait,
    /// It does not pass.
    Stop,
}

/// The known refusals, by their first word: the remedy, and the explanation for people.
const KNOWN: [(&str, Remedy, &str); 16] = [
    ("OOM", Remedy::Wait, "it is full: see terapage far ls, raise its maxmemory, or use another --store"),
    ("MISCONF", Remedy::Wait, "it cannot write to its disk: set its save to '' and appendonly to no"),
    ("LOADING", Remedy::Wait, "it was started again, and the blocks that it held are lost"),
    ("BUSY", Remedy::Wait, "it is busy with a script"),
    ("READONLY", Remedy::Wait, "it has become a replica"),
    ("MASTERDOWN", Remedy::Wait, "it has become a replica"),
    (
        "NOREPLICAS",
        Remedy::Wait,
        "it requires replicas that it does not have: set \
                                  min-replicas-to-write to 0",
    ),
    ("CLUSTERDOWN", Remedy::Wait, "its cluster is down"),
    ("TRYAGAIN", Remedy::Wait, "its cluster is being changed"),
    ("NOPERM", Remedy::Stop, "its user lacks a right: see the list in docs/far.md"),
    (
        "NOAUTH",
        Remedy::Stop,
        "it requires a password: put it into a file that TERAPAGE_STORE_PASSWORD_FILE names",
    ),
    ("WRONGPASS", Remedy::Stop, "the user or the password is wrong"),
    ("NOPROTO", Remedy::Stop, "it is too old: Redis 6 is the oldest that works"),
    ("WRONGTYPE", Remedy::Stop, "another client has written to its keys"),
    ("MOVED", Remedy::Wait, "its cluster was changed"),
    ("ASK", Remedy::Wait, "its cluster is being changed"),
];

fn known(refusal: &str) -> Option<(Remedy, &'static str)> {
    let word = refusal.split(' ').next().unwrap_or_default();
    KNOWN.iter().find(|(known, ..)| *known == word).map(|&(_, remedy, what)| (remedy, what))
}

/// The remedy for a refusal.
pub fn remedy(refusal: &str) -> Remedy {
    known(refusal).map_or(Remedy::Stop, |(remedy, _)| remedy)
}

/// Whether another password may help.
pub fn is_about_password(refusal: &str) -> bool {
    ["NOAUTH", "WRONGPASS"].contains(&refusal.split(' ').next().unwrap_or_default())
}

/// A refusal in one line of readable length.
pub fn plain(refusal: &str) -> String {
    refusal.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}

/// The explanation of a refusal for people, in one line.
pub fn told(refusal: &str) -> String {
    let said = plain(refusal);
    match known(refusal) {
        Some((_, what)) => format!("the server reports '{said}': {what}"),
        None => format!("the server reports '{said}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_known_by_their_first_word() {
        assert_eq!(remedy("OOM command not allowed when used memory > 'maxmemory'."), Remedy::Wait);
        assert_eq!(remedy("NOPERM no"), Remedy::Stop);
        assert_eq!(remedy("OOMPH"), Remedy::Stop);
        assert!(told("MISCONF x\r\n y").contains("appendonly") && !told("ERR a\nb").contains('\n'));
    }
}
