"""Files that programs map, paged with --files: their bytes, also while others change them, and what the kernel keeps."""

import json
import os
import random
import shutil
import subprocess
import sys

from harness import NOBODY, Child, Skipped, check, need, need_restricted, need_root
from bench import for_everybody, mounted

MIB = 48
LARGE = {"mib": 96, "memory": "64M"}
"""A budget that has bounce buffers."""
SYSTEMS = ("ext2/ext3", "xfs", "btrfs")


def prepared(bench, source="mapped_files.c", mib=MIB):
    """The program, and a file for it."""
    system = subprocess.run(["stat", "-f", "-c", "%T", bench.place], capture_output=True, text=True, check=True, timeout=300).stdout.strip()
    if system not in SYSTEMS:
        raise Skipped(f"{system} has no leases, or none that are tested")
    maker, file = bench.build("mapped_files.c", "-pthread"), bench.path("file")
    subprocess.run([maker, "make", file, str(mib)], check=True, capture_output=True, timeout=300)
    return bench.build(source, "-pthread"), file


def mapped(bench, words, *options, memory="32M", before=()):
    """Runs the program. Returns the counters, and what was said about files."""
    stats = bench.path("stats")
    start = ["run", "--store", bench.store, "--memory", memory, "--files", "--verbose", "--stats", stats, *options, "--", *words]
    command = bench.command
    if before:
        command = for_everybody(bench)
        os.chmod(bench.place, 0o777)
    with Child([*before, *command, *start], bench.place) as child:
        status = bench.end(child)
        check(status == 0 and child.output().endswith("ok\n"), f"{words}: status {status}: {child.last_words()}")
        said = [line for line in child.errors().splitlines() if " file" in line]
    with open(stats, encoding="utf-8") as file:
        return json.load(file), said


def calls(bench, *options, before=(), mib=MIB, memory="32M"):
    program, file = prepared(bench, mib=mib)
    if before:
        os.chown(file, 65534, 65534)
    seed = os.environ.get("TERAPAGE_SEED", str(random.randrange(1 << 30)))
    now, _ = mapped(bench, [program, "calls", file, seed, "12"], *options, memory=memory, before=before)
    check(now["mapped_file_bytes"] > 0 and now["files_left"] > 0 and now["page_in_bytes"] > 0, f"seed {seed}: {now}")
    check(bool(before) == bool(now["guarded"]), "guarded, or not")
    check(bool(now["bounced_bytes"]) == (mib > MIB), f"seed {seed}: {now}")
    return f"seed {seed}, {now['page_in_bytes'] >> 20} MiB read"


def mapped_calls(bench):
    """A mapping, at two budgets of memory, does what the kernel's does: reads by threads, advice, rights, locks, writes that are refused, forks, parts that are unmapped."""
    return calls(bench)


def mapped_calls_large(bench):
    """The same in blocks of 64 KiB, through bounce buffers."""
    return calls(bench, "--block", "64K", **LARGE)


def mapped_guarded(bench):
    """The same for a user without rights, who owns the file, through bounce buffers."""
    need_restricted()
    return calls(bench, before=NOBODY, **LARGE)


def mapped_changes(bench):
    """A process that writes to the file, truncates it, appends to it and replaces it: each word is what the kernel's mapping has."""
    program, file = prepared(bench)
    seed = os.environ.get("TERAPAGE_SEED", str(random.randrange(1 << 30)))
    seconds = os.environ.get("TERAPAGE_SECONDS", "10")
    now, said = mapped(bench, [program, "change", file, seed, seconds])
    check(now["mapped_file_bytes"] > 0 and now["files_left"] > 0, f"seed {seed}: {now}")
    check(any("opened for writing" in line for line in said), f"seed {seed}: {said}")
    return f"seed {seed}, given back {now['files_left']} times"


