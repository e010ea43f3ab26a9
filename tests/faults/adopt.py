"""Programs that are adopted while they run: `terapage adopt`."""

import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time

from bench import SOURCES, TIMEOUT_S, for_everybody, of_threads, open_files, read_first
from harness import Child, Skipped, anonymous_bytes, check, need, need_restricted, need_root, wait_for
from oci import own_device

MIB = 1 << 20
SLACK = 40 * MIB
RUNS = int(os.environ.get("TERAPAGE_RUNS", "1"))
INTERPRETER = shutil.which("python3", path="/usr/bin") or "python3"
SORT_LINES = 1_500_000
PYTHON = """
import hashlib, sys, time
import numpy
random = numpy.random.default_rng(7)
arrays = [random.integers(0, 1 << 60, 1 << 20) for _ in range(20)]
texts = {i: str(i) * 3 for i in range(200000)}
print("filled", file=sys.stderr, flush=True)
digest = hashlib.sha256()
for step in range(60):
    at = step * 7 % len(arrays)
    arrays[at] = numpy.sort(arrays[at] * 3 + step)
    words = [str(x) for x in arrays[at][:20000]]
    digest.update("".join(words).encode())
    texts[step] = words[5]
for array in arrays:
    digest.update(array.tobytes())
for key in sorted(texts):
    digest.update(texts[key].encode())
print(digest.hexdigest())
"""


def adopt(bench, pid, memory, env=None, who=()):
    """Runs `terapage adopt`, by the command `who`, and returns what it has said and its status. `pid` may be --cgroup=PATH."""
    argv = [*who, *bench.command, "adopt", "--memory", memory, "--store", bench.store, str(pid)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **(env or {})})
    if "was not found" in done.stderr and "musl" in done.stderr:
        raise Skipped("there is no static host (make musl)")
    return done.stderr.strip(), done.returncode


def victim(bench, *flags):
    """The program that is adopted."""
    need_root()
    return bench.build("adopted.c", "-pthread", *flags)


LONG_S = "200"
"""The time of such a program that a test ends early."""


def handles(pid, number):
    """Whether a process has a handler for a signal."""
    with contextlib.suppress(OSError):
        return int(re.search(r"^SigCgt:\s*(\w+)", read_status(pid), re.MULTILINE)[1], 16) >> number - 1 & 1
    return False


def ended_early(bench, child, after_s=0):
    """Ends the time of such a program, which goes on for a while before, and returns its status."""
    time.sleep(after_s)
    wait_for(lambda: child.process.poll() is not None or handles(child.pid, signal.SIGUSR1), "the program has begun")
    child.process.send_signal(signal.SIGUSR1)
    return bench.end(child)


def at_random(bench):
    """8 threads that check each word, allocate, map, fork and wait: adopted at random moments, dynamic and static."""
    seed = int(os.environ.get("TERAPAGE_SEED", time.time_ns() % 1000000))
    print(f"seed {seed}", flush=True)
    moments, pauses = random.Random(seed), []
    for run in range(RUNS):
        program = victim(bench, *(["-static"] if run % 2 else []))
        with Child([program, LONG_S, "16"], bench.place) as child:
            time.sleep(moments.uniform(0, 4))
            said, status = adopt(bench, child.pid, "64M")
            check(status == 0, f"run {run}: {said}")
            now = anonymous_bytes(child.pid)
            check(now < 64 * MIB + SLACK or child.process.poll() is not None, f"run {run}: {now >> 20} MiB are in memory")
            pauses.append(int(re.search(r"stopped for (\d+) ms", said)[1]))
            status = ended_early(bench, child, 6)
            check(status == 0 and child.output() == "0 wrong\n", f"run {run}: status {status}: {child.output()} {child.last_words()}")
    return f"stopped for {min(pauses)} to {max(pauses)} ms"


