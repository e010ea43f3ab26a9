//! Servers that do not answer, as far as this process knows. The child of a fork begins with what
//! its parent knew: it does not wait for a server that is gone, and its mirrors begin with the
//! spares that took the place of such servers.

use crate::url::Server;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One of them.
#[derive(Clone)]
pub(crate) struct Away {
    server: String,
    /// Since when, by the monotonic clock.
    pub since_ns: u64,
    /// The last failure.
    pub why: String,
}

static ALL: Mutex<Vec<Away>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Away>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server does not answer.
pub(crate) fn note(server: &Server, since_ns: u64, why: &str) {
    let (server, mut all) = (server.shown(), all());
    match all.iter_mut().find(|away| away.server == server) {
        Some(away) => why.clone_into(&mut away.why),
        None => all.push(Away { server, since_ns, why: why.to_owned() }),
    }
}

/// A server answers.
pub(crate) fn forget(server: &Server) {
    let server = server.shown();
    all().retain(|away| away.server != server);
}

/// What is known of a server that does not answer.
pub(crate) fn of(server: &Server) -> Option<Away> {
    let server = server.shown();
    all().iter().find(|away| away.server == server).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_away_until_it_answers() {
        let [one, other] =
            ["valkey://one.away", "valkey://other.away"].map(|url| Server::parse(url).unwrap());
        note(&one, 5, "refused");
        note(&one, 9, "timed out");
        let known = of(&one).map(|away| (away.since_ns, away.why));
        assert_eq!(known, Some((5, "timed out".to_owned())));
        forget(&other);
        assert!(of(&other).is_none() && of(&one).is_some());
        forget(&one);
        assert!(of(&one).is_none());
    }
}
