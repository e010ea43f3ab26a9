//! The parameters of a simulation by name, as text: for command lines and sweeps.

use crate::case::{Amount, Case, Layers};
use std::fmt::Display;
use std::str::FromStr;
use terapage_config::nearest;
use terapage_hybrid::{CacheKind, Load};
use terapage_ssd::{Acknowledge, Front, GcPolicy, Precondition, Profile};

/// Why a setting was refused.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// There is no such parameter.
    #[error("there is no parameter {name}; {}there are {}", meant(name), known().join(", "))]
    Unknown {
        /// What was given.
        name: String,
    },
    /// The value is not valid.
    #[error("{name}={value}: {problem}")]
    Value {
        /// The parameter.
        name: String,
        /// What was given.
        value: String,
        /// The values that are valid.
        problem: String,
    },
}

/// The question after a name that is like a parameter's.
fn meant(name: &str) -> String {
    nearest(name, known()).map_or(String::new(), |near| format!("did you mean {near}? "))
}

/// A parameter.
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its description, with the unit.
    pub about: &'static str,
    apply: fn(&mut Case, &str) -> Result<(), String>,
}

/// All parameters. They take effect in this order, in whatever order they are given: the name of a
/// chip comes before changes to that chip.
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "nand",
        about: "chips: a profile's name or file",
        apply: |case, text| {
            case.ssd.nand = Profile::find(text).map_err(text_of)?;
            Ok(())
        },
    },
    Parameter {
        name: "page",
        about: "bytes of a page",
        apply: |case, text| {
            case.ssd.nand.page_bytes = u32::try_from(size(text)?).map_err(text_of)?;
            Ok(())
        },
    },
    Parameter {
        name: "pages-per-block",
        about: "pages of a block",
        apply: |case, text| {
            let (pages, unit): (u32, u32) = (number(text)?, case.ssd.nand.write_unit.max(1));
            if !pages.is_multiple_of(unit) {
                return Err(format!("a multiple of the write unit, {unit} pages"));
            }
            case.ssd.nand.pages_per_block = pages;
            Ok(())
        },
    },
    Parameter {
        name: "write-unit",
        about: "pages programmed at once; the time for a page stays the same, and a block grows to \
                whole units",
        apply: |case, text| {
            let pages = number(text)?;
            if pages == 0 {
                return Err("at least 1".to_owned());
            }
            case.ssd.nand.set_write_unit(pages);
            Ok(())
        },
    },
    Parameter {
        name: "read",
        about: "time to read a page (80us)",
        apply: |case, text| {
            case.ssd.nand.read_ns = vec![time(text)?];
            Ok(())
        },
    },
    Parameter {
        name: "program",
        about: "time to program a page; a write unit takes this for each of its pages",
        apply: |case, text| {
            let unit = u64::from(case.ssd.nand.write_unit);
            case.ssd.nand.program_ns = vec![time(text)?.saturating_mul(unit)];
            Ok(())
        },
    },
    Parameter {
        name: "erase",
        about: "time to erase a block (4ms)",
        apply: |case, text| {
            case.ssd.nand.erase_ns = time(text)?;
            Ok(())
        },
    },
    Parameter {
        name: "planes",
        about: "planes of a die",
        apply: |case, text| set(&mut case.ssd.nand.planes, text),
    },
    Parameter {
        name: "bus",
        about: "bytes per second of a channel (400M)",
        apply: |case, text| {
            case.ssd.nand.bus_bytes_per_second = size(text)?;
            Ok(())
        },
    },
    Parameter { name: "channels", about: "channels", apply: |case, text| set(&mut case.ssd.channels, text) },
    Parameter {
        name: "dies",
        about: "dies of a channel",
        apply: |case, text| set(&mut case.ssd.dies_per_channel, text),
    },
    Parameter {
        name: "capacity",
        about: "bytes of the flash; addresses beyond wrap around",
        apply: |case, text| {
            case.capacity_bytes = Some(size(text)?);
            Ok(())
        },
    },
    Parameter {
        name: "over-provisioning",
        about: "flash beyond the capacity, as a share of it (25%)",
        apply: |case, text| set_share(&mut case.ssd.over_provisioning, text),
    },
    Parameter {
        name: "mapping",
        about: "bytes of the grain of the mapping",
        apply: |case, text| {
            case.ssd.mapping_bytes = Some(u32::try_from(size(text)?).map_err(text_of)?);
            Ok(())
        },
    },
    Parameter {
        name: "gc",
        about: "greedy or cost-benefit",
        apply: |case, text| {
            case.ssd.gc =
                choice(text, &[("greedy", GcPolicy::Greedy), ("cost-benefit", GcPolicy::CostBenefit)])?;
            Ok(())
        },
    },
    Parameter {
        name: "buffer",
        about: "bytes of the SSD's write buffer",
        apply: |case, text| {
            case.ssd.buffer_bytes = Some(size(text)?);
            Ok(())
        },
    },
    Parameter {
        name: "acknowledge",
        about: "a write is acknowledged when it is buffered or programmed",
        apply: |case, text| {
            case.ssd.acknowledge = choice(
                text,
                &[("buffered", Acknowledge::Buffered), ("programmed", Acknowledge::Programmed)],
            )?;
            Ok(())
        },
    },
    Parameter {
        name: "flush-after",
        about: "time that a page waits for others of its write unit; never: no limit",
        apply: |case, text| {
            case.ssd.flush_after_ns = if text == "never" { None } else { Some(time(text)?) };
            Ok(())
        },
    },
    Parameter {
        name: "suspend",
        about: "whether reads suspend programs: yes or no",
        apply: |case, text| {
            case.ssd.suspend = yes(text)?;
            Ok(())
        },
    },
    Parameter {
        name: "precondition",
        about: "none, sequential or steady",
        apply: |case, text| {
            let filled = 1.0;
            let known = [
                ("none", Precondition::None),
                ("sequential", Precondition::Sequential { filled }),
                ("steady", Precondition::Steady { filled }),
            ];
            case.ssd.preconditioning = choice(text, &known)?;
            Ok(())
        },
    },
    Parameter {
        name: "front",
        about: "instant, nvme or sata",
        apply: |case, text| {
            let known = [("instant", Front::instant()), ("nvme", Front::nvme()), ("sata", Front::sata())];
            case.ssd.front = choice(text, &known)?;
            Ok(())
        },
    },
    Parameter {
        name: "scm",
        about: "size of the SCM: a share of the flash (5%) or bytes (64M)",
        apply: |case, text| {
            case.scm =
                if text.ends_with('%') { Amount::Share(share(text)?) } else { Amount::Bytes(size(text)?) };
            Ok(())
        },
    },
    Parameter {
        name: "scm-latency",
        about: "time for 512 bytes of SCM (100ns)",
        apply: |case, text| {
            case.cache.memory.latency_ns = time(text)?;
            Ok(())
        },
    },
    Parameter {
        name: "scm-banks",
        about: "banks of the SCM",
        apply: |case, text| set(&mut case.cache.memory.banks, text),
    },
    Parameter {
        name: "scm-bandwidth",
        about: "bytes per second of the SCM; 0 for no limit",
        apply: |case, text| {
            case.cache.memory.bandwidth = size(text)?;
            Ok(())
        },
    },
    Parameter {
        name: "cache",
        about: "nv-wb, write-only, space, dram, none (only flash) or scm-only",
        apply: |case, text| {
            let known = [
                ("nv-wb", (Layers::Cached, CacheKind::NvWb)),
                ("write-only", (Layers::Cached, CacheKind::WriteOnly)),
                ("space", (Layers::Cached, CacheKind::Space)),
                ("dram", (Layers::Cached, CacheKind::Dram)),
                ("none", (Layers::Nand, CacheKind::NvWb)),
                ("scm-only", (Layers::Scm, CacheKind::NvWb)),
            ];
            (case.layers, case.cache.kind) = choice(text, &known)?;
            Ok(())
        },
    },
    Parameter {
        name: "policy",
        about: "replacement in the SCM",
        apply: |case, text| {
            case.cache.policy = text.to_owned();
            Ok(())
        },
    },
    Parameter {
        name: "line",
        about: "bytes of a cache line",
        apply: |case, text| {
            case.cache.line_bytes = u32::try_from(size(text)?).map_err(text_of)?;
            Ok(())
        },
    },
    Parameter {
        name: "evict",
        about: "bytes that leave the SCM together",
        apply: |case, text| {
            case.cache.evict_bytes = u32::try_from(size(text)?).map_err(text_of)?;
            Ok(())
        },
    },
    Parameter {
        name: "pad",
        about: "whether clean neighbours are written too: yes or no",
        apply: |case, text| {
            case.cache.pad = yes(text)?;
            Ok(())
        },
    },
    Parameter {
        name: "whole-lines",
        about: "whether reads fetch whole lines: yes or no",
        apply: |case, text| {
            case.cache.whole_lines = yes(text)?;
            Ok(())
        },
    },
    Parameter {
        name: "low-water",
        about: "free share of the SCM at which lines begin to move to the flash",
        apply: |case, text| {
            set_share(&mut case.cache.low_water, text)?;
            case.cache.high_water = case.cache.high_water.max(case.cache.low_water);
            Ok(())
        },
    },
    Parameter {
        name: "high-water",
        about: "free share of the SCM up to which lines move to the flash",
        apply: |case, text| set_share(&mut case.cache.high_water, text),
    },
    Parameter {
        name: "copy-above",
        about: "free share of the SCM above which cache=space copies reads",
        apply: |case, text| set_share(&mut case.cache.copy_above, text),
    },
    Parameter {
        name: "depth",
        about: "requests under way",
        apply: |case, text| {
            case.load = Load::Closed { depth: number(text)? };
            Ok(())
        },
    },
    Parameter {
        name: "open",
        about: "send requests by time stamps, which are divided by this",
        apply: |case, text| {
            case.load = Load::Open { speed: number(text)? };
            Ok(())
        },
    },
    Parameter {
        name: "traffic",
        about: "bytes that a synthetic volume's requests read and write (3G)",
        apply: |case, text| {
            case.traffic_bytes = size(text)?;
            Ok(())
        },
    },
    Parameter {
        name: "requests",
        about: "simulate exactly this number of requests (200000, 2M)",
        apply: |case, text| {
            case.requests = Some(count(text)?);
            Ok(())
        },
    },
    Parameter {
        name: "warm-up",
        about: "share of requests that are not measured",
        apply: |case, text| set_share(&mut case.warm_up, text),
    },
    Parameter {
        name: "seed",
        about: "seed of synthetic volumes",
        apply: |case, text| set(&mut case.seed, text),
    },
    Parameter {
        name: "scale",
        about: "factor for the number of objects of synthetic volumes",
        apply: |case, text| {
            let scale: f64 = number(text)?;
            if !(1e-4..=16.0).contains(&scale) {
                return Err("0.0001 to 16".to_owned());
            }
            case.scale = scale;
            Ok(())
        },
    },
];

