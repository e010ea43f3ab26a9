//! If a program loads the library itself and unloads it, the library's threads and paged memory
//! remain, so it is never really unloaded. Programs that were linked with the library request the
//! version whose interface they know.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").expect("cargo sets it");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libterapage.so.{major}");
}
