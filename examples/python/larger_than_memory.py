#!/usr/bin/env python3
"""An array of four times the memory: terapage.empty against numpy.memmap of a file.

    python larger_than_memory.py [--memory 128M] [--place /var/tmp]

Each way is a process of its own with the same memory: numpy.memmap runs in a memory cgroup (limit:
the memory and what a bare interpreter with numpy takes), terapage has a budget. The results must be
the same. Needs root, for the cgroup. With --swap a plain array in such a cgroup comes third: it
needs a swap space that is switched on.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

from random_rows import BARE, cgroup, size

WORK = ("fill", "sum", "dot", "add in place", "indexing", "sort")


def work(way, place, memory):
    """Does all of the work, and prints for each part the seconds and the result."""
    import numpy as np

    count = 4 * memory // 8
    if way == "numpy":
        a = np.memmap(os.path.join(place, "array"), "f8", "w+", shape=count)
    elif way == "swap":
        a = np.empty(count)
    else:
        import terapage as tp

        tp.init(memory=memory, store=place)
        a = tp.empty(count)
    part = 1 << 17
    weights = np.arange(part) % 7.0

    def fill():
        source = np.random.default_rng(5)
        for at in range(0, count, part):
            source.random(out=a[at : at + part])
        return a[0]

    def dot():
        return sum(float(a[at : at + part] @ weights[: len(a[at : at + part])]) for at in range(0, count, part))

    def add():
        a.__iadd__(1.0)
        return a[-1]

    def indexing():
        return a[np.random.default_rng(6).integers(0, count, 5_000)].sum()

    def sort():
        a.sort()
        return a[count // 2]

    for name, do in zip(WORK, (fill, a.sum, dot, add, indexing, sort)):
        began = time.perf_counter()
        result = do()
        print(f"{name}\t{time.perf_counter() - began}\t{float(result)!r}", flush=True)


def run(way, place, memory, procs=None):
    """Runs one way in a separate process, and returns for each part of the work the seconds and the result."""
    words = [sys.executable, os.path.abspath(__file__), "--one", way, "--place", place, "--memory", str(memory)]
    enter = ["sh", "-c", f'echo $$ > "{procs}" && exec "$@"', "sh"] if procs else []
    done = subprocess.run([*enter, *words], stdout=subprocess.PIPE, text=True, check=True)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    return {name: (float(seconds), result) for name, seconds, result in lines}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", default="128M", type=size, help="memory of each way (128M)")
    parser.add_argument("--place", default="/var/tmp", help="a directory on the disk to measure (/var/tmp)")
    parser.add_argument("--swap", action="store_true", help="a plain array on swap, too")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        work(options.one, options.place, options.memory)
        return
    with tempfile.TemporaryDirectory(prefix="terapage-array-", dir=options.place) as place:
        with cgroup(options.memory + BARE) as procs:
            plain = run("numpy", place, options.memory, procs)
        paged = run("terapage", place, options.memory)
        others = {"np.memmap": plain}
        if options.swap:
            with cgroup(options.memory + BARE) as procs:
                others["swap"] = run("swap", place, options.memory, procs)
        print(f"an array of {4 * options.memory >> 20} MiB, {options.memory >> 20} MiB of memory; seconds")
        print(f"{'':<14}{'tp.empty':>12}" + "".join(f"{name:>12}{'ratio':>9}" for name in others))
        for name in WORK:
            own = paged[name][0]
            print(f"{name:<14}{own:12.2f}" + "".join(f"{them[name][0]:12.2f}{them[name][0] / own:8.1f}x" for them in others.values()))
        if any(them[name][1] != paged[name][1] for them in others.values() for name in WORK):
            sys.exit("the results differ: a wrong byte")


if __name__ == "__main__":
    main()