/// The names of all parameters.
pub fn known() -> Vec<&'static str> {
    PARAMETERS.iter().map(|parameter| parameter.name).collect()
}

/// Applies `settings`, pairs of name and text, to `case`.
///
/// # Errors
/// The error names the parameter, the value and the valid values; for an unknown name, the known
/// names.
pub fn apply(case: &mut Case, settings: &[(String, String)]) -> Result<(), SettingError> {
    let unknown = settings.iter().find(|(name, _)| !known().contains(&name.as_str()));
    if let Some((name, _)) = unknown {
        return Err(SettingError::Unknown { name: name.clone() });
    }
    for (one, other) in [("depth", "open"), ("requests", "traffic")] {
        let given = |wanted: &str| settings.iter().find(|(name, _)| name == wanted);
        if let (Some((name, value)), Some(_)) = (given(one), given(other)) {
            let problem = format!("{other} is given too, and only one of them can be");
            return Err(SettingError::Value { name: name.clone(), value: value.clone(), problem });
        }
    }
    for parameter in PARAMETERS {
        for (name, value) in settings.iter().filter(|(name, _)| name == parameter.name) {
            (parameter.apply)(case, value).map_err(|problem| SettingError::Value {
                name: name.clone(),
                value: value.clone(),
                problem,
            })?;
        }
    }
    Ok(())
}

