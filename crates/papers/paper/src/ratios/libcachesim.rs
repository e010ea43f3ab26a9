//! `sim cache`'s policies beside libCacheSim's, if its program or its Python module is here.

use super::Beside;
use anyhow::{Context, ensure};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use terapage_blocktrace::{Options, open};
use terapage_eviction::{Log, by_name, least};
use terapage_figures::SplitMix;
use terapage_policy::objects::{Request, simulate};
use terapage_rig::tools::find;

/// A policy, by its names here, in libCacheSim's program, and in its Python module.
struct Names {
    ours: &'static str,
    program: &'static str,
    class: &'static str,
}

const fn names(ours: &'static str, program: &'static str, class: &'static str) -> Names {
    Names { ours, program, class }
}

const POLICIES: [Names; 17] = [
    names("lru", "lru", "LRU"),
    names("fifo", "fifo", "FIFO"),
    names("clock", "clock", "Clock"),
    names("2q", "twoq", "TwoQ"),
    names("s3fifo", "s3fifo", "S3FIFO"),
    names("sieve", "sieve", "Sieve"),
    names("arc", "arc", "ARC"),
    names("slru", "slru", "SLRU"),
    names("lfu", "lfu", "LFU"),
    names("gdsf", "gdsf", "GDSF"),
    names("lirs", "lirs", "LIRS"),
    names("lfuda", "lfuda", "LFUDA"),
    names("wtinylfu", "wtinylfu", "WTinyLFU"),
    names("lhd", "lhd", "LHD"),
    names("hyperbolic", "hyperbolic", "Hyperbolic"),
    names("random", "random", "Random"),
    names(LEAST, "belady", "Belady"),
];

/// The least misses of any policy.
const LEAST: &str = "optimum";
/// Requests of the trace that is made, and the objects among which they are.
const REQUESTS: usize = 300_000;
const OBJECTS: u64 = 30_000;
/// The cache has room for one object of this many.
const SHARE: usize = 10;
/// Bytes of the blocks of a trace that is read.
const BLOCK: u64 = 4 << 10;

/// The file of the trace; libCacheSim computes the optimum only for a name like this.
const TRACE: &str = "trace.oracleGeneral";

/// What the trace is.
const MADE: &str = "300,000 requests for 30,000 objects, most by Zipf's law, and scans";

/// The Python module replays a trace with each class: the arguments are the trace, the size of the
/// cache, and the classes.
const SCRIPT: &str = "\
import sys, libcachesim as lcs
trace, size = sys.argv[1], int(sys.argv[2])
for name in sys.argv[3:]:
    as_counted = lcs.ReaderInitParam(ignore_obj_size=True)
    reader = lcs.TraceReader(trace, lcs.TraceType.ORACLE_GENERAL_TRACE, as_counted)
    cache = getattr(lcs, name)(size)
    print('%s miss ratio %.6f,' % (name, cache.process_trace(reader)[0]))
";

/// Where libCacheSim comes from, for those who have none.
pub const HOW_TO_GET: &str = "python3 -m venv lcs && lcs/bin/pip install libcachesim, then with PATH=$PWD/lcs/bin:$PATH; \
     or a cachesim that was built from its source, in PATH";

/// libCacheSim, as it is on this machine.
#[derive(Debug)]
enum Tool {
    /// Its program.
    Program(PathBuf),
    /// A Python that has its module.
    Python(PathBuf),
}

impl Tool {
    /// The program if there is one, otherwise the module.
    fn find() -> Option<Tool> {
        if let Ok(program) = find("cachesim") {
            return Some(Tool::Program(program));
        }
        let python = find("python3").ok()?;
        let has = Command::new(&python).args(["-c", "import libcachesim"]).output();
        has.is_ok_and(|output| output.status.success()).then_some(Tool::Python(python))
    }

