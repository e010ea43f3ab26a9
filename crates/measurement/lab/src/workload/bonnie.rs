//! Bonnie++ on file systems: runs the program itself, and reads its CSV, format 1.98. It follows
//! Martin, whose version is not published and had other defaults.

use crate::workload::{Pass, Said};
use anyhow::{bail, ensure};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use terapage_rig::tools;

const MIB: u64 = 1 << 20;

/// The supported CSV: its format, and its number of fields.
const FORMAT: (&str, usize) = ("1.98", 50);

/// The contents of a field whose test ran for less than half a second.
const TOO_FAST: &str = "+++++";

/// The number of seeks after which no further try is made.
const SEEKS_MOST: u32 = 500_000;

/// How long the cost of a flush is measured.
const FLUSHING: Duration = Duration::from_millis(500);

/// The workload's options.
#[derive(Debug, clap::Args)]
pub struct Bonnie {
    /// Where it works.
    #[arg(long)]
    dir: PathBuf,
    /// The part of its tests.
    #[arg(long)]
    part: Part,
    /// The size of its file, bytes.
    #[arg(long)]
    size: u64,
    /// The memory size that it assumes, bytes.
    #[arg(long)]
    memory: u64,
    /// The number of seeks. If they take less than half a second, more are made.
    #[arg(long, default_value_t = 8192)]
    seeks: u32,
}

/// Tests that run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// From end to end: writes, rewrites, reads.
    Transfer,
    /// Reads at random places by five processes, of which a tenth is written back.
    Seeks,
    /// Makes, stats and removes 1024 files; each is synced.
    Files,
}

/// Fields of the CSV, counted from 0, and their names here.
const BLOCKS: [(usize, &str); 3] = [(11, "write, MiB/s"), (13, "rewrite, MiB/s"), (17, "read, MiB/s")];
const SEEKS: [(usize, &str); 1] = [(19, "seeks, 1/s")];
const FILES: [(usize, &str); 6] = [
    (26, "create, 1/s"),
    (28, "stat, 1/s"),
    (30, "delete, 1/s"),
    (32, "create at random, 1/s"),
    (34, "stat at random, 1/s"),
    (36, "delete at random, 1/s"),
];

impl Bonnie {
    /// Runs Bonnie++, and prints its passes.
    ///
    /// # Errors
    /// Bonnie++ cannot be run, or its output has an unknown form.
    pub fn run(mut self) -> anyhow::Result<()> {
        let program = tools::find("bonnie++").map_err(anyhow::Error::msg)?;
        // The flushes come first: without them a reader could confuse a disk whose flushes cost
        // nothing with one whose barriers do.
        println!("{}", serde_json::to_string(&flushes(&self.dir.join("flush"))?)?);
        let (passes, notes) = loop {
            let line = self.line(&program)?;
            let (passes, notes) = parse(&line, self.part)?;
            // The device is too fast for this number of seeks.
            if self.part == Part::Seeks && passes.is_empty() && self.seeks < SEEKS_MOST {
                self.seeks *= 8;
                continue;
            }
            Said::Raw(line).print()?;
            break (passes, notes);
        };
        for pass in passes {
            println!("{}", serde_json::to_string(&pass)?);
        }
        notes.into_iter().try_for_each(|note| Said::Note(note).print())
    }

