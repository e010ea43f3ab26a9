//! The values of the simulators' flags, for shells that complete them.

use terapage_blocktrace::Format;
use terapage_blocktrace::objects::Listing;
use terapage_policy::replacement;
use terapage_ssd::Profile;

/// The values of a flag of a command of `terapage sim`; none if it takes any text.
pub fn names(command: &str, flag: &str) -> Vec<&'static str> {
    let formats = Format::ALL.map(Format::name);
    match flag {
        "policy" if command == "cache" => terapage_eviction::all().map(|known| known.name).collect(),
        "policy" => replacement::NAMES.to_vec(),
        "format" if command == "cache" => {
            let keys = Listing::ALL.map(Listing::name).into_iter().filter(|name| !formats.contains(name));
            formats.into_iter().chain(keys).collect()
        }
        "format" | "to" => formats.to_vec(),
        "nand" => Profile::names().chain(["all"]).collect(),
        _ => Vec::new(),
    }
}
