//! If a program loads the library itself and unloads it, the library's threads and paged memory
//! remain, so it is never really unloaded. Programs that were linked with the library request the
//! version whose interface they know.

use std::error::Error;
use std::path::Path;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR")?;
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libterapage.so.{major}");
    let has = |what, name| std::env::var(what).is_ok_and(|names| names.split(',').any(|one| one == name));
    if has("CARGO_CFG_TARGET_ENV", "musl") && !has("CARGO_CFG_TARGET_FEATURE", "crt-static") {
        for_musl(std::env::var("OUT_DIR")?.as_ref())?;
    }
    Ok(())
}

/// Puts linker scripts for two libraries into `place`. The unwinder is Rust's own, since that of a
/// machine with glibc needs glibc. musl has no name of its own, so it gets the one that it has in
/// Alpine, and by which tools for wheels know it; the loader of any musl takes that for itself.
fn for_musl(place: &Path) -> Result<(), Box<dyn Error>> {
    let told = Command::new(std::env::var("RUSTC")?).args(["--print", "sysroot"]).output()?;
    let rust = Path::new(std::str::from_utf8(&told.stdout)?.trim_end()).join("lib/rustlib");
    let unwinder = rust.join(std::env::var("TARGET")?).join("lib/self-contained/libunwind.a");
    std::fs::write(place.join("libgcc_s.so"), format!("INPUT({})", unwinder.display()))?;
    let processor = std::env::var("CARGO_CFG_TARGET_ARCH")?;
    let name = format!("libc.musl-{processor}.so.1");
    std::fs::remove_file(place.join(&name)).ok();
    std::os::unix::fs::symlink(format!("/lib/ld-musl-{processor}.so.1"), place.join(&name))?;
    std::fs::write(place.join("libc.so"), format!("INPUT(-l:{name})"))?;
    println!("cargo:rustc-cdylib-link-arg=-L{}", place.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,defs");
    Ok(())
}
