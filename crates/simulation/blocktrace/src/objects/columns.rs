//! The meaning of the columns of CSV.

use super::Listing;
use crate::csv::{Column, fields, separator_of};
use crate::format::oraclegeneral;
use std::str::FromStr;

/// Names by which columns are known, in lower case, letters and digits alone.
const KEYS: &[&str] = &[
    "key",
    "objid",
    "objectid",
    "object",
    "obj",
    "id",
    "lbn",
    "lba",
    "blk",
    "block",
    "blockid",
    "blkno",
    "page",
    "addr",
    "address",
    "offset",
    "url",
    "anonymizedkey",
    "hash",
    "sector",
];
const SIZES: &[&str] = &[
    "size",
    "objsize",
    "objectsize",
    "bytes",
    "length",
    "len",
    "nbytes",
    "valuesize",
    "blksize",
    "sizebytes",
];
const TIMES: &[&str] = &["time", "timestamp", "ts", "clocktime", "realtime", "times"];
const OPS: &[&str] = &["op", "operation", "opcode", "type", "optype", "rw", "method", "cmd", "command"];

/// The columns that the user gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The time. It is not used, but found so that no other column is mistaken for it.
    pub time: Option<Column>,
    /// Of which object.
    pub key: Option<Column>,
    /// Its bytes.
    pub size: Option<Column>,
    /// The operation.
    pub op: Option<Column>,
}

impl FromStr for Columns {
    type Err = String;

    fn from_str(text: &str) -> Result<Columns, String> {
        let mut columns = Columns::default();
        for part in text.split(',') {
            let wrong = || {
                format!(
                    "'{}' is not a column (write key=NAME or key=NUMBER; and time=, size=, op=)",
                    part.escape_debug()
                )
            };
            let (what, which) = part.split_once('=').ok_or_else(wrong)?;
            let column = match which.parse::<Column>() {
                Ok(column) => column,
                Err(_) if which.trim().is_empty() => return Err(wrong()),
                Err(why) => return Err(why),
            };
            match what.trim() {
                "time" => columns.time = Some(column),
                "key" => columns.key = Some(column),
                "size" => columns.size = Some(column),
                "op" => columns.op = Some(column),
                _ => return Err(wrong()),
            }
        }
        Ok(columns)
    }
}

/// Columns of a file, counted from 0.
pub struct Layout {
    pub separator: u8,
    /// Whether the first line has names.
    pub header: bool,
    /// The number of the first line that says something.
    pub first_line: u64,
    pub key: usize,
    pub size: Option<usize>,
    pub op: Option<usize>,
    time: Option<usize>,
    names: Vec<String>,
    /// The program that writes such lines; empty if that is not known.
    form: &'static str,
}

/// The operations with which YCSB's lines begin. Its other lines are no requests.
const YCSB: [&str; 6] = ["READ", "INSERT", "UPDATE", "SCAN", "READMODIFYWRITE", "DELETE"];
/// Columns of RocksDB's block cache trace; all are numbers but the name of a column family.
const ROCKSDB_COLUMNS: usize = 21;
const ROCKSDB_NAME: usize = 5;
/// Its numbers for types of blocks.
const ROCKSDB_TYPES: std::ops::RangeInclusive<u32> = 7..=11;

/// Whether a line of YCSB's is a request.
fn is_ycsb(line: &[u8]) -> bool {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let op = words.next().is_some_and(|word| YCSB.iter().any(|op| op.as_bytes() == word));
    op && words.count() >= 2
}

/// Whether a line is of RocksDB's block cache trace, as block_cache_trace_analyzer writes it for
/// people.
fn is_rocksdb(line: &[u8]) -> bool {
    let fields = fields(line, b',');
    let number = |at: usize| std::str::from_utf8(&fields[at]).ok()?.parse::<u64>().ok();
    fields.len() == ROCKSDB_COLUMNS
        && (0..ROCKSDB_COLUMNS).all(|at| at == ROCKSDB_NAME || number(at).is_some())
        && number(2).is_some_and(|kind| ROCKSDB_TYPES.contains(&(kind as u32)))
}

impl Layout {
    /// Columns that are known by the form of the lines.
    fn by_form(head: &[u8]) -> Option<Layout> {
        let layout = |separator, key, size, op, time, form| Layout {
            separator,
            header: false,
            first_line: 1,
            key,
            size,
            op,
            time,
            names: Vec::new(),
            form,
        };
        if whole_lines(head).any(is_ycsb) {
            return Some(layout(b' ', 2, None, Some(0), None, "YCSB"));
        }
        let rocksdb = whole_lines(head).next().is_some_and(is_rocksdb);
        rocksdb.then(|| layout(b',', 1, Some(3), None, Some(0), "RocksDB's block cache"))
    }

