//! Traces of clouds, desktops and servers, and blktrace's own records, by documented lines.

mod common;

use common::all;
use std::io::Cursor;
use terapage_blocktrace::{Format, Kind, Options, Request, read};

fn request(time_ns: u64, offset: u64, bytes: u32, volume: u16, kind: Kind) -> Request {
    Request { time_ns, offset, bytes, volume, kind }
}

/// The requests of a trace; its format and volumes must be detected.
fn found(bytes: &[u8], format: Format, volumes: &[&str]) -> Vec<Request> {
    let mut reader = read("x", Cursor::new(bytes.to_vec()), &Options::default()).unwrap();
    assert_eq!(reader.meta().format, format);
    let requests: Vec<Request> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(reader.volumes(), volumes);
    requests
}

fn error(bytes: &[u8]) -> String {
    all(bytes, &Options::default()).unwrap_err()
}

#[test]
fn alibaba() {
    let text = "419,W,8792731648,16384,1577808144360767\n725,R,59110326272,360448,1577808144360813\n\
        419,R,12852543488,4096,1577808144360813\n";
    let expected = [
        request(0, 8792731648, 16384, 0, Kind::Write),
        request(46_000, 59110326272, 360448, 1, Kind::Read),
        request(46_000, 12852543488, 4096, 0, Kind::Read),
    ];
    assert_eq!(found(text.as_bytes(), Format::Alibaba, &["419", "725"]), expected);
    let said = error(format!("{text}419,X,0,512,1577808144360814\n").as_bytes());
    assert!(said.contains("line 4: expected R or W, found \"X\""), "{said}");
}

#[test]
fn tencent() {
    let text = "1538323200,12910952,128,0,1063\n1538323200,6338688,8,1,1627\n1538323201,1904106,384,0,1063\n";
    let expected = [
        request(0, 12910952 * 512, 65536, 0, Kind::Read),
        request(0, 6338688 * 512, 4096, 1, Kind::Write),
        request(1_000_000_000, 1904106 * 512, 196_608, 0, Kind::Read),
    ];
    assert_eq!(found(text.as_bytes(), Format::Tencent, &["1063", "1627"]), expected);
    let named = format!("Timestamp,Offset,Size,IOType,VolumeID\n{text}");
    assert_eq!(found(named.as_bytes(), Format::Tencent, &["1063", "1627"]), expected);
    let said = error(format!("{text}1538323201,0,8,2,1063\n").as_bytes());
    assert!(said.contains("line 4: expected 0 (read) or 1 (write), found \"2\""), "{said}");
}

#[test]
fn systor() {
    let text = "Timestamp,Response,IOType,LUN,Offset,Size\n1455592400.004283667,0.000301,R,4,1296498688,4096\n\
        1455592400.004291,,W,0,47607808,8192\n";
    let expected =
        [request(0, 1296498688, 4096, 0, Kind::Read), request(7_333, 47607808, 8192, 1, Kind::Write)];
    assert_eq!(found(text.as_bytes(), Format::Systor17, &["4", "0"]), expected);
    let said = error(format!("{text}1455592401.0,0.1,R,0,1e9,8192\n").as_bytes());
    assert!(said.contains("line 4: expected a comma after the offset"), "{said}");
}

#[test]
fn fiu() {
    let text = "89966207863541 4892 syslogd 904265560 8 W 6 0 531e779e39cb9e9a1d0ed6cc56fbd4d5\n\
        89966207872021 2522 kjournald 508498968 16 R 8 16\n";
    let expected = [
        request(0, 904265560 * 512, 4096, 0, Kind::Write),
        request(8_480, 508498968 * 512, 8192, 1, Kind::Read),
    ];
    assert_eq!(found(text.as_bytes(), Format::Fiu, &["6 0", "8 16"]), expected);
    let said = error(format!("{text}89966207872022 1 x 8 8 Q 6 0\n").as_bytes());
    assert!(said.contains("line 3: expected R or W, found \"Q\""), "{said}");
}

/// A record as in `include/uapi/linux/blktrace_api.h`.
fn record(time: u64, sector: u64, bytes: u32, action: u32, more: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    for word in [0x6561_7407_u32, 1] {
        record.extend(word.to_le_bytes());
    }
    record.extend(time.to_le_bytes());
    record.extend(sector.to_le_bytes());
    for word in [bytes, action, 697, (8 << 20) | 16, 3] {
        record.extend(word.to_le_bytes());
    }
    record.extend(0_u16.to_le_bytes());
    record.extend((more.len() as u16).to_le_bytes());
    record.extend(more);
    record
}

