"""Stores that are missing, full, slow, broken, or removed."""

import contextlib
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess

from harness import Child, Skipped, check, need, need_root, wait_for
from bench import C_HEADERS, TIMEOUT_S, goes_on, mount, mounted, paged_in, read_first


def store_missing(bench):
    """The store directory does not exist."""
    bench.refused("--memory", "64M", store=bench.path("nowhere"), says="nowhere")
    return ""


def store_file_refused(bench):
    """A file with contents is somebody's data, and a name that does not exist may be a mistyped directory: both are refused."""
    data, nowhere = bench.path("data"), bench.path("nowhere")
    with open(data, "w", encoding="utf-8") as file:
        file.write("somebody's")
    bench.refused("--memory", "64M", store="file:" + data, says="10 bytes.*somebody")
    bench.refused("--memory", "64M", store="file:" + nowhere, says="mkdir .*nowhere.*touch .*nowhere")
    check(not os.path.exists(nowhere), "the name was made")
    with open(data, encoding="utf-8") as file:
        check(file.read() == "somebody's", "the file was changed")
    return ""


def empty_file(bench):
    """An empty file in the store directory, to be named as the store, and a check that it remains the only file, and empty."""
    path = os.path.join(bench.store, "blocks")
    with open(path, "w", encoding="utf-8"):
        pass

    def as_it_was():
        check(os.listdir(bench.store) == ["blocks"], f"files stay behind: {os.listdir(bench.store)}")
        check(os.stat(path).st_size == 0, "the file that was named has bytes in it")
        check(os.stat(path).st_blocks == 0, "the file that was named takes room")
        os.remove(path)

    return path, as_it_was


def store_file(bench):
    """An empty file as the store: a program that forks and a program that executes another use it, and it stays empty."""
    fork, victim = bench.build("fork.c"), bench.build("victim.c")
    for program in ([fork, "64"], ["sh", "-c", f"{victim} 96 once && exec {victim} 96 once"]):
        path, as_it_was = empty_file(bench)
        with bench.start(program, "--memory", "32M", store="file:" + path) as child:
            status = child.wait(TIMEOUT_S)
            check(status == 0, f"{program}: status {status}: {child.last_words()}")
        as_it_was()
    return ""


def store_file_killed(bench):
    """SIGKILL during the run leaves the file that was named as the store empty, and no other file."""
    victim = bench.build("victim.c")
    path, as_it_was = empty_file(bench)
    ready = bench.path("ready")
    with bench.start([victim, "96", ready], "--memory", "32M", store=path) as child:
        wait_for(lambda: os.path.exists(ready) or child.process.poll() is not None, "the program is ready", TIMEOUT_S)
        check(os.path.exists(ready), f"the program ended early: {child.last_words()}")
        with open(ready, encoding="ascii") as file:
            os.kill(int(file.read()), signal.SIGKILL)
        child.wait(TIMEOUT_S)
    as_it_was()
    return ""


@contextlib.contextmanager
def block_device(image):
    """A block device backed by a file, for the duration of a with block."""
    need_root()
    need("losetup")
    made = subprocess.run(["losetup", "-f", "--show", image], capture_output=True, text=True, timeout=300, check=False)
    if made.returncode != 0:
        raise Skipped(f"losetup: {made.stderr.strip()}")
    device = made.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "-d", device], timeout=300, check=False)


@contextlib.contextmanager
def claimed(device):
    """A device that is used exclusively for the duration of a with block, like a mounted one."""
    number = os.open(device, os.O_RDWR | os.O_EXCL)
    try:
        yield
    finally:
        os.close(number)


