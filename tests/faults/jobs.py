"""Several processes that share one budget."""

import contextlib
import json
import os
import re
import signal
import subprocess

from harness import NOBODY, Child, check, need_restricted, session_members, wait_for
from bench import TIMEOUT_S, for_everybody


def counters_of(bench, pid):
    """The counters of a paged process; None if there are none."""
    found = subprocess.run([*bench.command, "stat", str(pid), "--json"], capture_output=True, text=True, timeout=300, check=False)
    return json.loads(found.stdout) if found.returncode == 0 else None


def members(child, word):
    """The processes of a run whose command line has a word at its second place."""
    found = []
    for pid in session_members(child.pid):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if file.read().split(b"\0")[1:2] == [word.encode()]:
                found.append(pid)
    return found


HOLDERS = 3


def one_hungry(bench, memory_mib, holder_mib, swept_mib, then):
    """Three processes that fill their arrays and sleep, and one that wants more than the budget; `then` is called with them."""
    share, stop = bench.build("share.c"), bench.path("stop")
    words = [share, "hungry", str(HOLDERS), str(holder_mib), str(swept_mib), stop]
    with bench.start(words, "--memory", f"{memory_mib}M") as child:
        ready = lambda: child.output().count("ready") == HOLDERS  # noqa: E731
        wait_for(ready, "the holders to be ready")
        (hungry,) = wait_for(lambda: members(child, "sweep"), "the hungry one")
        says = then(child, hungry)
        with open(stop, "w", encoding="ascii"):
            pass
        return child, bench.end(child), child.output(), says


def has_most(bench, hungry, memory_mib):
    """Waits until a process has 85 % of the budget."""

    def most():
        now = counters_of(bench, hungry)
        return now and now["lease_bytes"] >= memory_mib * (1 << 20) * 85 // 100 and now

    return wait_for(most, f"85 % of {memory_mib} MiB for the hungry one")


