//! Tests each format with its own lines, good and bad.

mod common;

use common::all;
use terapage_blocktrace::{Format, Kind, Options, Place, Problem, Request, read};

fn request(time_ns: u64, offset: u64, bytes: u32, volume: u16, kind: Kind) -> Request {
    Request { time_ns, offset, bytes, volume, kind }
}

fn detected(bytes: &[u8]) -> Format {
    read("x", std::io::Cursor::new(bytes.to_vec()), &Options::default()).unwrap().meta().format
}

fn error(text: &str) -> String {
    all(text.as_bytes(), &Options::default()).unwrap_err()
}

#[test]
fn msr() {
    let text = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n\
        128166372003061629,src1,0,Read,7014609920,24576,41286\r\n\
        128166372003061639,src1,1,write,0,512,1\n\n\
        128166372003061640,src1,0,Read,1,1,0";
    assert_eq!(detected(text.as_bytes()), Format::Msr);
    let found = all(text.as_bytes(), &Options::default()).unwrap();
    let expected = [
        request(0, 7014609920, 24576, 0, Kind::Read),
        request(1000, 0, 512, 1, Kind::Write),
        request(1100, 1, 1, 0, Kind::Read),
    ];
    assert_eq!(found, expected);
}

#[test]
fn msr_revised() {
    let text = "0.000004981 RS 1432 128 seq 13770.6865422 0.000255738 13770.6862\n\
        0.010347144 WS 1572960 8 rand 341.358274019 0.000137415 341.358048\n";
    assert_eq!(detected(text.as_bytes()), Format::MsrRevised);
    let found = all(text.as_bytes(), &Options::default()).unwrap();
    let expected = [
        request(0, 1432 * 512, 65536, 0, Kind::Read),
        request(10_342_163, 1572960 * 512, 4096, 0, Kind::Write),
    ];
    assert_eq!(found, expected);
}

#[test]
fn spc() {
    let text =
        "0,20941264,8192,W,0.551706\n0, 20939840 , 8192,w,0.554041,7,more\n1,3436288,15872,R,1.011732\n";
    assert_eq!(detected(text.as_bytes()), Format::Spc);
    let found = all(text.as_bytes(), &Options::default()).unwrap();
    let expected = [
        request(0, 20941264 * 512, 8192, 0, Kind::Write),
        request(2_335_000, 20939840 * 512, 8192, 0, Kind::Write),
        request(460_026_000, 3436288 * 512, 15872, 1, Kind::Read),
    ];
    assert_eq!(found, expected);
}

#[test]
fn fio_of_both_versions() {
    let three = "fio version 3 iolog\n2 /dev/a add\n872 /dev/a open\n878 /dev/a write 0 16384\n\
        888 /dev/b read 512 4096\n888 /dev/b sync 0 0\n891 /dev/a trim 16384 16384\n10001677 /dev/a close\n";
    assert_eq!(detected(three.as_bytes()), Format::Fio);
    let expected = [
        request(0, 0, 16384, 0, Kind::Write),
        request(10_000, 512, 4096, 1, Kind::Read),
        request(13_000, 16384, 16384, 0, Kind::Trim),
    ];
    assert_eq!(all(three.as_bytes(), &Options::default()).unwrap(), expected);
    let two = "fio version 2 iolog\n/dev/a add\n/dev/a open\n/dev/a write 0 16384\n/dev/a wait 10 0\n\
        /dev/b read 512 4096\n/dev/b wait 3 0\n/dev/a trim 16384 16384\n/dev/a close\n";
    assert_eq!(detected(two.as_bytes()), Format::Fio);
    assert_eq!(all(two.as_bytes(), &Options::default()).unwrap(), expected);
}