def store_device(bench):
    """A device with a file system is refused and stays as it was; an empty one is taken, and again after that, and through the C interface by a
    program that forks."""
    need("mkfs.ext4", "wipefs")
    victim, image = bench.build("victim.c"), bench.path("disk.img")
    library = os.path.join(os.path.dirname(os.path.realpath(bench.command[0])), "libterapage.a")
    device_fork = bench.build("device_fork.c", "-I", C_HEADERS, libraries=(library, "-lpthread", "-ldl", "-lm"))
    with open(image, "wb") as file:
        file.truncate(256 << 20)
    with block_device(image) as device:
        subprocess.run(["mkfs.ext4", "-q", "-F", device], capture_output=True, timeout=300, check=True)
        says = f"store: {device} has an ext2, ext3 or ext4 file system, not mounted, .*name another device, or a directory"
        bench.refused("--memory", "32M", store=device, says=says)
        with mounted(bench.store, device):
            bench.refused("--memory", "32M", store=device, says=f"file system, mounted at {bench.store} .*name another device")
        with Child([*bench.command, "doctor", "--store", device], bench.place) as child:
            status, shown = bench.end(child), child.output()
            check(status == 1 and re.search("^failure .*ext4 file system", shown, re.M), f"doctor: {status}: {shown}")
        whole = subprocess.run(["e2fsck", "-fn", device], capture_output=True, text=True, timeout=300, check=False)
        check(whole.returncode == 0, f"the file system is not as it was: {whole.stdout}")
        subprocess.run(["wipefs", "-qa", device], timeout=300, check=True)
        with claimed(device):
            bench.refused("--memory", "32M", store=device, says=f"store: {device} is in use")
        for turn in ("an empty device", "one that was a store"):
            with bench.start([victim, "96", "once"], "--memory", "32M", store=device) as child:
                status = bench.end(child)
                check(status == 0, f"{turn}: status {status}: {child.last_words()}")
        with Child([device_fork, device, "96", "32"], bench.place) as child:
            status = bench.end(child)
            check(status == 0, f"the C interface: status {status}: {child.last_words()}")
    return ""


def store_read_only(bench):
    """The store directory cannot be written."""
    with mounted(bench.store, "--bind", bench.store):
        mount("-o", "remount,ro,bind", bench.store)
        bench.refused("--memory", "64M", says="store|read-only|writ")
    return ""


def store_in_memory(bench):
    """The store directory is in memory, where a store would save nothing."""
    with mounted(bench.store, "-t", "tmpfs", "tmpfs"):
        bench.refused("--memory", "64M", says="tmpfs|memory")
    return ""


def store_too_large(bench):
    """A store size beyond the disk's is refused at the start, not during the run."""
    disk = os.statvfs(bench.store)
    wanted = disk.f_blocks * disk.f_frsize + (1 << 30)
    bench.refused("--memory", "64M", "--store-size", str(wanted), says="store|space|disk", program=("echo", "ran"))
    return ""


def store_fills_up(bench):
    """A disk of 64 MiB fills up during the run: the program is stopped, with a line that says why."""
    need("mkfs.ext4")
    need_root()
    victim = bench.build("victim.c")
    image = bench.path("disk.img")
    with open(image, "wb") as file:
        file.truncate(64 << 20)
    made = subprocess.run(["mkfs.ext4", "-q", "-F", image], capture_output=True, text=True, timeout=300, check=False)
    check(made.returncode == 0, f"mkfs.ext4: {made.stderr.strip()}")
    with mounted(bench.store, "-o", "loop", image):
        with bench.start([victim, "300", "once"], "--memory", "32M", shell=True) as child:
            status = bench.end(child)
            lines = [line for line in child.errors().splitlines() if "terapage" in line.lower()]
            check(status == 125, f"status {status}: not that of an error of Terapage: {child.last_words()}")
            check(len(lines) == 1, f"{len(lines)} lines, not one: {child.last_words()!r}")
            check(re.search("space|full|store", lines[0]), f"no reason given: {lines[0]!r}")
        # The kernel ends the ring's operations after the process has gone, and closes the file only
        # then.
        def free():
            disk = os.statvfs(bench.store)
            return disk.f_bavail * disk.f_frsize

        wait_for(lambda: free() > 30 << 20, "the room on the disk to come back")
    return f"status {status}: {lines[0]}"