    /// Runs Bonnie++ once, and returns its line of CSV.
    fn line(&self, program: &Path) -> anyhow::Result<String> {
        let output = Command::new(program).args(self.arguments()).env("LC_ALL", "C").output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "bonnie++: {}", errors.lines().last().unwrap_or("no message"));
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().find(|line| line.contains(',')).unwrap_or_default().to_owned())
    }

    fn arguments(&self) -> Vec<String> {
        let mebibytes = |bytes: u64| (bytes / MIB).max(1);
        let size = match self.part {
            Part::Files => "0".to_owned(),
            Part::Transfer | Part::Seeks => {
                format!("{}M:8192:{}:5", mebibytes(self.size), self.seeks)
            }
        };
        let files = if self.part == Part::Files { "1:1024:64:4" } else { "0" };
        let mut all: Vec<String> =
            ["-q", "-m", "lab", "-x", "1", "-z", "1", "-d"].map(str::to_owned).to_vec();
        all.push(self.dir.display().to_string());
        // Bonnie++ refuses to run as root without this option. SAFETY: geteuid takes nothing and
        // cannot fail.
        all.extend(["-u".to_owned(), unsafe { libc::geteuid() }.to_string()]);
        all.extend(["-r".to_owned(), mebibytes(self.memory).to_string()]);
        all.extend(["-s".to_owned(), size, "-n".to_owned(), files.to_owned()]);
        // Without its tests of single characters, which measure the C library. This is the last
        // option, because it takes a following word as a size.
        if self.part == Part::Files {
            all.push("-b".to_owned());
        }
        all.push("-f".to_owned());
        all
    }
}

/// The number of times per second that 4 KiB can be written with fdatasync.
fn flushes(path: &Path) -> anyhow::Result<Pass> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
    let (start, mut count) = (Instant::now(), 0u32);
    while count < 5 || start.elapsed() < FLUSHING && count < 1000 {
        file.write_all(&[0x5a; 4096])?;
        file.sync_data()?;
        count += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    fs::remove_file(path)?;
    Ok(Pass {
        pass: "flush, 1/s".into(),
        seconds,
        threads: 1,
        operations: Some(count.into()),
        ..Pass::default()
    })
}

/// The passes in a line of CSV, and remarks on missing ones.
fn parse(line: &str, part: Part) -> anyhow::Result<(Vec<Pass>, Vec<String>)> {
    let fields: Vec<&str> = line.trim().split(',').collect();
    ensure!(
        fields[0] == FORMAT.0 && fields.len() == FORMAT.1,
        "bonnie++'s output has changed: format {:.20} with {} fields, and not {} with {}",
        fields[0],
        fields.len(),
        FORMAT.0,
        FORMAT.1
    );
    let wanted: &[(usize, &str)] = match part {
        Part::Transfer => &BLOCKS,
        Part::Seeks => &SEEKS,
        Part::Files => &FILES,
    };
    let (mut passes, mut fast) = (Vec::new(), Vec::new());
    for (field, name) in wanted {
        if fields[*field] == TOO_FAST {
            fast.push(name.split(',').next().unwrap_or(name));
            continue;
        }
        let Ok(value) = fields[*field].parse::<f64>() else {
            bail!("bonnie++'s output has changed: {:?} for {name}", fields[*field]);
        };
        ensure!(value > 0.0, "bonnie++ counts {value} for {name}");
        let pass = Pass { pass: (*name).into(), seconds: 1.0, threads: 1, ..Pass::default() };
        passes.push(match part {
            // In KiB per second.
            Part::Transfer => Pass { bytes: (value * 1024.0) as u64, ..pass },
            Part::Seeks | Part::Files => Pass { operations: Some(value), ..pass },
        });
    }
    let mut notes = Vec::new();
    if !fast.is_empty() {
        let what = fast.join(", ");
        notes.push(format!("too fast to measure (under half a second, {TOO_FAST}): {what}"));
    }
    notes.push(match part {
        Part::Seeks => format!("{} seeks by {} processes", fields[7], fields[8]),
        Part::Transfer => format!("a file of {} in pieces of 8 KiB", fields[5]),
        Part::Files => {
            format!("{} x 1024 files of {} to {} bytes, each synced", fields[21], fields[23], fields[22])
        }
    });
    Ok((passes, notes))
}

#[cfg(test)]
mod tests {
    use super::{Bonnie, Part, parse};

