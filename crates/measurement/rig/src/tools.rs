//! Programs that the lab needs, and their packages in Debian.

use std::env;
use std::path::{Path, PathBuf};

/// Directories of programs for root, which a user's PATH may lack.
const SYSTEM: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The path of a program.
///
/// # Errors
/// The program is not installed; the error says how to install it.
pub fn find(name: &str) -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    find_in(name, env::split_paths(&path).chain(SYSTEM.map(PathBuf::from)))
}

fn find_in(name: &str, mut places: impl Iterator<Item = PathBuf>) -> Result<PathBuf, String> {
    let found = places.find_map(|place| Some(place.join(name)).filter(|path| is_program(path)));
    found.ok_or_else(|| format!("{name} is not installed (apt-get install {})", package(name)))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn package(name: &str) -> &str {
    match name {
        "mkfs.ext3" | "mkfs.ext4" => "e2fsprogs",
        "mkfs.xfs" => "xfsprogs",
        "mkfs.btrfs" => "btrfs-progs",
        "qemu-system-x86_64" => "--no-install-recommends qemu-system-x86",
        "dpkg-deb" => "dpkg",
        "likwid-bench" => "likwid",
        "apt-get" | "apt-cache" => "apt",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::{find, find_in};
    use std::path::PathBuf;

    #[test]
    fn a_missing_program_is_named_with_what_installs_it() {
        let says = |name: &str| find_in(name, std::iter::empty()).expect_err("it is nowhere");
        assert_eq!(says("bonnie++"), "bonnie++ is not installed (apt-get install bonnie++)");
        assert_eq!(says("mkfs.xfs"), "mkfs.xfs is not installed (apt-get install xfsprogs)");
        assert_eq!(says("likwid-bench"), "likwid-bench is not installed (apt-get install likwid)");
        assert!(says("qemu-system-x86_64").contains("qemu-system-x86)"));
        // A directory, or a file that is not a program, does not count.
        assert!(find_in("etc", [PathBuf::from("/")].into_iter()).is_err());
        assert!(find_in("passwd", [PathBuf::from("/etc")].into_iter()).is_err());
        assert!(find("sh").is_ok());
    }
}