def kinds(bench):
    """Programs that are adopted at random moments: their words, and the budget. All print what they have computed."""
    need_root()
    numbers = random.Random(5)
    with open(bench.path("lines"), "w", encoding="ascii") as file:
        file.writelines(f"{numbers.randrange(1 << 60):x} {i}\n" for i in range(SORT_LINES))
    program = bench.build("adopted.c", "-pthread")
    shutil.copy(program, bench.path("dynamic"))
    bench.build("adopted.c", "-pthread", "-static")
    all_kinds = {
        "dynamic": ([bench.path("dynamic"), "7", "12"], "48M"),
        "static": ([program, "7", "12"], "48M"),
        "threads": ([bench.path("dynamic"), "7", "2", "64"], "64M"),
        "sort": (["env", "LC_ALL=C", "sort", "-S", "240M", "--parallel=2", "lines"], "128M"),
    }
    if not subprocess.run([INTERPRETER, "-c", "import numpy"], capture_output=True, check=False).returncode:
        all_kinds["python"] = ([INTERPRETER, "-c", PYTHON], "128M")
    go = ["go", "build", "-o", bench.path("go"), os.path.join(SOURCES, "hosted.go")]
    if shutil.which("go") and not subprocess.run(go, capture_output=True, timeout=300, check=False).returncode:
        all_kinds["go"] = ([bench.path("go"), "1000000"], "64M")
    javac = ["javac", "-d", bench.place, os.path.join(SOURCES, "Data.java")]
    if shutil.which("javac") and not subprocess.run(javac, capture_output=True, timeout=300, check=False).returncode:
        for collector in ("Serial", "G1"):
            words = ["java", f"-XX:+Use{collector}GC", "-Xmx512m", "-cp", bench.place, "Data", "150"]
            all_kinds[collector] = (words, "128M")
    if shutil.which("node"):
        all_kinds["node"] = (["node", os.path.join(SOURCES, "heap.js"), "80000"], "96M")
    return all_kinds


def natively(bench, kind, argv):
    """What a program says without Terapage, and how long it takes."""
    with Child(argv, bench.place, stdout="native") as child:
        check(child.wait(600) == 0, f"{kind}, natively: {child.last_words()}")
        return child.output(), child.seconds


def at_moments(bench):
    """Programs of many kinds are adopted at random moments of their runs: the output is the same. TERAPAGE_KINDS names the kinds, or is "all"."""
    seed = int(os.environ.get("TERAPAGE_SEED", time.time_ns() % 1000000))
    print(f"seed {seed}", flush=True)
    wanted = os.environ.get("TERAPAGE_KINDS", "threads python").split()
    moments, adopted, pauses = random.Random(seed), {}, []
    for kind, (argv, memory) in kinds(bench).items():
        if kind not in wanted and wanted != ["all"]:
            continue
        native, seconds = natively(bench, kind, argv)
        for run in range(RUNS):
            with Child(argv, bench.place) as child:
                time.sleep(moments.uniform(0, 0.8 * seconds))
                said, status = adopt(bench, child.pid, memory)
                where = f"{kind}, run {run}"
                end = bench.end(child)
                check(end == 0, f"{where}: status {end}: {child.last_words()}; {said}")
                check(child.output() == native, f"{where}: the output differs: {child.output()[:300]} {child.last_words()}; {said}")
                if status != 0:
                    # On a busy machine it may end earlier than it does natively.
                    check("goes on as before" in said or "ended" in said or "no such process" in said, f"{where}: {said}")
                    print(f"{where}: {said}", flush=True)
                    continue
                adopted[kind] = adopted.get(kind, 0) + 1
                pauses += [int(number) for number in re.findall(r"stopped for (\d+) ms", said)]
                print(f"{where}: {said.rpartition(': ')[2]}", flush=True)
    return f"{adopted}, stopped for {min(pauses, default=0)} to {max(pauses, default=0)} ms"


def descriptor_room(pid):
    """How many descriptors a process's table has room for."""
    return int(re.search(r"^FDSize:\s*(\d+)", read_status(pid), re.MULTILINE)[1])


