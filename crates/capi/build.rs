//! A program that loads the library itself, and unloads it, still has its threads and its paged memory.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
