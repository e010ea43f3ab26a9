"""Programs that map files larger than the budget, which `--files` pages."""

import json
import os
import subprocess

from case import SOURCES, build
from harness import Skipped, check, need

PYTHON = "/usr/bin/python3"
# What a file system of `stat -f` must be, for leases.
SYSTEMS = ("ext2/ext3", "xfs", "btrfs")


def set_up(runner):
    """Skips where mapped files cannot be paged."""
    place = runner.shared(".")
    system = subprocess.run(["stat", "-f", "-c", "%T", place], capture_output=True, text=True, check=True, timeout=300).stdout.strip()
    if system not in SYSTEMS:
        raise Skipped(f"{system} has no leases, or none that are tested")


def dropped(path):
    """Takes a file out of the page cache: otherwise its mapping is left to the kernel."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run(runner, argv, *paths, **more):
    """Runs a program, whose mapped files must be paged."""
    for path in paths:
        dropped(path)
    runner.run(argv, env={"TERAPAGE_FILES": "true"}, **more)
    if runner.paging is not None:
        names = [name for name in os.listdir(runner.place) if name.startswith("stats")]
        mapped = 0
        for name in names:
            with open(runner.path(name), encoding="utf-8") as file:
                mapped += json.load(file)["mapped_file_bytes"]
        check(mapped >= runner.paging.memory_mib << 19, f"{mapped >> 20} MiB of mapped files were paged")


def in_python(source, module, doc, what="read"):
    """Preparation and body of a Python program that makes a file and then reads it."""

    def prepare(runner, scale):
        need(PYTHON)
        set_up(runner)
        if subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True, timeout=300, check=False).returncode:
            need(f"python3-{module}")
        words = [PYTHON, os.path.join(SOURCES, source), "make", runner.shared("file"), str(scale.amount)]
        subprocess.run(words, check=True, capture_output=True, timeout=600)

    def body(runner, scale):
        file = runner.shared("file")
        run(runner, [PYTHON, os.path.join(SOURCES, source), what, file, str(scale.amount)], file)

    body.__doc__ = doc
    return {"prepare": prepare, "body": body}


MAKE_SQL = """PRAGMA journal_mode=OFF; PRAGMA page_size=8192;
CREATE TABLE t(id INTEGER PRIMARY KEY, k INTEGER, v TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < {rows})
INSERT INTO t SELECT i, i * 7919 % 1000003, printf('%0200d', i * 31 % 65537) FROM n;
CREATE INDEX k ON t(k);
"""
READ_SQL = """PRAGMA mmap_size=4294967296; PRAGMA cache_size=-1000;
SELECT count(*), sum(k), sum(length(v)), max(v) FROM t;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i * 48271 % 2147483647 FROM n LIMIT 4000)
SELECT sum(t.id), max(t.v) FROM n JOIN t ON t.k = n.i % 1000003;
PRAGMA integrity_check;
"""


def sqlite_prepare(runner, scale):
    need("sqlite3")
    set_up(runner)
    words = ["sqlite3", "-bail", runner.shared("base")]
    subprocess.run(words, input=MAKE_SQL.format(rows=scale.amount * 4000), text=True, check=True, capture_output=True, timeout=600)
    with open(runner.shared("read.sql"), "w", encoding="utf-8") as file:
        file.write(READ_SQL)


def sqlite(runner, _scale):
    """A database that SQLite maps: a scan, lookups by an index, an integrity check."""
    base = runner.shared("base")
    run(runner, ["sqlite3", "-bail", "-readonly", base], base, stdin=runner.shared("read.sql"))


def linker_prepare(runner, scale):
    need("gcc", "ld.gold")
    set_up(runner)
    for unit in range(scale.amount):
        build(runner, ["gcc", "-O1", "-c", f"-DUNIT={unit}", os.path.join(SOURCES, "linked.c")], f"unit{unit}.o")


def linker(runner, scale):
    """A linker that maps its inputs."""
    objects = [runner.shared(f"unit{unit}.o") for unit in range(scale.amount)]
    run(runner, ["ld.gold", "-r", "--threads", "-o", runner.path("linked"), *objects], *objects)
