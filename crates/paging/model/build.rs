//! The tests of this package compile the pager's own files, which have a few parts that stand for
//! others under a model checker.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=terapage_model");
}