def idle_give(bench):
    """Sleeping processes give their frames to one that wants more than all of them."""
    child, status, said, now = one_hungry(bench, 256, 60, 300, lambda _child, hungry: has_most(bench, hungry, 256))
    check(status == 0 and "swept" in said, f"status {status}: {child.last_words()}")
    check(child.shared_peak_bytes <= (256 << 20) * 101 // 100, f"all together {child.shared_peak_bytes >> 20} MiB and 32 MiB each")
    check(now["job_processes"] >= 2 and now["budget_bytes"] == 256 << 20, f"{now}")
    return f"{now['lease_bytes'] >> 20} of 256 MiB, {now['job_processes']} processes"


def killed_gives(bench):
    """The leases of killed processes return to the others."""

    def kill(child, hungry):
        for pid in members(child, "hold"):
            os.kill(pid, signal.SIGKILL)
        return has_most(bench, hungry, 160)

    _, status, said, now = one_hungry(bench, 160, 90, 200, kill)
    check(status == 1 and "swept" in said, f"status {status}")
    return f"{now['lease_bytes'] >> 20} of 160 MiB"


def two_jobs(bench):
    """Two jobs at the same time each have a budget."""
    share = bench.build("share.c")
    stop = bench.path("stop")
    with bench.start([share, "sweep", "96", stop], "--memory", "64M") as one:
        with Child([*bench.command, "run", "--store", bench.store, "--memory", "48M", "--", share, "sweep", "80", stop], bench.place, stdout="two") as two:
            leases = []
            for child, budget in ((one, 64), (two, 48)):
                def full(pid=child.pid, budget=budget):
                    now = counters_of(bench, pid)
                    # A pager counts the whole budget as its lease until it has joined its job.
                    return now and now["job_processes"] and now["lease_bytes"] == budget << 20 and now

                leases.append(wait_for(full, f"a lease of {budget} MiB"))
            check(leases[0]["job"] != leases[1]["job"], f"{leases}")
            check([now["job_processes"] for now in leases] == [1, 1], f"{leases}")
            with open(stop, "w", encoding="ascii"):
                pass
            check(two.wait(TIMEOUT_S) == 0, f"{two.last_words()}")
        check(bench.end(one) == 0, f"{one.last_words()}")
    return ""


def job_in_job(bench):
    """A run inside a run gets at most its own budget, and at most that of the outer run."""
    share, stats = bench.build("share.c"), bench.path("stats")
    inner = ["sh", "-c", '"$@"; exit $?', "sh", *bench.command, "run", "--store", bench.store, "--memory"]
    for memory, least, most in (("24M", 12, 24), ("512M", 32, 64)):
        words = [*inner, memory, "--stats", stats, "--", share, "one", "1", "80", "2"]
        with bench.start(words, "--memory", "64M") as child:
            status, errors = bench.end(child), child.errors()
        check(status == 0, f"{memory}: status {status}: {child.last_words()}")
        check(bool(errors) == (memory == "512M"), f"{memory}: {errors}")
        with open(stats, encoding="utf-8") as file:
            peak = json.load(file)["resident_peak_bytes"] >> 20
        check(least <= peak <= most, f"{memory}: {peak} MiB")
    check("within a job of 64 MiB" in errors, errors)
    # Its own budget does not follow the machine, though that of the outer run does.
    for mib in ("80", "1"):
        words = [*inner, "24M", "--stats", stats, "--summary", "--", share, "one", "1", mib, "2"]
        with bench.start(words) as child:
            status, errors = bench.end(child), child.errors()
        check(status == 0 and "the budget of 24 MiB" in errors, f"{mib} MiB, within auto: status {status}: {errors}")
        with open(stats, encoding="utf-8") as file:
            counters = json.load(file)
        check((counters["budget_bytes"] >> 20, counters["budget_auto"]) == (24, 0), f"{mib} MiB, within auto: {counters}")
        os.remove(stats)
    # What may be locked is a part of the budget that the run has, not of the one that it asks for.
    words = [*inner, "512M", "--", bench.build("locked.c"), "96", "most"]
    with bench.start(words, "--memory", "64M") as child:
        status, said = bench.end(child), child.output()
    check((status, said) == (0, "16 MiB\n"), f"status {status}: {said!r} {child.last_words()}")
    return ""


def locked(bench):
    """Memory that was locked, or was to be empty in a child, is paged again afterwards."""
    for flags in ((), ("-static",)):
        program = bench.build("locked.c", *flags)
        with bench.start([program, "64"], "--memory", "16M") as child:
            status, said = bench.end(child), child.output()
        check(status == 0 and not child.errors(), f"{flags}: status {status}: {said} {child.last_words()}")
        peaks = [int(mib) for mib in re.findall(r": (\d+) MiB", said)]
        check(len(peaks) == 8 and max(peaks) <= 24, f"{flags}: {said}")
        check(said.endswith("merged: no\n"), f"{flags}: {said}")
    with bench.start([program, "64", "most"], "--memory", "16M") as child:
        status, said = bench.end(child), child.output()
    check((status, said) == (0, "4 MiB\n"), f"status {status}: {said!r} {child.last_words()}")
    return f"at most {max(peaks)} MiB of 64"


def too_many(bench):
    """There are more processes than the budget has room for at their minimum: one line, and they continue."""
    share = bench.build("share.c")
    with bench.start([share, "work", "exec", "10", "20", "1"], "--memory", "4M", "--block", "64K") as child:
        status = bench.end(child)
        lines = child.errors().splitlines()
    check(status == 0 and child.output().count("worker") == 10, f"status {status}: {child.last_words()}")
    check(len(lines) == 1 and re.search(r"^terapage: --memory is 4 MiB, less than the least that the \d+ processes", lines[0]), f"{lines}")
    return lines[0]


def per_process(bench):
    """With --per-process each process has the whole budget."""
    share, stats = bench.build("share.c"), bench.path("stats")
    with bench.start([share, "work", "exec", "2", "80", "2"], "--memory", "48M", "--per-process", "--stats", stats) as child:
        check(bench.end(child) == 0, child.last_words())
    large = 0
    for name in [name for name in os.listdir(bench.place) if name.startswith("stats")]:
        with open(bench.path(name), encoding="utf-8") as file:
            now = json.load(file)
        check((now["lease_bytes"], now["job"]) == (48 << 20, 0), f"{now}")
        large += now["resident_peak_bytes"] > 40 << 20
    check(large == 2, f"{large} processes with most of 48 MiB")
    return ""


def another_user(bench):
    """A child with another user leases from the same budget."""
    need_restricted()
    share = bench.build("share.c")
    (command,) = for_everybody(bench)
    os.chmod(share, 0o755)
    stop = bench.path("stop")
    run = [command, "run", "--memory", "64M", "--store", bench.store, "--", *NOBODY, share, "sweep", "96", stop]
    with Child(run, bench.place) as child:
        (pid,) = wait_for(lambda: members(child, "sweep"), "the other user's process")
        full = lambda: (now := counters_of(bench, pid)) and now["lease_bytes"] == 64 << 20 and now["job"] > 0  # noqa: E731
        wait_for(full, "a lease of all, in the job")
        with open(stop, "w", encoding="ascii"):
            pass
        check(bench.end(child) == 0, child.last_words())
    return ""
