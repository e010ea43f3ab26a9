//! The tests of this package compile the pager's own files, in which a few parts are replaced under
//! a model checker.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=terapage_model");
}
