//! Marks the code as the model checker's.

fn main() {
    println!("cargo::rustc-cfg=terapage_model");
}
