"""Programs of `terapage run` that are given back while they run: `terapage release`."""

import concurrent.futures
import json
import os
import re
import shutil
import signal
import sys
import time

import adopt
from bench import C_HEADERS, for_everybody
from harness import NOBODY, Failed, Skipped, anonymous_bytes, check, need_restricted, wait_for
from mapped import prepared
from release import FORKS, STARTS, check_released, counters, interrupted, lowered, release, start_of

MIB = 1 << 20
RUNS = int(os.environ.get("TERAPAGE_RUNS", "1"))
# The sizes are such that most of it is paged out.
BUDGET = ("--memory", "64M")
TAKES = ("14", "10")


COPIED = ("--block", "16K", "--verbose")
"""Of these options, the run copies blocks, as before Linux 6.8."""


def victim(bench, *flags):
    """The program that is released. Its threads check each word, allocate, map, fork and wait."""
    return bench.build("adopted.c", "-pthread", *flags)


def has_begun(bench, child):
    """Whether it has a pager, and much to page."""
    now = counters(bench, child.pid)
    return child.process.poll() is not None or now is not None and now["page_out_bytes"] > 20 * MIB


def check_done(outcome, where):
    said, status = outcome
    check(status == 0 and "no longer paged" in said and said.count("\n") == 0, f"{where}: status {status}: {said}")


def released_once(bench, moments, program, options, where):
    """Starts a program that checks its words, and releases it at a random moment. Returns what it has said of itself."""
    stats, env = bench.path("stats"), {"TERAPAGE_MECHANISM": "copy"} if options == COPIED else None
    with bench.start([program, adopt.LONG_S, *TAKES], *BUDGET, "--summary", "--stats", stats, *options, env=env) as child:
        wait_for(lambda: has_begun(bench, child), f"{where}: it is paged")
        time.sleep(moments.uniform(0, 2))
        check_done(release(bench, child.pid), where)
        check_released(bench, child, where)
        ended = counters(bench, child.pid)
        wait_for(lambda: anonymous_bytes(child.pid) > 120 * MIB or child.process.poll() is not None, f"{where}: all is in memory")
        status = adopt.ended_early(bench, child, 2)
        check(status == 0 and child.output() == "0 wrong\n", f"{where}: status {status}: {child.output()} {child.last_words()}")
        said = child.errors()
    with open(stats, encoding="utf-8") as file:
        at_the_end = json.load(file)
    os.remove(stats)
    same = ("released", "major_faults", "page_in_bytes", "page_out_bytes", "resident_peak_bytes")
    check([at_the_end[name] for name in same] == [ended[name] for name in same], f"{where}: --stats: {at_the_end}, before: {ended}")
    check(at_the_end["page_in_bytes"] > 0, f"{where}: nothing was paged in: {at_the_end}")
    check(re.search(r"summary: .* paged( without rights)?; peak", said), f"{where}: {said}")
    check("does not hold" not in said and "did not hold" not in said, f"{where}: {said}")
    return said


def at_random(bench):
    """10 threads that check each word, allocate, map, fork and wait: released at random moments, plain, encrypted, compressed, in large blocks, copied; the counters of the pager stay until the end."""
    moments, program = start_of(bench), victim(bench)
    kinds = ((), ("--encrypt",), ("--compress", "zstd"), ("--block", "64K"), ("--per-process",), COPIED)
    for run in range(max(RUNS, len(kinds))):
        released_once(bench, moments, program, kinds[run % len(kinds)], f"run {run}, {kinds[run % len(kinds)]}")
    return ""


def static(bench):
    """The same of a static program, which a host pages."""
    moments, program = start_of(bench), victim(bench, "-static")
    for run in range(RUNS):
        released_once(bench, moments, program, (), f"run {run}")
    return ""


def guarded(bench):
    """The same of a user without rights, whose calls are guarded: they pass."""
    need_restricted()
    moments, program = start_of(bench), victim(bench)
    bench.command = [*NOBODY, *for_everybody(bench)]
    os.chmod(bench.place, 0o777)
    for run in range(RUNS):
        said = released_once(bench, moments, program, ("--require",), f"run {run}")
        check("paged without rights" in said, f"it was not guarded: {said}")
    return ""


def alike(bench):
    """GNU sort and CPython are released at random moments: the output is the same."""
    moments, programs = start_of(bench), adopt.kinds(bench)
    for kind in ("sort", "python"):
        if kind not in programs:
            continue
        argv, memory = programs[kind]
        native, seconds = adopt.natively(bench, kind, argv)
        for run in range(RUNS):
            where = f"{kind}, run {run}"
            with bench.start(argv, "--memory", memory) as child:
                wait_for(lambda: child.process.poll() is not None or counters(bench, child.pid), "it is paged")
                time.sleep(moments.uniform(0, 0.6 * seconds))
                said, status = release(bench, child.pid)
                ended = "has ended" in said or "no process" in said or "is not paged" in said
                check(status == 0 or ended and child.wait(600) == 0, f"{where}: status {status}: {said}")
                print(f"{where}: {said.rpartition(': ')[2]}", flush=True)
                status = bench.end(child)
                check(status == 0 and child.output() == native, f"{where}: status {status}: {child.output()[:300]} {child.last_words()}")
    return ""


