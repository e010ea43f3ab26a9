"""Debian's packages for any processor: fetched by apt, with lists of its own, and unpacked, never installed."""

import glob
import os
import re
import subprocess

from harness import Failed, Skipped, check, need

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
FETCH_S = 900
# On a busy machine limits of time are multiplied by this.
PATIENCE = int(os.environ.get("TERAPAGE_PATIENCE", "1"))


def words_of(*command, cwd=None, timeout_s=300):
    """Runs a command and returns what it prints; Failed with its last words where it fails."""
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s * PATIENCE, check=False)
    check(done.returncode == 0, f"{' '.join(command[:3])}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


class Debian:
    """A release of Debian for one processor. Its lists and packages are kept below `place`."""

    def __init__(self, place, suite, architecture):
        need("apt-get", "apt-cache", "dpkg-deb")
        self.architecture = architecture
        self.place = os.path.join(place, f"{suite}-{architecture}")
        self.archives = os.path.join(self.place, "archives")
        for name in ("lists/partial", "archives/partial"):
            os.makedirs(os.path.join(self.place, name), exist_ok=True)
        self._write("status", "")
        # Experimental has only what is newer than in sid.
        suites = (suite, "sid") if suite == "experimental" else (suite,)
        self._write("sources", "".join(f"deb [signed-by={KEYRING}] {mirror()} {name} main\n" for name in suites))
        if not glob.glob(os.path.join(self.place, "lists", "*_Packages*")):
            self._apt("apt-get", "update")

    def _write(self, name, text):
        with open(os.path.join(self.place, name), "w", encoding="ascii") as file:
            file.write(text)

    def _apt(self, tool, *words):
        """Runs apt with these lists; Skipped where it fails: what it cannot get cannot be had here."""
        options = {
            "APT::Architecture": self.architecture,
            "APT::Architectures": self.architecture,
            "APT::Sandbox::User": "root",
            "Dir::State": self.place,
            "Dir::State::status": f"{self.place}/status",
            "Dir::Cache": self.place,
            "Dir::Etc::sourcelist": f"{self.place}/sources",
            "Dir::Etc::sourceparts": "/dev/null",
        }
        given = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        try:
            return words_of(tool, *given, *words, cwd=self.archives, timeout_s=FETCH_S)
        except (Failed, subprocess.TimeoutExpired) as why:
            raise Skipped(f"packages for {self.architecture} cannot be had: {why}") from None

    def _file(self, name, version):
        """Where apt keeps a package."""
        found = glob.glob(os.path.join(self.archives, f"{name}_{version.replace(':', '%3a')}_*.deb"))
        return found[0] if found else None

    def names(self, pattern):
        """The names of packages that match."""
        return [line.split()[0] for line in self._apt("apt-cache", "search", "--names-only", f"^{pattern}$").splitlines()]

    def newest(self, pattern):
        """The newest package of that name, without those that it needs, as a file."""
        found = self.names(pattern)
        if not found:
            raise Skipped(f"apt knows no package {pattern} for {self.architecture}")
        name = max(found, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])
        version = re.search(r"^Version: (\S+)$", self._apt("apt-cache", "show", "--no-all-versions", name), re.MULTILINE)[1]
        if self._file(name, version) is None:
            self._apt("apt-get", "download", name)
        return self._file(name, version)

    def with_needed(self, *names):
        """Packages and all that they need, as files."""
        words = ("install", "--yes", "--no-install-recommends", *names)
        self._apt("apt-get", "--download-only", *words)
        listed = re.findall(r"^Inst (\S+) \((\S+)", self._apt("apt-get", "--simulate", *words), re.MULTILINE)
        return [self._file(name.split(":")[0], version) for name, version in listed]


def mirror():
    """The place where this machine has its own packages of Debian's from."""
    listed = words_of("apt-get", "indextargets", "--format", "$(ORIGIN) $(CODENAME) $(REPO_URI)", "Created-By: Packages")
    found = re.search(r"^Debian [a-z]+ (\S+)$", listed, re.MULTILINE)
    if found is None:
        raise Skipped("apt has no packages of Debian's here")
    return found[1]


def unpacked(packages, place):
    """Unpacks packages, one over the other."""
    for package in packages:
        words_of("dpkg-deb", "-x", package, place)
    return place
