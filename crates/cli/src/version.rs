//! What `--version` says: the version, and what it was built from and for.

use std::env::consts::ARCH;
use std::sync::LazyLock;

/// The text of `--version`. A release's build names its commit and the commit's date in
/// `TERAPAGE_COMMIT`; other builds are of a work tree, which may differ from any commit.
pub fn long() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let commit = option_env!("TERAPAGE_COMMIT").unwrap_or("none, built from a work tree");
        let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
        let host = if crate::library::IS_IN_HOST { "all" } else { "static" };
        format!(
            "{}\ncommit    {commit}\ntarget    {ARCH}-unknown-linux-{libc}\nfeatures  lz4, zstd, TLS, host of {host} programs",
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
