//! Long traces of every format, written here from the formats' public descriptions, not by this
//! crate's writers, with every kind of bad record in the middle of each.

mod common;

use std::fmt::Write;
use std::io::Cursor;
use terapage_blocktrace::{Counts, Format, Kind, Options, Request, read};
use terapage_figures::SplitMix;

/// Requests of each sample. With the records that are not requests, some files have several
/// megabytes.
const REQUESTS: usize = 30_000;
/// Two disks; a request ends within this many bytes.
const CAPACITY: u64 = 1 << 40;

/// A trace as records, and the expected result of each.
struct Sample {
    format: Format,
    /// The bytes before the first record.
    head: Vec<u8>,
    records: Vec<(Vec<u8>, Option<Request>)>,
    /// Impossible records for the middle, by kind of damage, each with a word of its error.
    bad: Vec<(Vec<u8>, &'static str)>,
}

impl Sample {
    fn new(format: Format) -> Sample {
        Sample { format, head: Vec::new(), records: Vec::new(), bad: Vec::new() }
    }

    fn request(&mut self, record: impl Into<Vec<u8>>, request: Request) {
        self.records.push((record.into(), Some(request)));
    }

    fn other(&mut self, record: impl Into<Vec<u8>>) {
        self.records.push((record.into(), None));
    }

    fn bad(&mut self, record: impl Into<Vec<u8>>, said: &'static str) {
        self.bad.push((record.into(), said));
    }

    fn expected(&self) -> Vec<Request> {
        self.records.iter().filter_map(|(_, request)| *request).collect()
    }

