//! The text: Prometheus' own format, or OpenMetrics, which names counters otherwise and has an end.

use super::collect::{Labels, Troubled};
use crate::watch::sums::Sums;
use std::collections::BTreeMap;
use std::fmt::Write;
use terapage_stats::BUCKETS;

/// The format, of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Version 0.0.4 of Prometheus' text format.
    Text,
    /// Version 1.0.0 of OpenMetrics.
    Open,
}

impl Format {
    /// The format's name in HTTP.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::Open => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The type of a metric.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gauge,
    Counter,
}

/// One sample of a metric: an additional label, and a function that computes the value from the
/// sums.
type Sample = (Option<(&'static str, &'static str)>, fn(&Sums) -> f64);

/// A metric: its name, without `_total`.
struct Metric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    samples: &'static [Sample],
}

const fn one(value: fn(&Sums) -> f64) -> Sample {
    (None, value)
}

const fn of(label: &'static str, value: &'static str, sum: fn(&Sums) -> f64) -> Sample {
    (Some((label, value)), sum)
}

const METRICS: &[Metric] = &[
    Metric {
        name: "terapage_processes",
        kind: Kind::Gauge,
        help: "Running processes that are paged.",
        samples: &[one(|s| s.processes as f64)],
    },
    Metric {
        name: "terapage_budget_bytes",
        kind: Kind::Gauge,
        help: "Bytes of frames that the paged data of the process may occupy now: its part of the \
               job's budget.",
        samples: &[one(|s| s.sums.lease_bytes as f64)],
    },
    Metric {
        name: "terapage_resident_bytes",
        kind: Kind::Gauge,
        help: "Bytes of frames in use.",
        samples: &[one(|s| s.sums.resident_bytes as f64)],
    },
    Metric {
        name: "terapage_untracked_bytes",
        kind: Kind::Gauge,
        help: "Bytes in memory that do not count against the budget.",
        samples: &[one(|s| s.sums.untracked_bytes as f64)],
    },
    Metric {
        name: "terapage_paged_bytes",
        kind: Kind::Gauge,
        help: "Bytes of address space that are paged and in use.",
        samples: &[one(|s| s.sums.region_bytes as f64)],
    },
    Metric {
        name: "terapage_store_bytes",
        kind: Kind::Gauge,
        help: "Bytes of the store in use.",
        samples: &[one(|s| s.sums.store_bytes as f64)],
    },
    Metric {
        name: "terapage_mirror_copies",
        kind: Kind::Gauge,
        help: "Copies that mirrors have: those that answer (there), and those that are left out or do not (missing).",
        samples: &[
            of("state", "there", |s| s.sums.mirror_copies.saturating_sub(s.sums.mirror_missing) as f64),
            of("state", "missing", |s| s.sums.mirror_missing as f64),
        ],
    },
    Metric {
        name: "terapage_mirror_behind_slots",
        kind: Kind::Gauge,
        help: "Slots of mirrors that are not in sync yet; 0 if all copies are there and in sync.",
        samples: &[one(|s| s.sums.mirror_behind as f64)],
    },
    Metric {
        name: "terapage_resynced_bytes",
        kind: Kind::Counter,
        help: "Bytes that mirrors copied in the background.",
        samples: &[one(|s| s.sums.resynced_bytes as f64)],
    },
    Metric {
        name: "terapage_faults",
        kind: Kind::Counter,
        help: "Touches of blocks that were not in the program: never touched before (first), with \
               their frame still in memory (minor), or read from the store (major).",
        samples: &[
            of("kind", "first", |s| s.sums.first_touches as f64),
            of("kind", "minor", |s| s.sums.minor_faults as f64),
            of("kind", "major", |s| s.sums.major_faults as f64),
        ],
    },
    Metric {
        name: "terapage_stalled_seconds",
        kind: Kind::Counter,
        help: "Time in which at least one thread of a process waited for a page-in.",
        samples: &[one(|s| s.sums.stalled_us as f64 / 1e6)],
    },
    Metric {
        name: "terapage_waited_seconds",
        kind: Kind::Counter,
        help: "Time that threads waited for memory, all threads together: for major faults, for \
               minor faults and first touches, and for requests.",
        samples: &[
            of("for", "major", |s| s.sums.major_wait_us as f64 / 1e6),
            of("for", "minor", |s| s.sums.minor_wait_us as f64 / 1e6),
            of("for", "request", |s| s.sums.request_wait_us as f64 / 1e6),
        ],
    },
    Metric {
        name: "terapage_page_in_bytes",
        kind: Kind::Counter,
        help: "Bytes read from the store.",
        samples: &[one(|s| s.sums.page_in_bytes as f64)],
    },
    Metric {
        name: "terapage_page_out_bytes",
        kind: Kind::Counter,
        help: "Bytes written to the store.",
        samples: &[one(|s| s.sums.page_out_bytes as f64)],
    },
    Metric {
        name: "terapage_page_in_blocks",
        kind: Kind::Counter,
        help: "Blocks read because a thread waited (demand) or ahead of use (prefetch).",
        samples: &[
            of("cause", "demand", |s| s.sums.demand_blocks as f64),
            of("cause", "prefetch", |s| s.sums.prefetched_blocks as f64),
        ],
    },
    Metric {
        name: "terapage_page_out_blocks",
        kind: Kind::Counter,
        help: "Blocks that left memory: with a write (dirty), or without one, because the store \
               had the same bytes (clean) or all bytes were zero (zero).",
        samples: &[
            of("kind", "dirty", |s| s.sums.dirty_page_outs as f64),
            of("kind", "clean", |s| s.sums.clean_page_outs as f64),
            of("kind", "zero", |s| s.sums.zero_page_outs as f64),
        ],
    },
    Metric {
        name: "terapage_prefetched_runs",
        kind: Kind::Counter,
        help: "Runs that were read ahead and then used (hit), or left memory before that (wasted).",
        samples: &[
            of("result", "hit", |s| s.sums.prefetch_used_runs as f64),
            of("result", "wasted", |s| s.sums.prefetch_wasted_runs as f64),
        ],
    },
    Metric {
        name: "terapage_retries",
        kind: Kind::Counter,
        help: "Pages that could not be moved at the first attempt.",
        samples: &[one(|s| s.sums.retries as f64)],
    },
    Metric {
        name: "terapage_forks",
        kind: Kind::Counter,
        help: "Forks of paged processes.",
        samples: &[one(|s| s.sums.forks as f64)],
    },
];

