#!/usr/bin/env python3
"""Random rows of a file larger than memory: numpy.memmap against terapage.memmap.

    python random_rows.py [--memory 256M] [--rows 32768] [--place /var/tmp]

The file has four times the memory, in rows of 1 KiB. Each way is a process of its own, and reads
the same rows in the same order, after the file's pages have left the kernel's cache. Their memory
is the same: numpy.memmap runs in a memory cgroup (limit: the memory and what a bare interpreter
with numpy takes), terapage.memmap has a budget. Needs root, for the cgroup.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time

ROW = 1024
ROOT = "/sys/fs/cgroup"
BARE = 64 << 20
"""Bytes for the interpreter and numpy."""


def size(text):
    """The bytes of a size such as 256M."""
    unit = "KMGT".find(text[-1:].upper()) + 1
    return int(text[:-1] if unit else text) << (10 * unit)


def look(way, path, rows, memory):
    """Sums the bytes of each row, in random order, and prints the seconds, the sum, and the bytes that were read."""
    import numpy as np

    count = os.path.getsize(path) // ROW
    order = np.random.default_rng(7).integers(0, count, rows)
    before = read_bytes()
    if way == "numpy":
        file = np.memmap(path, "u1", "r", shape=(count, ROW))
    else:
        import terapage as tp

        tp.init(memory=memory, store=os.path.dirname(path))
        file = tp.memmap(path, "u1", "r", shape=(count, ROW))
        if way == "terapage, random":
            tp.random(file)
    began = time.perf_counter()
    total = 0
    for row in order:
        total += int(file[row].sum(dtype="u8"))
    print(time.perf_counter() - began, total, read_bytes() - before)


def read_bytes():
    """Bytes that this process has read from disks."""
    with open("/proc/self/io", encoding="ascii") as file:
        return int(next(line for line in file if line.startswith("read_bytes")).split()[1])


@contextlib.contextmanager
def cgroup(limit):
    """A memory cgroup: the file to which a process writes its id. Pages of files count in it."""
    for base, file in ((f"{ROOT}/memory", "memory.limit_in_bytes"), (ROOT, "memory.max")):
        path = f"{base}/terapage-random-rows-{os.getpid()}"
        if not os.path.exists(f"{base}/cgroup.procs"):
            continue
        try:
            os.mkdir(path)
            if os.path.exists(f"{path}/{file}"):
                with open(f"{path}/{file}", "w", encoding="ascii") as limit_file:
                    limit_file.write(str(limit))
                yield f"{path}/cgroup.procs"
                return
        except PermissionError:
            continue
        finally:
            with contextlib.suppress(OSError):
                os.rmdir(path)
    sys.exit("no memory cgroup can be made here (are you root, and is the memory controller enabled?)")


def run(way, path, rows, memory, procs=None):
    """Runs one way in a separate process."""
    drop(path)
    words = [sys.executable, os.path.abspath(__file__), "--one", way, "--file", path, "--rows", str(rows)]
    enter = ["sh", "-c", f'echo $$ > "{procs}" && exec "$@"', "sh"] if procs else []
    done = subprocess.run([*enter, *words, "--memory", str(memory)], stdout=subprocess.PIPE, text=True, check=True)
    seconds, total, read = done.stdout.split()
    return float(seconds), int(total), int(read)


def drop(path):
    """Removes the file's pages from the kernel's cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def make(path, length):
    """Random bytes in which no two blocks are equal."""
    with open(path, "wb") as file:
        for _ in range(0, length, 1 << 20):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", default="256M", type=size, help="memory of each way (256M)")
    parser.add_argument("--rows", default=32768, type=int, help="rows to read (32768)")
    parser.add_argument("--place", default="/var/tmp", help="a directory on the disk to measure (/var/tmp)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        look(options.one, options.file, options.rows, options.memory)
        return
    with tempfile.TemporaryDirectory(prefix="terapage-rows-", dir=options.place) as place:
        path = os.path.join(place, "rows")
        make(path, 4 * options.memory)
        print(f"{options.rows} rows of 1 KiB of a file of {4 * options.memory >> 20} MiB, {options.memory >> 20} MiB of memory")
        print(f"{'':<20}{'seconds':>9}{'us a row':>10}{'MiB read':>10}{'ratio':>8}")
        first, sums = None, set()
        for way in ("numpy", "terapage", "terapage, random"):
            if way == "numpy":
                with cgroup(options.memory + BARE) as procs:
                    seconds, total, read = run(way, path, options.rows, options.memory, procs)
            else:
                seconds, total, read = run(way, path, options.rows, options.memory)
            first = first or seconds
            sums.add(total)
            print(
                f"{way:<20}{seconds:9.2f}{seconds / options.rows * 1e6:10.0f}{read / (1 << 20):10.0f}{first / seconds:7.1f}x",
                flush=True,
            )
        if len(sums) != 1:
            sys.exit("the sums differ: a wrong byte")


if __name__ == "__main__":
    main()
