//! Traces of objects: requests for keys, perhaps each with a size.
//!
//! The traces with which caches of key-value stores, of content and of pages are studied: CSV with
//! named columns, plain lists of keys, little-endian numbers, and libCacheSim's `oracleGeneral`.
//! Memory grows with the number of different keys, not with that of requests.

mod columns;

pub use crate::csv::Column;
pub use columns::Columns;

use crate::csv::fields;
use crate::error::{Error, Place, Problem};
use crate::fault::{Fault, excerpt};
use crate::input::Input;
use crate::reader::{Opened, unknown};
use columns::Layout;
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read};
use std::str::FromStr;

/// The longest line that is accepted.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a record of `oracleGeneral`: time u32, object u64, size u32, next request i64.
const ORACLE_BYTES: usize = 24;

/// How a file lists objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// Lines of fields, one of which is the key.
    Csv,
    /// A key a line.
    Keys,
    /// Numbers of 4 bytes, little-endian.
    U32,
    /// Numbers of 8 bytes, little-endian.
    U64,
    /// libCacheSim's records.
    OracleGeneral,
}

impl Listing {
    /// All of them.
    pub const ALL: [Listing; 5] =
        [Listing::Csv, Listing::Keys, Listing::U32, Listing::U64, Listing::OracleGeneral];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Listing::Csv => "csv",
            Listing::Keys => "keys",
            Listing::U32 => "u32",
            Listing::U64 => "u64",
            Listing::OracleGeneral => "oraclegeneral",
        }
    }
}

impl FromStr for Listing {
    type Err = ();

    fn from_str(name: &str) -> Result<Listing, ()> {
        Listing::ALL.into_iter().find(|listing| listing.name() == name).ok_or(())
    }
}

/// A request for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The object, from 0 in order of appearance.
    pub object: u32,
    /// The object's bytes at this request, at least 1; [`DELETED`] if the object is deleted.
    pub bytes: u32,
}

/// Stands in place of a size: the object is deleted.
pub const DELETED: u32 = u32::MAX;

/// A trace of objects.
#[derive(Clone, Debug)]
pub struct Objects {
    /// The way in which the trace was read.
    pub listing: Listing,
    /// For CSV: the columns that were used, in words.
    pub columns: String,
    /// Whether objects have sizes; otherwise all sizes are 1.
    pub sized: bool,
    /// Distinct objects.
    pub objects: usize,
}

/// The way to read objects.
#[derive(Clone, Debug, Default)]
pub struct ObjectOptions {
    /// The kind of listing; `None` detects it from the first bytes, and treats numbers as text.
    pub listing: Option<Listing>,
    /// The columns of CSV; columns that are not given are guessed from the first line.
    pub columns: Columns,
}

impl Opened {
    /// Whether it is text that begins with the names of columns, one of which is known to be that
    /// of keys, or lines that YCSB or RocksDB write.
    pub fn has_header(&self) -> bool {
        columns::names_a_key(&self.head)
    }

    /// Reads it as a trace of objects. `each` gets the requests, one by one.
    ///
    /// # Errors
    /// It cannot be read or has an invalid record; or the key column of CSV is not known; or an
    /// error of `each`.
    pub fn objects(
        self,
        options: &ObjectOptions,
        mut each: impl FnMut(Asked) -> io::Result<()>,
    ) -> Result<Objects, Error> {
        let Opened { file, head, input, .. } = self;
        let listing = match options.listing {
            Some(listing) => listing,
            None => columns::listing_of(&head).ok_or_else(|| unknown(&file, &head))?,
        };
        let mut reading = Reading::new(file, listing, &mut each);
        match listing {
            Listing::Csv | Listing::Keys => reading.text(input, &head, &options.columns)?,
            Listing::U32 => reading.numbers::<4>(input)?,
            Listing::U64 => reading.numbers::<8>(input)?,
            Listing::OracleGeneral => reading.numbers::<ORACLE_BYTES>(input)?,
        }
        Ok(reading.trace)
    }
}

/// A trace while it is read.
struct Reading<'a> {
    file: String,
    trace: Objects,
    each: &'a mut dyn FnMut(Asked) -> io::Result<()>,
    numbers: HashMap<u64, u32>,
    names: HashMap<Box<[u8]>, u32>,
}