/// All metrics of these series, and of the servers that programs have trouble with.
pub fn page((all, troubled): &(BTreeMap<Labels, Sums>, Troubled), format: Format) -> String {
    let mut text = String::new();
    let version = env!("CARGO_PKG_VERSION");
    let _ = writeln!(text, "# HELP terapage_build_info The version of terapage.");
    let _ =
        writeln!(text, "# TYPE terapage_build_info gauge\nterapage_build_info{{version=\"{version}\"}} 1");
    for metric in METRICS {
        let sample = match metric.kind {
            Kind::Gauge => metric.name.to_owned(),
            Kind::Counter => format!("{}_total", metric.name),
        };
        // Only OpenMetrics has different names for a counter and for its samples.
        let family = if format == Format::Open { metric.name } else { &sample };
        let kind = if metric.kind == Kind::Counter { "counter" } else { "gauge" };
        let _ = writeln!(text, "# HELP {family} {}\n# TYPE {family} {kind}", metric.help);
        for (labels, sums) in all {
            for (further, value) in metric.samples {
                let _ = writeln!(text, "{sample}{} {}", shown(labels, *further), value(sums));
            }
        }
    }
    let name = "terapage_server_troubled_processes";
    let help =
        "Processes whose condition names this server, which does not answer, refuses, or is being emptied.";
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
    for (server, count) in troubled {
        let _ = writeln!(text, "{name}{} {count}", shown(&Labels::new(), Some(("server", server))));
    }
    histogram(&mut text, all);
    if format == Format::Open {
        text.push_str("# EOF\n");
    }
    text
}

