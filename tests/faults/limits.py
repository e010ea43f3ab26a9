"""Limits of the machine and of the process, and memory beside the budget."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

from harness import Child, Skipped, check, need, need_root, wait_for
from bench import TIMEOUT_S, goes_on, holders


def limits(bench):
    """Limits of the shell: one line that names the limit."""
    victim = bench.build("victim.c")
    for limit, says in (("-n 7", "ulimit -n"), ("-f 1000", "ulimit -f")):
        status, line = within_limit(bench, limit, [victim, "96", "once"])
        check(status not in (0, 9) and line is not None and says in line, f"{limit}: status {status}: {line!r}")
    return ""


def within_limit(bench, limit, program, *before):
    """Runs a paged program under a limit of the shell: its status, and Terapage's line if that is all it says."""
    argv = [*bench.command, "run", "--memory", "32M", "--store", bench.store, "--", *program]
    with Child([*before, "sh", "-c", f'ulimit {limit} || exit 3; "$@"; exit $?', "sh", *argv], bench.place) as child:
        status = bench.end(child)
        lines = [line for line in child.errors().splitlines() if line.startswith("terapage:")]
        return status, lines[0] if len(lines) == 1 else None


def limits_on_addresses(bench):
    """A hard limit that is too low names a limit that suffices, and that one does; a soft limit has no effect."""
    need("setpriv")
    # A process with CAP_SYS_RESOURCE can raise its limits, so it must run without.
    weak = ("setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource") if os.geteuid() == 0 else ()
    victim = [bench.build("victim.c"), "48", "once"]
    for flag in ("-v", "-d"):
        status, line = within_limit(bench, f"{flag} 150000", victim, *weak)
        named = re.search(rf"`ulimit {flag} (\d+)`", line or "")
        check(status == 125 and named, f"{flag}: status {status}: {line!r}")
        for limit in (f"{flag} {named.group(1)}", f"-S {flag} 400000"):
            status, line = within_limit(bench, limit, victim, *weak)
            check((status, line) == (0, None), f"{limit}: status {status}: {line!r}")
    return ""


def short_of(*words, root=False):
    """A body that expects the test program to succeed with a small number of some resource."""

    def body(bench):
        if root:
            need_root()
            os.chmod(bench.place, 0o755)
            os.chmod(bench.store, 0o777)
        goes_on(bench, [bench.build("short.c"), *words], "--memory", "16M")
        return ""

    return body


def short_of_file_size(bench):
    """The store fits the limit on the size of files, though a step by which it grows does not: the signal for that (SIGXFSZ) does not reach the program."""
    need("prlimit")
    victim = bench.build("victim.c")
    limit = ("prlimit", f"--fsize={110 << 20}")
    goes_on(bench, [victim, "48", "once"], "--memory", "32M", "--store-size", "100M", before=limit)
    return ""


def beside(bench):
    """Memory beside the budget is reported even if it is gone at the end: the most that there was, and its kind. Shared memory is also reported while it exists."""
    program, stats = bench.build("beside.c"), bench.path("stats")
    soon = r"terapage: beside: {} MiB are in memory beside the budget of 32 MiB, not paged \({} MiB shared memory\): --memory does not hold .*\n"
    last = r"terapage: beside: {} MiB of its memory at most were not paged, so --memory did not hold \(32 MiB\): {} MiB {}.*\n"
    amount = "(9[0-9]|10[0-9])"
    shared = (soon + last).format(amount, amount, amount, amount, "shared memory")
    for kind, says in (("shared", shared), ("code", f"({soon.split(', not')[0].format(amount)}.*\n)?" + last.format(amount, amount, "executable"))):
        with bench.start([program, kind, "96"], "--memory", "32M", "--stats", stats) as child:
            status, errors = bench.end(child), child.errors()
        check(status == 0 and re.fullmatch(says, errors), f"{kind}: status {status}: {errors!r}")
        with open(stats, encoding="utf-8") as file:
            counters = json.load(file)
        peak, of_it = counters["untracked_peak_bytes"] >> 20, counters["shared_peak_bytes"] >> 20
        check(90 <= peak < 110 and counters["untracked_bytes"] < 16 << 20, f"{kind}: at most {peak} MiB, {counters['untracked_bytes']} at the end")
        check(of_it >= 96 if kind == "shared" else of_it < 8, f"{kind}: {of_it} MiB were shared")
    with bench.start([program, "protected", "96"], "--memory", "32M") as child:
        status, errors = bench.end(child), child.errors()
    check(status == 0 and "MiB executable, protected, stacks" in errors, f"protected: status {status}: {errors!r}")
    file = bench.path("file")
    pathlib.Path(file).touch()
    with bench.start([program, "copies", "96", file], "--memory", "32M") as child:
        status, errors = bench.end(child), child.errors()
    check(status == 0 and re.search(r"\d+ MiB written pages of files that are mapped private.*\(--enforce limits", errors), f"copies: status {status}: {errors!r}")
    check("--static all" not in errors, f"no host pages it: {errors!r}")
    return ""