def undone(bench):
    """Each step fails once: the program goes on as before, with its mappings, descriptors and threads. What takes long is done before the first step, while the program runs: its table of descriptors grows."""
    program = victim(bench)
    with Child([program, LONG_S, "4"], bench.place) as child:
        time.sleep(1)
        steps, room = 0, descriptor_room(child.pid)
        check(room < 700, f"its table has room for {room} descriptors already")
        # 1 is the first step.
        for fault in (1, *range(40)):
            said, status = adopt(bench, child.pid, "64M", {"TERAPAGE_ADOPT_FAULT": str(fault)})
            if status == 0:
                break
            steps += 1
            check(status == 125 and "goes on as before" in said and said.count("\n") == 0, f"fault {fault}: status {status}: {said}")
            with open(f"/proc/{child.pid}/maps", encoding="ascii") as maps:
                check("/terapage-host" not in maps.read(), f"fault {fault}: the host is still mapped")
            links = open_files(child.pid)
            check(not [link for link in links if "memfd:terapage" in link or "userfaultfd" in link], f"fault {fault}: {links}")
            check(descriptor_room(child.pid) > 700, f"fault {fault}: its table has room for {descriptor_room(child.pid)} descriptors")
        check(steps > 5, f"only {steps} steps failed")
        status = ended_early(bench, child, 2)
        check(status == 0 and child.output() == "0 wrong\n", f"status {status}: {child.output()} {child.last_words()}")
    return f"{steps} steps"


ENDED = "has ended while it was being adopted: status 0"
"""Such a program may, while its memory is taken over, on a busy machine."""


def same_output(bench, argv, began, memory):
    """Runs a program natively, and adopted once it has begun: the output is the same."""
    with Child(argv, bench.place, stdout="native") as child:
        check(child.wait(600) == 0, f"natively: {child.last_words()}")
        native = child.output()
    with Child(argv, bench.place) as child:
        wait_for(lambda: began(child) or child.process.poll() is not None, "the program has begun")
        said, status = adopt(bench, child.pid, memory)
        check(status == 0 or said.endswith(ENDED), said)
        status = bench.end(child)
        check(status == 0, f"status {status}: {child.last_words()}")
        check(child.output() == native, "the output differs")
    return said


INTERRUPTED = (232, 45, 0, 19, 47, 128, 220, 43, 44)
"""The numbers of epoll_wait, recvfrom, read, readv, recvmsg, rt_sigtimedwait, semtimedop, accept and sendto."""


def waiting(pid):
    """The number of a process's threads that are in such a call."""
    calls = [text.split(" ")[0] for text in of_threads(pid, "syscall")]
    return len([call for call in calls if call.isdigit() and int(call) in INTERRUPTED])


def interrupted(bench):
    """Threads that wait in calls which a stop ends for good (signal(7)): each call is made again, and returns what it waits for."""
    need_root()
    program = bench.build("interrupted.c", "-pthread")
    for run in range(RUNS):
        happens = bench.path(f"happens-{run}")
        with Child([program, happens], bench.place) as child:
            wait_for(lambda: waiting(child.pid) == 11, "all threads wait")
            said, status = adopt(bench, child.pid, "64M")
            check(status == 0, said)
            # The calls that were made again, before what they wait for happens.
            wait_for(lambda: waiting(child.pid) == 11, "all threads wait again")
            with open(happens, "w", encoding="ascii"):
                pass
            status = bench.end(child)
            check((status, child.output()) == (0, "0 wrong\n"), f"run {run}: status {status}: {child.output()} {child.last_words()}")
    return ""


def sort(bench):
    """GNU sort, within half of its memory."""
    need_root()
    need("sort")
    numbers = random.Random(5)
    with open(bench.path("lines"), "w", encoding="ascii") as file:
        file.writelines(f"{numbers.randrange(1 << 60):x} {i}\n" for i in range(SORT_LINES))
    argv = ["env", "LC_ALL=C", "sort", "-S", "240M", "--parallel=2", "lines"]
    return same_output(bench, argv, lambda child: anonymous_bytes(child.pid) > 100 * MIB, "128M").rpartition("; ")[2]


def python(bench):
    """CPython with numpy, within half of its memory."""
    need_root()
    if subprocess.run([INTERPRETER, "-c", "import numpy"], capture_output=True, check=False).returncode:
        raise Skipped("no numpy")
    return same_output(bench, [INTERPRETER, "-c", PYTHON], lambda child: "filled" in child.errors(), "128M").rpartition("; ")[2]


