//! Mechanisms: parts of the model that can be switched off, to find what they explain.

use std::fmt;
use std::str::FromStr;

/// A part of the model that can be left out (`--without`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// Cores exclude one another at the lock of a volume's request queue.
    QueueLock,
    /// Cores exclude one another at the lock of a host (controller).
    HostLock,
    /// Requests of one system call are held back and enter the queue together.
    Plugging,
    /// A cache line last written by another core costs time to fetch.
    CacheTransfer,
    /// A ticket lock is handed over more slowly if more cores watch it.
    WaiterStorm,
    /// The two logical CPUs of a core slow each other down.
    Smt,
    /// Completions run on another core than the one that submitted.
    RemoteCompletion,
    /// One interrupt serves all completions that have arrived by then.
    Coalescing,
    /// The I/Os of a system call share one entry, one sleep and one wake-up.
    CallSharing,
    /// The front end has a limit.
    FrontEnd,
}

impl Mechanism {
    /// All mechanisms, in the order of the documentation.
    pub const ALL: [Mechanism; 10] = [
        Mechanism::QueueLock,
        Mechanism::HostLock,
        Mechanism::Plugging,
        Mechanism::CacheTransfer,
        Mechanism::WaiterStorm,
        Mechanism::Smt,
        Mechanism::RemoteCompletion,
        Mechanism::Coalescing,
        Mechanism::CallSharing,
        Mechanism::FrontEnd,
    ];

    /// The mechanism's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::QueueLock => "queue-lock",
            Mechanism::HostLock => "host-lock",
            Mechanism::Plugging => "plugging",
            Mechanism::CacheTransfer => "cache-transfer",
            Mechanism::WaiterStorm => "waiter-storm",
            Mechanism::Smt => "smt",
            Mechanism::RemoteCompletion => "remote-completion",
            Mechanism::Coalescing => "coalescing",
            Mechanism::CallSharing => "call-sharing",
            Mechanism::FrontEnd => "front-end",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An unknown mechanism.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown mechanism '{name}'; known are {}", Mechanism::ALL.map(Mechanism::name).join(", "))]
pub struct UnknownMechanism {
    name: String,
}

impl FromStr for Mechanism {
    type Err = UnknownMechanism;

    fn from_str(name: &str) -> Result<Self, UnknownMechanism> {
        Mechanism::ALL
            .into_iter()
            .find(|mechanism| mechanism.name() == name)
            .ok_or_else(|| UnknownMechanism { name: name.into() })
    }
}

/// The enabled mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mechanisms {
    off: u16,
}

impl Mechanisms {
    /// All are on.
    pub fn all() -> Self {
        Mechanisms { off: 0 }
    }

    /// These mechanisms without one of them.
    #[must_use]
    pub fn without(self, mechanism: Mechanism) -> Self {
        Mechanisms { off: self.off | 1 << mechanism as u16 }
    }

    /// Whether `mechanism` is on.
    pub fn has(self, mechanism: Mechanism) -> bool {
        self.off & (1 << mechanism as u16) == 0
    }
}

impl FromIterator<Mechanism> for Mechanisms {
    /// All mechanisms except the named ones.
    fn from_iter<I: IntoIterator<Item = Mechanism>>(off: I) -> Self {
        off.into_iter().fold(Mechanisms::all(), Mechanisms::without)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        for mechanism in Mechanism::ALL {
            assert_eq!(mechanism.name().parse(), Ok(mechanism));
        }
        let error = "lock".parse::<Mechanism>().unwrap_err().to_string();
        assert!(error.starts_with("unknown mechanism 'lock'; known are queue-lock, host-lock"), "{error}");
    }

    #[test]
    fn each_is_switched_off_by_itself() {
        for off in Mechanism::ALL {
            let mechanisms = Mechanisms::from_iter([off]);
            for other in Mechanism::ALL {
                assert_eq!(mechanisms.has(other), other != off);
            }
        }
    }
}
