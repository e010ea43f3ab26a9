"""Ends: signals, faults of the program's own, dumps, processes that are killed."""

import glob
import itertools
import json
import os
import re
import resource
import signal

from harness import Skipped, check, wait_for
from bench import TIMEOUT_S


def killed_by(number):
    """A body that sends a signal to a paged program, and expects the shell to see it."""

    def body(bench):
        victim = bench.build("victim.c")
        ready = bench.path("ready")
        with bench.start([victim, "96", ready], "--memory", "48M", shell=True) as child:
            wait_for(lambda: os.path.exists(ready) or child.process.poll() is not None, "the program is ready", TIMEOUT_S)
            check(os.path.exists(ready), f"the program ended early: {child.last_words()}")
            with open(ready, encoding="ascii") as file:
                os.kill(int(file.read()), number)
            status = bench.end(child)
        check(status == 128 + number, f"status {status}, not {128 + number}: {child.last_words()}")
        return f"status {status}"

    return body


def own_fault(bench):
    """A null pointer in a paged program is the program's fault, and stays SIGSEGV."""
    victim = bench.build("victim.c")
    with bench.start([victim, "96", "segv"], "--memory", "48M", shell=True) as child:
        status = bench.end(child)
    check(status == 128 + signal.SIGSEGV, f"status {status}: {child.last_words()}")
    return f"status {status}"


def wrong_free(bench):
    """An address that is not an allocation, or no longer one, is the program's fault: it is stopped before that does harm."""
    program = bench.build("wrong_free.c", "-w")
    for fault in ("twice", "inside", "resize"):
        for size in ("24", "200", "1024"):
            bench.refused("--memory", "32M", says="did not return, or that is already free", status=125, program=(program, fault, size))
    return "9 refused"


def not_paged(bench):
    """Memory that is not paged and exceeds the promise is reported at the end; less is not."""
    program = bench.build("executable.c")
    for mib, says in ((96, r"^terapage: executable: (9[6-9]|10[0-9]) MiB of its memory at most were not paged, .*\(32 MiB\): .* executable"), (20, r"^$")):
        with bench.start([program, str(mib)], "--memory", "32M") as child:
            status = bench.end(child)
            errors = child.errors().strip()
            check(status == 0, f"status {status}: {errors!r}")
            check(re.search(says, errors) and "\n" not in errors, f"{mib} MiB: {errors!r}")
    victim = bench.build("victim.c")
    with bench.start([victim, "96", "once"], "--memory", "32M", "--heap", "off") as child:
        bench.end(child)
        check("(--heap off)" in child.errors(), f"nothing about the setting that leaves it out: {child.last_words()}")
    return "said at 96 MiB, not at 20"


def ended_by_itself(bench):
    """In whatever way C ends a program: the status is the program's, and counters, summary and the line about unpaged memory come."""
    program, stats = bench.build("ending.c"), bench.path("stats")
    for how in ("return", "exit", "_exit", "_Exit", "quick_exit"):
        for heap, says in (("all", "terapage: summary: "), ("off", r"\(--heap off\)")):
            with bench.start([program, how, "80"], "--memory", "32M", "--heap", heap, "--stats", stats, "--summary") as child:
                status, said = bench.end(child), child.errors()
            check(status == 3 and re.search(says, said), f"{how}, {heap}: status {status}: {said!r}")
            with open(stats, encoding="utf-8") as file:
                counters = json.load(file)
            check((counters["page_out_bytes"] > 0) == (heap == "all"), f"{how}, {heap}: {counters}")
            os.remove(stats)
    return ""