def read_status(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return file.read()


HOLDS = """
import mmap, os, sys, time
kind = sys.argv[1]
if kind == "direct":
    file = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT | os.O_DIRECT)
if kind == "device":
    file = os.open("/dev/fuse", os.O_RDWR)
print("ready", flush=True)
time.sleep(600)
"""


def refused_by_files(bench):
    """Programs with files through which their memory is used behind the pager's back; with a filter; 32-bit; traced; of another user; a store too small."""
    need_root()
    for kind, says in (("direct", "O_DIRECT"), ("device", "/dev/fuse"), ("plain", "has")):
        argv = [INTERPRETER, "-c", HOLDS, kind, bench.path("file")]
        if kind == "device" and not os.path.exists("/dev/fuse"):
            continue
        with Child(argv, bench.place) as child:
            wait_for(lambda: child.output() == "ready\n", "the program is ready")
            if kind != "plain":
                said, status = adopt(bench, child.pid, "64M")
                check(status == 125 and says in said and said.count("\n") == 0, f"{kind}: status {status}: {said}")
                check(child.process.poll() is None, f"{kind}: the program has ended")
                continue
            # Another user's; then traced.
            argv = ["setpriv", "--reuid", "1001", "--regid", "1001", "--clear-groups", *bench.command, "adopt", "--memory", "64M", "--store", "/tmp", str(child.pid)]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
            check(done.returncode in (125, 126) and (done.returncode == 126 or "may not" in done.stderr), f"another user: {done.stderr}")
            if shutil.which("strace"):
                with Child(["strace", "-qq", "-o", "/dev/null", "-p", str(child.pid)], bench.place, stdout="strace") as tracer:
                    wait_for(lambda: f"TracerPid:\t{tracer.pid}" in read_status(child.pid), "it is traced")
                    said, status = adopt(bench, child.pid, "64M")
                    check(status == 125 and "traces it" in said, f"traced: status {status}: {said}")
    fills = bench.build("adopted.c", "-pthread")
    if subprocess.run(["gcc", "-m32", "-x", "c", "-", "-o", bench.path("short")], input="#include <unistd.h>\nint main(void) { return sleep(600); }", text=True, capture_output=True, check=False).returncode == 0:
        with Child([bench.path("short")], bench.place) as child:
            said, status = adopt(bench, child.pid, "64M")
            check(status == 125 and "32-bit" in said, f"32-bit: status {status}: {said}")
    small = bench.path("small")
    os.mkdir(small)
    need("mkfs.ext4")
    for words in (["truncate", "-s", "24M", bench.path("disk")], ["mkfs.ext4", "-q", bench.path("disk")], ["mount", "-o", "loop", bench.path("disk"), small]):
        subprocess.run(words, check=True, capture_output=True)
    try:
        with Child([fills, LONG_S, "16"], bench.place) as child:
            wait_for(lambda: anonymous_bytes(child.pid) > 100 * MIB, "the program has begun")
            argv = [*bench.command, "adopt", "--memory", "32M", "--store", small, str(child.pid)]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
            check(done.returncode == 125 and done.stderr.count("\n") == 1 and " free, and " in done.stderr, f"a small store: {done.returncode}: {done.stderr}")
            said = done.stderr.strip()
            check(ended_early(bench, child, 1) == 0 and child.output() == "0 wrong\n", child.last_words())
    finally:
        subprocess.run(["umount", small], check=False)
    return said


def of_a_user(bench):
    """Root adopts the program of an ordinary user, and a program of root that becomes such a user's by an exec: with root's right to page."""
    program = victim(bench)
    os.chmod(bench.place, 0o755)
    os.chmod(bench.store, 0o777)
    argv = ["setpriv", "--reuid", "1001", "--regid", "1001", "--clear-groups", program, LONG_S, "16"]
    with Child(argv, bench.place) as child:
        wait_for(lambda: anonymous_bytes(child.pid) > 100 * MIB, "the program has begun")
        said, status = adopt(bench, child.pid, "64M")
        check(status == 0, said)
        now = anonymous_bytes(child.pid)
        check(now < 64 * MIB + SLACK or child.process.poll() is not None, f"{now >> 20} MiB are in memory")
        status = ended_early(bench, child, 3)
        check(status == 0 and child.output() == "0 wrong\n", f"status {status}: {child.output()} {child.last_words()}")
    go = bench.path("go")
    waits = ["bash", "-c", 'while [ ! -e "$0" ]; do sleep 0.05; done; exec "$@"', go]
    with Child([*waits, *argv], bench.place) as child:
        wait_for(lambda: "Name:\tbash" in read_status(child.pid), "the shell has begun")
        said, status = adopt(bench, child.pid, "64M")
        check(status == 0, said)
        with open(go, "w", encoding="ascii"):
            pass
        status = ended_early(bench, child, 3)
        check((status, child.output()) == (0, "0 wrong\n") and "not paged" not in child.errors(), f"status {status}: {child.output()} {child.last_words()}")
    return ""


def by_a_user(bench):
    """An ordinary user adopts a program of their own, with the device for page faults; where users may not trace, they are refused in one line."""
    need_restricted()
    need("unshare")
    program = victim(bench)
    bench.command = for_everybody(bench)
    user = ["setpriv", "--reuid", "1001", "--regid", "1001", "--clear-groups"]
    lent = f'mount --bind {own_device(bench.place, 1001)} /dev/userfaultfd && exec "$@"'
    scope = "/proc/sys/kernel/yama/ptrace_scope"
    traces = not os.path.exists(scope) or read_first(scope) == "0"
    with Child([*user, program, LONG_S, "16"], bench.place) as child:
        wait_for(lambda: anonymous_bytes(child.pid) > 100 * MIB, "the program has begun")
        said, status = adopt(bench, child.pid, "64M", who=["unshare", "-m", "sh", "-c", lent, "sh", *user])
        if traces:
            check(status == 0 and "guarded" not in said, said)
            now = anonymous_bytes(child.pid)
            check(now < 64 * MIB + SLACK or child.process.poll() is not None, f"{now >> 20} MiB are in memory")
        else:
            check(status == 125 and "ptrace_scope" in said and said.count("\n") == 0, f"status {status}: {said}")
        status = ended_early(bench, child, 3)
        check(status == 0 and child.output() == "0 wrong\n", f"status {status}: {child.output()} {child.last_words()}")
    return said.rpartition(": ")[2]


def refused(bench):
    """What cannot be adopted is refused in one line, with status 125."""
    program = victim(bench)
    with bench.start([program, LONG_S, "16"], "--memory", "64M") as paged:
        wait_for(lambda: anonymous_bytes(paged.pid) > 40 * MIB, "the program has begun")
        for pid, why in ((paged.pid, "paged already.*; it goes on as before$"), (999_999_999, "no such process$"), (2, "kernel's")):
            said, status = adopt(bench, pid, "64M")
            check(status == 125 and re.search(why, said) and said.count("\n") == 0, f"{why}: status {status}: {said}")
        check(ended_early(bench, paged) == 0, paged.last_words())
    with Child(["sleep", "600"], bench.place) as child:
        os.kill(child.pid, signal.SIGSTOP)
        wait_for(lambda: "State:\tT" in read_status(child.pid), "the program has stopped")
        said, status = adopt(bench, child.pid, "64M")
        check(status == 125 and "is stopped" in said, f"stopped: status {status}: {said}")
    return ""


STEPPED = """
import os, pathlib, signal, sys, time
data, seen = bytearray(os.urandom(32 << 20)), []
signal.signal(signal.SIGTRAP, lambda *_: seen.append(1))
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGTRAP)
print(len(data), seen)
"""


def stepped(bench):
    """A program with a handler for SIGTRAP, by which this command's calls in a thread end, still has it."""
    need_root()
    goes_on = bench.path("goes-on")
    with Child([INTERPRETER, "-c", STEPPED, goes_on], bench.place) as child:
        wait_for(lambda: child.output() == "ready\n", "the program has begun")
        said, status = adopt(bench, child.pid, "16M")
        check(status == 0 and handles(child.pid, signal.SIGTRAP), f"status {status}: {said}")
        pathlib.Path(goes_on).touch()
        status = bench.end(child)
        check((status, child.output()) == (0, f"ready\n{32 << 20} [1]\n"), f"status {status}: {child.output()} {child.last_words()}")
    return ""


GROWS = """
import os, sys, time
parts = []
for step in range(80):
    parts.append(bytearray([step]) * (4 << 20))
    time.sleep(0.05)
    while step == 25 and not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
print(sum(part.count(step) for step, part in enumerate(parts)) >> 20)
"""


def cgroup(place):
    """The file of a memory limit of a new cgroup, version 2 or 1."""
    for parent, limit in (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")):
        group = os.path.join(parent, place)
        try:
            os.mkdir(group)
        except OSError:
            continue
        if os.path.exists(f"{group}/{limit}"):
            return f"{group}/{limit}"
        os.rmdir(group)
    raise Skipped("no memory cgroup can be made")


def is_paged(pid):
    """Whether a process has a pager, or the table of a job whose members get one."""
    try:
        return any("memfd:terapage" in link for link in open_files(pid))
    except OSError:
        return False


def members(*groups):
    """The processes of cgroups."""
    return [int(pid) for group in groups for pid in read_first(f"{group}/cgroup.procs").split()]


def in_group(group, *argv):
    """The words that start a program in a cgroup."""
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *argv]


STARTS = """
import signal, subprocess, sys, time
began, ended, over = time.monotonic(), 0, []
signal.signal(signal.SIGUSR1, lambda *_: over.append(True))
while not over and time.monotonic() - began < 200:
    done = [subprocess.Popen([sys.argv[1], "1", "1", "2"], stderr=subprocess.DEVNULL, stdout=subprocess.PIPE) for _ in range(2)]
    ended += sum(one.communicate()[0] == b"0 wrong\\n" and one.returncode == 0 for one in done)
    time.sleep(0.01)
print("all right" if ended >= 2 and ended % 2 == 0 else ended)
"""


def of_a_cgroup(bench):
    """All processes of a cgroup and of one below it are adopted within one budget, and those that appear meanwhile."""
    program = victim(bench)
    # Version 1, then version 2, if the machine has both.
    parents = [path for path in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup", "/sys/fs/cgroup/unified") if os.path.exists(f"{path}/cgroup.procs")]
    for parent in dict.fromkeys((parents[0], parents[-1])):
        group = f"{parent}/terapage-adopt-{os.getpid()}"
        below = f"{group}/below"
        try:
            os.makedirs(below)
        except OSError as why:
            raise Skipped(f"no cgroup can be made: {why}") from None
        try:
            places = [bench.path(name + os.path.basename(parent)) for name in "abc"]
            for place in places:
                os.mkdir(place)
            with (
                Child(in_group(group, program, LONG_S, "16", "5"), places[0]) as one,
                Child(in_group(below, program, LONG_S, "16", "5"), places[1]) as two,
                Child(in_group(group, INTERPRETER, "-c", STARTS, program), places[2]) as starter,
            ):
                wait_for(lambda: anonymous_bytes(one.pid) + anonymous_bytes(two.pid) > 150 * MIB, "the programs have begun")
                said, status = adopt(bench, f"--cgroup={group}", "96M")
                check(status == 0 and said.count("\n") == 0 and " processes of " in said, f"status {status}: {said}")
                for child in (one, two, starter):
                    check(is_paged(child.pid) or child.process.poll() is not None, f"{child.argv} is not paged: {said}")
                now = anonymous_bytes(one.pid) + anonymous_bytes(two.pid)
                check(now < 96 * MIB + 3 * SLACK, f"{parent}: {now >> 20} MiB are in memory")
                # One that was just made has its table soon.
                late = [pid for pid in members(group, below) if is_unpaged(pid)]
                wait_for(lambda: not [pid for pid in late if is_unpaged(pid)], f"{late} are paged: {said}")
                time.sleep(4)
                for child, says in ((one, "0 wrong\n"), (two, "0 wrong\n"), (starter, "all right\n")):
                    status = ended_early(bench, child)
                    check((status, child.output()) == (0, says), f"{parent}: status {status}: {child.output()} {child.last_words()}")
        finally:
            wait_for(lambda: not members(group, below), "the cgroup is empty")
            os.rmdir(below)
            os.rmdir(group)
    return said.rpartition("; ")[2]


def is_unpaged(pid):
    """Whether a process is there, and has no pager."""
    return not is_paged(pid) and os.path.exists(f"/proc/{pid}/exe")


VFORK = 58
"""The number of the call."""


def in_vfork(pid):
    """Whether a thread of a process is inside vfork."""
    return any(text.startswith(f"{VFORK} ") for text in of_threads(pid, "syscall"))


def urgent(pid):
    """The threads and the children of a process that go before others: while it is adopted, they do."""
    found = []
    for number in [*os.listdir(f"/proc/{pid}/task"), *" ".join(of_threads(pid, "children")).split()]:
        with contextlib.suppress(OSError):
            found += [number] if os.sched_getscheduler(int(number)) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR else []
    return found


def inside_vfork(bench):
    """A program one of whose threads is inside vfork when it is adopted, by its number or in a cgroup: that waits for the child. No thread or child is more urgent afterwards."""
    need_root()
    program = bench.build("vfork_waits.c", "-pthread")
    limit = cgroup(f"terapage-adopt-{os.getpid()}")
    group = os.path.dirname(limit)
    try:
        for thread in "01":
            for target in ("", f"--cgroup={group}"):
                with Child(in_group(group, program, LONG_S, "60", "300", thread), bench.place) as child:
                    wait_for(lambda: anonymous_bytes(child.pid) > 50 * MIB and in_vfork(child.pid), "it is inside vfork")
                    said, status = adopt(bench, target or child.pid, "32M")
                    check(status == 0 and is_paged(child.pid), f"thread {thread} {target}: status {status}: {said}")
                    check(not urgent(child.pid), f"thread {thread} {target}: urgent: {urgent(child.pid)}")
                    status = ended_early(bench, child, 3)
                    check((status, child.output()) == (0, "0 wrong\n"), f"thread {thread} {target}: status {status}: {child.output()} {child.last_words()}")
    finally:
        wait_for(lambda: not members(group), "the cgroup is empty")
        os.rmdir(group)
    return said.rpartition("; ")[2]


def refused_cgroups(bench):
    """What is no cgroup, and all of the machine; a cgroup of which one process cannot be adopted: the others are."""
    program = victim(bench)
    limit = cgroup(f"terapage-adopt-{os.getpid()}")
    group = os.path.dirname(limit)
    try:
        for path, why in ((bench.place, "is not a cgroup"), (os.path.dirname(group), "all processes"), (f"{group}/none", "No such file"), (group, "no process")):
            said, status = adopt(bench, f"--cgroup={path}", "64M")
            check(status == 125 and why in said and said.count("\n") == 0, f"{path}: status {status}: {said}")
        with Child(in_group(group, program, LONG_S, "16"), bench.place) as child, Child(in_group(group, "sleep", "600"), bench.place, stdout="sleep") as sleep:
            wait_for(lambda: anonymous_bytes(child.pid) > 100 * MIB, "the program has begun")
            os.kill(sleep.pid, signal.SIGSTOP)
            wait_for(lambda: "State:\tT" in read_status(sleep.pid), "the other has stopped")
            said, status = adopt(bench, f"--cgroup={group}", "64M")
            check(status == 125 and f"process {sleep.pid} is not adopted: it is stopped" in said and "1 process of" in said, f"status {status}: {said}")
            check(is_paged(child.pid) and not is_paged(sleep.pid), said)
            status = ended_early(bench, child, 3)
            check((status, child.output()) == (0, "0 wrong\n"), f"status {status}: {child.output()} {child.last_words()}")
    finally:
        wait_for(lambda: not members(group), "the cgroup is empty")
        os.rmdir(group)
    return ""


def saved(bench):
    """A cgroup's limit would end a program that grows; adopted before, with a budget or with one that follows the free memory, it goes on."""
    need_root()
    need("python3")
    limit = cgroup(f"terapage-adopt-{os.getpid()}")
    group = os.path.dirname(limit)
    try:
        with open(limit, "w", encoding="ascii") as file:
            file.write(str(200 * MIB))

        def run(memory):
            goes_on = bench.path(f"goes-on-{memory}")
            with Child(in_group(group, "python3", "-c", GROWS, goes_on), bench.place) as child:
                wait_for(lambda: anonymous_bytes(child.pid) > 40 * MIB, "the program has begun")
                if memory:
                    said, status = adopt(bench, child.pid, memory)
                    check(status == 0, said)
                pathlib.Path(goes_on).touch()
                return child.wait(TIMEOUT_S), child.output()

        status, output = run(None)
        check(status == -9, f"natively it was not ended: status {status}: {output}")
        for memory in ("64M", "auto"):
            status, output = run(memory)
            check((status, output) == (0, "320\n"), f"{memory}: status {status}: {output}")
    finally:
        wait_for(lambda: not read_first(f"{group}/cgroup.procs"), "the cgroup is empty")
        os.rmdir(group)
    return ""


HOLDS_MUCH = """
import os, sys
data = bytearray(os.urandom(4 << 20)) * 96
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    pass
os.execvp("sleep", ["sleep", "600"])
"""
GREEDY = 'bytearray(b"x") * (300 << 20)'


def ends_meanwhile(bench):
    """A program that ends while its memory is taken over, by a signal or by the limit of its cgroup: one line says how, with status 125. One that executes another program meanwhile has not ended."""
    need_root()
    limit, done = cgroup(f"terapage-adopt-{os.getpid()}"), []
    group = os.path.dirname(limit)
    try:
        with open(limit, "w", encoding="ascii") as file:
            file.write(str(600 * MIB))
        for kind, says in (("signal", ": SIGKILL"), ("memory", "because memory ran out"), ("executes", "executed another program")):
            tries = (ended_meanwhile(bench, group, kind, says) for _ in range(20 * RUNS))
            done.append(sum(tries) if RUNS > 1 else next(filter(None, tries), 0))
            check(done[-1], f"{kind}: all of the memory was taken over before each time")
    finally:
        wait_for(lambda: not members(group), "the cgroup is empty")
        os.rmdir(group)
    return f"{done} in time"


def ended_meanwhile(bench, group, kind, says):
    """Stops a program while it is being adopted, and lets it end then. Returns whether not all was taken over before."""
    file = bench.path("executes")
    with contextlib.suppress(OSError):
        os.remove(file)
    with Child(in_group(group, INTERPRETER, "-c", HOLDS_MUCH, file), bench.place) as child:
        wait_for(lambda: child.output() == "ready\n", "the program has begun")
        with open(f"/proc/{child.pid}/oom_score_adj", "w", encoding="ascii") as first:
            first.write("1000")
        words = [*bench.command, "adopt", "--memory", "64M", "--store", bench.store, str(child.pid)]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as command:
            wait_for(lambda: command.poll() is not None or is_paged(child.pid) and "TracerPid:\t0" in read_status(child.pid), "its memory is taken over")
            os.kill(child.pid, signal.SIGSTOP)
            wait_for(lambda: "State:\tT" in read_status(child.pid), "the program has stopped")
            if kind == "executes":
                pathlib.Path(file).touch()
                os.kill(child.pid, signal.SIGCONT)
            elif kind == "memory":
                subprocess.run(in_group(group, INTERPRETER, "-c", GREEDY), capture_output=True, timeout=300, check=False)
            else:
                os.kill(child.pid, signal.SIGKILL)
            # It may have been too late.
            os.kill(child.pid, signal.SIGCONT)
            said, status = command.communicate(timeout=300)[1].strip(), command.returncode
    if " taken over in " in said:
        check(status == 0, f"status {status}: {said}")
        return False
    wanted = (125, "has ended") if kind != "executes" else (0, "is paged")
    check((status, said.count("\n")) == (wanted[0], 0) and wanted[1] in said and says in said, f"{kind}: status {status}: {said}")
    return True


BODIES = {
    "adopt": at_random,
    "adopt-moments": at_moments,
    "adopt-undone": undone,
    "adopt-interrupted": interrupted,
    "adopt-stepped": stepped,
    "adopt-sort": sort,
    "adopt-python": python,
    "adopt-refused": refused,
    "adopt-refused-files": refused_by_files,
    "adopt-user": of_a_user,
    "adopt-own-user": by_a_user,
    "adopt-cgroup": of_a_cgroup,
    "adopt-cgroup-refused": refused_cgroups,
    "adopt-vfork": inside_vfork,
    "adopt-ends-meanwhile": ends_meanwhile,
    "adopt-saved": saved,
}
