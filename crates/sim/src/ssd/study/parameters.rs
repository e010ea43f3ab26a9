//! The parameters that a result depends on, and where they are from.

use terapage_config::Size;
use terapage_hybrid::{CacheOptions, Storage};
use terapage_report::{Origin, Parameter};
use terapage_ssd::{Figure, Front, Value};

use super::super::{Run, Ssd};

/// Who says so, for what is judged here.
const HERE: &str = "docs/sim-ssd.md";

/// The parameters of all runs; what depends on the trace is told with it.
pub fn of(arguments: &Ssd, runs: &[Run]) -> Vec<Parameter> {
    let mut list = Vec::new();
    drive(&mut list, &runs[0]);
    if let Storage::Cached(cache) = &runs[0].setup.storage {
        of_cache(&mut list, cache);
    }
    if let Storage::Scm(timing) = &runs[0].setup.storage {
        push(
            &mut list,
            "latency of SCM for 512 bytes",
            timing.latency_ns.to_string(),
            "ns",
            Origin::Chosen,
            HERE,
        );
    }
    push(&mut list, "warm-up", format!("{:.1}", arguments.warm_up.0 * 100.0), "%", Origin::Chosen, "");
    push(&mut list, "seed", arguments.seed.to_string(), "", Origin::Chosen, "");
    if !matches!(runs[0].setup.storage, Storage::Scm(_)) {
        let mut seen: Vec<&str> = Vec::new();
        for run in runs {
            if !seen.contains(&run.nand.as_str()) {
                seen.push(&run.nand);
                chips(&mut list, run);
            }
        }
    }
    list
}

fn push(list: &mut Vec<Parameter>, name: &str, value: String, unit: &str, origin: Origin, source: &str) {
    let (name, unit, source) = (name.to_owned(), unit.to_owned(), source.to_owned());
    list.push(Parameter { name, value, unit, origin, source });
}

fn drive(list: &mut Vec<Parameter>, run: &Run) {
    let ssd = &run.setup.ssd;
    let mut add = |name: &str, value: String, unit: &str| {
        push(list, name, value, unit, Origin::Estimated, HERE);
    };
    add("channels x dies", format!("{} x {}", ssd.channels, ssd.dies_per_channel), "");
    add("over-provisioning", format!("{:.1}", ssd.over_provisioning * 100.0), "%");
    add("garbage collection", format!("{:?}", ssd.gc), "");
    if let Some(idle) = ssd.idle_collection {
        add("idle time before a collection", format!("{}", idle.after_ns as f64 / 1e6), "ms");
        add("free blocks of a die after it", idle.free_blocks.to_string(), "");
    }
    if let Some(gap) = ssd.wear_gap {
        add("erases between most and least worn block", gap.to_string(), "");
    }
    for (name, share) in [("bad blocks", ssd.bad_blocks), ("erases that fail", ssd.erase_failures)] {
        if share > 0.0 {
            add(name, format!("{}", share * 100.0), "%");
        }
    }
    let (front, rate, latency_ns) = match ssd.front {
        Front::Sata { depth, bytes_per_second, latency_ns } => {
            (format!("SATA, depth {depth}"), bytes_per_second, latency_ns)
        }
        Front::Nvme { queues, depth, bytes_per_second, latency_ns } => {
            (format!("NVMe, {queues} queues, depth {depth}"), bytes_per_second, latency_ns)
        }
    };
    add("front", front, "");
    add("link", format!("{:.0}", rate as f64 / 1e6), "MB/s");
    add("controller", format!("{:.1}", latency_ns as f64 / 1000.0), "us a command");
}

fn of_cache(list: &mut Vec<Parameter>, cache: &CacheOptions) {
    const PAPER: &str = "Fukuchi, Sakaki, Matsui, Takeuchi, figure 2 (NV-WB)";
    let percent = |share: f64| format!("{:.0}", share * 100.0);
    let low = if cache.low_water == 0.2 { Origin::Published } else { Origin::Chosen };
    let kind = format!("{:?}", cache.kind);
    push(list, "cache", kind, "", Origin::Chosen, PAPER);
    push(list, "cache's policy", cache.policy.clone(), "", Origin::Chosen, HERE);
    push(
        list,
        "cache's latency for 512 bytes",
        cache.memory.latency_ns.to_string(),
        "ns",
        Origin::Chosen,
        HERE,
    );
    push(list, "cache's banks", cache.memory.banks.to_string(), "", Origin::Estimated, HERE);
    push(list, "line", Size(u64::from(cache.line_bytes)).to_string(), "", Origin::Estimated, HERE);
    push(list, "eviction unit", Size(u64::from(cache.evict_bytes)).to_string(), "", Origin::Estimated, HERE);
    push(list, "low-water mark", percent(cache.low_water), "% free", low, PAPER);
    push(list, "high-water mark", percent(cache.high_water), "% free", Origin::Estimated, HERE);
}

fn chips(list: &mut Vec<Parameter>, run: &Run) {
    for (name, figure) in &run.setup.ssd.nand.figures {
        let Figure { value, unit, origin, source } = figure;
        let value = match value {
            Value::One(value) => value.to_string(),
            Value::Many(values) => values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" / "),
        };
        let origin = match origin {
            terapage_ssd::Origin::Published => Origin::Published,
            terapage_ssd::Origin::Fitted => Origin::Fitted,
            terapage_ssd::Origin::Estimated => Origin::Estimated,
        };
        let name = format!("{}: {}", run.nand, name.replace('_', " "));
        push(list, &name, value, unit.as_deref().unwrap_or(""), origin, source);
    }
}
