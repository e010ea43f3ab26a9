"""Ordinary users adopt their programs without any right: in guarded mode."""

import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess

import adopt
from bench import SOURCES, for_everybody, of_threads, open_files, read_first
from harness import Child, Skipped, anonymous_bytes, check, need, need_restricted, wait_for
from release import counters, release

MIB = 1 << 20
SAID = "without rights: system calls are guarded"
USER = ["setpriv", "--reuid", "1001", "--regid", "1001", "--clear-groups"]
COMPILERS = {"dynamic": ["gcc"], "static": ["gcc", "-static"], "musl": ["musl-gcc", "-static"]}


def need_user(bench):
    """Skips where users may handle page faults, or may not trace their programs."""
    need_restricted()
    scope = "/proc/sys/kernel/yama/ptrace_scope"
    if os.path.exists(scope) and read_first(scope) != "0":
        raise Skipped("users may not trace their programs here (kernel.yama.ptrace_scope)")
    bench.command = for_everybody(bench)
    os.chmod(bench.place, 0o777)


def adopted(bench, child, memory, may_end=False):
    """The user adopts a program, which is said in one line and a second."""
    said, status = adopt.adopt(bench, child.pid, memory, who=USER)
    check(status == 0 or may_end and said.endswith(adopt.ENDED), f"status {status}: {said}; {child.last_words()}")
    check(SAID in said and "no_new_privs" in said and said.count("\n") == 1, said)
    return said


def field(pid, name):
    """A number in the status of a process; None once it has ended."""
    with contextlib.suppress(OSError):
        return int(re.search(rf"^{name}:\s*(\d+)", adopt.read_status(pid), re.MULTILINE)[1])
    return None


def is_within(child, memory_mib):
    """Expects that a program is within its budget."""
    now = anonymous_bytes(child.pid)
    check(now < memory_mib * MIB + adopt.SLACK, f"{now >> 20} MiB are in memory")


def at_random(bench):
    """10 threads that check each word, allocate, map, fork, wait, start programs and threads, and have a handler on a stack of its own: adopted at random moments, dynamic and static, and then released."""
    need_user(bench)
    seed = int(os.environ.get("TERAPAGE_SEED", random.randrange(1000000)))
    print(f"seed {seed}", flush=True)
    moments = random.Random(seed)
    for run in range(2 * adopt.RUNS):
        program = bench.build("adopted.c", "-pthread", *(["-static"] if run % 2 else []))
        with Child([*USER, program, adopt.LONG_S, "12", "10"], bench.place) as child:
            wait_for(lambda: anonymous_bytes(child.pid) > moments.uniform(30, 100) * MIB, "the program has begun")
            adopted(bench, child, "64M")
            is_within(child, 64)
            now = counters(bench, child.pid)
            check(now["guarded"] == 1 and field(child.pid, "NoNewPrivs") == 1 and field(child.pid, "Seccomp") == 2, f"run {run}: {now}")
            wait_for(lambda: (counters(bench, child.pid) or {"page_in_bytes": MIB})["page_in_bytes"] > 0, "it pages in")
            if run // 2 % 2 == 0:
                said, status = release(bench, child.pid, USER)
                check(status == 0 and "no longer paged" in said and said.count("\n") == 0, f"run {run}: status {status}: {said}")
                check(counters(bench, child.pid)["released"] == 1, f"run {run}")
            status = adopt.ended_early(bench, child, 4)
            check((status, child.output()) == (0, "0 wrong\n"), f"run {run}: status {status}: {child.output()} {child.last_words()}")
    return ""


IN_CALLS = (0, 1, 7, 19, 23, 43, 45, 47, 202, 219, 232, 270, 281)
"""The numbers of read, write, poll, readv, select, accept, recvfrom, recvmsg, futex, restart_syscall, epoll_wait, pselect6 and epoll_pwait."""


def waiting(pid):
    """The number of a process's threads that are in such a call."""
    calls = [text.split(" ")[0] for text in of_threads(pid, "syscall")]
    return len([call for call in calls if call.isdigit() and int(call) in IN_CALLS])