def stopped(bench, *options, says, env=None, store=None, status=128 + signal.SIGABRT):
    """Expects a program that pages to end with this status after one line that matches `says`, without having seen wrong bytes."""
    victim = bench.build("victim.c")
    with bench.start([victim, "96", "once"], *options, shell=True, env=env, store=store) as child:
        got = bench.end(child)
        lines = [line for line in child.errors().splitlines() if line.startswith("terapage:")]
        check(got == status, f"status {got}, not {status}: {child.last_words()}")
        check(len(lines) == 1, f"{len(lines)} lines, not one: {child.last_words()!r}")
        check(re.search(says, lines[0]), f"nothing about '{says}' in {lines[0]!r}")
    return lines[0]


def store_errors(bench):
    """A device that returns EIO, too few bytes, or other bytes than were written."""
    for faults, says in (("errors", "Input/output error"), ("short", "only .* bytes"), ("flips", "not those")):
        stopped(bench, "--memory", "32M", says=says, env={"TERAPAGE_FAULTS": f"{faults}=1000000"})
    return ""


def limited(bench):
    """A store that completes 500 operations each second: no read is faster, and nobody gets other bytes, children neither."""
    stats, env = bench.path("stats.json"), {"TERAPAGE_FAULTS": "operations=500"}
    goes_on(bench, [bench.build("victim.c"), "48", "once"], "--memory", "32M", "--stats", stats, env=env)
    with open(stats, encoding="utf-8") as file:
        waits = json.load(file)["major_latency_us"]
    check(sum(waits) > 0, "no thread has waited for a read")
    check(sum(waits[:11]) == 0, f"reads that took less than 2 ms: {waits}")
    # Children live for longer, so that there are more of them at a time than the budget holds.
    env["TERAPAGE_FAULTS"] = "operations=20000"
    goes_on(bench, [bench.build("fork.c"), "32"], "--memory", "24M", says="it does not hold", env=env)
    return f"{sum(waits)} waits"


def mirror(bench):
    """One copy of a mirror fails in every way, sometimes or always: neither the program nor its children notice."""
    victim, fork, second = [bench.build("victim.c"), "48", "once"], [bench.build("fork.c"), "32"], bench.path("second")
    os.mkdir(second)
    two, both = ("--memory", "24M"), f"mirror:{bench.store}+{second}"
    often, wrong, dead = "errors=50000,short=20000,flips=50000,copy=1", "flips=1000000,copy=1", "errors=1000000,copy=1"
    for program, faults in ((victim, often), (fork, often), (fork, wrong), (victim, dead)):
        goes_on(bench, program, *two, store=both, env={"TERAPAGE_FAULTS": faults})
    stopped(bench, *two, store=both, says="mirror of .*not those", env={"TERAPAGE_FAULTS": "flips=1000000"})
    return ""


def sorts_alike(bench, *options, store):
    """Expects GNU sort to write the same bytes, paged and natively."""
    need("sort")
    text, sort = bench.path("text"), ["sort", "-S", "1G", "--parallel=2", bench.path("text")]
    lines = random.Random(1)
    with open(text, "w", encoding="ascii") as file:
        file.writelines(f"{lines.getrandbits(96):x} {number}\n" for number in range(500_000))
    environment = {**os.environ, "LC_ALL": "C"}
    wanted = subprocess.run(sort, env=environment, capture_output=True, check=True, timeout=TIMEOUT_S).stdout
    with bench.start(sort, *options, store=store, env={"LC_ALL": "C"}) as child:
        status = bench.end(child)
        check(status == 0 and not child.errors(), f"sort: status {status}: {child.last_words()}")
        check(child.output() == wanted.decode(), "sort wrote other bytes than natively")