/// How long major faults took: bucket `i` of the counters has those under 2^i microseconds, and the
/// last bucket has no upper end.
fn histogram(text: &mut String, all: &BTreeMap<Labels, Sums>) {
    let name = "terapage_major_fault_seconds";
    let _ = writeln!(text, "# HELP {name} How long major faults took.\n# TYPE {name} histogram");
    for (labels, sums) in all {
        let mut count = 0;
        for (bucket, faults) in sums.sums.major_latency_us.iter().enumerate() {
            count += faults;
            let end = match bucket {
                _ if bucket == BUCKETS - 1 => "+Inf".to_owned(),
                _ => ((1_u64 << bucket) as f64 / 1e6).to_string(),
            };
            let _ = writeln!(text, "{name}_bucket{} {count}", shown(labels, Some(("le", &end))));
        }
        let labels = shown(labels, None);
        let _ = writeln!(text, "{name}_sum{labels} {}", sums.sums.major_wait_us as f64 / 1e6);
        let _ = writeln!(text, "{name}_count{labels} {count}");
    }
}

/// Labels in braces.
fn shown(labels: &Labels, further: Option<(&str, &str)>) -> String {
    let labels = labels.iter().map(|(name, value)| (*name, value.as_str())).chain(further);
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let all: Vec<_> = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", all.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use terapage_stats::Snapshot;

    fn some() -> (BTreeMap<Labels, Sums>, Troubled) {
        let mut sums = Snapshot { major_faults: 3, stalled_us: 1_500_000, ..Snapshot::default() };
        sums.major_latency_us[8] = 2;
        sums.major_latency_us[BUCKETS - 1] = 1;
        let labels = vec![("comm", "a \"b\"\\".to_owned())];
        let troubled = Troubled::from([("valkey://10.0.0.7".to_owned(), 2)]);
        (BTreeMap::from([(labels, Sums { processes: 1, sums })]), troubled)
    }

    #[test]
    fn both_formats_name_counters_as_they_should() {
        let (plain, open) = (page(&some(), Format::Text), page(&some(), Format::Open));
        let sample = "terapage_faults_total{comm=\"a \\\"b\\\"\\\\\",kind=\"major\"} 3\n";
        assert!(plain.contains(sample) && open.contains(sample), "{plain}");
        assert!(plain.contains("# TYPE terapage_faults_total counter\n"));
        assert!(open.contains("# TYPE terapage_faults counter\n") && open.ends_with("# EOF\n"));
        assert!(plain.contains("terapage_stalled_seconds_total{comm=\"a \\\"b\\\"\\\\\"} 1.5\n"));
        assert!(plain.contains("terapage_server_troubled_processes{server=\"valkey://10.0.0.7\"} 2\n"));
        assert!(!plain.contains("EOF"));
    }

    #[test]
    fn buckets_add_up() {
        let text = page(&some(), Format::Text);
        let bucket = |le: &str| {
            let end = format!("le=\"{le}\"}} ");
            text.lines().find_map(|line| Some(line.split_once(&end)?.1.to_owned())).unwrap()
        };
        assert_eq!(["0.000128", "0.000256", "0.262144", "+Inf"].map(bucket), ["0", "2", "2", "3"]);
    }

    /// How many metrics of these a text names, all of which there are.
    fn named_in(text: &str) -> usize {
        let page = page(&some(), Format::Text);
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut count = 0;
        for (at, _) in text.match_indices("terapage_") {
            let end = text[at..].find(|c| !is_name(c)).map_or(text.len(), |len| at + len);
            let name = &text[at..end];
            let is_there = page.lines().any(|line| line.split(['{', ' ']).next() == Some(name));
            assert!(is_there, "{name} is no metric");
            count += 1;
        }
        count
    }

    #[test]
    fn the_dashboard_and_the_alerts_are_about_what_there_is() {
        let dashboard = include_str!("../../../../../contrib/grafana/terapage.json");
        let value: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        assert!(value["schemaVersion"].is_u64() && value["panels"].as_array().unwrap().len() >= 6);
        assert!(named_in(dashboard) >= 12);
        let alerts = include_str!("../../../../../contrib/prometheus/terapage.yaml");
        assert!(named_in(alerts) >= 4);
        let count = |word: &str| alerts.lines().filter(|line| line.trim_start().starts_with(word)).count();
        assert_eq!(count("runbook:"), count("- alert:"), "each says what to do");
    }

    #[test]
    fn every_metric_is_documented() {
        let docs = include_str!("../../../../../docs/metrics.md");
        for line in page(&some(), Format::Text).lines() {
            let Some(rest) = line.strip_prefix("# TYPE ") else { continue };
            let name = rest.split(' ').next().unwrap_or_default();
            assert!(docs.contains(&format!("`{name}`")), "{name} is not in docs/metrics.md");
        }
    }
}