def mapped_kept(bench):
    """The kernel keeps files that are open for writing, another user's, in the page cache, on tmpfs, or small enough; --verbose says why."""
    need_root()
    program, file = prepared(bench)
    with open(file, "r+b"):
        now, said = mapped(bench, [program, "once", file, "1"])
        check(now["mapped_file_bytes"] == 0 and len(said) == 1 and "cannot be leased" in said[0], f"a writer: {said}")
    now, said = mapped(bench, [program, "once", file, "1"])
    check(now["mapped_file_bytes"] > 0 and "are paged" in said[0], f"no writer: {said}")
    with open(file, "rb") as whole:
        whole.read()
    now, said = mapped(bench, [program, "cached", file, "1"])
    check(now["mapped_file_bytes"] == 0 and len(said) == 1 and "page cache" in said[0], f"in the page cache: {said}")
    now, said = mapped(bench, [program, "once", file, "1"], memory="64M")
    check(now["mapped_file_bytes"] == 0 and not said, f"it fits: {said}")
    in_memory = f"/dev/shm/terapage-test-{os.getpid()}"
    try:
        subprocess.run([program, "make", in_memory, str(MIB)], capture_output=True, check=False, timeout=300)
        now, said = mapped(bench, [program, "cached", in_memory, "1"])
        check(now["mapped_file_bytes"] == 0 and not said, f"on tmpfs: {said}")
    finally:
        os.remove(in_memory)
    os.chmod(file, 0o644)
    now, said = mapped(bench, [program, "once", file, "1"], before=NOBODY)
    check(now["mapped_file_bytes"] == 0 and len(said) == 1 and "cannot be leased" in said[0], f"another's: {said}")
    return "6 ways"