    /// What it is called in a table.
    fn name(&self) -> &'static str {
        match self {
            Tool::Program(_) => "libCacheSim (cachesim)",
            Tool::Python(_) => "libCacheSim (Python module)",
        }
    }

    /// The miss ratio of each policy for a cache of `capacity` objects.
    fn ratios(&self, folder: &Path, capacity: usize) -> anyhow::Result<Vec<f64>> {
        let size = capacity.to_string();
        match self {
            Tool::Program(program) => {
                let one = |names: &Names| {
                    let arguments = [TRACE, "oracleGeneral", names.program, &size, "--ignore-obj-size=true"];
                    let said = said(program, &arguments, folder)?;
                    let ratio = miss_ratio(&said);
                    ratio.with_context(|| {
                        format!("{} {}: no miss ratio in what it prints", program.display(), names.program)
                    })
                };
                POLICIES.iter().map(one).collect()
            }
            Tool::Python(python) => {
                let mut arguments = vec!["-c", SCRIPT, TRACE, &size];
                arguments.extend(POLICIES.iter().map(|names| names.class));
                let said = said(python, &arguments, folder)?;
                let ratios: Vec<f64> = said.lines().filter_map(miss_ratio).collect();
                ensure!(
                    ratios.len() == POLICIES.len(),
                    "{}: {} miss ratios from libcachesim, not {}",
                    python.display(),
                    ratios.len(),
                    POLICIES.len()
                );
                Ok(ratios)
            }
        }
    }
}

