//! The parameters that a result depends on, and their origins.

use clap::ValueEnum;
use terapage_config::Size;
use terapage_hybrid::{CacheKind, CacheOptions, Storage};
use terapage_report::{Origin, Parameter};
use terapage_ssd::{Front, Value};

use super::super::{Run, Ssd};

/// The document that explains the defaults.
const HERE: &str = "docs/sim-ssd.md";
/// The source of the cache's rules.
const PAPER: &str = "Fukuchi, Sakaki, Matsui, Takeuchi, figure 2 (NV-WB)";

/// The parameters of all runs, except those that depend on the trace, which stand beside it.
pub fn of(arguments: &Ssd, runs: &[Run]) -> Vec<Parameter> {
    let mut flags = Flags { arguments, defaults: Ssd::defaults(), list: Vec::new() };
    match &runs[0].setup.storage {
        Storage::Cached(cache) => flags.cache(cache),
        Storage::Scm(_) => flags.memory(),
        Storage::Nand => {}
    }
    flags.load();
    let Flags { mut list, .. } = flags;
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

fn percent(share: f64) -> String {
    format!("{}", (share * 1e4).round() / 100.0)
}

/// What the user calls a value.
fn named(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The values that flags can set.
struct Flags<'a> {
    arguments: &'a Ssd,
    defaults: Ssd,
    list: Vec<Parameter>,
}

impl Flags<'_> {
    /// A value that `part` takes out of the arguments; `origin` and `source` are the default's.
    fn add<T: PartialEq>(
        &mut self,
        (flag, name): (&str, &str),
        part: impl Fn(&Ssd) -> T,
        (value, unit): (String, &str),
        (origin, source): (Origin, &str),
    ) {
        if part(self.arguments) == part(&self.defaults) {
            push(&mut self.list, name, value, unit, origin, source);
        } else {
            push(&mut self.list, name, value, unit, Origin::Chosen, flag);
        }
    }

    fn cache(&mut self, cache: &CacheOptions) {
        let arguments = self.arguments;
        let (paper, here) = ((Origin::Published, PAPER), (Origin::Estimated, HERE));
        let bytes = |bytes: u32| Size(u64::from(bytes)).to_string();
        let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        self.add(("--cache", "cache"), |ssd| ssd.cache, (named(arguments.cache), ""), paper);
        self.add(("--scm", "cache's size"), |ssd| ssd.scm, (arguments.scm.to_string(), ""), here);
        self.memory();
        self.add(("--policy", "cache's policy"), |ssd| ssd.policy.clone(), (cache.policy.clone(), ""), here);
        self.add(("--line", "line"), |ssd| ssd.line, (bytes(cache.line_bytes), ""), here);
        self.add(("--evict", "eviction unit"), |ssd| ssd.evict, (bytes(cache.evict_bytes), ""), here);
        self.add(("--no-padding", "padding"), |ssd| ssd.no_padding, (yes(cache.pad), ""), here);
        self.add(
            ("--whole-lines", "whole lines read"),
            |ssd| ssd.whole_lines,
            (yes(cache.whole_lines), ""),
            here,
        );
        let (low, high) = (percent(cache.low_water), percent(cache.high_water));
        self.add(("--low-water", "low-water mark"), |ssd| ssd.low_water, (low, "% free"), paper);
        self.add(("--high-water", "high-water mark"), |ssd| ssd.high_water, (high, "% free"), here);
        if cache.kind == CacheKind::Space {
            let above = (percent(cache.copy_above), "% free");
            self.add(("--copy-above", "reads are copied above"), |ssd| ssd.copy_above, above, here);
        }
        if cache.kind == CacheKind::Dram {
            let after = (format!("{}", cache.flush_after_ns as f64 / 1e6), "ms");
            self.add(("--flush-after", "flushed after"), |ssd| ssd.flush_after, after, here);
        }
    }

    fn memory(&mut self) {
        let arguments = self.arguments;
        let latency = (arguments.scm_latency.ns.to_string(), "ns for 512 bytes");
        let group = (Origin::Published, "papers on NV-WB by the same group: 100 ns for 512 bytes");
        self.add(("--scm-latency", "cache's latency"), |ssd| ssd.scm_latency, latency, group);
        let banks = (arguments.scm_banks.to_string(), "");
        self.add(("--scm-banks", "cache's banks"), |ssd| ssd.scm_banks, banks, (Origin::Estimated, HERE));
        let bandwidth = match arguments.scm_bandwidth {
            Size(0) => ("no limit".to_owned(), ""),
            Size(bytes) => (format!("{:.0}", bytes as f64 / 1e6), "MB/s"),
        };
        let here = (Origin::Estimated, HERE);
        self.add(("--scm-bandwidth", "cache's bandwidth"), |ssd| ssd.scm_bandwidth, bandwidth, here);
    }

    /// Features that are off by default.
    fn ageing(&mut self) {
        let arguments = self.arguments;
        let here = (Origin::Estimated, HERE);
        if let Some(after) = arguments.idle_gc {
            let time = (format!("{}", after.ns as f64 / 1e6), "ms");
            self.add(("--idle-gc", "idle time before a collection"), |ssd| ssd.idle_gc, time, here);
            let blocks = (arguments.idle_blocks.to_string(), "");
            self.add(("--idle-blocks", "free blocks of a die after it"), |ssd| ssd.idle_blocks, blocks, here);
        }
        if let Some(gap) = arguments.wear_gap {
            let gap = (gap.to_string(), "erases");
            self.add(("--wear-gap", "most less least worn block"), |ssd| ssd.wear_gap, gap, here);
        }
        if arguments.bad_blocks.0 > 0.0 {
            let bad = (format!("{}", arguments.bad_blocks.0 * 100.0), "%");
            self.add(("--bad-blocks", "bad blocks"), |ssd| ssd.bad_blocks, bad, here);
        }
        if arguments.erase_failures.0 > 0.0 {
            let failures = (format!("{}", arguments.erase_failures.0 * 100.0), "%");
            self.add(("--erase-failures", "erases that fail"), |ssd| ssd.erase_failures, failures, here);
        }
    }

    fn load(&mut self) {
        let arguments = self.arguments;
        let here = (Origin::Estimated, HERE);
        let chosen = (Origin::Chosen, HERE);
        let load = if arguments.open {
            (format!("by time stamps, {} times as fast", arguments.speed), "")
        } else {
            (arguments.depth.to_string(), "requests under way")
        };
        let of_load = |ssd: &Ssd| (ssd.open, ssd.depth, ssd.speed);
        self.add((if arguments.open { "--open, --speed" } else { "--depth" }, "load"), of_load, load, chosen);
        self.add(("--layout", "layout"), |ssd| ssd.layout, (named(arguments.layout), ""), here);
        let capacity =
            arguments.capacity.map_or_else(|| "what the layout needs".to_owned(), |size| size.to_string());
        self.add(("--capacity", "capacity"), |ssd| ssd.capacity, (capacity, ""), here);
        let dies = (format!("{} x {}", arguments.channels, arguments.dies), "");
        self.add(("--channels, --dies", "channels x dies"), |ssd| (ssd.channels, ssd.dies), dies, here);
        let over = (percent(arguments.over_provisioning.0), "%");
        self.add(("--over-provisioning", "over-provisioning"), |ssd| ssd.over_provisioning, over, here);
        self.add(("--gc", "garbage collection"), |ssd| ssd.gc, (named(arguments.gc), ""), here);
        self.ageing();
        let state = (named(arguments.precondition), "");
        self.add(("--precondition", "state before"), |ssd| ssd.precondition, state, here);
        self.front();
        let warm_up = (percent(arguments.warm_up.0), "% of the requests");
        self.add(("--warm-up", "warm-up"), |ssd| ssd.warm_up, warm_up, chosen);
        let requests = arguments.requests.map_or_else(|| "all".to_owned(), |requests| requests.to_string());
        self.add(("--requests", "requests of a trace, at most"), |ssd| ssd.requests, (requests, ""), chosen);
        self.add(("--seed", "seed"), |ssd| ssd.seed, (arguments.seed.to_string(), ""), chosen);
    }

    fn front(&mut self) {
        let (front, rate, latency_ns) = match self.arguments.front() {
            Front::Sata { depth, bytes_per_second, latency_ns } => {
                (format!("SATA, depth {depth}"), bytes_per_second, latency_ns)
            }
            Front::Nvme { queues, depth, bytes_per_second, latency_ns } => {
                (format!("NVMe, {queues} queues, depth {depth}"), bytes_per_second, latency_ns)
            }
        };
        let here = (Origin::Estimated, HERE);
        self.add(("--front", "front"), |ssd| ssd.front, (front, ""), here);
        push(&mut self.list, "link", format!("{:.0}", rate as f64 / 1e6), "MB/s", Origin::Estimated, HERE);
        let us = format!("{:.1}", latency_ns as f64 / 1000.0);
        push(&mut self.list, "controller", us, "us a command", Origin::Estimated, HERE);
    }
}

fn chips(list: &mut Vec<Parameter>, run: &Run) {
    for (name, figure) in &run.setup.ssd.nand.figures {
        let value = match &figure.value {
            Value::One(value) => value.to_string(),
            Value::Many(values) => values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" / "),
        };
        let name = format!("{}: {}", run.nand, name.replace('_', " "));
        list.push(Parameter::sourced(name, value, figure));
    }
}
