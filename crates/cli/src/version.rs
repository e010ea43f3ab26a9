//! What `--version` says: the version, and what it was built from and for.

use std::env::consts::ARCH;
use std::sync::LazyLock;

/// The text of `--version`. A release's build names its commit and the commit's date in
/// `TERAPAGE_COMMIT`; other builds are of a work tree, which may differ from any commit.
pub fn long() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let commit = option_env!("TERAPAGE_COMMIT").unwrap_or("none, built from a work tree");
        let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
        let host = match (cfg!(target_arch = "x86_64"), crate::library::IS_IN_HOST) {
            (true, true) => ", host of all programs",
            (true, false) => ", host of static programs",
            (false, _) => "",
        };
        format!(
            "{}\ncommit    {commit}\ntarget    {ARCH}-unknown-linux-{libc}\nfeatures  lz4, zstd, TLS{host}",
            env!("CARGO_PKG_VERSION")
        )
    });
    &TEXT
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_begins_with_the_version_alone() {
        let text = super::long();
        assert_eq!(text.lines().next(), Some(env!("CARGO_PKG_VERSION")));
        assert!(text.contains("\ntarget    ") && text.contains("-unknown-linux-"), "{text}");
    }
}