WALKS = {"mapping_walk.c": ["4000"], "heap_walk.c": ["500"], "object_walk.c": ["300"], "direct_walk.c": ["1000"]}


def walks(bench):
    """Random calls about memory by several threads, against models, which fork meanwhile: no call gives anything else because of a release at a random moment, nor after it. TERAPAGE_KINDS names the sources."""
    moments, done = start_of(bench), 0
    for source in os.environ.get("TERAPAGE_KINDS", " ".join(WALKS)).split():
        program = bench.build(source, "-pthread", "-fno-builtin")
        for run in range(RUNS):
            with bench.start([program, *WALKS[source]], "--memory", "8M") as child:
                wait_for(lambda: child.process.poll() is not None or counters(bench, child.pid), "it is paged")
                time.sleep(moments.uniform(0, 1))
                said, status = release(bench, child.pid)
                ended = "has ended" in said or "no process" in said or "is not paged" in said
                check(status == 0 or ended, f"{source}, run {run}: status {status}: {said}")
                done += status == 0
                status = bench.end(child)
                check(status == 0, f"{source}, run {run}: status {status}: {child.output()[-300:]} {child.last_words()}")
    check(done, "all had ended before their release")
    return f"{done} releases"


def children(bench):
    """Children of a released program, and programs that it starts, are not paged, and have nothing of Terapage's."""
    words = ["busybox"] if shutil.which("busybox") else []
    os.mkfifo(bench.path("fifo"))
    with open(bench.path("fifo"), "r+b", buffering=0) as pipe:
        with bench.start([adopt.INTERPRETER, "-c", STARTS, *words], *BUDGET, stdin=bench.path("fifo")) as child:
            wait_for(lambda: "filled" in child.output(), "the program has begun")
            check_done(release(bench, child.pid), "released")
            check_released(bench, child, "released")
            pipe.write(b"\n")
            status = bench.end(child)
            expected = f"filled\nchild True unpaged\nFalse False\nhello\n0\n0\n{250 << 20}\n"
            check(status == 0 and child.output() == expected, f"status {status}: {child.output()} {child.last_words()}")
    return ""


def with_a_child(bench):
    """A child that was forked before stays paged, keeps its bytes, and gets the whole budget; then it is released, too."""
    os.mkfifo(bench.path("fifo"))
    with open(bench.path("fifo"), "r+b", buffering=0) as pipe:
        with bench.start([adopt.INTERPRETER, "-c", FORKS], *BUDGET, stdin=bench.path("fifo")) as child:
            wait_for(lambda: "filled" in child.output(), "the program has begun")
            pipe.write(b"\n")
            forked = int(wait_for(lambda: child.output().split()[1:], "it has forked")[0])
            wait_for(lambda: counters(bench, forked)["pid"] == forked, "the child has a pager")
            check_done(release(bench, child.pid), "the program")
            check_released(bench, child, "the program")
            wait_for(lambda: counters(bench, forked)["lease_bytes"] > 60 * MIB, "the child has the budget")
            check(anonymous_bytes(forked) < 64 * MIB + adopt.SLACK, f"{anonymous_bytes(forked) >> 20} MiB of the child are in memory")
            check_done(release(bench, forked), "the child")
            check(counters(bench, forked)["released"] == 1, "the child says nothing of it")
            pipe.write(b"\n")
            status = bench.end(child)
            expected = ["filled", str(forked), "True", "True", "0"]
            check(status == 0 and child.output().split() == expected, f"status {status}: {child.output()} {child.last_words()}")
    return ""


def cancelled(bench):
    """Ctrl-C at random moments: the program stays paged, within its budget, and whole, and is released by the next release."""
    moments, undone, program = start_of(bench), 0, victim(bench)
    for run in range(20):
        with bench.start([program, adopt.LONG_S, "24"], *BUDGET) as child:
            wait_for(lambda: has_begun(bench, child), "it is paged")
            for _ in range(4 * RUNS):
                said, status = interrupted(bench, child, moments)
                if status == 0:
                    break
                check(said.count("\n") == 0 and (status < 0 or "paged as before" in said), f"run {run}: status {status}: {said}")
                undone += "paged as before" in said
                wait_for(lambda: anonymous_bytes(child.pid) < 64 * MIB + adopt.SLACK, "it is within its budget again")
            else:
                check_done(release(bench, child.pid), "at last")
            check_released(bench, child, "at last")
            status = adopt.ended_early(bench, child)
            check(status == 0 and child.output() == "0 wrong\n", f"status {status}: {child.output()} {child.last_words()}")
        # The first release may have been too fast for Ctrl-C.
        if undone:
            return f"{undone} undone"
    raise Failed("no release was undone")


