//! The library's initialisation runs before any other's: it has to hear of forks before they do.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
}
