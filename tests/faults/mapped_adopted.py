"""Files that programs map once they were adopted with --files: paged as in other programs; and such programs, released."""

import glob
import json
import os
import random
import subprocess

import adopt
import adopt_guarded
from adopt_guarded import USER
from bench import TIMEOUT_S
from harness import Child, check, need_root, wait_for
from jobs import members
from mapped import LARGE, MIB, prepared
from release import check_released, release


def begin(bench, user):
    """Skips where a test cannot run."""
    need_root()
    if user:
        adopt_guarded.need_user(bench)


def program_of(bench, source, static, user):
    """The program, and a file for it that the user owns."""
    program, file = prepared(bench, source, LARGE["mib"] if source == "mapped_files.c" else MIB)
    if static:
        program = bench.build(source, "-pthread", "-static")
    if user:
        os.chown(file, 1001, 1001)
    return program, file


def end_of(bench, child, said, file, stats):
    """A program that was adopted, and may now begin: what it has counted by its end."""
    with open(bench.path("begins"), "w", encoding="ascii"):
        pass
    status = bench.end(child)
    os.remove(bench.path("begins"))
    check(status == 0 and child.output().endswith("ok\n"), f"status {status}: {said}; {child.last_words()}")
    with open(stats, encoding="utf-8") as counters:
        now = json.load(counters)
    os.remove(stats)
    check(now["mapped_file_bytes"] > 0 and now["page_in_bytes"] > 0, f"{file}: {now}")
    return now


def adopted(bench, source, words, memory, static=False, user=False):
    """Starts a program, adopts it before it maps its file, and lets it work. Returns its counters."""
    program, file = program_of(bench, source, static, user)
    seed = os.environ.get("TERAPAGE_SEED", str(random.randrange(1 << 30)))
    stats, who = bench.path("stats"), USER if user else []
    what, more = words
    with Child([*who, program, what, file, seed, more], bench.place, env={"WAITS_FOR": bench.path("begins")}) as child:
        # Before that it is another user's.
        wait_for(lambda: os.readlink(f"/proc/{child.pid}/exe") == os.path.realpath(program), "it runs")
        said, status = adopt.adopt(bench, child.pid, memory, {"TERAPAGE_FILES": "true", "TERAPAGE_STATS": stats}, who)
        check(status == 0, f"{said}; {child.last_words()}")
        now = end_of(bench, child, said, f"seed {seed}", stats)
    check(bool(user) == bool(now["guarded"]), f"seed {seed}: {now}")
    return now, seed


def several(bench, source, words, memory="32M", user=False):
    """The same as a dynamic and as a static program. Its mappings go back to the kernel, and are paged again."""
    begin(bench, user)
    seeds = []
    for static in (False, True):
        now, seed = adopted(bench, source, words, memory, static, user)
        check(now["files_left"] > 0, f"seed {seed}: {now}")
        seeds.append(seed)
    return f"seeds {' '.join(seeds)}"


def calls(bench, user=False):
    """Reads by threads, advice, rights, locks, writes that are refused, forks, parts that are unmapped; through bounce buffers."""
    begin(bench, user)
    for static in (False, True):
        now, seed = adopted(bench, "mapped_files.c", ("calls", "4"), LARGE["memory"], static, user)
        check(now["files_left"] > 0 and now["bounced_bytes"] > 0, f"seed {seed}: {now}")
    return f"seed {seed}, {now['bounced_bytes'] >> 20} MiB by bounce buffers"


def calls_guarded(bench):
    """The same for a user without rights, who owns the file and the program."""
    return calls(bench, user=True)


def changes(bench, user=False):
    """A process that writes to the file, truncates it, appends to it and replaces it; and the program writes to it."""
    return several(bench, "mapped_files.c", ("change", os.environ.get("TERAPAGE_SECONDS", "6")), LARGE["memory"], user)


def changes_guarded(bench):
    """The same for a user without rights."""
    return changes(bench, user=True)


