"""A budget that follows the free memory of a memory cgroup, which is what a container has."""

import contextlib
import fcntl
import glob
import json
import os
import struct
import subprocess
import sys
import time

from bench import TIMEOUT_S, for_everybody, read_first
from harness import NOBODY, Child, Skipped, check, need_restricted, need_root, wait_for

MIB = 1 << 20
# Python has no name for it.
F_OFD_SETLK = 37
# Programs in a cgroup without swap may be slow where other programs use the disk, too.
PATIENCE_S = TIMEOUT_S
# Memory that is taken step by step, as fast as a slow disk can take others' blocks. Prints the
# longest time that a step took, ms.
TAKES = """
import os, sys, time
taken, longest = [], 0
for step in range(int(sys.argv[1]) // 2):
    began = time.monotonic()
    taken.append(b"x" * (2 << 20))
    longest = max(longest, time.monotonic() - began)
    time.sleep(float(sys.argv[2]))
print("taken", round(longest * 1000), flush=True)
while not os.path.exists(sys.argv[3]):
    time.sleep(0.1)
assert all(part.count(b"x") == 2 << 20 for part in taken)
print("whole", flush=True)
"""


class Group:
    """A memory cgroup with a limit, of either version."""

    def __init__(self, path, limit_file, kills_file):
        self.path, self.limit_file, self.kills_file = path, limit_file, kills_file

    def limit(self, mib):
        with open(os.path.join(self.path, self.limit_file), "w", encoding="ascii") as file:
            file.write(str(mib * MIB))

    def used_mib(self):
        usage = "memory.current" if self.limit_file == "memory.max" else "memory.usage_in_bytes"
        with open(os.path.join(self.path, usage), encoding="ascii") as file:
            return int(file.read()) / MIB

    def kills(self):
        with open(os.path.join(self.path, self.kills_file), encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)

    def inner(self, name):
        """A cgroup within this one, without a limit of its own."""
        path = os.path.join(self.path, name)
        os.mkdir(path)
        return Group(path, self.limit_file, self.kills_file)

    def enter(self, words):
        """The words of a command that runs in the group."""
        return ["sh", "-c", 'echo 0 >"$0" && exec "$@"', os.path.join(self.path, "cgroup.procs"), *words]


@contextlib.contextmanager
def group(mib):
    """A cgroup for the duration of a with block; Skipped if there can be none."""
    need_root()
    with open("/proc/self/cgroup", encoding="ascii") as file:
        own = {controller: path for _, controllers, path in (line.strip().split(":", 2) for line in file) for controller in controllers.split(",")}
    name = f"terapage-elastic-{os.getpid()}"
    if "memory" in own:
        parent, files = "/sys/fs/cgroup/memory" + own["memory"], ("memory.limit_in_bytes", "memory.oom_control")
    else:
        parent, files = "/sys/fs/cgroup", ("memory.max", "memory.events")
    made = Group(os.path.join(parent if os.path.isdir(parent) else "/sys/fs/cgroup/memory", name), *files)
    try:
        os.mkdir(made.path)
        made.limit(mib)
    except OSError as error:
        raise Skipped(f"no memory cgroup can be made: {error}") from None
    try:
        yield made
    finally:
        wait_for(lambda: remove(made.path), "the cgroup to be empty")


def remove(path):
    """Removes an empty cgroup, with those within it."""
    for entry in os.scandir(path):
        if entry.is_dir():
            remove(entry.path)
    with contextlib.suppress(OSError):
        os.rmdir(path)
    return not os.path.exists(path)