impl Reading<'_> {
    fn new(file: String, listing: Listing, each: &mut dyn FnMut(Asked) -> io::Result<()>) -> Reading<'_> {
        let sized = listing == Listing::OracleGeneral;
        let trace = Objects { listing, columns: String::new(), sized, objects: 0 };
        Reading { file, trace, each, numbers: HashMap::new(), names: HashMap::new() }
    }

    fn asked(&mut self, object: u32, bytes: u32) -> Result<(), Error> {
        let told = (self.each)(Asked { object, bytes });
        told.map_err(|cause| Problem::Keep { file: self.file.clone(), cause }.into())
    }

    fn bad(&self, place: Place, fault: Fault) -> Error {
        Problem::Bad { file: self.file.clone(), place, fault }.into()
    }

    fn field(&self, place: Place, expected: &'static str, found: &[u8]) -> Error {
        self.bad(place, Fault::Field { expected, found: excerpt(found) })
    }

    /// The number of a key: of numbers and of names.
    fn object(&mut self, key: &[u8]) -> u32 {
        let next = self.trace.objects as u32;
        let object = match number(key) {
            Some(number) => *self.numbers.entry(number).or_insert(next),
            None => match self.names.get(key) {
                Some(object) => *object,
                None => *self.names.entry(key.into()).or_insert(next),
            },
        };
        self.trace.objects = self.trace.objects.max(object as usize + 1);
        object
    }

    fn text(&mut self, input: Input, head: &[u8], columns: &Columns) -> Result<(), Error> {
        let mut layout = None;
        if self.trace.listing == Listing::Csv {
            let found = Layout::new(head, columns);
            let found = found.map_err(|why| Problem::Columns { file: self.file.clone(), why })?;
            self.trace.columns = found.describe();
            self.trace.sized = found.size.is_some();
            layout = Some(found);
        }
        let mut input = BufReader::with_capacity(256 << 10, input);
        let mut line = Vec::new();
        let mut number = 0;
        loop {
            line.clear();
            number += 1;
            let place = Place::Line(number);
            let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            let read = read.map_err(|cause| Problem::Read { file: self.file.clone(), place, cause })?;
            if read == 0 {
                return Ok(());
            }
            if read as u64 == LINE_BYTES_MAX {
                return Err(self.bad(place, Fault::LongLine { limit_bytes: LINE_BYTES_MAX as usize }));
            }
            let text = line.trim_ascii();
            if text.is_empty() || text.starts_with(b"#") {
                continue;
            }
            match &layout {
                None => {
                    let object = self.object(text);
                    self.asked(object, 1)?;
                }
                Some(layout) if layout.header && number == layout.first_line => {}
                Some(layout) if layout.passes_over(text) => {}
                Some(layout) => self.row(layout, text, place)?,
            }
        }
    }

    fn row(&mut self, layout: &Layout, line: &[u8], place: Place) -> Result<(), Error> {
        let fields = fields(line, layout.separator);
        let get = |at: usize| fields.get(at).map(|field| field.as_ref());
        let Some(key) = get(layout.key).filter(|key| !key.is_empty()) else {
            return Err(self.field(place, "a key in its column", line));
        };
        let bytes = match layout.size {
            None => 1,
            Some(at) => match get(at).and_then(size) {
                Some(bytes) => bytes,
                None => {
                    let found = get(at).unwrap_or_default().to_vec();
                    return Err(self.field(place, "a size from 0 to 4 GiB less 2 bytes", &found));
                }
            },
        };
        let deleted = layout.op.and_then(get).is_some_and(deletes);
        let object = self.object(key);
        self.asked(object, if deleted { DELETED } else { bytes })
    }

    fn numbers<const BYTES: usize>(&mut self, input: Input) -> Result<(), Error> {
        let mut input = BufReader::with_capacity(256 << 10, input);
        let mut at = 0;
        loop {
            let mut record = [0; BYTES];
            let mut found = 0;
            while found < BYTES {
                let read = input.read(&mut record[found..]);
                let place = Place::Byte(at);
                let read = read.map_err(|cause| Problem::Read { file: self.file.clone(), place, cause })?;
                if read == 0 {
                    break;
                }
                found += read;
            }
            match found {
                0 => return Ok(()),
                _ if found < BYTES => {
                    let fault = Fault::Truncated { expected_bytes: BYTES as u64, found_bytes: found as u64 };
                    return Err(self.bad(Place::Byte(at), fault));
                }
                _ => self.record(&record, at)?,
            }
            at += BYTES as u64;
        }
    }

    fn record(&mut self, record: &[u8], at: u64) -> Result<(), Error> {
        let long = |at: usize, bytes: usize| {
            record[at..at + bytes].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let (key, bytes) = match record.len() {
            ORACLE_BYTES => (long(4, 8), long(12, 4)),
            length => (long(0, length), 1),
        };
        if bytes == u64::from(DELETED) {
            return Err(self.bad(Place::Byte(at), Fault::TooLong { bytes }));
        }
        // libCacheSim passes over records of size 0.
        if bytes > 0 {
            let next = self.trace.objects as u32;
            let object = *self.numbers.entry(key).or_insert(next);
            self.trace.objects = self.trace.objects.max(object as usize + 1);
            self.asked(object, bytes as u32)?;
        }
        Ok(())
    }
}