def beside_briefly(bench):
    """A program of less than a second, whose memory beside the budget is gone at its end: line and summary have the amount, and the flag that pages it."""
    if os.uname().machine != "x86_64":
        raise Skipped("the call past the library is written for x86-64")
    program = bench.build("beside.c")
    argv = [program, "direct", "48"]
    with bench.start(argv, "--memory", "16M", "--summary") as child:
        status, errors = bench.end(child), child.errors()
    amount = re.search(r"of all together, (\d+) MiB untracked|MiB, (\d+) MiB untracked", errors)
    check(status == 0 and amount and 44 <= int(amount[1] or amount[2]) < 60, f"status {status}: {errors!r}")
    check("(try --static all" in errors, f"the flag is not named: {errors!r}")
    with bench.start(argv, "--memory", "16M", "--static", "all", "--summary") as child:
        status, errors = bench.end(child), child.errors()
    check(status == 0 and "beside" not in errors.replace("beside.c", ""), f"--static all: status {status}: {errors!r}")
    return f"{amount[0]}"


def beside_seen(bench):
    """`stat` and `top` show the memory beside the budget of a paged process; a file that has become its standard error gets no line."""
    program, ready = bench.build("beside.c"), bench.path("ready")

    def shown(*words):
        done = subprocess.run([*bench.command, *words], capture_output=True, text=True, timeout=300, check=False)
        return done.stdout

    with bench.start([program, "both", "80", ready], "--memory", "32M") as child:
        wait_for(lambda: os.path.exists(ready) or child.process.poll() is not None, "the program is ready", TIMEOUT_S)
        with open(ready, encoding="ascii") as file:
            process = file.read().strip()
        wait_for(lambda: json.loads(shown("stat", process, "--json") or "{}").get("shared_bytes", 0) >= 80 << 20, "the look", TIMEOUT_S)
        table, top = shown("stat", process), shown("top", process)
        os.kill(int(process), signal.SIGTERM)
        bench.end(child)
        errors = child.errors()
    check(re.search(r"^untracked memory +8[0-9](\.\d)? MiB, of which 80(\.\d)? MiB shared \(at most", table, re.M), table)
    check(re.search(r"RESIDENT +UNTRACKED", top) and re.search(r" 8[0-9](\.\d)? MiB", top), top)
    check(errors.count("\n") == 1 and re.search("^terapage: beside: .*80 MiB shared memory", errors), f"{errors!r}")
    return ""


def cages():
    """The existing cgroups and notes of `--enforce`."""
    found = set()
    for place in ("/sys/fs/cgroup", "/run/terapage"):
        for directory, names, files in os.walk(place):
            found.update(os.path.join(directory, name) for name in (*names, *files) if name.startswith("terapage-run-"))
    return found