def native(program, mib, rounds):
    """What the program prints without paging, outside of the cgroup."""
    return subprocess.run([program, "one", "7", str(mib), str(rounds)], capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout


def paged(bench, group, *program, stdout="stdout", before=(), options=()):
    """A program with a budget that follows the memory of a cgroup."""
    command = [*before, *(for_everybody(bench) if before else bench.command)]
    return Child(group.enter([*command, "run", "--store", bench.store, *options, "--", *program]), bench.place, stdout=stdout)


def ended(child, wanted):
    """Checks that a program ended with the right output."""
    status = child.wait(PATIENCE_S)
    check(status == 0 and child.output() == wanted, f"status {status}: {child.output()!r}, not {wanted!r}: {child.last_words()}")


def elastic(bench):
    """Without `--memory`, programs of 1.2 times and twice the limit of a cgroup end with the right output, and nothing is killed; a given budget does not follow."""
    program, stats = bench.build("share.c"), bench.path("stats")
    said = []
    for mib in (172, 288):
        wanted = native(program, mib, 1)
        with group(144) as box, paged(bench, box, program, "one", "7", str(mib), "1", options=["--stats", stats]) as child:
            ended(child, wanted)
            check(box.kills() == 0, f"{box.kills()} kills")
        with open(stats, encoding="utf-8") as file:
            now = json.load(file)
        peak = now["resident_peak_bytes"] // MIB
        check(now["budget_auto"] == 1 and 60 <= peak < 144, f"{mib} MiB: a peak of {peak} MiB, auto {now['budget_auto']}")
        check(now["page_out_bytes"] > 0, f"{mib} MiB: nothing was paged out")
        said.append(f"{peak}")
    words = [*bench.command, "run", "--memory", "50%", "--store", bench.store, "--stats", stats, "--", program, "one", "7", "172", "1"]
    with group(144) as box, Child(box.enter(words), bench.place) as child:
        ended(child, native(program, 172, 1))
    with open(stats, encoding="utf-8") as file:
        now = json.load(file)
    check((now["budget_auto"], now["budget_bytes"] // MIB) == (0, 72), f"half of the memory: auto {now['budget_auto']}, {now['budget_bytes'] >> 20} MiB")
    return f"peaks of {', '.join(said)} of 144 MiB"


def elastic_fits(bench):
    """A program that fits into a cgroup, and workers that fit together, write nothing to the store, also without rights, and under the limit of an outer cgroup."""
    program, stats = bench.build("share.c"), bench.path("stats")
    wanted = native(program, 700, 1)
    everybody = for_everybody(bench)
    os.chmod(bench.place, 0o777)
    with group(1024) as box:
        inner = box.inner("inner")
        for who, command in (("root", bench.command), ("another user", [*NOBODY, *everybody])):
            words = [*command, "run", "--store", bench.store, "--stats", stats, "--", program, "one", "7", "700", "1"]
            with Child(inner.enter(words), bench.place) as child:
                ended(child, wanted)
            with open(stats, encoding="utf-8") as file:
                now = json.load(file)
            os.remove(stats)
            check(now["page_out_bytes"] == 0, f"{who}: {now['page_out_bytes'] >> 20} MiB were written")
            check(now["budget_auto"] == 1 and now["resident_peak_bytes"] > 700 * MIB, f"{who}: {now}")
        for kind in ("fork", "exec"):
            work = ["work", kind, "4", "150", "1"]
            alone = subprocess.run([program, *work], capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
            with Child(inner.enter([*bench.command, "run", "--store", bench.store, "--summary", "--", program, *work]), bench.place) as child:
                ended(child, alone)
                check("4 paged" in child.errors() and "page-out 0 MiB" in child.errors(), f"{kind}: {child.errors()}")
        check(box.kills() == 0, f"{box.kills()} kills")
    return "700 of 1,024 MiB, and 4 times 150"


def budget_now(bench, child):
    """The budget of a run, MiB, if it is paged and follows the memory."""
    shown = subprocess.run([*bench.command, "stat", str(child.pid), "--json"], capture_output=True, text=True, timeout=300, check=False)
    now = json.loads(shown.stdout) if shown.returncode == 0 else {}
    return now.get("budget_bytes", 0) // MIB if now.get("budget_auto") else 0


def shares(bench, program, one, two, before):
    """Two programs that each want all of a cgroup until they are told to stop, and an unpaged one that takes half of it: none is killed, the budgets shrink, all outputs are right. Returns what to say."""
    stop = bench.path("stop")
    with group(256) as box:
        with paged(bench, box, program, one, "200", stop) as first, paged(bench, box, program, two, "200", stop, stdout="two", before=before) as second:
            both = (first, second)
            budgets = []
            wait_for(lambda: budgets.append([budget_now(bench, child) for child in both]) or all(budgets[-1]) and sum(budgets[-1]) > 180, "budgets of 180 MiB", PATIENCE_S)
            before = budgets[-1]
            ends = bench.path("ends")
            taker = [sys.executable, "-c", TAKES, "120", "0.05", ends]
            with Child(box.enter(taker), bench.place, stdout="three") as three:
                wait_for(lambda: "taken" in three.output(), "the third to have its memory", PATIENCE_S)
                wait_for(lambda: budgets.append([budget_now(bench, child) for child in both]) or all(budgets[-1]) and sum(budgets[-1]) < 150, "budgets below 150 MiB")
                with open(ends, "w", encoding="ascii"):
                    pass
                status = three.wait(PATIENCE_S)
                words = three.output().split()
                check(status == 0 and words[::2] == ["taken", "whole"], f"the third: status {status}: {three.last_words()}")
            with open(stop, "w", encoding="ascii"):
                pass
            for name, child in ((one, first), (two, second)):
                ended(child, "swept, signalled\n" if name == "signalled" else "swept\n")
        check(box.kills() == 0, f"{box.kills()} kills")
    return f"budgets of {before} and then {budgets[-1]} MiB; no step of the third waited over {words[1]} ms"


def elastic_shared(bench):
    """Two runs of one user."""
    return shares(bench, bench.build("share.c"), "sweep", "sweep", ())


def elastic_users(bench):
    """A run of root and one of an ordinary user, with a handler and children."""
    os.chmod(bench.place, 0o777)
    return shares(bench, bench.build("share.c"), "sweep", "signalled", NOBODY)


HOT, COLD, ROUNDS, LIMIT = 12, 60, 12, 144


def elastic_family(bench):
    """A parent, its child and what it executes each go about a part of their memory all the time, and pass over the rest, also without rights: nothing is killed, all bytes are right, and blocks in use are kept."""
    program, stats, said = bench.build("share.c"), bench.path("stats"), []
    words = [program, "family", str(HOT), str(COLD), str(ROUNDS)]
    wanted = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    # What the best policy reads if three quarters of the limit are for data.
    least = ROUNDS * (3 * (HOT + COLD) - LIMIT * 3 // 4)
    need_restricted()
    everybody = for_everybody(bench)
    os.chmod(bench.place, 0o777)
    for who, command in (("root", bench.command), ("another user", [*NOBODY, *everybody])):
        with group(LIMIT) as box, Child(box.enter([*command, "run", "--store", bench.store, "--stats", stats, "--", *words]), bench.place) as child:
            status = child.wait(PATIENCE_S)
            check(status == 0 and sorted(child.output().splitlines()) == sorted(wanted.splitlines()), f"{who}: status {status}: {child.output()}, not {wanted}: {child.last_words()}")
            check(box.kills() == 0 and child.shared_peak_bytes <= LIMIT * MIB, f"{who}: {box.kills()} kills, {child.shared_peak_bytes // MIB} MiB")
        every = [json.loads(text) for text in map(read_first, glob.glob(f"{stats}*"))]
        check(len(every) == 3 and all(now["budget_auto"] and bool(now["guarded"]) == (who != "root") for now in every), f"{who}: {every}")
        read, written = (sum(now[f"page_{way}_bytes"] for now in every) // MIB for way in ("in", "out"))
        said.append(f"{read} MiB read, {written} written")
        check(read <= 3 * least, f"{who}: {read} MiB were read, and {least} are the least: {every}")
        for path in glob.glob(f"{stats}*"):
            os.remove(path)
    return f"{', '.join(said)}; {least} MiB are the least"


LOCK = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1 << 20, 1, 0)


def locked(child):
    """The table of a run, whose lock is held from now on, as by a member of the run that is stopped."""
    table = next(path for path in glob.glob(f"/proc/{child.pid}/fd/*") if "terapage-job" in os.readlink(path))
    held = os.open(table, os.O_RDWR)

    def take():
        with contextlib.suppress(BlockingIOError):
            fcntl.fcntl(held, F_OFD_SETLK, LOCK)
            return True
        return False

    wait_for(take, "the table's lock", PATIENCE_S)
    return held


def elastic_stopped_member(bench):
    """A run whose table is locked, since a member was stopped in the middle, gives memory back nonetheless."""
    stop, ends = bench.path("stop"), bench.path("ends")
    with group(256) as box, paged(bench, box, bench.build("share.c"), "sweep", "200", stop) as child:
        wait_for(lambda: budget_now(bench, child) > 180, "a budget of 180 MiB", PATIENCE_S)
        held = locked(child)
        with Child(box.enter([sys.executable, "-c", TAKES, "100", "0.05", ends]), bench.place, stdout="other") as other:
            wait_for(lambda: "taken" in other.output() or box.kills(), "another process to have its memory", PATIENCE_S)
            check(box.kills() == 0, f"{box.kills()} kills")
            with open(ends, "w", encoding="ascii"):
                pass
            check(other.wait(PATIENCE_S) == 0, f"the other process: {other.last_words()}")
        os.close(held)
        with open(stop, "w", encoding="ascii"):
            pass
        ended(child, "swept\n")
        check(box.kills() == 0, f"{box.kills()} kills")
    return ""


# Takes memory, opens as many files as it may, and takes more.
OPENS = """
import resource, time
def take(mib):
    taken = []
    for step in range(mib // 2):
        taken.append(b"x" * (2 << 20))
        time.sleep(0.01)
    return taken
first = take(100)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
files = []
try:
    while True:
        files.append(open("/dev/null"))
except OSError:
    pass
second = take(150)
assert all(part.count(b"x") == 2 << 20 for part in first + second)
print("whole", len(files) > 100)
"""


def elastic_no_descriptors(bench):
    """A program that has opened as many files as it may still gets the memory that is free, also without rights."""
    stats = bench.path("stats")
    everybody = for_everybody(bench)
    os.chmod(bench.place, 0o777)
    for who in ((), NOBODY):
        words = [*who, *everybody, "run", "--store", bench.store, "--stats", stats, "--", "/usr/bin/python3", "-c", OPENS]
        with group(512) as box, Child(box.enter(words), bench.place) as child:
            ended(child, "whole True\n")
            check(box.kills() == 0, f"{box.kills()} kills")
        with open(stats, encoding="utf-8") as file:
            now = json.load(file)
        os.remove(stats)
        peak, written = now["resident_peak_bytes"] // MIB, now["page_out_bytes"] // MIB
        check(peak > 240 and written == 0, f"{who}: a peak of {peak} MiB, {written} MiB written")
    return f"a peak of {peak} MiB"


def elastic_adopted(bench):
    """A program that is adopted from a cgroup with a small limit, but has none itself, keeps its memory."""
    ends = bench.path("ends")
    with group(128) as box, Child([sys.executable, "-c", TAKES, "300", "0", ends], bench.place) as child:
        wait_for(lambda: "taken" in child.output(), "the program to have its memory", PATIENCE_S)
        adopts = box.enter([*bench.command, "adopt", "--store", bench.store, str(child.pid)])
        adopted = subprocess.run(adopts, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        check(adopted.returncode == 0, f"adopt: {adopted.stderr}")
        time.sleep(1)
        shown = subprocess.run([*bench.command, "stat", str(child.pid), "--json"], capture_output=True, text=True, timeout=300, check=True)
        now = json.loads(shown.stdout)
        here, written = now["resident_bytes"] // MIB, now["page_out_bytes"] // MIB
        check(here > 250 and written == 0, f"{here} MiB in memory, {written} written")
        with open(ends, "w", encoding="ascii"):
            pass
        status = child.wait(PATIENCE_S)
        check(status == 0 and child.output().split()[::2] == ["taken", "whole"], f"status {status}: {child.last_words()}")
    return f"{here} MiB"


def elastic_limit_lowered(bench):
    """The limit of the cgroup is lowered and raised while a program runs: its lease follows, and the output is right."""
    program = bench.build("share.c")
    stop = bench.path("stop")
    with group(256) as box:
        words = [*bench.command, "run", "--memory", "auto", "--store", bench.store, "--", program, "sweep", "192", stop]
        with Child(box.enter(words), bench.place) as child:
            def lease():
                check(box.kills() == 0, f"{box.kills()} kills")
                shown = subprocess.run([*bench.command, "stat", str(child.pid), "--json"], capture_output=True, text=True, timeout=300, check=False)
                now = json.loads(shown.stdout) if shown.returncode == 0 else {}
                return now.get("resident_bytes", 0) // MIB if now.get("budget_auto") else 0

            wait_for(lambda: lease() > 150, "a lease of 150 MiB", PATIENCE_S)
            for mib in range(240, 127, -8):
                # Where a limit leaves nothing free, the kernel kills whoever takes a page next.
                # So each step waits until the run has followed the one before.
                wait_for(lambda mib=mib: box.used_mib() < mib - 4, f"4 MiB below {mib} MiB", PATIENCE_S)
                wait_for(lambda mib=mib: lowered(box, mib), f"a limit of {mib} MiB", PATIENCE_S)
            wait_for(lambda: 0 < lease() < 120, "a lease of less than 120 MiB", PATIENCE_S)
            box.limit(256)
            wait_for(lambda: lease() > 150, "a lease of 150 MiB again", PATIENCE_S)
            with open(stop, "w", encoding="ascii"):
                pass
            status = child.wait(PATIENCE_S)
            check(status == 0 and child.output() == "swept\n", f"status {status}: {child.last_words()}")
        check(box.kills() == 0, f"{box.kills()} kills")
    return ""


def lowered(box, mib):
    """Tries to set a limit."""
    try:
        box.limit(mib)
    except OSError:
        time.sleep(0.05)
        return False
    return True
