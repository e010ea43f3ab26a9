//! Shows a trace: `cargo run -p terapage-trace --example trace_show FILE [records]`.
//!
//! Prints the run and the number of records of each kind; with `records`, each record.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use terapage_trace::Reader;

fn show(path: PathBuf, all: bool) -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut reader = Reader::open(&path)?.allow_cut_short();
    writeln!(out, "{:?}", reader.header())?;
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for record in reader.by_ref() {
        let record = record?;
        let text = format!("{:?}", record.event);
        if all {
            writeln!(out, "{:>12} us  {text}", record.time_us)?;
        }
        let kind = text.split(' ').next().unwrap_or_default().to_owned();
        *counts.entry(kind).or_default() += 1;
    }
    for (kind, count) in counts {
        writeln!(out, "{count:>12}  {kind}")?;
    }
    if let Some(error) = reader.cut_short() {
        writeln!(out, "{error}")?;
    }
    Ok(out.flush()?)
}

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let Some(path) = arguments.next() else {
        eprintln!("trace_show: no file given");
        std::process::exit(2);
    };
    let all = arguments.next().is_some_and(|argument| argument == "records");
    if let Err(error) = show(path.into(), all) {
        eprintln!("trace_show: {error}");
        std::process::exit(1);
    }
}