    /// As printed by Bonnie++ 2.00a of Debian 12.
    const WHOLE: &str = "1.98,2.00a,NAME,1,1795585981,64M,,8192,5,856,89,+++++,+++,+++++,+++,1019,65,+++++,+++,\
        +++++,+++,2,1024,64,,4,2931,9,+++++,+++,1159,6,+++++,+++,+++++,+++,1724,9,21275us,4890us,201us,22262us,\
        8070us,32093us,9511us,4867us,68020us,5930us,85us,53426us";
    const FILES: &str = "1.98,2.00a,NAME,1,1795585764,,,,,,,,,,,,,,,,,1,1024,64,,4,397,24,+++++,+++,819,12,336,27,\
        +++++,+++,207,4,,,,,,,57116us,8246us,29342us,56313us,66us,27838us";

    #[test]
    fn what_is_too_fast_is_a_gap_and_never_zero() {
        let (passes, notes) = parse(WHOLE, Part::Transfer).expect("it is Bonnie++'s");
        assert!(passes.is_empty());
        assert!(notes[0].contains("too fast") && notes[0].contains("write, rewrite, read"), "{notes:?}");
        let (passes, notes) = parse(FILES, Part::Files).expect("it is Bonnie++'s");
        let found: Vec<_> = passes.iter().map(|pass| (pass.pass.as_str(), pass.operations)).collect();
        assert_eq!(
            found,
            [
                ("create, 1/s", Some(397.0)),
                ("delete, 1/s", Some(819.0)),
                ("create at random, 1/s", Some(336.0)),
                ("delete at random, 1/s", Some(207.0))
            ]
        );
        assert!(notes[0].contains("stat, stat at random"), "{notes:?}");
    }

    #[test]
    fn figures_are_those_of_the_csv() {
        let line = WHOLE.replacen("+++++,+++,+++++,+++,1019", "524288,9,262144,5,1019", 1);
        let (passes, notes) = parse(&line, Part::Transfer).expect("it is Bonnie++'s");
        let rates: Vec<f64> =
            passes.iter().map(|pass| pass.bytes as f64 / pass.seconds / f64::from(1 << 20)).collect();
        assert_eq!(rates, [512.0, 256.0]);
        assert!(notes[0].ends_with("read") && notes[1].contains("64M"), "{notes:?}");
        let line = WHOLE.replacen("+++++,+++,2,1024", "6203.4,9,2,1024", 1);
        let (passes, notes) = parse(&line, Part::Seeks).expect("it is Bonnie++'s");
        assert_eq!(passes[0].operations, Some(6203.4));
        assert_eq!(notes, ["8192 seeks by 5 processes"]);
    }

    #[test]
    fn another_output_is_refused_in_one_line() {
        for line in ["", "1.97,1.97,x,1", &WHOLE.replace("1.98,", "2.1,"), &format!("{WHOLE},9")] {
            let error = parse(line, Part::Files).expect_err(line).to_string();
            assert!(
                error.starts_with("bonnie++'s output has changed: format ") && !error.contains('\n'),
                "{error}"
            );
        }
        let error = parse(&FILES.replace("397", "fast"), Part::Files).expect_err("no number").to_string();
        assert!(error.contains("\"fast\" for create"), "{error}");
        let error = parse(&FILES.replace("397", "0"), Part::Files).expect_err("zero").to_string();
        assert!(error.contains("counts 0"), "{error}");
    }

    #[test]
    fn the_size_and_the_memory_are_said_in_its_own_units() {
        let of = |part| {
            let bonnie = Bonnie { dir: "/d".into(), part, size: 256 << 20, memory: 64 << 20, seeks: 100 };
            bonnie.arguments().join(" ")
        };
        assert!(of(Part::Transfer).contains("-r 64 -s 256M:8192:100:5 -n 0 -f"), "{}", of(Part::Transfer));
        assert!(of(Part::Files).contains("-s 0 -n 1:1024:64:4 -b -f"), "{}", of(Part::Files));
    }
}