def encrypted(bench):
    """Stores that get only ciphertext: the bytes are the same as natively; changed bits are detected even without verification, and another copy is read."""
    victim, fork, second = [bench.build("victim.c"), "48", "once"], [bench.build("fork.c"), "32"], bench.path("second")
    sorts_alike(bench, "--memory", "24M", "--encrypt", store=bench.store)
    goes_on(bench, fork, "--memory", "24M", "--encrypt")
    flips = "flips=1000000"
    stopped(bench, "--memory", "32M", "--encrypt", says="encrypted .*not those", env={"TERAPAGE_FAULTS": flips, "TERAPAGE_VERIFY": "0"})
    os.mkdir(second)
    two, both = ("--memory", "24M", "--encrypt"), f"mirror:{bench.store}+{second}"
    for program in (victim, fork):
        goes_on(bench, program, *two, store=both, env={"TERAPAGE_FAULTS": f"{flips},copy=1", "TERAPAGE_VERIFY": "0"})
    bench.refused("--memory", "64M", "--encrypt", store=bench.path("nowhere"), says="nowhere does not exist")
    return ""


def splits(bench):
    """One page of each block, at random: each store gets smaller blocks, and reads about as much as a plain one, or half of what blocks would read; one of a given size that compresses makes no trials."""
    scattered = [bench.build("split.c", "-pthread"), "48", "40000", "apart"]
    stats, second = bench.path("stats"), bench.path("second")
    os.mkdir(second)
    argv = ("--memory", "16M", "--per-process", "--stats", stats)
    kinds = {
        "plain": ((), bench.store),
        "encrypted": (("--encrypt",), bench.store),
        "striped": (("--store", second, "--placement", "round-robin", "--encrypt"), bench.store),
        "mirror": ((), f"mirror:{bench.store}+{second}"),
        "tier": ((), f"tier:{second}+{bench.store}"),
        "compressed": (("--compress", "lz4"), bench.store),
        "compressed, encrypted": (("--compress", "zstd", "--encrypt"), bench.store),
        "of a given size": (("--compress", "lz4", "--store-size", "160M"), bench.store),
    }
    read = {}
    for name, (options, store) in kinds.items():
        goes_on(bench, scattered, *argv, *options, store=store)
        with open(stats, encoding="utf-8") as file:
            counters = json.load(file)
        whole = name == "of a given size"
        block, trials = counters["block_bytes"], counters["trials_together"] + counters["trials_apart"]
        check(block == (16384 if whole else 4096), f"{name}: blocks of {block} bytes")
        check((trials == 0) == whole, f"{name}: {trials} trials")
        read[name] = counters["page_in_bytes"] >> 20
    check(all(count < read["plain"] * 1.5 for name, count in read.items() if name != "of a given size"), f"MiB read: {read}")
    for store in (bench.store, f"mirror:{bench.store}+{second}", f"tier:ram:8M+{bench.store}"):
        bench.refused("--memory", "64M", "--compress", "lz4", "--block", "4K", store=store, says="block: .*write 8K or more")
    sorts_alike(bench, "--memory", "32M", "--compress", "lz4", store=f"tier:ram:4M+{bench.store}")
    return ", ".join(f"{name}: {count} MiB" for name, count in read.items())


def splits_forked(bench):
    """The blocks of a child are split while those of its parent are not, then the parent's, and it forks again. All change scattered pages: the bytes are right, and each has counters of its own."""
    stats = bench.path("stats")
    goes_on(bench, [bench.build("split.c", "-pthread"), "48", "40000", "apart", "child"], "--memory", "16M", "--per-process", "--stats", stats)
    every = sorted((json.loads(read_first(path)) for path in glob.glob(f"{stats}*")), key=lambda now: now["pid"])
    check([(now["forks"], now["block_bytes"]) for now in every] == [(2, 4096), (0, 4096), (0, 4096)], f"{every}")
    trials = [now["trials_together"] + now["trials_apart"] for now in every]
    # The second child has its parent's single pages from the first.
    check(trials[0] > 0 and trials[1] > 0 and trials[2] == 0, f"trials {trials}")
    check(all(now["page_in_bytes"] > 16 << 20 and now["resident_peak_bytes"] <= 17 << 20 for now in every), f"{every}")
    return f"trials {trials}, {[now['page_in_bytes'] >> 20 for now in every]} MiB read"