    /// The bytes with `insert` in the middle, and the place of `insert` as in an error.
    fn bytes(&self, insert: &[u8]) -> (Vec<u8>, String) {
        let middle = self.records.len() / 2;
        let mut bytes = self.head.clone();
        let join = |bytes: &mut Vec<u8>, records: &[(Vec<u8>, Option<Request>)]| {
            records.iter().for_each(|(record, _)| bytes.extend_from_slice(record));
        };
        join(&mut bytes, &self.records[..middle]);
        let place = if is_text(self.format) {
            format!("line {}", bytes.iter().filter(|byte| **byte == b'\n').count() + 1)
        } else {
            format!("byte {}", bytes.len())
        };
        bytes.extend_from_slice(insert);
        join(&mut bytes, &self.records[middle..]);
        (bytes, place)
    }
}

fn is_text(format: Format) -> bool {
    !matches!(format, Format::Vscsi | Format::OracleGeneral | Format::Tera)
}

/// The result of a read: the requests before the end or the first error.
fn outcome(bytes: Vec<u8>, options: &Options) -> (Vec<Request>, Option<String>, Counts, Format) {
    let mut reader = read("long", Cursor::new(bytes), options).unwrap();
    let (mut requests, mut error) = (Vec::new(), None);
    for request in reader.by_ref() {
        match request {
            Ok(request) => requests.push(request),
            Err(found) => error = Some(found.to_string()),
        }
    }
    (requests, error, reader.counts(), reader.meta().format)
}

/// Requests with times in whole ticks, in sectors, of volumes that are numbered in the order in
/// which they appear.
fn requests(seed: u64, tick_ns: u64, volumes: u16, kinds: &[Kind]) -> Vec<Request> {
    let mut random = SplitMix(seed);
    let mut requests = Vec::with_capacity(REQUESTS);
    let mut time_ns = 0;
    for number in 0..REQUESTS {
        let volume = if number < usize::from(volumes) {
            number as u16
        } else {
            random.index(usize::from(volumes)) as u16
        };
        let offset = random.index((CAPACITY / 512 - 4096) as usize) as u64 * 512;
        let bytes = (1 + random.index(2048) as u32) * 512;
        let kind = kinds[random.index(kinds.len())];
        requests.push(Request { time_ns, offset, bytes, volume, kind });
        time_ns += random.index(3_000) as u64 * tick_ns;
    }
    requests
}

const BOTH: [Kind; 2] = [Kind::Read, Kind::Write];
const ALL: [Kind; 3] = [Kind::Read, Kind::Write, Kind::Trim];

/// A time in the middle of the trace, ticks before the record at that place.
fn middle(requests: &[Request]) -> u64 {
    requests[REQUESTS / 2].time_ns
}

/// FILETIME, host, disk, type, offset, size, response time: SNIA IOTTA trace set 388.
fn msr() -> Sample {
    const BEGIN: u64 = 128_166_372_003_061_629;
    let mut sample = Sample::new(Format::Msr);
    let requests = requests(1, 100, 3, &BOTH);
    for request in &requests {
        let kind = if request.kind == Kind::Read { "Read" } else { "Write" };
        let (ticks, disk) = (BEGIN + request.time_ns / 100, request.volume);
        let line =
            format!("{ticks},src1,{disk},{kind},{},{},{}\n", request.offset, request.bytes, ticks % 90_000);
        sample.request(line, *request);
    }
    let now = BEGIN + middle(&requests) / 100;
    sample.bad(format!("{now},src1,0,Read,4096\n"), "expected a comma after the offset, found nothing");
    sample.bad(format!("{now},src1,0,Read,4096,0,1\n"), "expected a length above 0, found 0");
    sample.bad(format!("{now},src1,0,Read,-4096,512,1\n"), "expected an offset in bytes, found \"-4096");
    sample.bad(format!("{now},src1,0,Read,4096,-512,1\n"), "expected a length in bytes, found \"-512");
    sample.bad(format!("{now},src1,0,Read,{},512,1\n", u64::MAX), "expected an offset below 8 EiB");
    sample.bad(format!("{now},src1,0,Read,4096,{},1\n", 1u64 << 40), "expected a length below 4 GiB");
    sample.bad(format!("{now},src1,0,Read,{CAPACITY},512,1\n"), "expected a request that ends within");
    sample.bad(format!("{},src1,0,Read,4096,512,1\n", BEGIN), "expected a time not before the last one");
    sample.bad("99999999999999999999999,src1,0,Read,4096,512,1\n", "expected a time in units of 100 ns");
    sample.bad("0.5 RS 8 8 seq 0.1 0.2 0.3\n", "expected");
    sample.bad(format!("{now},src1,0,Erase,4096,512,1\n"), "expected Read or Write, found \"Erase\"");
    sample
}

/// Seconds, RS or WS, sector, sectors, seq or rand, three times: as in programs that read the
/// `.revised` files.
fn msr_revised() -> Sample {
    let mut sample = Sample::new(Format::MsrRevised);
    let requests = requests(2, 1, 1, &BOTH);
    for request in &requests {
        let kind = if request.kind == Kind::Read { "RS" } else { "WS" };
        let (seconds, ns) = (request.time_ns / 1_000_000_000, request.time_ns % 1_000_000_000);
        let way = if request.bytes > 4096 { "seq" } else { "rand" };
        let (sector, sectors) = (request.offset / 512, request.bytes / 512);
        let line =
            format!("{seconds}.{ns:09} {kind} {sector} {sectors} {way} {seconds}.5 0.000137415 0.25\n");
        sample.request(line, *request);
    }
    let now = format!("{}.{:09}", middle(&requests) / 1_000_000_000, middle(&requests) % 1_000_000_000);
    sample.bad(format!("{now} RS 8\n"), "expected a number of sectors, found nothing");
    sample.bad(format!("{now} RS 8 0 seq 1 1 1\n"), "expected a length above 0");
    sample.bad(format!("{now} RS -8 8 seq 1 1 1\n"), "expected a first sector, found \"-8\"");
    sample.bad(format!("-{now} RS 8 8 seq 1 1 1\n"), "expected a time in seconds");
    sample.bad(format!("{now} RS {} 8 seq 1 1 1\n", CAPACITY / 512), "expected a request that ends within");
    sample.bad("0.0 RS 8 8 seq 1 1 1\n", "expected a time not before the last one");
    sample.bad(format!("{now} XS 8 8 seq 1 1 1\n"), "expected RS or WS, found \"XS\"");
    sample.bad("0,20941264,8192,W,0.551706\n", "expected RS or WS");
    sample
}

/// Nanoseconds, device, sector, sectors, 0 write or 1 read, with blanks or tabs between.
fn ssdsim() -> Sample {
    let mut sample = Sample::new(Format::Ssdsim);
    let requests = requests(3, 1, 8, &BOTH);
    for (number, request) in requests.iter().enumerate() {
        let (sector, sectors, bit) =
            (request.offset / 512, request.bytes / 512, u8::from(request.kind == Kind::Read));
        let (time, device) = (1_000_000 + request.time_ns, request.volume);
        let gap = ["\t", " ", "  "][number % 3];
        sample.request(format!("{time}{gap}{device}{gap}{sector}{gap}{sectors}{gap}{bit}\n"), *request);
    }
    let now = 1_000_000 + middle(&requests);
    sample.bad(format!("{now} 0 8 8\n"), "expected 0 (write) or 1 (read), found nothing");
    sample.bad(format!("{now} 0 8 0 1\n"), "expected a length above 0");
    sample.bad(format!("{now} 0 8 -8 1\n"), "expected a number of sectors, found \"-8\"");
    sample.bad(format!("-{now} 0 8 8 1\n"), "expected a time in whole nanoseconds");
    sample.bad(format!("{now} 0 {} 8 1\n", u64::MAX / 512), "expected an offset below 8 EiB");
    sample.bad(format!("{now} 0 {} 8 1\n", CAPACITY / 512 - 1), "expected a request that ends within");
    sample.bad(format!("{now} 0 8 {} 1\n", u64::MAX), "expected a number of sectors");
    sample.bad("1 0 8 8 1\n", "expected a time not before the last one");
    sample
        .bad("128166385295514663,hm,0,Write,9056014336,2048,2833\n", "expected a time in whole nanoseconds");
    sample
}

/// Milliseconds, device, block, blocks, hexadecimal flags: the reference manual of DiskSim 4.0.
fn disksim() -> Sample {
    let mut sample = Sample::new(Format::Disksim);
    let requests = requests(4, 1_000, 4, &BOTH);
    for (number, request) in requests.iter().enumerate() {
        let (ms, us) = (request.time_ns / 1_000_000, request.time_ns / 1_000 % 1_000);
        // Only the lowest bit counts here; the others belong to the host.
        let flags = ((number as u64 % 16) << 4) | u64::from(request.kind == Kind::Read);
        let (block, blocks, device) = (request.offset / 512, request.bytes / 512, request.volume);
        sample.request(format!("{ms}.{us:03}000 {device} {block} {blocks} {flags:x}\n"), *request);
    }
    let now = format!("{}.{:03}", middle(&requests) / 1_000_000, middle(&requests) / 1_000 % 1_000);
    sample.bad(format!("{now} 0 8 8\n"), "expected flags, found nothing");
    sample.bad(format!("{now} 0 8 0 1\n"), "expected a length above 0");
    sample.bad(format!("{now} 0 -8 8 1\n"), "expected a first block, found \"-8\"");
    sample.bad(format!("{now} 0 8 8 z\n"), "expected flags, found \"z\"");
    sample.bad(format!("{now} 0 {} 8 1\n", CAPACITY / 512), "expected a request that ends within");
    sample.bad("0.0 0 8 8 1\n", "expected a time not before the last one");
    sample.bad("1:30 0 8 8 1\n", "expected a time in milliseconds");
    sample.bad("fio version 3 iolog\n", "expected a time in milliseconds");
    sample
}

/// The default output of blkparse(1), with the records between the queued requests of a real
/// machine.
fn blkparse() -> Sample {
    let mut sample = Sample::new(Format::Blkparse);
    let requests = requests(5, 1, 2, &ALL);
    let mut sequence = 0;
    let stamp = |ns: u64| format!("{:5}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    for request in &requests {
        let device = format!("8,{}", request.volume * 16);
        let rwbs = match (request.kind, request.bytes % 1024) {
            (Kind::Read, 0) => "R",
            (Kind::Read, _) => "RA",
            (Kind::Write, 0) => "WS",
            (Kind::Write, _) => "FWFSM",
            (Kind::Trim, _) => "DS",
        };
        let (sector, sectors, at) = (request.offset / 512, request.bytes / 512, stamp(request.time_ns));
        let mut line = |action: &str, rest: String| {
            sequence += 1;
            format!("{device:>5} {:4} {sequence:8} {at} {:5} {action:>2} {rest}\n", sequence % 4, 697)
        };
        sample.other(line("A", format!("{rwbs:>3} {} + {sectors} <- ({device}) {sector}", sector + 2048)));
        sample.request(line("Q", format!("{rwbs:>3} {sector} + {sectors} [kworker/u8:2]")), *request);
        sample.other(line("G", format!("{rwbs:>3} {sector} + {sectors} [kworker/u8:2]")));
        sample.other(line("P", "  N [kworker/u8:2]".to_string()));
        sample.other(line("m", "  N cfq697SN / insert_request".to_string()));
        sample.other(line("U", "  N [kworker/u8:2] 1".to_string()));
        sample.other(line("D", format!("{rwbs:>3} {sector} + {sectors} [kworker/u8:2]")));
        sample.other(line("X", format!("{rwbs:>3} {sector} / {} [a process]", sector + 8)));
        sample.other(line("Q", "FWS [jbd2/sda1-8]".to_string()));
        sample.other(line("C", format!("{rwbs:>3} {sector} + {sectors} [0]")));
    }
    let now = stamp(middle(&requests));
    let bad = |rest: &str| format!("  8,0    1        7 {now}   697  Q {rest}\n");
    sample.bad(bad("  W 8 + 8x [p]"), "expected a number of sectors, found \"8x\"");
    sample.bad(bad(&format!("  W {} + 8 [p]", u64::MAX)), "expected an offset below 8 EiB");
    sample.bad(bad(&format!("  W {} + 8 [p]", CAPACITY / 512)), "expected a request that ends within");
    sample.bad(bad("  W 8 + 99999999 [p]"), "expected a length below 4 GiB");
    sample.bad("  8,0    1        7     0.000000000   697  Q   W 8 + 8 [p]\n", "expected a time not before");
    sample.bad("  8,0    1        7    -1.000000000   697  Q   W 8 + 8 [p]\n", "expected a time in seconds");
    sample.bad("  8,0    1\n", "expected a sequence number, found nothing");
    sample.bad("0,20941264,8192,W,0.551706\n", "expected a device as major,minor");
    // The trace ends with a summary.
    for line in [
        "CPU0 (8,0):",
        " Reads Queued:           1,        8KiB",
        "",
        "Total (8,0):",
        "Throughput (R/W): 1KiB/s",
    ] {
        sample.other(format!("{line}\n"));
    }
    sample
}

/// Unit, block, bytes, R or W, seconds: the SPC's specification 1.0.1, with blanks and further
/// fields as it allows.
fn spc() -> Sample {
    let mut sample = Sample::new(Format::Spc);
    let requests = requests(6, 1_000, 6, &BOTH);
    for (number, request) in requests.iter().enumerate() {
        let letter = [["R", "r"], ["W", "w"]][usize::from(request.kind == Kind::Write)][number % 2];
        let (seconds, us) = (request.time_ns / 1_000_000_000, request.time_ns / 1_000 % 1_000_000);
        let (unit, block) = (request.volume, request.offset / 512);
        let (gap, more) = ([" ", ""][number % 2], ["", ",17,further"][number % 5 / 4]);
        let line =
            format!("{unit},{gap}{block}{gap},{},{gap}{letter},{seconds}.{us:06}{more}\n", request.bytes);
        sample.request(line, *request);
    }
    let now = format!("{}.{:06}", middle(&requests) / 1_000_000_000, middle(&requests) / 1_000 % 1_000_000);
    sample.bad("0,8,512,W\n", "expected a comma after R or W, found nothing");
    sample.bad(format!("0,8,0,W,{now}\n"), "expected a length above 0");
    sample.bad(format!("0,-8,512,W,{now}\n"), "expected a first block, found \"-8");
    sample.bad(format!("0,8,512,W,-{now}\n"), "expected a time in seconds");
    sample.bad(format!("0,{},512,W,{now}\n", CAPACITY / 512), "expected a request that ends within");
    sample.bad("0,8,512,W,0.0\n", "expected a time not before the last one");
    sample.bad(format!("0,8,512,X,{now}\n"), "expected R or W, found \"X\"");
    sample.bad("938513000 4 264719034 16 0\n", "expected");
    sample
}

/// I/O logs as in fio's documentation, "Trace file format v2" and "v3": files are added, opened,
/// closed, with syncs in between.
fn fio(version: u8) -> Sample {
    let mut sample = Sample::new(Format::Fio);
    let requests = requests(7, 1_000, 50, &ALL);
    sample.head = format!("fio version {version} iolog\n").into_bytes();
    let line =
        |us: u64, rest: String| if version == 3 { format!("{us} {rest}\n") } else { format!("{rest}\n") };
    for action in ["add", "open"] {
        for file in 0..50 {
            sample.other(line(0, format!("/dev/shm/file.{file} {action}")));
        }
    }
    let mut last_us = 0;
    for (number, request) in requests.iter().enumerate() {
        let (us, file) = (request.time_ns / 1_000, request.volume);
        if version == 2 && us > last_us {
            sample.other(format!("/dev/shm/file.{file} wait {} 0\n", us - last_us));
        }
        last_us = us;
        let action = match request.kind {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Trim => "trim",
        };
        let text = format!("/dev/shm/file.{file} {action} {} {}", request.offset, request.bytes);
        sample.request(line(us, text), *request);
        if number.is_multiple_of(100) {
            sample.other(line(
                us,
                format!("/dev/shm/file.{file} {} 0 0", ["sync", "datasync"][number / 100 % 2]),
            ));
        }
    }
    for file in 0..50 {
        sample.other(line(last_us, format!("/dev/shm/file.{file} close")));
    }
    let now = middle(&requests) / 1_000;
    let bad = |rest: &str| line(now, format!("/dev/shm/file.0 {rest}"));
    sample.bad(bad("write 4096"), "expected a length in bytes, found nothing");
    sample.bad(bad("write 4096 0"), "expected a length above 0");
    sample.bad(bad("write -4096 512"), "expected an offset in bytes, found \"-4096\"");
    sample.bad(bad(&format!("read {} 512", u64::MAX)), "expected an offset below 8 EiB");
    sample.bad(bad(&format!("read {CAPACITY} 512")), "expected a request that ends within");
    sample.bad(bad("erase 4096 512"), "expected read, write, trim");
    if version == 3 {
        sample.bad("0 /dev/shm/file.0 read 0 512\n", "expected a time not before the last one");
    }
    sample.bad("128166385295514663,hm,0,Write,9056014336,2048,2833\n", "expected");
    sample
}

/// Block, blocks, ignored, request number: Megiddo and Modha's traces. No times, no kinds.
fn arc() -> Sample {
    let mut sample = Sample::new(Format::Arc);
    for (number, request) in requests(8, 1, 1, &[Kind::Read]).into_iter().enumerate() {
        let line = format!("{} {} 0 {number}\n", request.offset / 512, request.bytes / 512);
        sample.request(line, Request { time_ns: 0, ..request });
    }
    sample.bad("8\n", "expected");
    sample.bad("8 0 0 7\n", "expected a length above 0");
    sample.bad("-8 8 0 7\n", "found \"-8\"");
    sample.bad(format!("{} 8 0 7\n", CAPACITY / 512), "expected a request that ends within");
    sample.bad(format!("{} 8 0 7\n", u64::MAX), "expected an offset below 8 EiB");
    sample.bad("0,20941264,8192,W,0.551706\n", "expected");
    sample
}

/// Little-endian records, with the fields in the given order and width.
fn packed(fields: &[(u64, usize)]) -> Vec<u8> {
    fields.iter().flat_map(|&(value, bytes)| value.to_le_bytes()[..bytes].to_vec()).collect()
}

/// VMware's vscsi records, 32 or 40 bytes, with commands that move no data between.
fn vscsi(version: u64) -> Sample {
    let mut sample = Sample::new(Format::Vscsi);
    let requests = requests(9, 1_000, 1, &BOTH);
    let record = |number: u64, command: u64, bytes: u64, sector: u64, us: u64, version: u64| {
        let head = [(command, 2), (version << 8, 2)];
        let sizes = [(number, 4), (bytes, 4), (1, 4)];
        let ends = [(sector, 8), (us, 8)];
        if version == 1 {
            packed(&[&sizes[..], &head[..], &ends[..]].concat())
        } else {
            packed(&[&head[..], &sizes[..], &ends[..], &[(321, 8)]].concat())
        }
    };
    for (number, request) in requests.iter().enumerate() {
        let commands =
            if request.kind == Kind::Read { [0x08, 0x28, 0xa8, 0x88] } else { [0x0a, 0x2a, 0xaa, 0x8a] };
        let (us, number) = (77_000 + request.time_ns / 1_000, number as u64);
        let (bytes, sector) = (u64::from(request.bytes), request.offset / 512);
        sample.request(record(number, commands[number as usize % 4], bytes, sector, us, version), *request);
        if number.is_multiple_of(9) {
            // TEST UNIT READY, INQUIRY, SYNCHRONIZE CACHE
            sample.other(record(number, [0x00, 0x12, 0x35][number as usize / 9 % 3], 0, 0, us, version));
        }
    }
    let now = 77_000 + middle(&requests) / 1_000;
    sample.bad(record(1, 0x28, 0, 8, now, version), "expected a length above 0");
    sample.bad(record(1, 0x28, 512, u64::MAX, now, version), "expected an offset below 8 EiB");
    sample.bad(record(1, 0x28, 512, CAPACITY / 512, now, version), "expected a request that ends within");
    sample.bad(record(1, 0x28, 512, 8, 76_000, version), "expected a time not before the last one");
    let mut other_version = record(1, 0x28, 512, 8, now, version);
    other_version[if version == 1 { 15 } else { 3 }] = 7;
    sample.bad(other_version, "expected the version of the first record");
    sample
}

/// libCacheSim's records of 24 bytes, with empty requests in between.
fn oraclegeneral() -> Sample {
    let mut sample = Sample::new(Format::OracleGeneral);
    let requests = requests(10, 1_000_000_000, 1, &[Kind::Read]);
    let record = |seconds: u64, object: u64, bytes: u64| {
        packed(&[(seconds, 4), (object, 8), (bytes, 4), (u64::MAX, 8)])
    };
    for (number, request) in requests.iter().enumerate() {
        let seconds = 3 + request.time_ns / 1_000_000_000;
        sample.request(record(seconds, request.offset / 512, u64::from(request.bytes)), *request);
        if (number + 1).is_multiple_of(7) {
            sample.other(record(seconds, request.offset / 512, 0));
        }
    }
    let now = 3 + middle(&requests) / 1_000_000_000;
    sample.bad(record(now, u64::MAX, 512), "expected an offset below 8 EiB");
    sample.bad(record(now, CAPACITY / 512, 512), "expected a request that ends within");
    sample.bad(record(2, 8, 512), "expected a time not before the last one");
    sample
}

fn samples() -> Vec<Sample> {
    vec![
        msr(),
        msr_revised(),
        ssdsim(),
        disksim(),
        blkparse(),
        spc(),
        fio(2),
        fio(3),
        arc(),
        vscsi(1),
        vscsi(2),
        oraclegeneral(),
    ]
}

#[test]
fn long_traces_are_recognised_and_read_to_the_last_request() {
    for sample in samples() {
        let (found, error, counts, format) = outcome(sample.bytes(b"").0, &Options::default());
        assert_eq!((format, error), (sample.format, None));
        let expected = sample.expected();
        let first = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        assert_eq!((found.len(), first), (REQUESTS, None), "{format}");
        assert_eq!((counts.requests, counts.skipped, counts.late), (REQUESTS as u64, 0, 0), "{format}");
        let head = sample.head.iter().filter(|byte| **byte == b'\n').count();
        let blank = sample.records.iter().filter(|(record, _)| record == b"\n").count();
        assert_eq!(counts.other as usize, sample.records.len() + head - blank - REQUESTS, "{format}");
    }
}

#[test]
fn every_kind_of_bad_record_is_named_with_its_place_and_can_be_skipped() {
    let options = Options { capacity: Some(CAPACITY), ..Options::default() };
    let mut report = String::new();
    for sample in samples() {
        let (format, expected) = (sample.format, sample.expected());
        for (bad, said) in &sample.bad {
            let (bytes, place) = sample.bytes(bad);
            let (before, error, _, _) = outcome(bytes.clone(), &options);
            let error = error.unwrap_or_else(|| "no error".to_string());
            let begins = format!("long, {place}: ");
            if !error.starts_with(&begins) || !error.contains(said) || before[..] != expected[..before.len()]
            {
                let _ = writeln!(report, "{format}: not {begins}{said} but {error}");
                continue;
            }
            let skipping = Options { skip_bad: 1, ..options.clone() };
            let (found, error, counts, _) = outcome(bytes, &skipping);
            if (found != expected, error.is_some(), counts.skipped) != (false, false, 1) {
                let _ = writeln!(report, "{format}: {said}: {} of {REQUESTS}, {error:?}", found.len());
            }
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn traces_that_are_cut_off_give_what_is_whole() {
    for sample in samples() {
        let (bytes, _) = sample.bytes(b"");
        let expected = sample.expected();
        let mut random = SplitMix(11);
        for _ in 0..5 {
            let length = bytes.len() / 2 + random.index(bytes.len() / 2);
            let (found, error, _, format) = outcome(bytes[..length].to_vec(), &Options::default());
            // The last field of a cut line may look complete.
            let whole = if is_text(format) { found.len().saturating_sub(1) } else { found.len() };
            assert_eq!(found[..whole], expected[..whole], "{format}");
            assert!(whole * 3 > REQUESTS, "{format}: {whole}");
            let record = match format {
                Format::OracleGeneral => 24,
                _ if sample.records[0].0.len() == 32 => 32,
                _ => 40,
            };
            if !is_text(format) && !length.is_multiple_of(record) {
                let error = error.unwrap_or_default();
                assert!(
                    error.ends_with(&format!("found the end of the file after {}", length % record)),
                    "{error}"
                );
            }
        }
    }
}