#[test]
fn blkparse_by_action() {
    let text = "  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n\
        \x20 8,0    3        2     0.000001829   697  Q  WS 223490 + 8 [kjournald]\n\
        \x20 8,0    3        3     0.000002000   697  Q FWS [kjournald]\n\
        \x20 8,0    3        4     0.000003000   697  P   N [kjournald]\n\
        \x20 8,16   3        5     0.000004829     0  Q  RA 8 + 16 [cat]\n\
        \x20 8,0    3        6     0.000004900   697  D  WS 223490 + 8 [kjournald]\n\
        \x20 8,0    3        7     0.000005829     0  Q  DS 64 + 128 [fstrim]\n\
        \x20 8,0    3        8     0.000209321     0  C  WS 223490 + 8 [0]\n\
        CPU3 (8,0):\n Reads Queued:           1,        8KiB\n\nTotal (8,0):\n";
    assert_eq!(detected(text.as_bytes()), Format::Blkparse);
    let expected = [
        request(0, 223490 * 512, 4096, 0, Kind::Write),
        request(3000, 4096, 8192, 1, Kind::Read),
        request(4000, 32768, 65536, 0, Kind::Trim),
    ];
    assert_eq!(all(text.as_bytes(), &Options::default()).unwrap(), expected);
    for action in ['D', 'C'] {
        let options = Options { action: Some(action), ..Options::default() };
        let expected = [request(0, 223490 * 512, 4096, 0, Kind::Write)];
        assert_eq!(all(text.as_bytes(), &options).unwrap(), expected, "{action}");
    }
}

#[test]
fn vscsi_of_both_versions() {
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for (number, command) in [(0u32, 0x28u16), (1, 0x2a), (2, 0x12), (3, 0x88)] {
        let (sector, time) = (u64::from(number) * 100, 5_000_000 + u64::from(number) * 7);
        for word in [number, 4096, 1] {
            one.extend_from_slice(&word.to_le_bytes());
        }
        for word in [command, 0x0100] {
            one.extend_from_slice(&word.to_le_bytes());
        }
        for word in [command, 0x0200] {
            two.extend_from_slice(&word.to_le_bytes());
        }
        for word in [number, 4096, 1] {
            two.extend_from_slice(&word.to_le_bytes());
        }
        for long in [sector, time] {
            one.extend_from_slice(&long.to_le_bytes());
            two.extend_from_slice(&long.to_le_bytes());
        }
        two.extend_from_slice(&123u64.to_le_bytes());
    }
    let expected = [
        request(0, 0, 4096, 0, Kind::Read),
        request(7000, 51200, 4096, 0, Kind::Write),
        request(21_000, 153_600, 4096, 0, Kind::Read),
    ];
    for bytes in [&one, &two] {
        assert_eq!(detected(bytes), Format::Vscsi);
        assert_eq!(all(bytes, &Options::default()).unwrap(), expected);
    }
    let cut = all(&two[..130], &Options::default()).unwrap_err();
    assert_eq!(cut, "bytes, byte 120: expected 40 bytes, found the end of the file after 10");
}

#[test]
fn oraclegeneral() {
    let mut bytes = Vec::new();
    for (time, object, size, next) in
        [(5u32, 8u64, 4096u32, 3i64), (5, 100, 512, -1), (7, 8, 4096, -1), (7, 1, 0, -1)]
    {
        bytes.extend_from_slice(&time.to_le_bytes());
        bytes.extend_from_slice(&object.to_le_bytes());
        bytes.extend_from_slice(&size.to_le_bytes());
        bytes.extend_from_slice(&next.to_le_bytes());
    }
    assert_eq!(detected(&bytes), Format::OracleGeneral);
    let expected = |unit: u64| {
        [
            request(0, 8 * unit, 4096, 0, Kind::Read),
            request(0, 100 * unit, 512, 0, Kind::Read),
            request(2_000_000_000, 8 * unit, 4096, 0, Kind::Read),
        ]
    };
    assert_eq!(all(&bytes, &Options::default()).unwrap(), expected(512));
    let in_bytes = Options { unit_bytes: Some(1), ..Options::default() };
    assert_eq!(all(&bytes, &in_bytes).unwrap(), expected(1));
}

#[test]
fn errors_say_where_and_what() {
    let good = "100 0 8 8 1\n".repeat(50);
    for (bad, why) in [
        ("100 0 8 8 2\n", "expected 0 (write) or 1 (read), found \"2\""),
        ("100 0 8 8\n", "expected 0 (write) or 1 (read), found nothing"),
        ("100 0 8 0 1\n", "expected a length above 0, found 0"),
        ("100 0 -8 8 1\n", "expected a first sector, found \"-8\""),
        ("1x0 0 8 8 1\n", "expected a time in whole nanoseconds, found \"1x0\""),
        ("100 0 8 8 1 9\n", "expected the end of the line, found \"9\""),
        ("100 0 8 99999999 1\n", "expected a length below 4 GiB, found 51199999488 bytes"),
        (
            "100 0 36028797018963967 8 1\n",
            "expected an offset below 8 EiB, found 36028797018963967 in units of 512 bytes",
        ),
        (
            "99 0 8 8 1\n",
            "expected a time not before the last one, found one 1 ns earlier \
             (--disorder 1ns treats it as simultaneous)",
        ),
        (
            "128166385295514663,hm,0,Write,9056014336,2048,2833\n",
            "expected a time in whole nanoseconds, found \"128166385295514663\"",
        ),
    ] {
        assert_eq!(error(&format!("{good}{bad}{good}")), format!("bytes, line 51: {why}"), "{bad}");
        // If one bad record may be skipped, the second one is an error.
        let skipping = Options { skip_bad: 1, ..Options::default() };
        assert_eq!(all(format!("{good}{bad}{good}").as_bytes(), &skipping).unwrap().len(), 100, "{bad}");
        let twice = format!("{good}{bad}{bad}");
        assert_eq!(all(twice.as_bytes(), &skipping), Err(format!("bytes, line 52: {why}")));
    }
}

