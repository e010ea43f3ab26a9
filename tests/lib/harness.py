"""What the test drivers share: children that cannot hang or outlive a test, and places to work in.

A child runs in a session of its own. Its output goes to files, never to pipes. When its time
is up, or when the driver is stopped, every process of the session is killed by its id.
"""

import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Bytes that each process may have in memory beside its part of the budget.
ALLOWANCE = 32 << 20
# Seconds in which the processes that a program leaves must end.
END_S = 30
HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"


class Failed(Exception):
    """A check that failed; its text says what was found."""


class Late(Failed):
    """Something that did not happen in time."""


class Skipped(Exception):
    """A case that cannot run here; its text says why."""


def check(condition, text):
    """Raises Failed(text) unless the condition holds."""
    if not condition:
        raise Failed(text)


def need(*tools):
    """Raises Skipped if a command is missing."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise Skipped("not installed: " + ", ".join(missing))


def need_root():
    """Raises Skipped for other users."""
    if os.geteuid() != 0:
        raise Skipped("needs root, for mounts")


def terapage():
    """The command under test as a list of words; empty if TERAPAGE is set but empty."""
    command = os.environ.get("TERAPAGE")
    if command == "":
        return []
    path = command or os.path.join(ROOT, "target", "release", "terapage")
    found = shutil.which(path)
    if found is None:
        sys.exit(f"{path}: not found or not executable; run 'make build' first")
    return [os.path.abspath(found)]


# A user without rights and without a home.
NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


def need_restricted():
    """Raises Skipped if every user may handle page faults."""
    need_root()
    need("setpriv")
    if os.access("/dev/userfaultfd", os.F_OK) and os.stat("/dev/userfaultfd").st_mode & 0o006:
        raise Skipped("everybody may use /dev/userfaultfd here")
    with open("/proc/sys/vm/unprivileged_userfaultfd", encoding="ascii") as file:
        if file.read().strip() == "1":
            raise Skipped("everybody may handle page faults here")


def copied_for_everybody(command, place):
    """A copy of the command and its libraries in a place that other users may enter: they may not enter the build directory."""
    (program,) = command
    beside = os.path.dirname(os.path.realpath(program))
    for name in ("terapage-host", "terapage-host-musl", "libterapage_preload.so"):
        if os.path.exists(os.path.join(beside, name)):
            shutil.copy(os.path.join(beside, name), place)
    shutil.copy(program, os.path.join(place, "terapage"))
    return [os.path.join(place, "terapage")]


def stop_cleanly():
    """Turns the signals that stop a driver into an exception, so that its clean-up runs."""

    def stop(number, _frame):
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


def work_dir():
    """A temporary directory on disk: in TMPDIR, or in /var/tmp."""
    place = os.environ.get("TMPDIR", "/var/tmp")
    return tempfile.TemporaryDirectory(prefix="terapage-test-", dir=place)


def read_quickly(path):
    """The bytes of a small file, in a third of the time that open() takes: samplers read many."""
    number = os.open(path, os.O_RDONLY)
    try:
        return os.read(number, 4096)
    finally:
        os.close(number)


def session_members(leader):
    """Ids of the live processes of a session, and of the children of these in sessions of their own (PostgreSQL's).

    Zombies do not count, but for those of which only the first thread has ended.
    """
    parents, live, members = {}, [], set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fields = read_quickly(f"/proc/{name}/stat").rpartition(b")")[2].split(None, 18)
        except OSError:
            continue
        state, parent, session, threads = fields[0], int(fields[1]), int(fields[3]), int(fields[17])
        parents[int(name)] = parent
        if session == leader:
            members.add(int(name))
        if state not in (b"Z", b"X") or threads > 1:
            live.append(int(name))
    grows = True
    while grows:
        children = {pid for pid, parent in parents.items() if parent in members}
        grows = not children <= members
        members |= children
    return [pid for pid in live if pid in members]


def kill_session(leader, patience_s=120):
    """Kills every process of a session, until none is left or patience ends."""
    end = time.monotonic() + patience_s
    while members := session_members(leader):
        for pid in members:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if time.monotonic() > end:
            raise Failed(f"processes that cannot be killed: {members}")
        time.sleep(0.02)


def anonymous_bytes(pid):
    """Bytes of anonymous memory that a process has in memory now; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


class Child:
    """A program in its own session, with files for its streams."""

    def __init__(self, argv, cwd, stdin=None, stdout="stdout", env=None):
        self.argv = argv
        self.out = os.path.join(cwd, stdout)
        self.err = os.path.join(cwd, stdout + ".err")
        self.began = time.monotonic()
        self.seconds = 0.0
        self.peak_bytes = 0
        self.sum_bytes = 0
        self.shared_peak_bytes = 0
        self.left_over = []
        with open(stdin or os.devnull, "rb") as source, open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(
                argv, cwd=cwd, stdin=source, stdout=out, stderr=err, start_new_session=True, env={**os.environ, **(env or {})}
            )
        self.pid = self.process.pid
        self._over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._over.set()
        kill_session(self.pid)
        self.process.wait()
        self._sampler.join()

    def _sample(self):
        """Takes note of the largest process of the session until the end, and of all together without what each may have."""
        while not self._over.wait(0.03):
            each = list(map(anonymous_bytes, session_members(self.pid)))
            self.peak_bytes = max([self.peak_bytes, *each])
            self.sum_bytes = max(self.sum_bytes, sum(each))
            self.shared_peak_bytes = max(self.shared_peak_bytes, sum(each) - ALLOWANCE * len(each))

    def wait(self, timeout_s):
        """Waits for the end and returns the status, which is negative for a signal. Raises Failed if that takes too long."""
        try:
            self.process.wait(max(0.0, self.began + timeout_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            last = self.output().splitlines()[-1:] or ["nothing"]
            raise Late(f"no end after {timeout_s} s: {' '.join(self.argv)}: last said: {last[0]}: {self.last_words()}") from None
        self.seconds = time.monotonic() - self.began
        # Helpers, as those of multiprocessing, end by themselves once the first process has ended.
        patience = time.monotonic() + END_S
        while (left_over := session_members(self.pid)) and time.monotonic() < patience:
            time.sleep(0.05)
        self.left_over = left_over
        return self.process.returncode

    def errors(self):
        """The program's standard error."""
        with open(self.err, encoding="utf-8", errors="replace") as file:
            return file.read()

    def output(self):
        """The program's standard output."""
        with open(self.out, encoding="utf-8", errors="replace") as file:
            return file.read()

    def last_words(self):
        """The end of its standard error, for a message of one line."""
        return " | ".join(self.errors().split("\n")[-6:]).strip(" |")[-400:]


@contextlib.contextmanager
def huge_pages_for_all():
    """The kernel gives huge pages to all memory for the time of a with block. Skipped where that cannot be set.

    The setting is the machine's: there is none that gives them to one process. So drivers take turns (the lock is on the
    setting's own file), and a shell that outlives this driver, however that ends, puts back what was set.
    """
    try:
        with open(HUGE_PAGES, "r+", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            before = file.read().partition("[")[2].partition("]")[0]
            restore = ["sh", "-c", 'cat; echo "$1" > "$2"', "sh", before, HUGE_PAGES]
            # The restorer's copy of the descriptor keeps the lock until the setting is restored.
            restorer = subprocess.Popen(restore, stdin=subprocess.PIPE, start_new_session=True, pass_fds=[file.fileno()])
    except OSError as why:
        raise Skipped(f"huge pages for all: {why}") from None
    with restorer:
        with open(HUGE_PAGES, "w", encoding="ascii") as file:
            file.write("always")
        yield
    check(restorer.returncode == 0, f"{HUGE_PAGES} is not what it was: {before}")


def wait_for(condition, what, timeout_s=300):
    """Polls until a condition holds and returns its value."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Late(f"{what}: not so after {timeout_s} s")
        time.sleep(0.02)


def free_port():
    """A port that is not in use, and that the kernel gives to no connection: a server that is restarted finds it free."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        first = int(file.read().split()[0])
    for _ in range(1000):
        with contextlib.suppress(OSError), socket.socket() as probe:
            port = random.randrange(10000, max(first, 20000))
            probe.bind(("127.0.0.1", port))
            return port
    raise Skipped("no port is free")


def run_cases(cases, run_one):
    """Runs cases one after another, prints a line for each and the closing line; returns the exit status."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for case in cases:
        began = time.monotonic()
        try:
            print(f"ok {case.name} {run_one(case)}".rstrip() + f" ({time.monotonic() - began:.0f} s)", flush=True)
            counts["passed"] += 1
        except Skipped as why:
            print(f"SKIPPED: {case.name}: {why}", flush=True)
            counts["skipped"] += 1
        except Exception as why:  # the other cases still run
            kind = "" if isinstance(why, Failed) else f"{type(why).__name__}: "
            print(f"FAILED {case.name}: {kind}{why}", flush=True)
            counts["failed"] += 1
    print(", ".join(f"{number} {word}" for word, number in counts.items()))
    return 1 if counts["failed"] else 0
