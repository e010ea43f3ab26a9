//! A program that loads the library itself, and unloads it, still has its threads and its paged
//! memory. Programs that were linked with it ask for the version whose interface they know.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").expect("cargo sets it");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libterapage.so.{major}");
}
