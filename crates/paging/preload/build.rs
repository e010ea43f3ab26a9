//! The library's initialisation runs before any other's, because it must register for forks first.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
}