fn text_of(error: impl Display) -> String {
    error.to_string()
}

/// A number in plain digits.
fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "expected a number of 0 or more that is not too large, as 4".to_owned())
}

fn set<T: FromStr>(target: &mut T, text: &str) -> Result<(), String> {
    *target = number(text)?;
    Ok(())
}

/// A share: 5% or 0.05.
fn share(text: &str) -> Result<f64, String> {
    let (digits, unit) = text.strip_suffix('%').map_or((text, 1.0), |digits| (digits, 0.01));
    let share: f64 = digits.trim().parse().map_err(|_| "a share, as 5% or 0.05".to_owned())?;
    if share.is_finite() && share >= 0.0 { Ok(share * unit) } else { Err("a share is 0 or more".to_owned()) }
}

fn set_share(target: &mut f64, text: &str) -> Result<(), String> {
    *target = share(text)?;
    Ok(())
}

/// Whether rounding changes the value by a hundredth at most.
fn is_nearly_whole(value: f64) -> bool {
    (value - value.round()).abs() <= value / 100.0
}

/// The number in front of a unit, times the value of the unit.
fn scaled(text: &str, units: &[(&str, f64)], expected: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = text[digits.len()..].trim();
    let factor = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, factor)| factor);
    let value = digits.trim().parse::<f64>().ok().zip(factor).map(|(number, factor)| number * factor);
    match value {
        Some(value) if (0.0..1e18).contains(&value) && is_nearly_whole(value) => Ok(value.round() as u64),
        _ => Err(expected.to_owned()),
    }
}

fn size(text: &str) -> Result<u64, String> {
    let units = [
        ("", 1.0),
        ("K", 1024.0),
        ("KiB", 1024.0),
        ("M", 1_048_576.0),
        ("MiB", 1_048_576.0),
        ("G", 1_073_741_824.0),
        ("GiB", 1_073_741_824.0),
        ("T", 1_099_511_627_776.0),
    ];
    scaled(text, &units, "a size, as 4096, 64K, 16M or 2G")
}

fn count(text: &str) -> Result<u64, String> {
    scaled(text, &[("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)], "a number, as 200000, 200k or 2M")
}

fn time(text: &str) -> Result<u64, String> {
    scaled(text, &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)], "a time, as 100ns, 80us or 4ms")
}

fn yes(text: &str) -> Result<bool, String> {
    choice(text, &[("yes", true), ("no", false)])
}

fn choice<T: Clone>(text: &str, known: &[(&str, T)]) -> Result<T, String> {
    let found = known.iter().find(|(name, _)| *name == text).map(|(_, value)| value.clone());
    found.ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        format!("there are {}", names.join(", "))
    })
}
