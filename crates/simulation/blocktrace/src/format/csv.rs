//! Any CSV with named columns: `time=ts:us,offset=lba:512,size=len,op=type,volume=disk`.

use crate::csv::{Column, fields, separator_of};
use crate::fault::{Checked, field};
use crate::gate::{Gate, Record};
use crate::lines::LineParser;
use crate::request::{Kind, Request};
use crate::scan::Cursor;
use std::str::FromStr;

/// Columns of a block trace in CSV, and their units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockColumns {
    /// The time, and the number of decimal places between its unit and a nanosecond: 9 for
    /// seconds, 0 for nanoseconds. `None` if all requests arrive at once.
    time: Option<(Column, u32)>,
    /// The offset, and the bytes of its unit.
    offset: (Column, u64),
    /// The length, and the bytes of its unit.
    size: (Column, u64),
    /// The operation, and the value that means a write; without a value the usual words are known.
    /// `None` if all requests are reads.
    op: Option<(Column, Option<String>)>,
    /// The volume.
    volume: Option<Column>,
}

impl FromStr for BlockColumns {
    type Err = String;

    fn from_str(text: &str) -> Result<BlockColumns, String> {
        let (mut time, mut offset, mut size, mut op, mut volume) = (None, None, None, None, None);
        for part in text.split(',') {
            let wrong = || {
                format!(
                    "'{}' is not a column (write offset=COLUMN[:UNIT] and size=..; and \
                     time=COLUMN[:s, ms, us or ns], op=COLUMN[:VALUE OF WRITES], volume=COLUMN)",
                    part.escape_debug()
                )
            };
            let (what, which) = part.split_once('=').ok_or_else(wrong)?;
            let (which, unit) = match which.split_once(':') {
                Some((which, unit)) => (which, Some(unit)),
                None => (which, None),
            };
            let column: Column = which.parse()?;
            let bytes = || match unit {
                None | Some("bytes") => Ok(1),
                Some("sectors") => Ok(512),
                Some(unit) => unit.parse::<u64>().ok().filter(|unit| *unit > 0).ok_or_else(wrong),
            };
            match what.trim() {
                "time" => {
                    let places = match unit {
                        None | Some("s") => 9,
                        Some("ms") => 6,
                        Some("us") => 3,
                        Some("ns") => 0,
                        Some(_) => return Err(wrong()),
                    };
                    time = Some((column, places));
                }
                "offset" => offset = Some((column, bytes()?)),
                "size" => size = Some((column, bytes()?)),
                "op" => op = Some((column, unit.map(str::to_owned))),
                "volume" if unit.is_none() => volume = Some(column),
                _ => return Err(wrong()),
            }
        }
        let missing = || format!("'{text}' lacks offset=COLUMN or size=COLUMN, which each request has");
        Ok(BlockColumns {
            time,
            offset: offset.ok_or_else(missing)?,
            size: size.ok_or_else(missing)?,
            op,
            volume,
        })
    }
}

impl BlockColumns {
    fn all(&self) -> impl Iterator<Item = &Column> {
        let time = self.time.iter().map(|time| &time.0);
        let op = self.op.iter().map(|op| &op.0);
        time.chain([&self.offset.0, &self.size.0]).chain(op).chain(self.volume.iter())
    }
}

/// The positions of the columns, counted from 0.
struct Places {
    separator: u8,
    time: Option<usize>,
    offset: usize,
    size: usize,
    op: Option<usize>,
    volume: Option<usize>,
}

/// Reads the format.
pub(crate) struct Parser {
    columns: BlockColumns,
    places: Option<Places>,
}

impl Parser {
    pub fn new(columns: BlockColumns) -> Parser {
        Parser { columns, places: None }
    }

    /// Finds the columns in the first line. It returns whether that line has their names.
    fn begin(&mut self, line: &[u8]) -> Checked<bool> {
        let separator = separator_of(line);
        let names = fields(line, separator);
        let find = |column: &Column| match column {
            Column::Number(number) => Ok(number - 1),
            Column::Name(name) => {
                let at = names.iter().position(|other| other.eq_ignore_ascii_case(name.as_bytes()));
                at.map_or_else(|| field("the names of the columns", line), Ok)
            }
        };
        let columns = &self.columns;
        let maybe = |column: Option<&Column>| column.map(find).transpose();
        let places = Places {
            separator,
            time: maybe(columns.time.as_ref().map(|time| &time.0))?,
            offset: find(&columns.offset.0)?,
            size: find(&columns.size.0)?,
            op: maybe(columns.op.as_ref().map(|op| &op.0))?,
            volume: maybe(columns.volume.as_ref())?,
        };
        let named = columns.all().any(|column| matches!(column, Column::Name(_)));
        // Columns given by number may have names nevertheless.
        let first = names.get(places.offset).and_then(|text| text.first());
        self.places = Some(places);
        Ok(named || first.is_some_and(|first| !first.is_ascii_digit()))
    }
}

fn kind_of(text: &[u8], write: Option<&str>) -> Checked<Kind> {
    let first = text.first().map(u8::to_ascii_lowercase);
    match (write, first) {
        (Some(write), Some(_)) => {
            Ok(if text.eq_ignore_ascii_case(write.as_bytes()) { Kind::Write } else { Kind::Read })
        }
        (None, Some(b'r')) => Ok(Kind::Read),
        (None, Some(b'w')) => Ok(Kind::Write),
        (None, Some(b'd' | b't')) => Ok(Kind::Trim),
        _ => field("a word that begins with R, W, D or T (op=COLUMN:1 means that 1 is a write)", text),
    }
}

/// A whole number of units.
fn amount(text: &[u8], unit: u64, expected: &'static str) -> Checked<u64> {
    let mut cursor = Cursor::new(text);
    let value = cursor.word_number(expected)?;
    cursor.end()?;
    value.checked_mul(unit).map_or_else(|| field(expected, text), Ok)
}

impl LineParser for Parser {
    fn line(&mut self, line: &[u8], gate: &mut Gate) -> Checked<Option<Request>> {
        if line.starts_with(b"#") || self.places.is_none() && self.begin(line)? {
            return gate.other();
        }
        let Some(places) = &self.places else { return gate.other() };
        let fields = fields(line, places.separator);
        let at = |place: usize| fields.get(place).map_or(&[][..], |text| text);
        let columns = &self.columns;
        let ticks = match (places.time, &columns.time) {
            (Some(place), Some((_, unit))) => {
                let mut cursor = Cursor::new(at(place));
                let ticks = cursor.decimal_ns(*unit, "a time")?;
                cursor.end()?;
                ticks
            }
            _ => 0,
        };
        let address = amount(at(places.offset), columns.offset.1, "a whole number as an offset")?;
        let bytes = amount(at(places.size), columns.size.1, "a whole number as a length")?;
        let kind = match (places.op, &columns.op) {
            (Some(place), Some((_, write))) => kind_of(at(place), write.as_deref())?,
            _ => Kind::Read,
        };
        let key = places.volume.map_or(&b"0"[..], at);
        if key.is_empty() {
            return field("a volume", key);
        }
        gate.admit(key, Record { ticks, address, bytes, kind })
    }
}
