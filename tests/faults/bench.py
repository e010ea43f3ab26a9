"""What the cases use: a place, a store directory in it, the command; and steps that several of them take."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TESTS, "lib"))

from harness import Child, Skipped, check, copied_for_everybody, need, need_root  # noqa: E402

SOURCES = os.path.join(TESTS, "programs", "src")
C_HEADERS = os.path.join(os.path.dirname(TESTS), "crates", "paging", "capi", "include")
TIMEOUT_S = 600


class Bench:
    """What a case uses: a place, a store directory in it, and the command."""

    def __init__(self, place, command):
        self.place = place
        self.command = command
        self.store = self.path("store")
        os.mkdir(self.store)

    def path(self, name):
        """A file of this case."""
        return os.path.join(self.place, name)

    def build(self, source, *flags, libraries=()):
        """Compiles a test program and returns its path."""
        need("gcc")
        name = self.path(source.split(".")[0])
        command = ["gcc", "-O2", *flags, os.path.join(SOURCES, source), *libraries, "-o", name]
        built = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        check(built.returncode == 0, f"gcc: {built.stderr.strip()[-300:]}")
        return name

    def test_program(self, package, name, static=False):
        """A copy of a test program of a crate."""
        need("cargo")
        words = ["cargo", "test", "--release", "--locked", "-p", package, "--test", name, "--no-run", "--message-format", "json"]
        env = dict(os.environ)
        if static:
            words += ["--target", "x86_64-unknown-linux-gnu"]
            env["RUSTFLAGS"] = "-C target-feature=+crt-static"
        built = subprocess.run(words, capture_output=True, text=True, cwd=os.path.dirname(TESTS), timeout=1800, check=False, env=env)
        check(built.returncode == 0, f"cargo: {built.stderr.strip()[-300:]}")
        made = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
        (program,) = [message["executable"] for message in made if message.get("executable")]
        return shutil.copy(program, self.path(name))

    def start(self, program, *options, store=None, stdin=None, env=None, shell=False):
        """Starts a program with the command; in a shell, which turns signals into statuses, if requested."""
        argv = [*self.command, "run", "--store", store or self.store, *options, "--", *program]
        if shell:
            argv = ["sh", "-c", '"$@"; exit $?', "sh", *argv]
        return Child(argv, self.place, stdin=stdin, env=env)

    def end(self, child):
        """Waits for the end of a child, checks that nothing remains, and returns its status."""
        status = child.wait(TIMEOUT_S)
        check(not child.left_over, f"processes stay behind: {child.left_over}")
        if os.path.isdir(self.store):
            stay = [name for name in os.listdir(self.store) if name != "lost+found"]
            check(not stay, f"files stay behind in the store directory: {stay}")
        return status

    def refused(self, *options, says="", status=None, program=("true",), **more):
        """Expects a refusal: one line, that matches `says`, and a non-zero status."""
        with self.start(program, *options, **more) as child:
            got = self.end(child)
            lines = child.errors().splitlines()
            where = f"{' '.join(options)} {' '.join(program)}:"
            check(got != 0, f"{where} is not refused")
            check(got > 0, f"{where} ended by signal {-got}")
            check(status in (None, got), f"{where} status {got}, not {status}: {child.last_words()}")
            check(len(lines) == 1, f"{where} {len(lines)} lines, not one: {child.last_words()!r}")
            check(re.search(says, lines[0], re.IGNORECASE), f"{where} nothing about '{says}' in {lines[0]!r}")
            check(not child.output(), f"{where} the program ran")


def refusals(options_and_words):
    """A body that expects every set of options to be refused."""

    def body(bench):
        for options, says in options_and_words:
            bench.refused(*options, says=says)
        return f"{len(options_and_words)} refusals"

    return body


def mount(*words):
    """Runs mount; Skipped if this machine does not allow that."""
    done = subprocess.run(["mount", *words], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise Skipped(f"mount: {done.stderr.strip()}")


def unmount(place):
    """Unmounts, and fails if the place is in use."""
    done = subprocess.run(["umount", place], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        subprocess.run(["umount", "-l", place], capture_output=True, timeout=300, check=False)
    check(done.returncode == 0, f"umount: {done.stderr.strip()}")


@contextlib.contextmanager
def mounted(place, *words):
    """A mount for the duration of a with block."""
    need_root()
    need("mount", "umount")
    mount(*words, place)
    try:
        yield place
    finally:
        unmount(place)


def read_first(path):
    """The text of a small file, without its final newline."""
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def of_threads(pid, name):
    """The text of `/proc/PID/task/*/NAME` for each thread of a process, but for threads that end meanwhile."""
    texts = []
    for thread in listed(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            texts.append(read_first(f"/proc/{pid}/task/{thread}/{name}"))
    return texts


def open_files(pid):
    """What the descriptors of a process are, but for those that are closed meanwhile."""
    links = []
    for fd in listed(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return links


def listed(folder):
    """What is in a folder of a process; nothing once the process has ended."""
    with contextlib.suppress(FileNotFoundError):
        return os.listdir(folder)
    return []


def paged_in(bench, process):
    """Bytes that a process has paged in."""
    shown = subprocess.run(
        [*bench.command, "stat", str(process), "--json"], capture_output=True, text=True, timeout=300, check=False
    )
    return json.loads(shown.stdout)["page_in_bytes"] if shown.returncode == 0 else 0


# A user without processes.
NOBODY_ELSE = "64123"

# Messages about memory that is not paged for a while.
BESIDE = "beside the budget|at most were not paged"


def goes_on(bench, program, *options, before=(), says=None, env=None, store=None):
    """Expects a paged program that reaches a limit to continue to its end, with no output but lines that match `says`."""
    argv = [*before, *bench.command, "run", "--store", store or bench.store, *options, "--", *program]
    with Child(argv, bench.place, env=env) as child:
        status = bench.end(child)
        said = [line for line in child.errors().splitlines() if says is None or not re.search(says, line)]
        check(status == 0 and not said, f"{' '.join(program)}: status {status}: {child.last_words()}")


def for_everybody(bench):
    """A copy of the command in the case's place, which other users may enter and in which its store may be written."""
    os.chmod(bench.place, 0o755)
    os.chmod(bench.store, 0o777)
    return copied_for_everybody(bench.command, bench.place)


def counters(bench):
    """A directory for the counters of all users."""
    os.mkdir(bench.path("counters"))
    os.chmod(bench.path("counters"), 0o777)


def holders(paths):
    """The processes that have one of these files open."""
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and holds(pid, paths)]


def holds(pid, paths):
    """Whether a process has one of these files open."""
    try:
        return any(link in paths for link in open_files(pid))
    except OSError:
        return False