def ends_meanwhile(bench):
    """Programs that end, or are killed, during their release: the command says so, and nothing stays behind."""
    moments, program = start_of(bench), victim(bench)
    for run in range(3 * RUNS):
        with bench.start([program, adopt.LONG_S, "24"], *BUDGET, "--summary") as child:
            wait_for(lambda: has_begun(bench, child), "it is paged")
            check_ending(bench, child, moments, f"run {run}", is_killed=run % 3 == 0)
    return ""


def check_ending(bench, child, moments, where, is_killed):
    """Lets a program end at a random moment of its release."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        command = pool.submit(release, bench, child.pid)
        time.sleep(moments.uniform(0, 0.6))
        child.process.send_signal(signal.SIGKILL if is_killed else signal.SIGUSR1)
        said, status = command.result()
    ended = "has ended" in said or "no process" in said or "is not paged" in said
    check(status == 0 or status == 125 and ended, f"{where}: status {status}: {said}")
    end = bench.end(child)
    if not is_killed:
        check(end == 0 and child.output() == "0 wrong\n", f"{where}: status {end}: {child.output()} {child.last_words()}")


BREAK = """
#include <stdio.h>
#include <string.h>
#include <unistd.h>
enum { FIRST = 120 << 20, MORE = 16 << 20 };
static char text[4];
int main(void) {
    unsigned char *first = sbrk(FIRST);
    for (long i = 0; i < FIRST; i += 4096)
        memset(first + i, i >> 12 & 255, 4096);
    puts("filled");
    fflush(stdout);
    read(0, text, 1);
    unsigned char *more = sbrk(MORE);
    long wrong = more != first + FIRST;
    memset(more, 9, MORE);
    for (long i = 0; i < FIRST; i++)
        wrong += first[i] != (i >> 12 & 255);
    wrong += sbrk(-MORE) != more + MORE || sbrk(0) != more || sbrk(MORE) != more;
    for (long i = 0; i < MORE; i++)
        wrong += more[i] != 0;
    printf("%ld wrong\\n", wrong);
    return wrong != 0;
}
"""


def with_a_break(bench):
    """The break of a released program stays where it is, and grows and shrinks there; also of a static program."""
    with open(bench.path("break.c"), "w", encoding="ascii") as file:
        file.write(BREAK)
    for flags in ((), ("-static",)):
        program = bench.build(bench.path("break.c"), *flags)
        fifo = bench.path(f"fifo{''.join(flags)}")
        os.mkfifo(fifo)
        with open(fifo, "r+b", buffering=0) as pipe, bench.start([program], *BUDGET, stdin=fifo) as child:
            wait_for(lambda: "filled" in child.output(), "the program has begun")
            check_done(release(bench, child.pid), f"{flags}")
            check_released(bench, child, f"{flags}")
            pipe.write(b"\n")
            status = bench.end(child)
            check(status == 0 and child.output() == "filled\n0 wrong\n", f"{flags}: status {status}: {child.output()} {child.last_words()}")
    return ""


def check_refused(outcome, why):
    said, status = outcome
    check(status == 125 and why in said and said.count("\n") == 0, f"{why}: status {status}: {said}")


COPY = """
#include <stdio.h>
#include <terapage.h>
#include <unistd.h>
enum { BYTES = 100 << 20 };
static char text[4];
int main(void) {
    unsigned char *place = tera_malloc(BYTES);
    if (!place) {
        fprintf(stderr, "%s\\n", tera_error());
        return 2;
    }
    for (long i = 0; i < BYTES; i += 4096)
        place[i] = i >> 12;
    puts("filled");
    fflush(stdout);
    read(0, text, 1);
    for (long i = 0; i < BYTES; i += 4096)
        if (place[i] != (i >> 12 & 255))
            return 1;
    return 0;
}
"""


def copy_refused(bench):
    """A program that uses Terapage's library, and so the pager of the run, is not released, says why in one line, and goes on."""
    library = os.path.join(os.path.dirname(os.path.realpath(bench.command[0])), "libterapage.a")
    if not os.path.exists(library):
        raise Skipped("libterapage.a was not built")
    with open(bench.path("copy.c"), "w", encoding="ascii") as file:
        file.write(COPY)
    program = bench.build(bench.path("copy.c"), "-I", C_HEADERS, libraries=(library, "-lpthread", "-ldl", "-lm"))
    os.mkfifo(bench.path("fifo"))
    with open(bench.path("fifo"), "r+b", buffering=0) as pipe, bench.start([program], *BUDGET, stdin=bench.path("fifo")) as child:
        wait_for(lambda: "filled" in child.output() or child.process.poll() is not None, "the program has begun")
        for _ in range(2):
            check_refused(release(bench, child.pid), "libterapage")
        now = counters(bench, child.pid)
        check(now["released"] == 0 and now["resident_bytes"] > 0, f"it is not paged any more: {now}")
        pipe.write(b"\n")
        status = bench.end(child)
        check(status == 0, f"status {status}: {child.last_words()}")
    return ""


