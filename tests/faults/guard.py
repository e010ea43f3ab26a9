"""Programs that are adopted before the kernel would end them: `terapage guard`."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time

from adopt import LONG_S, ended_early, is_paged, read_status
from bench import for_everybody, mounted, open_files, read_first
from elastic import PATIENCE_S, group
from harness import Child, anonymous_bytes, check, need, need_restricted, need_root, wait_for
from oci import own_device

MIB = 1 << 20
LIMIT_MIB = 200
# Threads of two processes that take 40 MiB each second, 352 MiB in all, and count them then.
GROWS = """
import os, sys, threading, time
def grow(number, parts):
    for step in range(44):
        parts.append(bytearray([step + number]) * (2 << 20))
        time.sleep(0.2)
def count(of):
    parts = [[] for _ in range(of)]
    threads = [threading.Thread(target=grow, args=(number, parts[number])) for number in range(of)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return sum(part.count(step + number) for number in range(of) for step, part in enumerate(parts[number])) >> 20
child = os.fork() if sys.argv[1] == "two" else 0
here = count(2 if sys.argv[1] == "two" else 4)
if sys.argv[1] == "two":
    if not child:
        os._exit(here)
    here += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(here)
"""
GROWN = "352\n"


@contextlib.contextmanager
def guard(bench, *options, who=(), before=()):
    """`terapage guard`, by the command `who`, that ends by Ctrl-C, whatever it has adopted."""
    words = [*before, *who, *bench.command, "guard", "--store", bench.store, *options]
    with Child(words, bench.place, stdout="guard") as child:
        wait_for(lambda: "watches" in child.errors() or child.process.poll() is not None, "the guard watches")
        check(child.process.poll() is None, f"the guard has ended: {child.last_words()}")
        yield child
        check(child.process.poll() is None, f"the guard has ended: {child.last_words()}")
        os.kill(child.pid, signal.SIGINT)
        check(child.wait(PATIENCE_S) == -signal.SIGINT, f"the guard: {child.last_words()}")


def adopted(child, which):
    """The lines that say that a process of this number, or processes of this name, were adopted."""
    return [line for line in lines_of(child) if " is adopted: " in line and re.search(rf"\b{which}\b", line)]


def whole_lines(text):
    """The lines of a text that grows: the last one may not be whole yet."""
    return text.rpartition("\n")[0].splitlines()


def lines_of(child):
    """What a guard has said."""
    return whole_lines(child.errors())


def python(bench):
    """A copy of the interpreter that no other program is called like."""
    need_root()
    need("python3")
    path = bench.path(f"grows{os.getpid()}")
    shutil.copy(os.path.realpath(shutil.which("python3", path="/usr/bin") or shutil.which("python3")), path)
    return path, os.path.basename(path)[:15]


def saved(bench):
    """Programs that the limit of a cgroup ends natively, with four threads, and with two processes of two threads
    each: guarded, they end with the right output."""
    program, name = python(bench)
    for kind in ("one", "two"):
        words = [program, "-c", GROWS, kind]
        with group(LIMIT_MIB) as box:
            with Child(box.enter(words), bench.place) as child:
                status = child.wait(PATIENCE_S)
                check(box.kills() > 0 and (status, child.output()) != (0, GROWN), f"natively nothing was killed: status {status}: {child.output()}")
        with group(LIMIT_MIB) as box, guard(bench, "--allow", name) as watcher:
            with Child(box.enter(words), bench.place) as child:
                status = bench.end(child)
                check((status, child.output()) == (0, GROWN), f"{kind}: status {status}: {child.output()} {child.last_words()}: {watcher.errors()}")
            check(box.kills() == 0, f"{kind}: {box.kills()} kills")
            said = adopted(watcher, name)
            check(1 <= len(said) <= (1 if kind == "one" else 2) and "of the cgroup's 200 MiB are free" in said[0], f"{kind}: {watcher.errors()}")
    return said[0].partition(": ")[2]


def left_alone(bench):
    """A larger program that is not on the list is left alone, and so is one of the list outside of the guarded cgroup; what is adopted, and has a handler on a stack of its own, goes on without the guard."""
    need_root()
    program = bench.build("adopted.c", "-pthread")
    listed, other = (bench.path(f"{kind}{os.getpid()}") for kind in ("listed", "other"))
    for path in (listed, other):
        shutil.copy(program, path)
    for place in "abc":
        os.mkdir(bench.path(place))
    name = os.path.basename(listed)
    with group(1024) as box:
        with (
            Child(box.enter([other, LONG_S, "50", "3"]), bench.path("a")) as larger,
            Child([listed, LONG_S, "50", "3"], bench.path("b")) as outside,
            Child(box.enter([listed, LONG_S, "12", "10"]), bench.path("c")) as child,
        ):
            # So much is never free in the cgroup.
            with guard(bench, "--allow", "list*", "--free", "90", "--cgroup", box.path, "--memory", "64M") as watcher:
                wait_for(lambda: adopted(watcher, name), "a program is adopted")
                lines = lines_of(watcher)
            paged = [(is_paged(one.pid), one.process.poll()) for one in (child, larger, outside)]
            check(paged == [(True, None), (False, None), (False, None)], f"paged: {paged}, {open_files(child.pid)}: {lines}")
            check(len(lines) == 2 and f"process {child.pid} " in lines[1], f"{lines}")
            for one in (larger, outside, child):
                status = ended_early(bench, one, 1)
                check((status, one.output()) == (0, "0 wrong\n"), f"status {status}: {one.output()} {one.last_words()}")
        check(not os.listdir(bench.store), f"files stay behind: {os.listdir(bench.store)}")
    return ""


def again(bench):
    """A program that cannot be adopted is refused with the reason, and tried again less and less often: then it is adopted. The next one is tried at once."""
    need_root()
    program = bench.build("adopted.c", "-pthread")
    for place in "ab":
        os.mkdir(bench.path(place))
    with group(1024) as box:
        with Child(box.enter([program, LONG_S, "60", "2"]), bench.path("a")) as stopped, Child(box.enter([program, LONG_S, "40", "2"]), bench.path("b")) as second:
            wait_for(lambda: anonymous_bytes(stopped.pid) > 100 * MIB and anonymous_bytes(second.pid) > 70 * MIB, "the programs have begun")
            os.kill(stopped.pid, signal.SIGSTOP)
            wait_for(lambda: "State:\tT" in read_status(stopped.pid), "the program has stopped")
            words = [*bench.command, "guard", "--store", bench.store, "--allow", "adopted", "--free", "90", "--cgroup", box.path, "--json", "--memory", "48M"]
            with Child(words, bench.place, stdout="guard") as watcher:

                def events(kind, child):
                    lines = map(json.loads, whole_lines(watcher.output()))
                    return [one for one in lines if one["event"] == kind and one["pid"] == child.pid]

                wait_for(lambda: len(events("refused", stopped)) > 1, "the program is refused twice")
                check("VmLck:\t       0 kB" not in read_status(watcher.pid), "the guard does not stay in memory")
                first, *others = events("refused", stopped)
                check("is stopped" in first["why"] and (first["again_s"], others[0]["again_s"]) == (2, 4) and first["name"] == "adopted", f"{first} {others}")
                (other,) = wait_for(lambda: events("adopted", second), "the second is adopted")
                check(other["short"] == "cgroup" and other["limit_bytes"] == 1024 * MIB and other["private_bytes"] > 70 * MIB and other["stopped_ms"] > 0, f"{other}")
                os.kill(stopped.pid, signal.SIGCONT)
                wait_for(lambda: events("adopted", stopped), "the first is adopted")
                os.kill(watcher.pid, signal.SIGTERM)
                check(watcher.wait(PATIENCE_S) == -signal.SIGTERM and not watcher.errors(), f"the guard: {watcher.last_words()}")
            for one in (stopped, second):
                status = ended_early(bench, one, 1)
                check((status, one.output()) == (0, "0 wrong\n"), f"status {status}: {one.output()} {one.last_words()}")
        check(not os.listdir(bench.store), f"files stay behind: {os.listdir(bench.store)}")
    return ""


WAITS = """
import threading, time
kept = bytearray(range(256)) * (100 << 12)
threads = [threading.Thread(target=time.sleep, args=(600,)) for _ in range(50)]
for thread in threads: thread.start()
print("ready", flush=True)
"""


@contextlib.contextmanager
def urgent():
    """This process runs before those that take turns, where that is allowed."""

    def ask(policy, priority):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, policy, os.sched_param(priority))

    ask(os.SCHED_FIFO, 1)
    try:
        yield
    finally:
        ask(os.SCHED_OTHER, 0)


def killed(bench):
    """A program that is killed while it is being adopted ends for its parent at once, and the guard goes on."""
    program, name = python(bench)
    caught = 0
    with group(1024) as box, guard(bench, "--allow", name, "--free", "90", "--cgroup", box.path) as watcher:
        for run in range(20):
            with Child(box.enter([program, "-c", WAITS]), bench.place) as child:
                end = time.monotonic() + PATIENCE_S
                with urgent():
                    while (status := read_status(child.pid)).find("TracerPid:\t0") > 0 and not adopted(watcher, f"{child.pid}"):
                        check(child.process.poll() is None, f"run {run}: the program has ended: {child.last_words()}")
                        check(time.monotonic() < end, f"run {run}: the guard does nothing: {watcher.errors()}")
                        time.sleep(0.0002)
                    os.kill(child.pid, signal.SIGKILL)
                caught += "TracerPid:\t0" not in status
                check(child.wait(PATIENCE_S) == -signal.SIGKILL, f"run {run}: {child.last_words()}: {watcher.errors()}")
            if caught == 3:
                break
    check(caught > 0, f"no program was killed while it was being adopted: {watcher.errors()}")
    check(not os.listdir(bench.store), f"files stay behind: {os.listdir(bench.store)}")
    return f"{caught} of {run + 1} in time"


def no_room(bench):
    """A budget that follows the memory may shrink: a program is refused if the store has no room for all of its memory."""
    need_root()
    need("mkfs.ext4")
    program = bench.build("adopted.c", "-pthread")
    disk, bench.store = bench.path("disk"), bench.path("small")
    os.mkdir(bench.store)
    for words in (["truncate", "-s", "40M", disk], ["mkfs.ext4", "-q", disk]):
        subprocess.run(words, check=True, capture_output=True)
    with mounted(bench.store, "-o", "loop", disk), group(1024) as box, Child(box.enter([program, LONG_S, "40", "3"]), bench.place) as child:
        with guard(bench, "--allow", "adopted", "--free", "90", "--cgroup", box.path) as watcher:
            said = wait_for(lambda: lines_of(watcher)[1:], "the guard has tried")[0]
        check(f"process {child.pid} (adopted) is not adopted: --store: " in said and " would leave for it" in said, said)
        status = ended_early(bench, child, 1)
        check((status, child.output()) == (0, "0 wrong\n") and not adopted(watcher, "adopted"), f"status {status}: {child.output()} {child.last_words()}")
    return ""


def refused(bench):
    """What cannot be guarded is said in one line, with status 125."""
    with group(64) as box:
        for options, why in (
            ([], "--allow: "),
            (["--allow", "sort", "--free", "0"], "--free"),
            (["--allow", "sort", "--free", "91"], "--free"),
            (["--allow", "sort", "--free", "much"], "--free"),
            (["--allow"], "--allow"),
            (["--allow", "sort", "--cgroup", bench.place], "is not a cgroup"),
            (["--allow", "sort", "--cgroup", os.path.join(box.path, "none")], "No such file"),
            (["--allow", "sort", "--store", "/no/such/place"], "/no/such/place"),
            (["--allow", "sort", "--store", "far:host:1"], "--store"),
            (["--allow", "sort", "--memory", "1K"], "--memory"),
        ):
            done = subprocess.run([*bench.command, "guard", *options], capture_output=True, text=True, timeout=300, check=False)
            check(done.returncode == 125 and done.stderr.count("\n") == 1 and why in done.stderr and not done.stdout, f"{options}: status {done.returncode}: {done.stderr}")
    return ""


def of_a_user(bench):
    """An ordinary user guards programs of their own with the device for page faults, and never another user's; without it they are told so, in one line."""
    need_restricted()
    need("unshare")
    program = bench.build("adopted.c", "-pthread")
    bench.command = for_everybody(bench)
    user = ["setpriv", "--reuid", "1001", "--regid", "1001", "--clear-groups"]
    done = subprocess.run([*user, *bench.command, "guard", "--store", bench.store, "--allow", "adopted"], capture_output=True, text=True, timeout=300, check=False)
    check(done.returncode == 125 and "page faults" in done.stderr and done.stderr.count("\n") == 1, f"without the right: status {done.returncode}: {done.stderr}")
    lent = f'mount --bind {own_device(bench.place, 1001)} /dev/userfaultfd && exec "$@"'
    scope = "/proc/sys/kernel/yama/ptrace_scope"
    traces = not os.path.exists(scope) or read_first(scope) == "0"
    for place in "ab":
        os.mkdir(bench.path(place))
    with group(1024) as box:
        with Child(box.enter([program, LONG_S, "50", "3"]), bench.path("a")) as other, Child(box.enter([*user, program, LONG_S, "40", "3"]), bench.path("b")) as child:
            with guard(bench, "--allow", "adopted", "--free", "90", "--cgroup", box.path, "--memory", "64M", who=user, before=["unshare", "-m", "sh", "-c", lent, "sh"]) as watcher:
                said = wait_for(lambda: lines_of(watcher)[1:], "the guard has tried")[0]
            check(f"process {child.pid} " in said and ("is adopted" if traces else "ptrace_scope") in said, said)
            check(is_paged(child.pid) == traces and not is_paged(other.pid), said)
            for one in (other, child):
                status = ended_early(bench, one, 1)
                check((status, one.output()) == (0, "0 wrong\n"), f"status {status}: {one.output()} {one.last_words()}")
        check(not os.listdir(bench.store), f"files stay behind: {os.listdir(bench.store)}")
    return said.rpartition("; ")[2]


BODIES = {
    "guard-saved": saved,
    "guard-left-alone": left_alone,
    "guard-again": again,
    "guard-killed": killed,
    "guard-no-room": no_room,
    "guard-refused": refused,
    "guard-user": of_a_user,
}