def waits(bench):
    """Threads that are inside calls, with limits and without, when the program is adopted, and later in such calls with their memory out: the bytes are right. Dynamic, static, and with musl."""
    need_user(bench)
    source = os.path.join(SOURCES, "adopted_waits.c")
    done = []
    for kind, compiler in COMPILERS.items():
        if not shutil.which(compiler[0]):
            continue
        program = bench.path(kind)
        subprocess.run([*compiler, "-O2", "-pthread", "-o", program, source], check=True, capture_output=True, timeout=300)
        for run in range(adopt.RUNS):
            happens = bench.path(f"happens-{kind}-{run}")
            with Child([*USER, program, happens], bench.place) as child:
                wait_for(lambda: child.output() == "ready\n" and waiting(child.pid) >= 12, "all threads wait")
                # Some calls then go on by restart_syscall, which says nothing of their memory.
                said, status = adopt.adopt(bench, child.pid, "20M", {"TERAPAGE_ADOPT_FAULT": "1"}, USER)
                check(status == 125 and "goes on as before" in said, f"status {status}: {said}")
                wait_for(lambda: waiting(child.pid) >= 12, "all threads wait again")
                adopted(bench, child, "20M")
                is_within(child, 20)
                wait_for(lambda: waiting(child.pid) >= 12, "all threads wait again")
                wait_for(lambda: counters(bench, child.pid)["page_in_bytes"] > 64 * MIB, "it pages in")
                pathlib.Path(happens).touch()
                status = bench.end(child)
                check((status, child.output()) == (0, "ready\n0 wrong\n"), f"{kind}, run {run}: status {status}: {child.output()} {child.last_words()}")
        done.append(kind)
    return ", ".join(done)


def stacks(bench):
    """Threads on stacks of threads that had ended before, and a child on a stack in a large mapping: with calls and signals deep there. Dynamic, static, and with musl."""
    need_user(bench)
    done = []
    for kind, compiler in COMPILERS.items():
        if not shutil.which(compiler[0]):
            continue
        program = bench.path(f"stacks-{kind}")
        words = [*compiler, "-O2", "-pthread", "-o", program, os.path.join(SOURCES, "adopted_stacks.c")]
        subprocess.run(words, check=True, capture_output=True, timeout=300)
        for run in range(adopt.RUNS):
            goes_on = bench.path(f"goes-on-{kind}-{run}")
            with Child([*USER, program, goes_on], bench.place) as child:
                wait_for(lambda: child.output() == "ready\n", "the program has begun")
                adopted(bench, child, "16M")
                pathlib.Path(goes_on).touch()
                status = bench.end(child)
                check((status, child.output()) == (0, "ready\n0 wrong\n"), f"{kind}, run {run}: status {status}: {child.output()} {child.last_words()}")
        done.append(kind)
    return ", ".join(done)


def aside(bench):
    """A thread handles a signal on another stack than its usual one, whose place is not known then: it is refused until the handler has ended, and then gets signals deep on its usual stack."""
    need_user(bench)
    program = bench.build("adopted_aside.c", "-pthread")
    for run in range(adopt.RUNS):
        ends, goes_on = bench.path(f"ends-{run}"), bench.path(f"goes-on-{run}")
        with Child([*USER, program, ends, goes_on], bench.place) as child:
            wait_for(lambda: child.output() == "ready\n", "it handles a signal")
            said, status = adopt.adopt(bench, child.pid, "16M", who=USER)
            check(status == 125 and "try again" in said and said.count("\n") == 0, f"status {status}: {said}")
            pathlib.Path(ends).touch()
            wait_for(lambda: child.output() == "ready\nover\n", "the handler has ended")
            adopted(bench, child, "16M")
            is_within(child, 16)
            pathlib.Path(goes_on).touch()
            status = bench.end(child)
            check(status == 0, f"run {run}: status {status}: {child.last_words()}")
    return ""


def calls(bench):
    """Calls of all kinds whose memory is out give what they give on memory that is never paged."""
    need_user(bench)
    for flags in ((), ("-static",)):
        program = bench.build("guarded.c", "-pthread", *flags)
        with Child([*USER, program, "64", "4000", "7"], bench.place) as child:
            wait_for(lambda: anonymous_bytes(child.pid) > 60 * MIB, "the program has begun")
            adopted(bench, child, "24M")
            status = bench.end(child)
            check(status == 0 and " 0 differences, 0 failures" in child.output(), f"{flags}: status {status}: {child.output()}{child.last_words()}")
    return child.output().strip()


