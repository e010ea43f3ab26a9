//! The parameters that a result depends on, and their origins.

use clap::ValueEnum;
use terapage_config::Size;
use terapage_hybrid::{CacheKind, CacheOptions, Storage};
use terapage_report::{Origin, Parameter};
use terapage_ssd::{Front, Value};

use super::super::arguments::CacheArgument;
use super::super::{Run, Ssd};

/// The document that explains the defaults.
const HERE: &str = "docs/sim-ssd.md";
/// The origin of the capacity if it is not given.
const CAPACITY: &str = "what the layout needs, and 50 super-blocks a die";
/// The source of the cache's rules.
const PAPER: &str = "Fukuchi, Sakaki, Matsui, Takeuchi, figure 2 (NV-WB)";

/// The parameters of all runs, except those that depend on the trace, which are shown beside it.
pub fn of(arguments: &Ssd, runs: &[Run]) -> Vec<Parameter> {
    let mut flags = Flags { arguments, list: Vec::new() };
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
                simulated(&mut list, run);
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

/// The user's name for a value.
fn named(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The values that flags can set.
struct Flags<'a> {
    arguments: &'a Ssd,
    list: Vec<Parameter>,
}

impl Flags<'_> {
    /// Adds a value that `flag` can set; `origin` and `source` are those of the default.
    fn add(
        &mut self,
        (flag, name): (&str, &str),
        (value, unit): (String, &str),
        (origin, source): (Origin, &str),
    ) {
        if !self.arguments.given.has(flag) {
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
        self.add(("--cache", "cache"), (named(arguments.cache), ""), paper);
        self.add(("--scm", "cache's size"), (arguments.scm.to_string(), ""), here);
        self.memory();
        self.add(("--policy", "cache's policy"), (cache.policy.clone(), ""), here);
        self.add(("--set line", "line"), (bytes(cache.line_bytes), ""), here);
        self.add(("--set evict", "eviction unit"), (bytes(cache.evict_bytes), ""), here);
        self.add(("--set pad", "padding"), (yes(cache.pad), ""), here);
        self.add(("--set whole-lines", "whole lines read"), (yes(cache.whole_lines), ""), here);
        let (low, high) = (percent(cache.low_water), percent(cache.high_water));
        self.add(("--set low-water", "low-water mark"), (low, "% free"), paper);
        self.add(("--set high-water", "high-water mark"), (high, "% free"), here);
        if cache.kind == CacheKind::Space {
            let above = (percent(cache.copy_above), "% free");
            self.add(("--set copy-above", "reads are copied above"), above, here);
        }
        if cache.kind == CacheKind::Dram {
            let after = (format!("{}", cache.flush_after_ns as f64 / 1e6), "ms");
            self.add(("--set flush-after", "flushed after"), after, here);
        }
    }

    fn memory(&mut self) {
        let arguments = self.arguments;
        let memory = arguments.memory();
        let latency = (memory.latency_ns.to_string(), "ns for 512 bytes");
        let access = (memory.access_ns.to_string(), "ns for an access");
        if arguments.cache == CacheArgument::Cxl {
            let estimated = (Origin::Estimated, "22 GB/s: links of x8 PCIe 5 have up to 32");
            let published = (Origin::Published, "Liu and others, ASPLOS 2025: 140 to 410 ns; the middle");
            self.add(("--set scm-latency", "cache's latency"), latency, estimated);
            self.add(("--set scm-access", "cache's first byte"), access, published);
        } else {
            let group = (Origin::Published, "papers on NV-WB by the same group: 100 ns for 512 bytes");
            self.add(("--set scm-latency", "cache's latency"), latency, group);
            self.add(("--set scm-access", "cache's first byte"), access, group);
        }
        let banks = (arguments.set.scm_banks.to_string(), "");
        self.add(("--set scm-banks", "cache's banks"), banks, (Origin::Estimated, HERE));
        let bandwidth = match arguments.set.scm_bandwidth {
            Size(0) => ("no limit".to_owned(), ""),
            Size(bytes) => (format!("{:.0}", bytes as f64 / 1e6), "MB/s"),
        };
        let here = (Origin::Estimated, HERE);
        self.add(("--set scm-bandwidth", "cache's bandwidth"), bandwidth, here);
    }

    /// Features that are off by default.
    fn ageing(&mut self) {
        let arguments = self.arguments;
        let here = (Origin::Estimated, HERE);
        if let Some(after) = arguments.set.idle_gc {
            let time = (format!("{}", after.ns as f64 / 1e6), "ms");
            self.add(("--set idle-gc", "idle time before a collection"), time, here);
            let blocks = (arguments.set.idle_blocks.to_string(), "");
            self.add(("--set idle-blocks", "free blocks of a die after it"), blocks, here);
        }
        if let Some(gap) = arguments.set.wear_gap {
            let gap = (gap.to_string(), "erases");
            self.add(("--set wear-gap", "most less least worn block"), gap, here);
        }
        if arguments.set.bad_blocks.0 > 0.0 {
            let bad = (format!("{}", arguments.set.bad_blocks.0 * 100.0), "%");
            self.add(("--set bad-blocks", "bad blocks"), bad, here);
        }
        if arguments.set.erase_failures.0 > 0.0 {
            let failures = (format!("{}", arguments.set.erase_failures.0 * 100.0), "%");
            self.add(("--set erase-failures", "erases that fail"), failures, here);
        }
    }

    fn load(&mut self) {
        let arguments = self.arguments;
        let here = (Origin::Estimated, HERE);
        let chosen = (Origin::Chosen, HERE);
        let load = if arguments.set.open {
            (format!("by time stamps, {} times as fast", arguments.set.speed), "")
        } else {
            (arguments.depth.to_string(), "requests under way")
        };
        self.add((if arguments.set.open { "--set open, speed" } else { "--depth" }, "load"), load, chosen);
        self.add(("--set layout", "layout"), (named(arguments.set.layout), ""), here);
        let capacity = arguments.capacity.map_or_else(|| CAPACITY.to_owned(), |size| size.to_string());
        self.add(("--capacity", "capacity"), (capacity, ""), here);
        if arguments.cache != CacheArgument::ScmOnly {
            self.flash();
        }
        self.front();
        let warm_up = (percent(arguments.set.warm_up.0), "% of the requests");
        self.add(("--set warm-up", "warm-up"), warm_up, chosen);
        let requests = arguments.requests.map_or_else(|| "all".to_owned(), |requests| requests.to_string());
        self.add(("--requests", "requests of a trace, at most"), (requests, ""), chosen);
        self.add(("--seed", "seed"), (arguments.seed.to_string(), ""), chosen);
    }

    fn flash(&mut self) {
        let arguments = self.arguments;
        let here = (Origin::Estimated, HERE);
        let dies = (format!("{} x {}", arguments.set.channels, arguments.set.dies), "");
        self.add(("--set channels, dies", "channels x dies"), dies, here);
        let over = (percent(arguments.set.over_provisioning.0), "%");
        self.add(("--set over-provisioning", "over-provisioning"), over, here);
        self.add(("--set gc", "garbage collection"), (named(arguments.set.gc), ""), here);
        self.ageing();
        if arguments.set.slc.0 > 0 {
            self.add(("--set slc", "cache of SLC"), (arguments.set.slc.to_string(), ""), here);
        }
        self.add(("--set placement", "placement"), (named(arguments.set.placement), ""), here);
        let state = (named(arguments.set.precondition), "");
        self.add(("--set precondition", "state before"), state, here);
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
        self.add(("--set front", "front"), (front, ""), here);
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

/// The flash as it was built for the first trace; a table shows the others.
fn simulated(list: &mut Vec<Parameter>, run: &Run) {
    let Some(flash) = run.flash else { return };
    let rows = [
        ("spare flash as simulated", percent(flash.spare), "% of the capacity"),
        ("super-blocks a die", flash.blocks_per_die.to_string(), "without two in reserve"),
        ("bad super-blocks a die", flash.bad_per_die.to_string(), ""),
    ];
    for (name, value, unit) in rows {
        let name = format!("{}: {name}", run.nand);
        push(list, &name, value, unit, Origin::Estimated, "whole super-blocks, of the parameters above");
    }
}
