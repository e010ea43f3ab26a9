//! Address spaces that are too small, or have more blocks than there are block numbers.

use terapage::Options;

#[test]
fn all_that_can_be_allocated_is_paged() {
    let options = Options {
        memory: Some(4 << 20),
        store: Some(env!("CARGO_TARGET_TMPDIR").into()),
        block: Some(4096),
        address_space: Some(33 << 40),
        ..Options::default()
    };
    for bytes in [1, 4096, (64 << 20) - 1] {
        let error = terapage::init(&Options { address_space: Some(bytes), ..options.clone() }).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL);
        assert!(error.to_string().contains("address_space"), "{error}");
    }
    if let Err(error) = terapage::init(&options) {
        eprintln!("SKIPPED: {error}");
        assert!([libc::EPERM, libc::ENOSYS].contains(&error.errno()), "{error}");
        return;
    }
    let len = 2 << 40;
    let at = terapage::allocate(len, false).unwrap();
    for part in (0..len).step_by(1 << 35) {
        // SAFETY: the allocation has this many bytes, and only this test uses it.
        unsafe { at.add(part).write(1) };
    }
    assert_eq!(terapage::stats().unwrap().first_touches, 64);
    // SAFETY: the allocation is no longer used.
    unsafe { terapage::free(at) }.unwrap();
}