def same_output(bench, argv, memory, began, went_on=None):
    """Runs a program natively, and adopted by its user once it has begun: the output is the same."""
    with Child([*USER, *argv], bench.place, stdout="native") as child:
        if went_on:
            pathlib.Path(went_on).touch()
        check(child.wait(600) == 0, f"natively: {child.last_words()}")
        native = child.output()
    if went_on:
        os.remove(went_on)
    with Child([*USER, *argv], bench.place) as child:
        wait_for(lambda: began(child) or child.process.poll() is not None, "the program has begun")
        adopted(bench, child, memory, may_end=not went_on)
        if went_on:
            pathlib.Path(went_on).touch()
        status = bench.end(child)
        check(status == 0 and child.output() == native, f"status {status}, or other output: {child.output()[:200]} {child.last_words()}")
    return f"{len(native)} bytes"


def sort(bench):
    """GNU sort, within half of its memory."""
    need_user(bench)
    need("sort")
    numbers = random.Random(5)
    with open(bench.path("lines"), "w", encoding="ascii") as file:
        file.writelines(f"{numbers.randrange(1 << 60):x} {i}\n" for i in range(adopt.SORT_LINES))
    argv = ["env", "LC_ALL=C", "sort", "-S", "240M", "--parallel=2", "lines"]
    return same_output(bench, argv, "128M", lambda child: anonymous_bytes(child.pid) > 100 * MIB)


PYTHON = """
import faulthandler, hashlib, os, random, subprocess, sys, threading, time
faulthandler.enable()
numbers = random.Random(3)
parts = [bytearray(numbers.randbytes(1 << 20)) for _ in range(96)]
texts = {i: str(i) * 3 for i in range(100000)}
print("filled", file=sys.stderr, flush=True)
while not os.path.exists(sys.argv[1]):
    parts[numbers.randrange(96)][5] ^= 0
def each(first, digests):
    for index in range(first, len(parts), 2):
        name = f"file-{os.getpid()}-{first}"
        with open(name, "wb", buffering=0) as file:
            file.write(parts[index])
        with open(name, "rb", buffering=0) as file:
            back = bytearray(1 << 20)
            assert file.readinto(back) == 1 << 20
        parts[index] = back
        digests.append(hashlib.sha256(back).hexdigest())
        os.remove(name)
digests = [[], []]
threads = [threading.Thread(target=each, args=(first, digests[first])) for first in (0, 1)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
done = [subprocess.run([sys.executable, "-c", "import sys; print(len(sys.stdin.read()))"], input="x" * 300000, text=True, capture_output=True).stdout for _ in range(3)]
child = os.fork()
if child == 0:
    os._exit(sum(part[7] for part in parts) % 100)
print(digests, done, os.waitpid(child, 0)[1], sum(len(text) for text in texts.values()))
"""


def python(bench):
    """CPython: byte arrays that are written to files and read back by two threads, dictionaries, children by exec and fork."""
    need_user(bench)
    went_on = bench.path("goes-on")
    return same_output(bench, [adopt.INTERPRETER, "-c", PYTHON, went_on], "64M", lambda child: "filled" in child.errors(), went_on)


def numpy(bench):
    """CPython with numpy, within half of its memory."""
    need_user(bench)
    if subprocess.run([adopt.INTERPRETER, "-c", "import numpy"], capture_output=True, check=False).returncode:
        raise Skipped("no numpy")
    return same_output(bench, [adopt.INTERPRETER, "-c", adopt.PYTHON], "128M", lambda child: "filled" in child.errors())


def go(bench):
    """A Go program: goroutines on stacks in its heap, signals, children."""
    need_user(bench)
    need("go")
    program = bench.path("go")
    subprocess.run(["go", "build", "-o", program, os.path.join(SOURCES, "hosted.go")], check=True, capture_output=True, timeout=300)
    return same_output(bench, [program, "1500000"], "64M", lambda child: anonymous_bytes(child.pid) > 80 * MIB)


