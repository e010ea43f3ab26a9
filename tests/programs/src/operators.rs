//! Rust's objects, by the default allocator (malloc) and by the C library's own functions, which
//! are mixed.
//!
//! usage: operators MIB

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};

unsafe extern "C" {
    fn strdup(text: *const c_char) -> *mut c_char;
    fn free(at: *mut c_void);
    fn realloc(at: *mut c_void, size: usize) -> *mut c_void;
}

#[repr(align(128))]
#[derive(Clone, PartialEq, Debug)]
struct Wide([u64; 32]);

fn main() {
    let mib: usize = std::env::args().nth(1).and_then(|mib| mib.parse().ok()).unwrap_or(32);
    let many = mib * 700;
    let text = |index: usize| format!("{index} ").repeat(40);
    let mut tree = BTreeMap::new();
    let mut wide = Vec::new();
    let mut texts = Vec::new();
    for index in 0..many {
        tree.insert(index * 7919 % many, text(index).into_bytes());
        wide.push(Box::new(Wide([index as u64; 32])));
        let c = CString::new(text(index)).unwrap();
        // SAFETY: the text ends in a zero byte.
        texts.push(unsafe { strdup(c.as_ptr()) });
    }
    for index in (0..many).step_by(3) {
        tree.get_mut(&(index * 7919 % many)).unwrap().extend_from_slice(&[b'x'; 900]);
        // SAFETY: the object is the C library's.
        texts[index] = unsafe { realloc(texts[index].cast(), 2000) }.cast();
    }
    for index in 0..many {
        assert!(tree[&(index * 7919 % many)].starts_with(text(index).as_bytes()));
        assert_eq!(*wide[index], Wide([index as u64; 32]));
        // SAFETY: the object is the C library's, a text, and is freed once.
        unsafe {
            assert_eq!(CStr::from_ptr(texts[index]).to_bytes(), text(index).as_bytes());
            free(texts[index].cast());
        }
    }
    let bytes: usize = tree.values().map(Vec::len).sum();
    println!("{many} objects, {bytes} bytes");
}
