"""Files that programs map which load no library (docs/host.md), paged with --files: static programs, those with musl, Go programs."""

import json
import os
import random
import shutil
import subprocess

from harness import NOBODY, Child, check, need, need_restricted, need_root
from bench import for_everybody
from hosted import built, source
from mapped import LARGE, MIB, mapped, prepared, summary_of

# Of these, the first lies at fixed addresses, and the others where the host puts them.
COMPILERS = {"static": ["gcc", "-static"], "musl": ["musl-gcc"], "dynamic": ["gcc"]}
# So that a dynamic program is hosted, too.
ALL = ["--static", "all"]


def programs(bench, name):
    """The program in each kind of build for which there is a compiler."""
    need("gcc")
    for kind, compiler in COMPILERS.items():
        if shutil.which(compiler[0]):
            yield kind, built(bench, kind, *compiler, "-O2", "-pthread", source(name))


def made(bench, maker, file, before, mib=MIB):
    """The file anew: other bytes would remain of the program before."""
    subprocess.run([maker, "make", file, str(mib)], check=True, capture_output=True, timeout=300)
    os.chmod(bench.place, 0o777)
    if before:
        os.chown(file, 65534, 65534)


def walk(bench, name, what, count, *options, before=(), leaves=True, mib=MIB, memory="32M"):
    """Runs each build of a program: the mapping does what the kernel's does. A larger file's bytes come through bounce buffers."""
    maker, file = prepared(bench, mib=mib)
    seed = os.environ.get("TERAPAGE_SEED", str(random.randrange(1 << 30)))
    done = []
    for kind, program in programs(bench, name):
        made(bench, maker, file, before, mib)
        now, said = mapped(bench, [program, what, file, seed, count], *ALL, *options, before=before, memory=memory)
        check(now["mapped_file_bytes"] > 0 and now["page_in_bytes"] > 0, f"{kind}, seed {seed}: {now} {said}")
        check(not leaves or now["files_left"] > 0, f"{kind}, seed {seed}: {now} {said}")
        check(bool(before) == bool(now["guarded"]), f"{kind}, seed {seed}: {now}")
        check(mib == MIB or now["bounced_bytes"] > 0, f"{kind}, seed {seed}: {now}")
        done.append(kind)
    return f"{', '.join(done)}, seed {seed}"


def calls(bench):
    """Reads by threads, advice, rights, locks, writes that are refused, forks, parts that are unmapped."""
    return walk(bench, "mapped_files.c", "calls", "6")


def calls_guarded(bench):
    """The same for a user without rights, who owns the file. The stacks of musl's threads lie beside the mapping."""
    need_restricted()
    return walk(bench, "mapped_files.c", "calls", "4", before=NOBODY)


def calls_large(bench, before=()):
    """The same in blocks of 64 KiB, through bounce buffers."""
    return walk(bench, "mapped_files.c", "calls", "3", "--block", "64K", before=before, **LARGE)


def calls_large_guarded(bench):
    """The same for a user without rights."""
    need_restricted()
    return calls_large(bench, before=NOBODY)


def parts(bench, before=()):
    """A file that is mapped in parts, which overlap, and some of which the program changes."""
    return walk(bench, "mapped_parts.c", "parts", "5", before=before)


def parts_guarded(bench):
    """The same for a user without rights."""
    need_restricted()
    return parts(bench, before=NOBODY)


def changes(bench, before=()):
    """A process that writes to the file, truncates it, appends to it and replaces it; and the program writes to it."""
    return walk(bench, "mapped_files.c", "change", os.environ.get("TERAPAGE_SECONDS", "8"), before=before)


def changes_guarded(bench):
    """The same for a user without rights."""
    need_restricted()
    return changes(bench, before=NOBODY)


def longer(bench, before=()):
    """A mapping longer than the file, which grows; the program opens the file for writing with O_NONBLOCK."""
    return walk(bench, "mapped_files.c", "longer", "0", before=before)


def longer_guarded(bench):
    """The same for a user without rights."""
    need_restricted()
    return longer(bench, before=NOBODY)


def beside(bench, before=()):
    """A signal handler reads the mapping at random moments, and a second process maps the same file."""
    return walk(bench, "mapped_files.c", "beside", "0", before=before, leaves=False)


def beside_guarded(bench):
    """The same for a user without rights."""
    need_restricted()
    return beside(bench, before=NOBODY)


def private(bench):
    """A private mapping that the program changes: advice, rights, locks, reads by the kernel, moves, forks."""
    return walk(bench, "mapped_private.c", "walk", "4")


def private_guarded(bench):
    """The same for a user without rights."""
    need_restricted()
    return walk(bench, "mapped_private.c", "walk", "3", "--block", "64K", before=NOBODY)


def forks(bench):
    """Generations of children see what their parents have changed."""
    return walk(bench, "mapped_private.c", "forks", "3")


def budget(bench):
    """Passes over a file that is longer than the budget are read ahead, and stay within it."""
    maker, file = prepared(bench)
    read = []
    for kind, program in programs(bench, "mapped_files.c"):
        made(bench, maker, file, ())
        now, _ = mapped(bench, [program, "passes", file, "1", "12"], *ALL)
        check(now["page_in_bytes"] > MIB << 20 and now["major_faults"] <= 40 * 12, f"{kind}: {now}")
        check(now["resident_peak_bytes"] <= 33 << 20, f"{kind}: {now}")
        read.append(f"{kind} {now['page_in_bytes'] >> 20} MiB")
    return f"{', '.join(read)} read"


