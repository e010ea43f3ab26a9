//! Slices and files through the Rust interface, in one process with a budget of 8 MiB.

use std::path::Path;
use std::sync::Once;
use terapage::{Advice, Error, MappedFile, Options, Paged};

static START: Once = Once::new();

/// Starts the pager. Returns whether this machine allows it.
fn can_page() -> bool {
    START.call_once(|| {
        let store = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).to_owned());
        let options = Options { memory: Some(8 << 20), store, block: Some(16 << 10), ..Options::default() };
        if let Err(error) = terapage::init(&options) {
            eprintln!("SKIPPED: {error}");
            assert!([libc::EPERM, libc::ENOSYS].contains(&error.errno()), "{error}");
        }
    });
    terapage::stats().is_some()
}

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(&file, bytes).unwrap();
    file
}

#[test]
fn a_slice_larger_than_the_budget_keeps_its_values() {
    if !can_page() {
        return;
    }
    let mut table = Paged::<[u32; 3]>::new(2 << 20).unwrap();
    assert!(table.iter().all(|value| *value == [0; 3]));
    table.advise(Advice::Random).unwrap();
    for (at, value) in table.iter_mut().enumerate() {
        *value = [at as u32; 3];
    }
    table.advise(Advice::DoneWith).unwrap();
    assert!(table.iter().enumerate().all(|(at, value)| *value == [at as u32; 3]));
    assert!(terapage::stats().unwrap().resident_peak_bytes <= 8 << 20);
    assert!(Paged::<u64>::new(0).unwrap().is_empty());
    assert!(matches!(Paged::<u64>::new(usize::MAX), Err(Error::Room(_))));
}

#[test]
fn a_file_is_changed_by_sync_by_close_and_by_drop() {
    if !can_page() {
        return;
    }
    let file = file(&vec![1; 10 << 20]);
    let mut map = MappedFile::open_rw(&file).unwrap();
    map.as_mut_slice::<u64>().iter_mut().for_each(|number| *number += 1);
    assert_eq!(std::fs::read(&file).unwrap()[0], 1);
    assert_eq!(map.sync().unwrap(), 10 << 20);
    assert_eq!(map.sync().unwrap(), 0, "what is in the file is not written again");
    assert_eq!(std::fs::read(&file).unwrap()[8 << 20], 2);
    map[5] = 9;
    map.close().unwrap();
    assert_eq!(std::fs::read(&file).unwrap()[5], 9);
    let mut map = MappedFile::open_rw(&file).unwrap();
    map[6] = 10;
    drop(map);
    assert_eq!(std::fs::read(&file).unwrap()[6], 10);
    let mut map = MappedFile::open(&file).unwrap();
    map[7] = 11;
    assert_eq!((map[6], map.len(), map.sync().unwrap()), (10, 10 << 20, 0));
    drop(map);
    assert_eq!(std::fs::read(&file).unwrap()[7], 1);
}

#[test]
fn a_write_that_fails_says_so_and_keeps_the_changes() {
    if !can_page() {
        return;
    }
    // A file in memory, which is sealed against writes after it is mapped. SAFETY: the name ends in
    // a zero byte.
    let fd = unsafe { libc::memfd_create(c"sealed".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    assert!(fd >= 0);
    let path = format!("/proc/self/fd/{fd}");
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    let mut map = MappedFile::open_rw(&path).unwrap();
    map.fill(2);
    // SAFETY: no memory is touched.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_WRITE) }, 0);
    for _ in 0..2 {
        let error = map.sync().unwrap_err();
        assert_eq!(error.errno(), libc::EPERM);
        assert!(error.to_string().contains("cannot be written"), "{error}");
    }
    // SAFETY: the call fails, so the mapping lives on.
    assert!(unsafe { terapage::unmap(map.as_ptr()) }.is_err());
    assert!(map.iter().all(|&byte| byte == 2));
    drop(map);
    assert!(std::fs::read(&path).unwrap().iter().all(|&byte| byte == 1));
    // SAFETY: the descriptor was opened above, and is no longer used.
    unsafe { libc::close(fd) };
}

#[test]
fn options_come_before_the_first_use() {
    if can_page() {
        assert!(matches!(terapage::init(&Options::default()), Err(Error::Started)));
    }
}