def mapped_passes(bench):
    """Passes over a file that is longer than the budget: large reads ahead, most of them through bounce buffers, and few reads for which the
    program waits."""
    program, file = prepared(bench, mib=LARGE["mib"])
    passes = 12
    now, _ = mapped(bench, [program, "passes", file, "1", str(passes)], memory=LARGE["memory"])
    check(now["page_in_bytes"] > LARGE["mib"] << 20 and now["major_faults"] <= 40 * passes, f"{now}")
    check(now["bounced_bytes"] >= now["page_in_bytes"] // 2, f"{now}")
    return f"{now['major_faults']} reads were waited for, {now['page_in_bytes'] >> 20} MiB read"


def mapped_random(bench):
    """MADV_RANDOM for most of the memory: the file is read page by page, and nothing is read ahead."""
    program, file = prepared(bench)
    now, _ = mapped(bench, [program, "random", file, "1", "20000"])
    check(now["block_bytes"] == 4096 and now["prefetched_blocks"] == 0 and now["companions"] == 0, f"{now}")
    check(0 < now["page_in_bytes"] <= now["major_faults"] * 4096, f"{now}")
    return f"{now['page_in_bytes'] >> 20} MiB read"


def mapped_longer(bench):
    """A mapping longer than the file, as LMDB makes: the file's part is paged, the rest is a bus error until the file grows, and advice for the
    whole mapping is heard. The program opens the file for writing with O_NONBLOCK. A second thread and children see the same."""
    program, file = prepared(bench)
    seed = os.environ.get("TERAPAGE_SEED", str(random.randrange(1 << 30)))
    now, said = mapped(bench, [program, "longer", file, seed])
    check(now["mapped_file_bytes"] >= 3 * (MIB - 1) << 20 and now["files_left"] >= 2, f"seed {seed}: {now} {said}")
    return f"seed {seed}"


def mapped_named(bench):
    """A mapping has the place of free memory whose address the kernel has, and which is therefore not paged."""
    program, file = prepared(bench)
    now, said = mapped(bench, [program, "named", file, "1"])
    check(now["mapped_file_bytes"] >= 3 * (MIB - 1) << 20 and now["files_left"] == 0, f"{now} {said}")
    return f"{now['page_in_bytes'] >> 20} MiB read"


def mapped_beside(bench, before=()):
    """A signal handler reads the mapping at random moments, and a second process maps the same file."""
    program, file = prepared(bench)
    if before:
        os.chown(file, 65534, 65534)
    seed = os.environ.get("TERAPAGE_SEED", str(random.randrange(1 << 30)))
    now, said = mapped(bench, [program, "beside", file, seed], before=before)
    check(now["mapped_file_bytes"] > 0 and bool(before) == bool(now["guarded"]), f"seed {seed}: {now} {said}")
    return f"seed {seed}"


def mapped_beside_guarded(bench):
    """The same for a user without rights, who owns the file."""
    need_restricted()
    return mapped_beside(bench, before=NOBODY)


def summary_of(bench, words, *options, before=()):
    """Runs the program. Returns the counters, and the line of the summary that says what may help."""
    stats = bench.path("stats")
    command = [*before, *for_everybody(bench)] if before else bench.command
    os.chmod(bench.place, 0o777)
    for name in os.listdir(bench.place):
        if name.startswith("stats"):
            os.remove(bench.path(name))
    with Child([*command, "run", "--store", bench.store, "--summary", "--stats", stats, *options, "--", *words], bench.place) as child:
        status = bench.end(child)
        check(status == 0 and child.output().endswith("ok\n"), f"{words}: status {status}: {child.last_words()}")
        help_ = [line for line in child.errors().splitlines() if "what may help" in line]
    with open(stats, encoding="utf-8") as file:
        return json.load(file), "".join(help_)


def mapped_again(bench, before=()):
    """The summary names a mapped file that the kernel reads again, in a process that is paged, in one that is not, and in a child; not one that
    was read once, that is paged with --files, or that the budget has room for."""
    program, file = prepared(bench)
    if before:
        os.chown(file, 65534, 65534)
    again = [program, "again", file, "1", "5"]
    for own, words in ((0, again), (40, again), (0, ["sh", "-c", '"$@"; exit $?', "sh", *again])):
        now, help_ = summary_of(bench, [*words, str(own)], "--memory", "32M", before=before)
        check("--files (the kernel read mapped files" in help_ and f"% of the checked pages of {file}" in help_, f"{own} MiB: {help_} {now}")
        if words == again:
            check(now["unpaged_files_peak_bytes"] == MIB << 20 and now["files_read_again"] == 1, f"{own} MiB: {now}")
            check(bool(now["started_s"]) == bool(own) and bool(before and own) == bool(now["guarded"]), f"{own} MiB: {now}")
    for what, options, count in (("once", ["--memory", "32M"], "1"), ("paged", ["--memory", "32M", "--files"], "5"), ("fits", ["--memory", "64M"], "5")):
        now, help_ = summary_of(bench, [program, "again", file, "1", count, "0"], *options, before=before)
        check("--files" not in help_ and now["files_read_again"] == 0, f"{what}: {help_} {now}")
        check(bool(now["mapped_file_bytes"]) == (what == "paged"), f"{what}: {now}")
    return "6 runs"


def mapped_again_guarded(bench):
    """The same for a user without rights, who owns the file."""
    need_restricted()
    return mapped_again(bench, before=NOBODY)


def mapped_advised(bench):
    """`advise` says that `--files` would page the files that a program maps, if the budget that it names has no room for them."""
    program, file = prepared(bench)
    words = ["advise", "--store", bench.store, "--timeout", "30", "--", program, "again", file, "1", "1", "24"]
    done = subprocess.run([*bench.command, *words], capture_output=True, text=True, timeout=600, check=False)
    if "the pager alone" in done.stderr:
        raise Skipped("this build has no advise")
    check(done.returncode == 0, f"status {done.returncode}: {done.stderr}")
    check(f"the program maps {MIB} MiB of files to read" in done.stdout and "terapage run --files pages them" in done.stdout, done.stdout)
    return ""


def on_file_system(kind):
    """The calls, and a writer, on another file system, which lies in a file."""

    def body(bench):
        need_root()
        need(f"mkfs.{kind}", "losetup")
        image = bench.path("disk.img")
        with open(image, "wb") as file:
            file.truncate(400 << 20)
        made = subprocess.run([f"mkfs.{kind}", "-q", image], capture_output=True, text=True, timeout=300, check=False)
        check(made.returncode == 0, f"mkfs.{kind}: {made.stderr.strip()}")
        place = bench.path("other")
        os.mkdir(place)
        with mounted(place, "-o", "loop", image):
            program, file = bench.build("mapped_files.c", "-pthread"), os.path.join(place, "file")
            seed = os.environ.get("TERAPAGE_SEED", str(random.randrange(1 << 30)))
            for words in (["calls", file, seed, "6"], ["longer", file, seed], ["change", file, seed, "5"]):
                subprocess.run([program, "make", file, str(MIB)], check=True, capture_output=True, timeout=300)
                now, said = mapped(bench, [program, *words])
                check(now["mapped_file_bytes"] > 0 and now["files_left"] > 0, f"{words}: {now} {said}")
        return f"seed {seed}"

    return body


def mapped_overlay(bench):
    """The kernel keeps files on an overlay, which are copied when they are opened for writing."""
    need_root()
    program, file = prepared(bench)
    places = [bench.path(name) for name in ("lower", "upper", "work", "over")]
    for place in places:
        os.mkdir(place)
    os.rename(file, os.path.join(places[0], "file"))
    with mounted(places[3], "-t", "overlay", "overlay", "-o", "lowerdir={},upperdir={},workdir={}".format(*places)):
        now, said = mapped(bench, [program, "cached", os.path.join(places[3], "file"), "1"])
        check(now["mapped_file_bytes"] == 0 and not said, f"on an overlay: {now} {said}")
    return ""


def private(bench, what, count, *options, before=()):
    """Runs the program that changes private mappings. Returns the counters, and a seed."""
    program, file = prepared(bench, "mapped_private.c")
    if before:
        os.chown(file, 65534, 65534)
    seed = os.environ.get("TERAPAGE_SEED", str(random.randrange(1 << 30)))
    now, said = mapped(bench, [program, what, file, seed, count], *options, before=before)
    check(now["mapped_file_bytes"] > 0 and now["changed_file_bytes"] > 0, f"seed {seed}: {now} {said}")
    check(bool(before) == bool(now["guarded"]), f"seed {seed}: {now}")
    return now, f"seed {seed}"


def mapped_private(bench):
    """A private mapping that the program changes does what the kernel's does: advice, rights, locks, reads by the kernel, moves, forks, parts that
    are unmapped or mapped over."""
    now, seed = private(bench, "walk", "5")
    check(now["files_left"] > 0, f"{seed}: {now}")
    return seed


def mapped_private_large(bench):
    """The same in blocks of 64 KiB."""
    return private(bench, "walk", "3", "--block", "64K")[1]


def mapped_private_guarded(bench):
    """The same for a user without rights, who owns the file."""
    need_restricted()
    return private(bench, "walk", "3", before=NOBODY)[1]


def mapped_private_forks(bench):
    """Generations of children see what their parents have changed in a private mapping, of which many parts went back to the kernel."""
    now, seed = private(bench, "forks", "3")
    check(now["files_left"] > 0 and now["forks"] == 1 and now["page_out_bytes"] > 0, f"{seed}: {now}")
    return f"{now['page_out_bytes'] >> 20} MiB written"


def mapped_private_moves(bench):
    """A private mapping that was opened for writing in two parts, and of which parts went back to the kernel, moves to a place that the program
    names, and is a mapping of the file there."""
    now, seed = private(bench, "moves", "0")
    check(now["files_left"] > 0, f"{seed}: {now}")
    return seed


def mapped_private_pages(bench):
    """Single pages of split blocks are changed, before the mapping goes back to the kernel."""
    now, seed = private(bench, "pages", "0")
    check(now["block_bytes"] == 4096 and now["files_left"] > 0, f"{seed}: {now}")
    return seed


def mapped_private_beside(bench):
    """While another process writes to the file, and children are forked, a private mapping keeps what the program has changed, and the rest has
    the file's bytes."""
    now, seed = private(bench, "beside", os.environ.get("TERAPAGE_SECONDS", "10"))
    check(now["files_left"] > 0, f"{seed}: {now}")
    return f"{seed}, given back {now['files_left']} times"


def mapped_private_budget(bench):
    """Changed blocks are within the budget: they leave memory, and come back."""
    now, seed = private(bench, "once", "40")
    check(now["changed_file_bytes"] >= 40 << 20 and now["page_out_bytes"] >= 8 << 20, f"{seed}: {now}")
    check(now["files_left"] == 0 and now["resident_peak_bytes"] <= 33 << 20, f"{seed}: {now}")
    return f"{now['page_out_bytes'] >> 20} MiB written"


def mapped_private_read(bench):
    """A private mapping that may be changed, but is not, is paged without a write."""
    program, file = prepared(bench, "mapped_private.c")
    now, said = mapped(bench, [program, "once", file, "1", "0"])
    check(now["mapped_file_bytes"] > 0 and now["changed_file_bytes"] == 0 and now["page_out_bytes"] == 0, f"{now} {said}")
    return f"{now['page_in_bytes'] >> 20} MiB read"


def mapped_parts(bench, *options, before=()):
    """A file that is mapped in parts, which overlap, and some of which the program changes: parts are unmapped, and all go back to the kernel
    when the file is opened for writing."""
    program, file = prepared(bench, "mapped_parts.c")
    if before:
        os.chown(file, 65534, 65534)
    seed = os.environ.get("TERAPAGE_SEED", str(random.randrange(1 << 30)))
    now, said = mapped(bench, [program, "parts", file, seed, "8"], *options, before=before)
    check(now["mapped_file_bytes"] > MIB << 20 and now["files_left"] > 0 and now["changed_file_bytes"] > 0, f"seed {seed}: {now} {said}")
    check(bool(before) == bool(now["guarded"]), f"seed {seed}: {now}")
    return f"seed {seed}, given back {now['files_left']} times"


def mapped_parts_large(bench):
    """The same in blocks of 64 KiB."""
    return mapped_parts(bench, "--block", "64K")


def mapped_parts_guarded(bench):
    """The same for a user without rights, who owns the file."""
    need_restricted()
    return mapped_parts(bench, before=NOBODY)


def mapped_many(bench):
    """Files of which each fits into the budget, and all together do not: those that may be changed privately are paged like those that are read."""
    _, file = prepared(bench, mib=10)
    files = [bench.path(f"unit-{at}") for at in range(6)]
    for path in files:
        shutil.copy(file, path)
        with open(path, "rb") as copied:
            os.fsync(copied.fileno())
            os.posix_fadvise(copied.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    for kind in ("read", "copy"):
        now, said = mapped(bench, [sys.executable, "-c", MANY, kind, *files])
        check(20 << 20 <= now["mapped_file_bytes"] <= 40 << 20, f"{kind}: {now['mapped_file_bytes']} {said}")
    return ""


MANY = """
import mmap, os, sys, zlib
kind = mmap.ACCESS_READ if sys.argv[1] == "read" else mmap.ACCESS_COPY
mapped = []
for path in sys.argv[2:]:
    with open(path, "rb") as file:
        mapped.append(mmap.mmap(file.fileno(), 0, access=kind))
digests = {zlib.crc32(one) for one in mapped for _ in range(2)}
for path, one in zip(sys.argv[2:], mapped):
    one.close()
    with open(path, "rb") as file:
        digests.add(zlib.crc32(file.read()))
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
assert len(digests) == 1
print("ok")
"""


def low_numbers(bench, before=()):
    """The body of those two cases."""
    prepared(bench)
    program, file, own = bench.build("low_numbers.c", "-pthread"), bench.path("pages"), bench.path("own")
    with open(file, "wb") as pages:
        for at in range(0, 32 << 20, 4096):
            pages.write(at.to_bytes(8, "little") + bytes(4088))
        pages.flush()
        os.fsync(pages.fileno())
        os.posix_fadvise(pages.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    os.mkdir(own)
    os.chmod(own, 0o777)
    command = bench.command
    if before:
        os.chown(file, 65534, 65534)
        command = for_everybody(bench)
    stats, first = bench.path("stats"), int(os.environ.get("TERAPAGE_SEED") or random.randrange(1 << 20))
    seeds = range(first, first + int(os.environ.get("TERAPAGE_RUNS", "3")))
    os.chmod(bench.place, 0o777)
    for seed in seeds:
        start = ["run", "--store", bench.store, "--memory", "16M", "--files", "--stats", stats, "--", program]
        with Child([*before, *command, *start, "32", "1000", str(seed), file, own], bench.place) as child:
            status = bench.end(child)
            said = [line for line in child.errors().splitlines() if "system calls are guarded" not in line]
            check(status == 0 and not said, f"seed {seed}: status {status}: {child.last_words()}")
        with open(stats, encoding="utf-8") as file_of_stats:
            now = json.load(file_of_stats)
        os.remove(stats)
        check(now["page_in_bytes"] > 0 and bool(before) == bool(now["guarded"]), f"seed {seed}: {now}")
        for name in os.listdir(own):
            os.remove(os.path.join(own, name))
    return f"{child.output().strip()}, {seeds}"


def mapped_low_numbers(bench):
    """A thread closes all descriptors by number, and opens files, while others fork, page, and map a file: its files stay, and the pager's; TERAPAGE_SEED says in which order, TERAPAGE_RUNS how often."""
    return low_numbers(bench)


def mapped_low_numbers_guarded(bench):
    """The same for a user without rights."""
    need_restricted()
    return low_numbers(bench, NOBODY)


BODIES = {
    "mapped-low-numbers": mapped_low_numbers,
    "mapped-low-numbers-guarded": mapped_low_numbers_guarded,
    "mapped-calls": mapped_calls,
    "mapped-calls-64k": mapped_calls_large,
    "mapped-guarded": mapped_guarded,
    "mapped-changes": mapped_changes,
    "mapped-kept": mapped_kept,
    "mapped-passes": mapped_passes,
    "mapped-random": mapped_random,
    "mapped-longer": mapped_longer,
    "mapped-named": mapped_named,
    "mapped-beside": mapped_beside,
    "mapped-beside-guarded": mapped_beside_guarded,
    "mapped-again": mapped_again,
    "mapped-again-guarded": mapped_again_guarded,
    "mapped-advised": mapped_advised,
    "mapped-private": mapped_private,
    "mapped-private-64k": mapped_private_large,
    "mapped-private-guarded": mapped_private_guarded,
    "mapped-private-forks": mapped_private_forks,
    "mapped-private-moves": mapped_private_moves,
    "mapped-private-pages": mapped_private_pages,
    "mapped-private-beside": mapped_private_beside,
    "mapped-private-budget": mapped_private_budget,
    "mapped-private-read": mapped_private_read,
    "mapped-parts": mapped_parts,
    "mapped-parts-64k": mapped_parts_large,
    "mapped-parts-guarded": mapped_parts_guarded,
    "mapped-many": mapped_many,
    "mapped-xfs": on_file_system("xfs"),
    "mapped-btrfs": on_file_system("btrfs"),
    "mapped-overlay": mapped_overlay,
}