def again(bench):
    """The summary names a mapped file that the kernel reads again."""
    maker, file = prepared(bench)
    for kind, program in programs(bench, "mapped_files.c"):
        made(bench, maker, file, ())
        now, help_ = summary_of(bench, [program, "again", file, "1", "5", "0"], *ALL, "--memory", "32M")
        check("--files (the kernel read mapped files" in help_ and now["files_read_again"] == 1, f"{kind}: {help_} {now}")
    return ""


def go(bench, before=(), mib=MIB, memory="32M"):
    """A Go program has the same output as natively, within the budget: goroutines, a private mapping, advice, a child, a write to the file."""
    need("go")
    maker, file = prepared(bench, mib=mib)
    program = bench.path("go")
    env = {**os.environ, "CGO_ENABLED": "0", "GO111MODULE": "off"}
    subprocess.run(["go", "build", "-o", program, source("mapped.go")], check=True, timeout=900, capture_output=True, env=env)
    command = [*before, *for_everybody(bench)] if before else bench.command
    made(bench, maker, file, before, mib)
    native = subprocess.run([*before, program, file], capture_output=True, text=True, timeout=300, check=True)
    made(bench, maker, file, before, mib)
    options = ["--store", bench.store, "--memory", memory, "--files", "--stats", bench.path("stats")]
    with Child([*command, "run", *options, "--", program, file], bench.place) as child:
        status = bench.end(child)
        check((status, child.output()) == (0, native.stdout), f"status {status}: {child.output()}{child.last_words()}")
    # One for the child.
    every = []
    for name in os.listdir(bench.place):
        if name.startswith("stats"):
            with open(bench.path(name), encoding="utf-8") as counters:
                every.append(json.load(counters))
    check(len(every) == 2 and all(now["mapped_file_bytes"] > 0 and now["page_in_bytes"] >= 40 << 20 for now in every), f"{every}")
    check(all(now["resident_peak_bytes"] <= int(memory[:-1]) + 1 << 20 for now in every), f"{every}")
    check(all(bool(before) == bool(now["guarded"]) for now in every) and any(now["files_left"] for now in every), f"{every}")
    check(mib == MIB or any(now["bounced_bytes"] for now in every), f"{every}")
    return f"{sum(now['page_in_bytes'] for now in every) >> 20} MiB read"


def go_large(bench):
    """The same through bounce buffers."""
    return go(bench, **LARGE)


def go_large_guarded(bench):
    """The same for a user without rights."""
    need_restricted()
    return go(bench, before=NOBODY, **LARGE)


def go_guarded(bench):
    """The same for a user without rights."""
    need_restricted()
    return go(bench, before=NOBODY)


def library(bench):
    """musl's loader maps a library that is longer than the budget: the library's calls are still heard."""
    need("musl-gcc")
    prepared(bench)
    long = built(bench, "liblong.so", "musl-gcc", "-O2", "-shared", "-fPIC", "-DLIBRARY", source("mapped_library.c"))
    program = built(bench, "library", "musl-gcc", "-O2", source("mapped_library.c"), long, f"-Wl,-rpath,{bench.place}")
    with open(long, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    now, said = mapped(bench, [program], memory="24M")
    check(now["mapped_file_bytes"] == 0 and len(said) == 1 and "may be a library" in said[0], f"{now} {said}")
    return ""


def another_user(bench):
    """A program begins as root, maps a file, becomes another user, and maps another file: the kernel may notify the thread that waits for writers of both, and writers see their files changed."""
    need_root()
    maker, _ = prepared(bench)
    files = [bench.path(f"file-{at}") for at in (1, 2)]
    done = []
    for kind, program in programs(bench, "mapped_user.c"):
        for file in files:
            made(bench, maker, file, NOBODY)
        os.chmod(bench.store, 0o777)
        now, said = mapped(bench, [program, *files], *ALL)
        check(now["files_left"] == 2 and now["page_in_bytes"] > 0, f"{kind}: {now} {said}")
        done.append(kind)
    return ", ".join(done)


BODIES = {
    "mapped-hosted-another-user": another_user,
    "mapped-hosted-calls": calls,
    "mapped-hosted-calls-guarded": calls_guarded,
    "mapped-hosted-calls-64k": calls_large,
    "mapped-hosted-calls-64k-guarded": calls_large_guarded,
    "mapped-hosted-parts": parts,
    "mapped-hosted-parts-guarded": parts_guarded,
    "mapped-hosted-changes": changes,
    "mapped-hosted-changes-guarded": changes_guarded,
    "mapped-hosted-longer": longer,
    "mapped-hosted-longer-guarded": longer_guarded,
    "mapped-hosted-beside": beside,
    "mapped-hosted-beside-guarded": beside_guarded,
    "mapped-hosted-private": private,
    "mapped-hosted-private-guarded": private_guarded,
    "mapped-hosted-forks": forks,
    "mapped-hosted-budget": budget,
    "mapped-hosted-again": again,
    "mapped-hosted-go": go,
    "mapped-hosted-go-guarded": go_guarded,
    "mapped-hosted-go-large": go_large,
    "mapped-hosted-go-large-guarded": go_large_guarded,
    "mapped-hosted-library": library,
}