def name_of(pid):
    """The name of a process; nothing once it has ended."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def enforced(bench):
    """--enforce: a job that needs more than its limit is killed, and a line says so; other jobs end normally; nothing remains."""
    need_root()
    program, victim, before = bench.build("beside.c"), bench.build("victim.c"), cages()

    def ends(words, *options, shell=True):
        with bench.start(words, "--memory", "32M", *options, shell=shell) as child:
            status = bench.end(child)
            # The cleaner, of another session, writes its line before it removes the cgroup.
            wait_for(lambda: cages() <= before, "the cgroup to be gone", TIMEOUT_S)
            errors = child.errors()
        if "no memory cgroup can be made" in errors:
            raise Skipped(errors.strip())
        return status, errors

    status, errors = ends([program, "hog", "300"], "--enforce")
    says = r"terapage: --enforce: the run needed more than 96\.3 MiB, and the kernel killed 1 of its processes .*--enforce=SIZE\)"
    check(status == 137 and re.search(says, errors), f"a hog: status {status}: {errors!r}")
    status, errors = ends(["sh", "-c", '"$0" hog 300; exit 7', program], "--enforce")
    check(status == 7 and re.search(says, errors), f"a hog in a shell: status {status}: {errors!r}")
    status, errors = ends([victim, "96", "once"], "--enforce")
    check(status == 0 and not errors, f"a paged program: status {status}: {errors!r}")
    status, errors = ends([program, "hog", "64"], "--enforce=200M")
    check(status == 0 and "--enforce" not in errors.replace("(--enforce limits", ""), f"within its limit: status {status}: {errors!r}")
    status, errors = ends(["sh", "-c", "kill -9 $$"], "--enforce")
    check(status == 137 and "terapage" not in errors, f"killed: status {status}: {errors!r}")
    bench.refused("--memory", "32M", "--enforce=16M", says="enforce: 16 MiB is less than --memory", status=125)
    bench.refused("--memory", "32M", "--enforce=much", says="enforce: 'much' is not a size", status=125)
    return ""


def enforced_orphan(bench):
    """The cgroup of a run whose cleaner was killed is removed by the next run; the cgroup of a running one remains."""
    need_root()
    before = cages()
    with bench.start(["sleep", "60"], "--memory", "32M", "--enforce") as child:
        wait_for(lambda: child.process.poll() is not None or len(cages() - before) == 2, "the cgroup", TIMEOUT_S)
        if child.process.poll() is not None:
            raise Skipped(child.last_words())
        made = cages() - before
        cgroup = next(path for path in made if os.path.isdir(path))
        # `terapage run` holds the note before its cleaner does, and until it has become `sleep`.
        wait_for(lambda: [name_of(pid) for pid in holders(made - {cgroup})] == ["terapage-clean"], "the cleaner alone to hold the note", TIMEOUT_S)
        os.kill(holders(made - {cgroup})[0], signal.SIGKILL)
        other = [*bench.command, "run", "--store", bench.store, "--memory", "32M", "--enforce", "--", "true"]
        subprocess.run(other, timeout=TIMEOUT_S, check=True)
        check(made <= cages(), "the cgroup of a run that goes on was removed")
        os.kill(child.process.pid, signal.SIGKILL)
        bench.end(child)
    check(made <= cages(), "somebody else has removed it")
    wait_for(lambda: subprocess.run(other, timeout=TIMEOUT_S, check=True) and not cages() & made, "the cgroup to be gone", TIMEOUT_S)
    wait_for(lambda: cages() <= before, "all cgroups to be gone", TIMEOUT_S)
    return ""


def no_overcommit(bench):
    """With --store-size SIZE,strict an allocation that the store could not hold is refused, and the program continues."""
    share = bench.build("share.c")
    with bench.start([share, "exhaust", "1024"], "--memory", "64M", "--store-size", "256M,strict") as child:
        status, said = bench.end(child), child.output()
    found = re.fullmatch(r"refused after (\d+) MiB\n", said)
    check(status == 0 and found and 128 <= int(found[1]) <= 256, f"status {status}: {said!r} {child.last_words()}")
    python = "try:\n    x = bytearray(1 << 30)\nexcept MemoryError:\n    print('refused')"
    with bench.start([sys.executable, "-c", python], "--memory", "64M", "--store-size", "256M,strict") as child:
        status, said = bench.end(child), child.output()
    check((status, said) == (0, "refused\n"), f"status {status}: {said!r} {child.last_words()}")
    return found[0].strip()


def small_stays_small(bench):
    """A program that has the address of `malloc` at a fixed place does not define `malloc` itself: a small one has no pager."""
    for flags in (("-no-pie", "-fno-pie"), ("-pie", "-fPIE")):
        program = bench.build("plain.c", *flags)
        with bench.start([program], "--memory", "1G", "--verbose") as child:
            status, errors = bench.end(child), child.errors().strip()
        check(status == 0 and errors == "", f"{flags}: status {status}: {errors!r}")
    return "no pager"