def files_refused(bench):
    """A program whose mapped files are paged is not released, says why in one line, and goes on."""
    program, file = prepared(bench)
    with bench.start([program, "calls", file, "7", "400"], "--memory", "32M", "--files") as child:
        wait_for(lambda: child.process.poll() is not None or (counters(bench, child.pid) or {}).get("mapped_file_bytes"), "files are paged")
        check_refused(release(bench, child.pid), "--files")
        now = counters(bench, child.pid)
        check(now["released"] == 0 and now["resident_bytes"] > 0, f"it is not paged any more: {now}")
        child.process.terminate()
        bench.end(child)
    return ""


CHANGED_CHILD = """
import mmap, os, sys, time
view = mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), 0, access=mmap.ACCESS_COPY)
for at in range(0, len(view), 4096):
    view[at] = 7
child = os.fork()
if child:
    print(child, flush=True)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
sys.stdin.readline()
# The kernel gives such a page the contents of the file again.
view.madvise(mmap.MADV_DONTNEED, 0, 4096)
sys.exit(0 if view[0] == 1 and all(view[at] == 7 for at in range(4096, len(view), 4096)) else 1)
"""


def changed_child_refused(bench):
    """The child of a program that has changed a private mapping of a paged file: it is not released, and its mapping stays what it is."""
    with open(bench.path("file"), "wb") as file:
        file.write(b"\1" * (64 * MIB))
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    os.mkfifo(bench.path("fifo"))
    run = [os.path.realpath(sys.executable), "-c", CHANGED_CHILD, bench.path("file")]
    with open(bench.path("fifo"), "r+b", buffering=0) as pipe, bench.start(run, "--memory", "32M", "--files", stdin=bench.path("fifo")) as child:
        wait_for(lambda: child.output().endswith("\n") or child.process.poll() is not None, "it has forked")
        check(counters(bench, child.pid)["mapped_file_bytes"] > 0, "the file is not paged")
        inner = int(child.output())
        wait_for(lambda: counters(bench, inner) is not None, "the child is paged")
        check_refused(release(bench, inner), "--files")
        pipe.write(b"\n")
        status = bench.end(child)
        check(status == 0, f"status {status}: {child.last_words()}")
    return ""


def no_room(bench):
    """Without room in a cgroup, nothing is done; with room, the program is released, and has left the budget that it shared."""
    program = victim(bench)
    limit = adopt.cgroup(f"terapage-release-{os.getpid()}")
    group = os.path.dirname(limit)
    try:
        with open(limit, "w", encoding="ascii") as file:
            file.write(str(260 * MIB))
        command = bench.command
        bench.command = [*adopt.in_group(group), *command]
        with bench.start([program, adopt.LONG_S, "20"], "--memory", "48M") as child:
            bench.command = command
            wait_for(lambda: has_begun(bench, child), "it is paged")
            wait_for(lambda: counters(bench, child.pid)["store_bytes"] > 100 * MIB, "it is large")
            wait_for(lambda: lowered(limit, 140 * MIB), "the limit is lowered")
            check_refused(release(bench, child.pid), "its cgroup has only")
            check(counters(bench, child.pid)["released"] == 0, "it was released")
            with open(limit, "w", encoding="ascii") as file:
                file.write(str(500 * MIB))
            check_done(release(bench, child.pid), "with room")
            now = counters(bench, child.pid)
            check((now["job"], now["job_processes"], now["lease_bytes"]) == (0, 0, 0), f"it is still in the job: {now}")
            status = adopt.ended_early(bench, child)
            check(status == 0 and child.output() == "0 wrong\n", f"status {status}: {child.output()} {child.last_words()}")
    finally:
        wait_for(lambda: not adopt.members(group), "the cgroup is empty")
        os.rmdir(group)
    return ""


BODIES = {
    "release-run": at_random,
    "release-run-static": static,
    "release-run-guarded": guarded,
    "release-run-alike": alike,
    "release-run-walks": walks,
    "release-run-children": children,
    "release-run-child": with_a_child,
    "release-run-cancelled": cancelled,
    "release-run-ends": ends_meanwhile,
    "release-run-break": with_a_break,
    "release-run-files": files_refused,
    "release-run-files-child": changed_child_refused,
    "release-run-library": copy_refused,
    "release-run-room": no_room,
}