def tiers(bench):
    """Compressed memory before a disk: the bytes are the same as natively, within the budget; impossible settings are refused."""
    victim, fork = [bench.build("victim.c"), "48", "once"], [bench.build("fork.c"), "32"]
    sorts_alike(bench, "--memory", "24M", store=f"tier:ram:8M+{bench.store}")
    sorts_alike(bench, "--memory", "24M", "--encrypt", store=f"tier:ram:4M+{bench.store}")
    for program in (victim, fork):
        with bench.start(program, "--memory", "24M", store=f"tier:ram:4M+{bench.store}") as child:
            status = bench.end(child)
            check(status == 0 and not child.errors(), f"{program}: status {status}: {child.last_words()}")
    # What compressed memory has not taken, frames have; what it has taken, they have not.
    stats = bench.path("stats")
    for memory, pages_out in (("72M", False), ("24M", True)):
        argv = ("--memory", memory, "--per-process", "--stats", stats)
        with bench.start(victim, *argv, store=f"tier:ram:{int(memory[:-1]) // 2}M+{bench.store}") as child:
            check(bench.end(child) == 0, child.last_words())
        with open(stats, encoding="utf-8") as file:
            found = json.load(file)
        moved, peak = found["page_out_bytes"], found["resident_peak_bytes"]
        check((moved > 4 << 20) == pages_out, f"{memory}: {moved} bytes went out")
        check(peak <= (int(memory[:-1]) << 20) * 1.01 + (2 << 20), f"{memory}: {peak} bytes were in memory")
    bench.refused("--memory", "24M", "--store", bench.store, store="ram:4M", says="tier:ram:")
    bench.refused("--memory", "24M", store=f"tier:ram:20M+{bench.store}", says="less than a quarter of the budget")
    bench.refused("--memory", "24M", store=f"tier:{bench.store}", says="two stores or more")
    bench.refused("--memory", "24M", store=f"mirror:ram:4M+{bench.store}", says="no copy in memory")
    return ""


def mirror_refused(bench):
    """A mirror needs two stores that can be used."""
    bench.refused("--memory", "64M", "--placement", "mirror", says="placement: 'mirror' is unknown")
    bench.refused("--memory", "64M", store=f"mirror:{bench.store}", says="two stores")
    bench.refused("--memory", "64M", store=f"mirror:{bench.store}+{bench.path('nowhere')}", says="nowhere does not exist")
    return ""


def store_size_suffices(bench):
    """Data that fit into --store-size are stored: in one store or in two, and by the children of forks."""
    victim, second = [bench.build("victim.c"), "96", "once"], bench.path("second")
    os.mkdir(second)
    for more in ((), ("--store", second, "--placement", "round-robin"), ("--block", "2M")):
        goes_on(bench, victim, "--memory", "32M", "--store-size", "128M", *more)
    # Its 80 children reserve so much each.
    if shutil.disk_usage(second).free < 36 << 30:
        return "without forks: less than 36 GiB are free"
    goes_on(bench, [bench.build("fork.c"), "64"], "--memory", "32M", "--store-size", "400M")
    return ""


def store_size_reached(bench):
    """All of --store-size is in use."""
    return stopped(bench, "--memory", "32M", "--store-size", "40M", says="store-size", status=125)


def store_removed(bench):
    """The store directory is removed during the run: its file has no name, and the program continues to its end."""
    victim = bench.build("victim.c")
    ready = bench.path("ready")
    with bench.start([victim, "96", ready], "--memory", "32M") as child:
        wait_for(lambda: os.path.exists(ready) or child.process.poll() is not None, "the program is ready", TIMEOUT_S)
        os.rmdir(bench.store)
        with open(ready, encoding="ascii") as file:
            process = int(file.read())
        before = paged_in(bench, process)
        wait_for(lambda: child.process.poll() is not None or paged_in(bench, process) > before + (64 << 20), "page-ins", TIMEOUT_S)
        check(child.process.poll() is None, f"the program ended: {child.last_words()}")
        os.kill(process, signal.SIGTERM)
        bench.end(child)
    return ""