/// The value of a key that is a number in its usual form; keys such as 007 are names.
fn number(text: &[u8]) -> Option<u64> {
    let plain = text.iter().all(u8::is_ascii_digit) && (text.len() == 1 || text.first() != Some(&b'0'));
    if plain { std::str::from_utf8(text).ok()?.parse().ok() } else { None }
}

/// A size in bytes; an object of size 0 counts as one byte.
fn size(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let bytes = match text.parse::<u64>() {
        Ok(bytes) => bytes,
        Err(_) => {
            let bytes: f64 = text.parse().ok()?;
            (0.0..1e10).contains(&bytes).then_some(bytes.round() as u64)?
        }
    };
    u32::try_from(bytes).ok().filter(|bytes| *bytes != DELETED).map(|bytes| bytes.max(1))
}

/// Whether an operation deletes the object.
fn deletes(op: &[u8]) -> bool {
    const WORDS: [&str; 8] = ["delete", "del", "remove", "trim", "discard", "free", "purge", "unlink"];
    WORDS.iter().any(|word| op.eq_ignore_ascii_case(word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    /// What was read, and the requests.
    #[derive(Debug)]
    struct Read {
        objects: Objects,
        asked: Vec<(u32, u32)>,
    }

    impl std::ops::Deref for Read {
        type Target = Objects;

        fn deref(&self) -> &Objects {
            &self.objects
        }
    }

    fn read(bytes: &[u8], options: &ObjectOptions) -> Result<Read, String> {
        let mut asked = Vec::new();
        let objects = Opened::open(file(bytes).path()).and_then(|opened| {
            opened.objects(options, |one| {
                asked.push((one.object, one.bytes));
                Ok(())
            })
        });
        Ok(Read { objects: objects.map_err(|error| error.to_string())?, asked })
    }

    fn pairs(read: &Read) -> Vec<(u32, u32)> {
        read.asked.clone()
    }

    fn columns(text: &str) -> ObjectOptions {
        ObjectOptions { listing: None, columns: text.parse().unwrap() }
    }

    #[test]
    fn columns_are_guessed_from_the_header() {
        let text = b"version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,28,1024,7\n1,5633899,DELETE,0,7\n";
        assert!(Opened::open(file(text).path()).unwrap().has_header());
        let objects = read(text, &ObjectOptions::default()).unwrap();
        assert_eq!(pairs(&objects), [(0, 512), (1, 1024), (1, DELETED)]);
        assert_eq!(objects.columns, "key 5 (lbn), size 4 (size), time 2 (time), operation 3 (op)");
        assert!(objects.sized && objects.listing == Listing::Csv);
    }

    #[test]
    fn columns_are_named_by_name_or_number() {
        let text = b"when\twho\thow much\n1\ta b\t3\n2\tc\t4\n3\ta b\t5.0\n";
        let objects = read(text, &columns("key=who,size=3")).unwrap();
        assert_eq!(pairs(&objects), [(0, 3), (1, 4), (0, 5)]);
        // Without a header, as Twitter's.
        let text = b"0,\"a,x\",9,5,2,get,0\n0,b,9,6,2,get,0\n1,\"a,x\",9,5,2,get,0\n";
        let objects = read(text, &columns("key=2,size=4,op=6")).unwrap();
        assert_eq!(pairs(&objects), [(0, 5), (1, 6), (0, 5)]);
        let said = read(text, &ObjectOptions::default()).unwrap_err();
        assert!(said.contains("--columns key=") && !said.contains('\n'), "{said}");
        for (named, part) in
            [("key=9", "7 columns"), ("key=who", "there is no column who"), ("size=1", "key")]
        {
            let said = read(text, &columns(named)).unwrap_err();
            assert!(said.contains(part) && !said.contains('\n'), "{named}: {said}");
        }
        assert!("colour=2".parse::<Columns>().is_err() && "key=0".parse::<Columns>().is_err());
    }

    #[test]
    fn lines_of_programs_are_known_by_their_form() {
        let text = b"YCSB Client 0.17.0\n***************** properties *****************\n\"a\"=\"b\"\n\
            READ usertable user1 [ <all fields>]\nUPDATE usertable user2 [ field0=READ it ]\n\
            DELETE usertable user1\nSCAN usertable user2 9 [ <all fields>]\n[OVERALL], RunTime(ms), 12\n";
        let objects = read(text, &ObjectOptions::default()).unwrap();
        assert_eq!(pairs(&objects), [(0, 1), (1, 1), (0, DELETED), (1, 1)]);
        assert_eq!(objects.columns, "YCSB: key 3, operation 1");
        let line = |time, block, bytes| {
            format!("{time},{block},9,{bytes},0,default,2,11,1,0,5,6,100,1,0,12,1,3,22,18,4096\n")
        };
        let text = [line(1_600_000, 7, 4096), line(1_600_001, 8, 100), line(1_600_002, 7, 4096)].concat();
        assert!(Opened::open(file(text.as_bytes()).path()).unwrap().has_header());
        let objects = read(text.as_bytes(), &ObjectOptions::default()).unwrap();
        assert_eq!(pairs(&objects), [(0, 4096), (1, 100), (0, 4096)]);
        assert_eq!(objects.columns, "RocksDB's block cache: key 2, size 4, time 1");
    }

    #[test]
    fn lists_of_keys_and_numbers() {
        let objects = read(b"7\nseven\n# no key\n\n7\n07\n", &ObjectOptions::default()).unwrap();
        assert_eq!((objects.listing, objects.sized), (Listing::Keys, false));
        assert_eq!(pairs(&objects), [(0, 1), (1, 1), (0, 1), (2, 1)]);
        let of = |listing| ObjectOptions { listing: Some(listing), ..ObjectOptions::default() };
        let bytes: Vec<u8> = [7u32, 8, 7].iter().flat_map(|key| key.to_le_bytes()).collect();
        assert_eq!(pairs(&read(&bytes, &of(Listing::U32)).unwrap()), [(0, 1), (1, 1), (0, 1)]);
        let said = read(&bytes, &of(Listing::U64)).unwrap_err();
        assert!(said.contains("byte 8: expected 8 bytes, found the end of the file after 4"), "{said}");
        let bytes: Vec<u8> = [7u64, u64::MAX, 7].iter().flat_map(|key| key.to_le_bytes()).collect();
        assert_eq!(pairs(&read(&bytes, &of(Listing::U64)).unwrap()), [(0, 1), (1, 1), (0, 1)]);
    }

    #[test]
    fn oracle_general_is_known_by_its_bytes() {
        let record = |time: u32, key: u64, size: u32, next: i64| {
            let mut bytes = time.to_le_bytes().to_vec();
            bytes.extend(key.to_le_bytes());
            bytes.extend(size.to_le_bytes());
            bytes.extend(next.to_le_bytes());
            bytes
        };
        let bytes = [record(1, 77, 512, 3), record(1, 5, 0, -1), record(2, 77, 512, -1)].concat();
        let objects = read(&bytes, &ObjectOptions::default()).unwrap();
        assert_eq!((objects.listing, objects.sized), (Listing::OracleGeneral, true));
        assert_eq!(pairs(&objects), [(0, 512), (0, 512)]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let said = |text: &[u8]| read(text, &columns("key=1,size=2")).unwrap_err();
        assert!(said(b"a,5\nb,x\n").contains("line 2: expected a size"), "{}", said(b"a,5\nb,x\n"));
        assert!(said(b"a,5\n,7\n").contains("line 2: expected a key"));
        assert!(said(b"a,99999999999\n").contains("line 1: expected a size"));
        assert!(said(b"").contains("is empty"));
        let long = [b"a,5\n".to_vec(), vec![b'x'; 2 << 20]].concat();
        assert!(said(&long).contains("line 2: expected a line of at most"), "{}", said(&long));
    }
}