/// What a program prints.
fn said(program: &Path, arguments: &[&str], folder: &Path) -> anyhow::Result<String> {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.with_context(|| program.display().to_string())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    ensure!(output.status.success(), "{}: {} ({last})", program.display(), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The policies on one trace.
pub struct Compared {
    /// The trace and the cache, in words.
    pub note: String,
    /// The miss ratios.
    pub all: Vec<Beside>,
}

/// Whether both are the same to the digits that libCacheSim prints.
pub fn is_same(one: &Beside) -> bool {
    (one.ours - one.theirs).abs() <= 0.000_051
}

/// Runs both on the blocks of each trace, or on a trace that is made; `None` if there is no
/// libCacheSim.
///
/// # Errors
/// A trace cannot be read; libCacheSim fails, or prints something else.
pub fn compared(traces: &[PathBuf]) -> anyhow::Result<Option<Vec<Compared>>> {
    let Some(tool) = Tool::find() else { return Ok(None) };
    if traces.is_empty() {
        return Ok(Some(vec![beside(&tool, MADE, &made())?]));
    }
    let each = |path: &PathBuf| {
        let objects = blocks(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let note = format!("{name}: {} requests for blocks of 4 KiB", objects.len());
        beside(&tool, &note, &objects)
    };
    traces.iter().map(each).collect::<anyhow::Result<_>>().map(Some)
}

fn beside(tool: &Tool, trace: &str, objects: &[u32]) -> anyhow::Result<Compared> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join(TRACE), encoded(objects))?;
    let distinct = objects.iter().max().map_or(0, |last| *last as usize + 1);
    let capacity = (distinct / SHARE).max(1);
    let theirs = tool.ratios(folder.path(), capacity)?;
    let one = |(names, theirs): (&Names, f64)| {
        Ok(Beside {
            with: tool.name().into(),
            what: names.ours.into(),
            theirs,
            ours: misses(names.ours, objects, capacity)? as f64 / objects.len() as f64,
            unit: "",
        })
    };
    let all = POLICIES.iter().zip(theirs).map(one).collect::<anyhow::Result<_>>()?;
    Ok(Compared { note: format!("Miss ratios of {trace}, in a cache for {capacity} of {distinct}."), all })
}

/// The last miss ratio that libCacheSim printed.
pub fn miss_ratio(text: &str) -> Option<f64> {
    let (_, rest) = text.rsplit_once(" miss ratio ")?;
    rest.split(',').next()?.trim().parse().ok()
}

/// The blocks that a trace asks for, by numbers in the order of their first requests.
fn blocks(path: &Path) -> anyhow::Result<Vec<u32>> {
    let shown = || path.display().to_string();
    let (mut numbers, mut objects) = (HashMap::new(), Vec::new());
    for request in open(path, &Options::default()).with_context(shown)? {
        let request = request.with_context(shown)?;
        for at in request.offset / BLOCK..request.end().div_ceil(BLOCK) {
            let next = u32::try_from(numbers.len())?;
            objects.push(*numbers.entry((request.volume, at)).or_insert(next));
        }
    }
    ensure!(!objects.is_empty(), "{}: there is no request in it", path.display());
    Ok(objects)
}

/// Objects by Zipf's law, and now and then a scan of a tenth of them.
fn made() -> Vec<u32> {
    let mut random = SplitMix(9);
    let mut objects = Vec::new();
    while objects.len() < REQUESTS {
        if random.below(20_000) == 0 {
            let first = random.below(OBJECTS) as u32;
            objects.extend((first..).take(OBJECTS as usize / 10).map(|object| object % OBJECTS as u32));
        }
        // The logarithm of the rank is uniform, which is Zipf's law with exponent 1.
        let rank = (OBJECTS as f64).powf(random.unit()) as u64 - 1;
        objects.push((rank * 7919 % OBJECTS) as u32);
    }
    objects.truncate(REQUESTS);
    objects
}

/// libCacheSim's oracleGeneral: time, object, size, and the number of the next request for it.
fn encoded(objects: &[u32]) -> Vec<u8> {
    let mut next: HashMap<u32, i64> = HashMap::new();
    let mut records: Vec<[u8; 24]> = Vec::with_capacity(objects.len());
    for (at, object) in objects.iter().enumerate().rev() {
        let number = at as i64 + 1;
        let mut record = [0; 24];
        record[..4].copy_from_slice(&((number / 1000) as u32).to_le_bytes());
        record[4..12].copy_from_slice(&(u64::from(*object) + 1).to_le_bytes());
        record[12..16].copy_from_slice(&1_u32.to_le_bytes());
        record[16..].copy_from_slice(&next.insert(*object, number).unwrap_or(-1).to_le_bytes());
        records.push(record);
    }
    records.into_iter().rev().flatten().collect()
}

fn misses(name: &str, objects: &[u32], capacity: usize) -> anyhow::Result<u64> {
    let requests = objects.iter().map(|object| Request::Get(*object, 1));
    if name == LEAST {
        let mut log = Log::default();
        requests.into_iter().try_for_each(|request| log.push(request))?;
        return Ok(least(&log, &log.next_uses()?, capacity)?.0);
    }
    let mut policy = by_name(name, capacity).with_context(|| format!("no policy is called {name}"))?;
    Ok(simulate(policy.as_mut(), requests, capacity).misses)
}

#[cfg(test)]
mod tests {
    use super::{POLICIES, Tool, beside, blocks, miss_ratio};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    fn script(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn what_libcachesim_prints_is_read() {
        let line = "/tmp/x/trace LRU cache size     1000,           200000 req, miss ratio 0.4071, throughput 4.21 MQPS\n";
        assert_eq!(miss_ratio(line), Some(0.4071));
        assert_eq!(miss_ratio("WTinyLFU miss ratio 0.182607,"), Some(0.182_607));
        assert_eq!(miss_ratio("no such policy"), None);
    }

    #[test]
    fn both_forms_of_libcachesim_are_asked() {
        let folder = tempfile::tempdir().unwrap();
        let (program, python) = (folder.path().join("cachesim"), folder.path().join("python3"));
        script(
            &program,
            "#!/bin/sh\ntest \"$4\" = 1 && echo \"$1 $3 req, miss ratio 0.5000, throughput 1\"\n",
        );
        // The arguments are -c, the script, the trace, the size and the classes.
        script(&python, "#!/bin/sh\nshift 4\nfor name; do echo \"$name miss ratio 0.250000,\"; done\n");
        for (tool, theirs) in [(Tool::Program(program), 0.5), (Tool::Python(python), 0.25)] {
            let compared = beside(&tool, "a trace", &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9]).unwrap();
            assert_eq!(compared.all.len(), POLICIES.len());
            assert!(compared.all.iter().all(|one| one.theirs == theirs), "{tool:?}");
            // In a cache for one object, all but the repeated requests miss.
            assert!((compared.all[0].ours - 10.0 / 12.0).abs() < 1e-9, "{:?}", compared.all[0]);
            assert!(compared.note.contains("a cache for 1 of 10"), "{}", compared.note);
        }
        let broken = folder.path().join("broken");
        script(&broken, "#!/bin/sh\necho 'no such module' >&2\nexit 1\n");
        let error = beside(&Tool::Python(broken), "a trace", &[0]).err().expect("it fails").to_string();
        assert!(error.contains("no such module"), "{error}");
    }

    #[test]
    fn traces_are_read_as_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        fs::write(
            &path,
            "128166385295514663,hm,0,Write,8192,8192,1\n128166385295514664,hm,0,Read,12288,4096,1\n",
        )
        .unwrap();
        assert_eq!(blocks(&path).unwrap(), [0, 1, 1]);
        fs::write(&path, "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n").unwrap();
        assert!(blocks(&path).unwrap_err().to_string().contains("there is no request"));
        assert!(blocks(&PathBuf::from("/none.csv")).unwrap_err().to_string().contains("/none.csv"));
    }
}