#[test]
fn blktrace() {
    let (read_bit, write_bit, discard_bit, notify_bit) = (1 << 16, 2 << 16, 1 << 29, 1 << 26);
    let bytes = [
        record(5, 0, 0, notify_bit, b"kjournald\0\0\0"),
        record(1_000, 223_490, 4096, 1 | write_bit, &[]),
        record(2_829, 8, 8192, 1 | read_bit, &[]),
        record(2_900, 8, 8192, 7 | read_bit, b"cmd"),
        record(3_000, 64, 65_536, 1 | write_bit | discard_bit, &[]),
        record(3_100, 0, 0, 1 | write_bit, &[]),
        record(4_000, 8, 8192, 8 | read_bit, &[]),
    ]
    .concat();
    let expected = [
        request(0, 223_490 * 512, 4096, 0, Kind::Write),
        request(1_829, 4096, 8192, 0, Kind::Read),
        request(2_000, 32_768, 65_536, 0, Kind::Trim),
    ];
    assert_eq!(found(&bytes, Format::Blktrace, &["8_16"]), expected);
    let options = Options { action: Some('C'), ..Options::default() };
    assert_eq!(all(&bytes, &options).unwrap(), [request(0, 4096, 8192, 0, Kind::Read)]);
    let said = error(&bytes[..100]);
    assert!(said.contains("byte 60: expected 48 bytes, found the end of the file after 40"), "{said}");
    let said = error(&[&bytes[..60], &[7; 48][..]].concat());
    assert!(said.contains("byte 60: expected a record of blktrace"), "{said}");
    let said = error(&bytes[..55]);
    assert!(said.contains("byte 0: expected 12 bytes, found the end of the file after 7"), "{said}");
}

fn csv(columns: &str, text: &str) -> Result<Vec<Request>, String> {
    all(text.as_bytes(), &Options { columns: Some(columns.parse().unwrap()), ..Options::default() })
}

#[test]
fn any_csv_by_its_columns() {
    let expected = [
        request(0, 4096, 8192, 0, Kind::Write),
        request(1_500, 0, 512, 1, Kind::Read),
        request(1_500, 512, 512, 0, Kind::Trim),
    ];
    let text = "id;When;what;lba;blocks;disk\n1;10.0;WRITE;8;16;a\n2;11.5;read;0;1;b\n# no line\n3;11.5;Discard;1;1;a\n";
    let by_name = "time=when:us,op=what,offset=LBA:sectors,size=blocks:512,volume=disk";
    assert_eq!(csv(by_name, text).unwrap(), expected);
    // By number, with or without a line of names.
    let by_number = "time=2:us,op=3,offset=4:512,size=5:512,volume=6";
    assert_eq!(csv(by_number, text).unwrap(), expected);
    assert_eq!(csv(by_number, text.split_once('\n').unwrap().1).unwrap(), expected);
    // Kinds as numbers, no times, one volume.
    let found = csv("offset=1,size=2,op=3:1", "0 512 1\n512  512 0\n").unwrap();
    assert_eq!(found, [request(0, 0, 512, 0, Kind::Write), request(0, 512, 512, 0, Kind::Read)]);
    for (columns, text, part) in [
        (by_name, "a;b\n1;2\n", "line 1: expected the names of the columns"),
        ("offset=1,size=2", "0,512\n1,x\n", "line 2: expected a whole number as a length, found \"x\""),
        ("offset=1,size=3", "0,512\n", "line 1: expected a whole number as a length, found nothing"),
        ("offset=1,size=2,op=3", "0,512,0\n", "line 1: expected a word that begins with R, W, D or T"),
        ("offset=1,size=2,time=3", "0,512,2\n0,512,1\n", "line 2: expected a time not before the last one"),
    ] {
        let said = csv(columns, text).unwrap_err();
        assert!(said.contains(part), "{columns}: {said}");
    }
    for wrong in
        ["offset=1", "offset=0,size=1", "offset=1:x,size=2", "offset=1,size=2,time=3:h", "key=1", "x"]
    {
        assert!(wrong.parse::<terapage_blocktrace::BlockColumns>().is_err(), "{wrong}");
    }
    let options = Options { format: Some(Format::Csv), ..Options::default() };
    assert!(all(b"1,2\n", &options).unwrap_err().contains("--columns offset="));
}
