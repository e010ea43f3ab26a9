//! Finds options that were given but have no effect; the output names them.

use super::arguments::{CacheArgument, PreconditionArgument, Ssd};

/// Options of a cache of any kind.
const CACHE: [&str; 9] = [
    "--scm",
    "--policy",
    "--set line",
    "--set evict",
    "--set pad",
    "--set whole-lines",
    "--set low-water",
    "--set high-water",
    "--set copy-above",
];
/// Options of the memory of a cache.
const MEMORY: [&str; 4] = ["--set scm-latency", "--set scm-access", "--set scm-banks", "--set scm-bandwidth"];
/// Options of the flash.
const FLASH: [&str; 13] = [
    "--nand",
    "--seed",
    "--set channels",
    "--set dies",
    "--set over-provisioning",
    "--set gc",
    "--set idle-gc",
    "--set wear-gap",
    "--set bad-blocks",
    "--set erase-failures",
    "--set precondition",
    "--set slc",
    "--set placement",
];

/// A sentence for each reason why given options have no effect.
pub fn of(ssd: &Ssd) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    let mut say = |options: &[&str], why: &str| {
        let given = ssd.given.of(options);
        if !given.is_empty() {
            said.push(format!("Without effect: {} ({why}).", given.join(", ")));
        }
    };
    if ssd.cache == CacheArgument::ScmOnly {
        say(&CACHE, "SCM holds everything: there is no cache");
        say(&FLASH, "SCM holds everything: there is no flash");
    } else if ssd.has_no_cache() {
        let cache: Vec<&str> = CACHE.into_iter().chain(MEMORY).filter(|name| *name != "--scm").collect();
        say(&cache, "there is no cache");
        if ssd.cache == CacheArgument::None {
            say(&["--scm"], "there is no cache");
        }
    } else {
        if ssd.cache != CacheArgument::Space {
            say(&["--set copy-above"], "it is for --cache space");
        }
        if ssd.cache == CacheArgument::WriteOnly {
            say(&["--set whole-lines"], "reads are not copied");
        }
    }
    if !ssd.is_volatile() {
        say(&["--set flush-after"], "it is for --cache dram and cxl");
    }
    if ssd.set.open {
        say(&["--depth"], "requests come at their time stamps");
    }
    if ssd.capacity.is_none() {
        say(&["--set wrap"], "the SSD holds all that the trace touches");
    }
    let at_random = ssd.set.precondition == PreconditionArgument::Steady
        || ssd.set.bad_blocks.0 > 0.0
        || ssd.set.erase_failures.0 > 0.0;
    if !at_random && ssd.cache != CacheArgument::ScmOnly {
        say(&["--seed"], "nothing in this flash is random");
    }
    said
}