#[test]
fn the_place_of_an_error_can_be_asked_for() {
    let text = "0,1,512,R,1.0\n0,1,512,R,0.5\n";
    let mut reader = read("spc", text.as_bytes(), &Options::default()).unwrap();
    assert!(reader.next().unwrap().is_ok());
    let error = reader.next().unwrap().unwrap_err();
    assert!(matches!(error.problem(), Problem::Bad { place: Place::Line(2), .. }));
    assert!(reader.next().is_none());
}

#[test]
fn capacity_and_disorder_are_options() {
    let text = "0,1,512,R,1.0\n0,9,512,R,1.0\n0,1,512,R,0.5\n";
    let options = Options { capacity: Some(4096), ..Options::default() };
    let expected = "bytes, line 2: expected a request that ends within the 4096 bytes of the volume, \
        found one that ends at 5120";
    assert_eq!(all(text.as_bytes(), &options), Err(expected.to_string()));
    let options = Options { disorder_ns: 500_000_000, ..Options::default() };
    let times: Vec<u64> =
        all(text.as_bytes(), &options).unwrap().iter().map(|request| request.time_ns).collect();
    assert_eq!(times, [0, 0, 0]);
}

#[test]
fn what_is_no_trace_is_refused() {
    assert_eq!(error(""), "bytes: is empty");
    let prose = error("It was a dark and stormy night; the rain fell in torrents, except at intervals.\n");
    assert!(prose.starts_with("bytes: begins like no known format: \"It was a dark"), "{prose}");
    assert!(all(&[0; 4096], &Options::default()).unwrap_err().contains("no known format"));
    assert!(read("x", &[0xff_u8; 100][..], &Options::default()).is_err());
    let named = Options { format: Some(Format::Spc), ..Options::default() };
    assert_eq!(
        all(b"1 2 3 4 0\n", &named),
        Err("bytes, line 1: expected a storage unit's number, found \"1 2 3 4 0\"".into())
    );
}

#[test]
fn formats_have_names() {
    for format in Format::ALL {
        assert_eq!(format.name().parse(), Ok(format));
        assert_eq!(serde_json::to_string(&format).unwrap(), format!("\"{}\"", format.name()));
    }
    assert_eq!("CloudPhysics".parse(), Ok(Format::Vscsi));
    assert!(
        "xls"
            .parse::<Format>()
            .unwrap_err()
            .to_string()
            .starts_with("there is no trace format xls (there are msr,")
    );
}

#[test]
fn disksim_that_goes_on_as_mqsim_is_refused_at_that_line() {
    let text = "7961.833 0 20228336 8 0\n7962.5 0 8 8 1\n7963000000 0 16 8 1\n";
    let said = error(text);
    assert!(said.contains("line 3: expected a time in milliseconds with decimals"), "{said}");
    // A trace of whole milliseconds can be DiskSim's too, if the format is named.
    let options = Options { format: Some(Format::Disksim), ..Options::default() };
    assert_eq!(all(b"1 0 8 8 1\n2 0 8 8 1\n", &options).unwrap().len(), 2);
}

#[test]
fn absurd_first_lines_are_named() {
    let endless = "7".repeat(1 << 20);
    assert!(
        error(&endless).contains("line 1: expected a line of at most 65536 bytes"),
        "{}",
        error(&endless)
    );
    let long = "128166372003061629,src1,0,Read,0,99999999999,41286\n";
    assert!(error(long).contains("line 1: expected a length below 4 GiB"), "{}", error(long));
}
