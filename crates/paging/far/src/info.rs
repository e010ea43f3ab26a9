//! A server's description of itself (`INFO`), and whether it can hold blocks.

/// The relevant fields of `INFO`. A field that the server does not report has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// A new value at each start of the server: if it differs, all earlier contents are gone.
    pub run_id: String,
    /// `valkey 9.1.2`, `redis 7.0.15`.
    pub version: String,
    /// `master`, or the role of a replica.
    pub role: String,
    /// The eviction policy.
    pub policy: String,
    /// Bytes that it may use; 0: all memory of the machine.
    pub memory_max: u64,
    /// Bytes that it uses.
    pub memory_used: u64,
    /// Keys that it has evicted because memory ran out.
    pub evicted: u64,
    /// Whether it is loading its data from a disk.
    pub is_loading: bool,
    /// Whether it writes each command to a disk.
    pub writes_log: bool,
    /// Whether it sometimes writes all of its memory to a disk, as far as it reports that.
    pub writes_copies: bool,
    /// Whether it is part of a cluster.
    pub is_cluster: bool,
}

impl Info {
    /// Reads the answer.
    pub fn parse(text: &str) -> Info {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(str::trim).unwrap_or_default()
        };
        let number = |name: &str| field(name).parse().unwrap_or(0);
        let version = match (field("valkey_version"), field("redis_version")) {
            ("", redis) => format!("redis {redis}"),
            (valkey, _) => format!("valkey {valkey}"),
        };
        Info {
            run_id: field("run_id").to_owned(),
            version,
            role: field("role").to_owned(),
            policy: field("maxmemory_policy").to_owned(),
            memory_max: number("maxmemory"),
            memory_used: number("used_memory"),
            evicted: number("evicted_keys"),
            is_loading: number("loading") != 0,
            writes_log: number("aof_enabled") != 0,
            writes_copies: number("rdb_bgsave_in_progress") != 0 || number("rdb_saves") != 0,
            is_cluster: number("cluster_enabled") != 0,
        }
    }

    /// Why it cannot hold blocks, if so.
    pub fn refusal(&self) -> Option<String> {
        if self.run_id.is_empty() {
            return Some("does not report its run_id: give the user the right +info".to_owned());
        }
        if self.is_replica() {
            return Some(format!("is a {}: name the server that it follows", self.role));
        }
        if self.policy.starts_with("allkeys") {
            return Some(format!(
                "discards blocks when it is full: set its maxmemory-policy to noeviction (it is {})",
                self.policy
            ));
        }
        None
    }

    /// Whether it follows another server, and accepts no writes.
    pub fn is_replica(&self) -> bool {
        !matches!(&*self.role, "master" | "")
    }

    /// Settings that may harm a program that uses it, one line each.
    pub fn warnings(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.memory_max == 0 {
            lines.push("has no maxmemory: the kernel may kill it when its machine is full".to_owned());
        }
        if self.writes_log {
            lines.push("writes all blocks to a disk as well (appendonly): set it to no".to_owned());
        }
        lines
    }

    /// Whether half of its memory or more is in use.
    pub fn is_tight(&self) -> bool {
        self.room_bytes().is_some_and(|room| room < self.memory_max / 2)
    }

    /// Bytes that may still be stored there. A tenth stays free, because a full server refuses even
    /// to overwrite old blocks. `None` if it does not report this.
    pub fn room_bytes(&self) -> Option<u64> {
        (self.memory_max > 0).then(|| (self.memory_max / 10 * 9).saturating_sub(self.memory_used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.1.2\r\nrun_id:abc\r\n# Memory\r\n\
        used_memory:1000\r\nused_memory_human:1K\r\nmaxmemory:100000\r\nmaxmemory_policy:noeviction\r\n\
        loading:0\r\naof_enabled:0\r\nevicted_keys:3\r\nrole:master\r\ncluster_enabled:0\r\n";

    #[test]
    fn the_answer_is_read() {
        let info = Info::parse(TEXT);
        assert_eq!((&*info.version, &*info.run_id, info.evicted), ("valkey 9.1.2", "abc", 3));
        assert_eq!((info.refusal(), info.room_bytes()), (None, Some(89000)));
        assert!(info.warnings().is_empty());
        assert!(!info.is_tight() && Info { memory_used: 41_000, ..info.clone() }.is_tight());
        assert_eq!(Info::parse("redis_version:7.0.15\n").version, "redis 7.0.15");
    }

    #[test]
    fn servers_that_would_lose_blocks_are_refused() {
        let with = |from: &str, to: &str| Info::parse(&TEXT.replace(from, to)).refusal();
        assert!(with("noeviction", "allkeys-lru").unwrap().contains("maxmemory-policy"));
        assert_eq!(with("noeviction", "volatile-lru"), None);
        assert!(with("role:master", "role:slave").is_some());
        assert!(with("run_id:abc", "").is_some());
        assert_eq!(Info::parse(&TEXT.replace("maxmemory:100000", "maxmemory:0")).warnings().len(), 1);
    }
}