    /// Whether a line is not a request, but something else that the program says.
    pub fn passes_over(&self, line: &[u8]) -> bool {
        self.form == "YCSB" && !is_ycsb(line)
    }

    /// Finds the columns.
    pub fn new(head: &[u8], columns: &Columns) -> Result<Layout, String> {
        let Some((first_line, first)) = first_line(head) else {
            return Err("it has no line".to_owned());
        };
        if *columns == Columns::default()
            && let Some(layout) = Layout::by_form(head)
        {
            return Ok(layout);
        }
        let separator = separator_of(first);
        let names: Vec<String> = fields(first, separator)
            .iter()
            .map(|name| String::from_utf8_lossy(name).trim().to_owned())
            .collect();
        let by_name = [&columns.time, &columns.key, &columns.size, &columns.op]
            .into_iter()
            .any(|column| matches!(column, Some(Column::Name(_))));
        let known = [KEYS, SIZES, TIMES, OPS].concat();
        let is_named = names.iter().any(|name| known.contains(&plain(name).as_str()));
        let numbers = names.iter().any(|name| name.parse::<f64>().is_ok());
        let header = by_name || is_named && !numbers;
        let mut layout = Layout {
            separator,
            header,
            first_line,
            key: 0,
            size: None,
            op: None,
            time: None,
            names,
            form: "",
        };
        layout.time = layout.find(columns.time.as_ref(), TIMES)?;
        layout.size = layout.find(columns.size.as_ref(), SIZES)?;
        layout.op = layout.find(columns.op.as_ref(), OPS)?;
        let Some(key) = layout.find(columns.key.as_ref(), KEYS)? else {
            let example = if layout.header { layout.names[0].as_str() } else { "2" };
            return Err(format!(
                "the column of the key is not known (name it: --columns \
                 key={example},size=..,op=..)"
            ));
        };
        layout.key = key;
        Ok(layout)
    }

    fn find(&self, named: Option<&Column>, known: &[&str]) -> Result<Option<usize>, String> {
        let count = self.names.len();
        match named {
            Some(Column::Number(number)) if *number > count => {
                Err(format!("--columns: column {number} is named, and the first line has {count} columns"))
            }
            Some(Column::Number(number)) => Ok(Some(number - 1)),
            Some(Column::Name(name)) => {
                let at = self.names.iter().position(|other| other.eq_ignore_ascii_case(name));
                let missing =
                    || format!("--columns: there is no column {name} (there are {})", self.names.join(", "));
                at.map(Some).ok_or_else(missing)
            }
            None if !self.header => Ok(None),
            // In the order in which the names are known, so that a key wins over an offset.
            None => {
                Ok(known.iter().find_map(|known| self.names.iter().position(|name| plain(name) == *known)))
            }
        }
    }

    /// Describes the columns that were used.
    pub fn describe(&self) -> String {
        let parts =
            [("key", Some(self.key)), ("size", self.size), ("time", self.time), ("operation", self.op)];
        let words = parts.into_iter().filter_map(|(what, at)| {
            let at = at?;
            let name = if self.header { format!(" ({})", self.names[at]) } else { String::new() };
            Some(format!("{what} {}{name}", at + 1))
        });
        let form = if self.form.is_empty() { String::new() } else { format!("{}: ", self.form) };
        form + &words.collect::<Vec<_>>().join(", ")
    }
}

/// A name without the differences in spelling that are common.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

/// The first line that is neither empty nor a comment, with its number.
fn first_line(head: &[u8]) -> Option<(u64, &[u8])> {
    let lines =
        (1..).zip(head.split(|byte| *byte == b'\n')).map(|(number, line)| (number, line.trim_ascii()));
    lines.into_iter().find(|(_, line)| !line.is_empty() && !line.starts_with(b"#"))
}

/// Lines that are not cut off.
fn whole_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = head.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    lines.map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
}

/// Whether the first line has the names of columns, one of which is known to be that of keys; or
/// the form of the lines is known.
pub fn names_a_key(head: &[u8]) -> bool {
    let known = |layout: Layout| layout.names.len() > 1 || !layout.form.is_empty();
    !head.contains(&0) && Layout::new(head, &Columns::default()).is_ok_and(known)
}

/// How objects are listed, by the first bytes; `None` if these are no text and no records that are
/// known.
pub fn listing_of(head: &[u8]) -> Option<Listing> {
    if head.contains(&0) {
        return oraclegeneral::fits(head).then_some(Listing::OracleGeneral);
    }
    if Layout::by_form(head).is_some() {
        return Some(Listing::Csv);
    }
    let one = |line: &[u8]| fields(line, separator_of(line)).len() == 1;
    let lone = first_line(head).is_none_or(|(_, line)| one(line));
    Some(if lone { Listing::Keys } else { Listing::Csv })
}