EXECUTES = """
import os, subprocess, sys, time
data = bytearray(os.urandom(48 << 20))
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    data[::4096] = data[::4096]
print(subprocess.run(sys.argv[2:], capture_output=True, text=True).stdout, end="")
os.execv(sys.argv[2], sys.argv[2:])
"""


def of_parent(parent):
    """The processes that a process has started."""
    return [int(child) for text in of_threads(parent, "children") for child in text.split()]


def executed(bench):
    """What an adopted program executes is paged in guarded mode, too: a child, and then the process itself."""
    need_user(bench)
    goes_on, program = bench.path("goes-on"), bench.build("adopted.c", "-pthread")
    with Child([*USER, adopt.INTERPRETER, "-c", EXECUTES, goes_on, program, adopt.LONG_S, "12"], bench.place) as child:
        wait_for(lambda: child.output() == "ready\n", "the program has begun")
        adopted(bench, child, "64M")
        pathlib.Path(goes_on).touch()

        def grown(pid):
            now = counters(bench, pid)
            return now and now["guarded"] == 1 and now["page_out_bytes"] > 16 * MIB and adopt.handles(pid, signal.SIGUSR1)

        (first,) = wait_for(lambda: [pid for pid in of_parent(child.pid) if grown(pid)], "the child is paged")
        os.kill(first, signal.SIGUSR1)
        wait_for(lambda: not of_parent(child.pid) and grown(child.pid), "the executed program is paged")
        status = adopt.ended_early(bench, child, 2)
        check((status, child.output()) == (0, "ready\n0 wrong\n0 wrong\n"), f"status {status}: {child.output()} {child.last_words()}")
    return ""


def undone(bench):
    """Each step fails once, and a program with a thread on a stack in its heap is refused: it goes on as before, with its mappings and descriptors, and without a filter."""
    need_user(bench)
    program = bench.build("adopted.c", "-pthread")

    def is_as_before(child, where):
        with open(f"/proc/{child.pid}/maps", encoding="ascii") as maps:
            text = maps.read()
            check("/terapage-host" not in text and not re.search("^(3ffffff00000|4000000[0-9a-f]{5})-", text, re.MULTILINE), f"{where}: {text}")
        links = [link for link in open_files(child.pid) if "memfd:terapage" in link or "userfaultfd" in link]
        check(not links and field(child.pid, "Seccomp") == 0 and field(child.pid, "NoNewPrivs") == 0, f"{where}: {links} {adopt.read_status(child.pid)}")

    with Child([*USER, program, adopt.LONG_S, "4"], bench.place) as child:
        wait_for(lambda: anonymous_bytes(child.pid) > 30 * MIB, "the program has begun")
        for fault in range(60):
            said, status = adopt.adopt(bench, child.pid, "64M", {"TERAPAGE_ADOPT_FAULT": str(fault)}, USER)
            if status == 0:
                break
            check(status == 125 and "goes on as before" in said and said.count("\n") == 0, f"fault {fault}: status {status}: {said}")
            is_as_before(child, f"fault {fault}")
        check(fault > 5, f"only {fault} steps failed")
        status = adopt.ended_early(bench, child, 2)
        check((status, child.output()) == (0, "0 wrong\n"), f"status {status}: {child.output()} {child.last_words()}")
    with Child([*USER, bench.build("heap_stack.c")], bench.place, stdout="stack") as child:
        wait_for(lambda: child.output() == "ready\n", "the program has begun")
        said, status = adopt.adopt(bench, child.pid, "64M", who=USER)
        check(status == 125 and "stack in its heap" in said and said.count("\n") == 0, f"status {status}: {said}")
        is_as_before(child, "a stack in the heap")
        os.kill(child.pid, signal.SIGUSR1)
        check(bench.end(child) == 0, child.last_words())
    return f"{fault} steps"


BODIES = {
    "adopt-guarded": at_random,
    "adopt-guarded-waits": waits,
    "adopt-guarded-stacks": stacks,
    "adopt-guarded-aside": aside,
    "adopt-guarded-calls": calls,
    "adopt-guarded-sort": sort,
    "adopt-guarded-python": python,
    "adopt-guarded-numpy": numpy,
    "adopt-guarded-go": go,
    "adopt-guarded-executed": executed,
    "adopt-guarded-undone": undone,
}