def executes(bench, user=False):
    """A program that has mapped the file executes itself, and maps it again; a second process maps it, too. Both write to it, and so does a process that is not paged."""
    begin(bench, user)
    seed = os.environ.get("TERAPAGE_SEED", str(random.randrange(1 << 30)))
    seconds = os.environ.get("TERAPAGE_SECONDS", "6")
    stats, begins, who, said = bench.path("stats"), bench.path("begins"), USER if user else [], []
    left = []
    for static in (False, True):
        program, file = program_of(bench, "mapped_files.c", static, user)
        with Child([*who, program, "executes", file, seed, seconds], bench.place, env={"WAITS_FOR": begins}) as child:
            wait_for(lambda: os.readlink(f"/proc/{child.pid}/exe") == os.path.realpath(program), "it runs")
            words, status = adopt.adopt(bench, child.pid, "32M", {"TERAPAGE_FILES": "true", "TERAPAGE_STATS": stats}, who)
            check(status == 0, f"{words}; {child.last_words()}")
            with open(begins, "w", encoding="ascii"):
                pass
            wait_for(lambda: len(members(child, "watch")) == 2 or child.process.poll() is not None, "both look at the file")
            with Child([*who, program, "changes", file, seed, seconds], bench.place, stdout="writer") as writer:
                status = bench.end(child)
                check(status == 0 and child.output() == "ok\nok\n", f"seed {seed}: status {status}: {words}; {child.last_words()}")
                check(writer.wait(TIMEOUT_S) == 0, f"seed {seed}: {writer.last_words()}")
        os.remove(begins)
        every = []
        for path in glob.glob(f"{stats}*"):
            with open(path, encoding="utf-8") as counters:
                every.append(json.load(counters))
            os.remove(path)
        # Children that were forked, and map nothing, have counters, too.
        mapped = [now for now in every if now["mapped_file_bytes"] > 0 and now["page_in_bytes"] > 0]
        check(any(now["files_left"] > 0 for now in mapped), f"seed {seed}: {every}")
        check(len(mapped) == 2 and child.pid in [now["pid"] for now in mapped], f"seed {seed}: {every}")
        check(all(bool(user) == bool(now["guarded"]) for now in every), f"seed {seed}: {every}")
        left.append([now["files_left"] for now in mapped])
    return f"seed {seed}, given back {left} times"


def executes_guarded(bench):
    """The same for a user without rights."""
    return executes(bench, user=True)

def parts(bench, user=False):
    """A file that is mapped in parts, some of which the program changes privately."""
    return several(bench, "mapped_parts.c", ("parts", "6"), user=user)


def parts_guarded(bench):
    """The same for a user without rights."""
    return parts(bench, user=True)


def private(bench):
    """A private mapping that the program changes: advice, rights, locks, reads by the kernel, moves, forks."""
    return several(bench, "mapped_private.c", ("walk", "3"))


READS = """
import mmap, os, sys, time, zlib
begins, path, goes_on = sys.argv[1:4]
kind = mmap.ACCESS_COPY if sys.argv[4] == "changes" else mmap.ACCESS_READ
filled = bytearray(range(256)) * (40 << 12)
digest = zlib.crc32(filled)
while not os.path.exists(begins):
    time.sleep(0.01)
with open(path, "rb") as file:
    right = 0
    while part := file.read(1 << 20):
        right = zlib.crc32(part, right)
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    mapped = mmap.mmap(file.fileno(), 0, access=kind)
def look():
    assert zlib.crc32(mapped) == right and zlib.crc32(filled) == digest
look()
print("mapped", flush=True)
while not os.path.exists(goes_on):
    look()
# Nobody waits for a lease any more.
with open(path, "r+b") as file:
    os.set_blocking(file.fileno(), False)
    file.write(bytes([mapped[0] ^ 1]))
assert mapped[0] == open(path, "rb").read(1)[0]
print("ok")
"""


def released(bench):
    """A program that only reads its mapped file is released, and the kernel has the mapping. One that may change the mapping stays paged."""
    need_root()
    _, file = prepared(bench)
    begins, goes_on = bench.path("begins"), bench.path("goes-on")
    for what in ("reads", "changes"):
        with Child([adopt.INTERPRETER, "-c", READS, begins, file, goes_on, what], bench.place) as child:
            said, status = adopt.adopt(bench, child.pid, "32M", {"TERAPAGE_FILES": "true"})
            check(status == 0, f"{what}: {said}")
            open(begins, "w", encoding="ascii").close()
            wait_for(lambda child=child: "mapped" in child.output() or child.process.poll() is not None, f"{what}: the file is mapped")
            with open(f"/proc/{child.pid}/maps", encoding="utf-8") as maps:
                check(file not in maps.read(), f"{what}: the kernel has the mapping: {child.last_words()}")
            said, status = release(bench, child.pid)
            if what == "reads":
                check(status == 0, f"{what}: {said}")
                check_released(bench, child, what)
            else:
                check(status == 125 and "it may change are paged" in said, f"{what}: status {status}: {said}")
            with open(f"/proc/{child.pid}/maps", encoding="utf-8") as maps:
                check((file in maps.read()) == (what == "reads"), f"{what}: {said}")
            open(goes_on, "w", encoding="ascii").close()
            status = bench.end(child)
            check(status == 0 and child.output().endswith("ok\n"), f"{what}: status {status}: {child.last_words()}")
        os.remove(begins)
        os.remove(goes_on)
        subprocess.run([bench.build("mapped_files.c", "-pthread"), "make", file, str(MIB)], check=True, capture_output=True, timeout=300)
    return ""


BODIES = {
    "mapped-adopted-calls": calls,
    "mapped-adopted-calls-guarded": calls_guarded,
    "mapped-adopted-changes": changes,
    "mapped-adopted-changes-guarded": changes_guarded,
    "mapped-adopted-executes": executes,
    "mapped-adopted-executes-guarded": executes_guarded,
    "mapped-adopted-parts": parts,
    "mapped-adopted-parts-guarded": parts_guarded,
    "mapped-adopted-private": private,
    "mapped-adopted-released": released,
}