def ended_by_two(bench):
    """Two threads end a program, or a forked child, at the same moment, also a static one: the counters are complete."""
    stats = bench.path("stats")
    for flags, words in itertools.product(((), ("-static",)), ((), ("fork",))):
        program = bench.build("ending.c", "-pthread", *flags)
        for turns in range(0, 2_000_000, 200_000 if words else 100_000):
            with bench.start([program, str(turns), "40", *words], "--memory", "24M", "--stats", stats) as child:
                status = bench.end(child)
            check(status == 3, f"{flags}, {words}, {turns}: status {status}: {child.last_words()}")
            files = glob.glob(f"{stats}*")
            check(len(files) == 1 + len(words), f"{flags}, {words}, {turns}: {files}")
            for path in files:
                with open(path, encoding="utf-8") as file:
                    check(json.load(file)["page_out_bytes"] > 0, f"{flags}, {words}, {turns}: {path}")
                os.remove(path)
    return "40 ends, and 20 of children"


def ended_by_signals(bench):
    """Counters and the summary are written if SIGTERM or SIGINT ends the program, and the program does not notice."""
    stats = bench.path("stats")
    sleeps = "import sys, time; a = bytearray(64 << 20); print('there', flush=True); time.sleep(60)"
    for number, shown in ((signal.SIGTERM, ""), (signal.SIGINT, "KeyboardInterrupt")):
        with bench.start(["/usr/bin/python3", "-c", sleeps], "--memory", "32M", "--stats", stats, "--summary") as child:
            wait_for(lambda: "there" in child.output(), "the program")
            os.kill(child.pid, number)
            status, said = bench.end(child), child.errors()
        check(status == -number and "terapage: summary: " in said and shown in said, f"{number}: status {status}: {said}")
        with open(stats, encoding="utf-8") as file:
            check(json.load(file)["page_out_bytes"] > 0, f"{number}: the counters")
        os.remove(stats)
    # As the program sees it: nobody handles the signal, and what it sets is what it gets.
    asks = "import signal, sys; sys.exit(signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL or signal.signal(signal.SIGHUP, signal.SIG_IGN) != signal.SIG_DFL)"
    with bench.start(["/usr/bin/python3", "-c", asks], "--memory", "32M", "--summary") as child:
        check(bench.end(child) == 0, f"the program sees a handler: {child.errors()}")
    # Each worker has a part: the first waits for the second.
    pool = "import multiprocessing as m\ndef begin(b): global both; both = b\n" \
        "def w(k):\n    big = list(range(k, k + 1_000_000)); both.wait(); return len(big)\n" \
        "if __name__ == '__main__':\n    c = m.get_context('spawn')\n" \
        "    with c.Pool(2, begin, (c.Barrier(2),)) as p: print(sum(p.map(w, range(2), 1)))\n"
    with open(bench.path("pool.py"), "w", encoding="ascii") as file:
        file.write(pool)
    with bench.start(["/usr/bin/python3", bench.path("pool.py")], "--memory", "80M", "--summary") as child:
        status, said = bench.end(child), child.errors()
    found = re.search(r"summary: [\d.]+ s, (\d+) processes, (\d+) paged", said)
    # The program, and the workers, which the pool ends by SIGTERM.
    check(status == 0 and found and int(found[1]) >= 3 and int(found[2]) >= 2, f"a pool: status {status}: {said}")
    return ""


def core_dump(bench):
    """A core dump of a program that was never paged is as small as without Terapage, and complete."""
    program = bench.build("plain.c")
    with open("/proc/sys/kernel/core_pattern", encoding="utf-8") as file:
        pattern = file.read().strip()
    if pattern != "core":
        raise Skipped(f"core dumps go elsewhere: {pattern}")
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, before[1]))
    try:
        with bench.start([program, "abort"], "--memory", "1G") as child:
            status = bench.end(child)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
    check(status == -signal.SIGABRT, f"status {status}: {child.errors()!r}")
    size = os.path.getsize(bench.path("core"))
    check(size < 200 << 20, f"{size >> 20} MiB")
    with open(bench.path("core"), "rb") as file:
        check(b"in the core" in file.read(), "the heap is not in it")
    return f"{size >> 20} MiB"
