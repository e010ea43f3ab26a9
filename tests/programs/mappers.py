"""The programs of `mapped-figures`: what each maps, how that is made, and the targets."""

import glob
import os
import shutil
import subprocess
from dataclasses import dataclass

from bench import Missing
from case import SOURCES
from mapped import MAKE_SQL

SCRIPT = os.path.join(SOURCES, "mapped_works.py")
MIB = 1 << 20


@dataclass(frozen=True)
class Work:
    """A program's work on an input. `at` has the sizes of the input, as multiples of the memory, and the target at each:
    its time of that with the kernel's mapping. `options` are those of further runs."""

    name: str
    does: str
    input: str
    command: tuple
    at: tuple
    tool: str = ""
    apt: str = ""
    jars: str = ""
    pip: str = ""
    outputs: tuple = ()
    options: tuple = ()

    def ready(self, python):
        """Raises Missing, with the command that installs it, if the program is not here."""
        if self.tool and shutil.which(self.tool) is None or self.jars and not glob.glob(self.jars):
            raise Missing(f"apt-get install --no-install-recommends {self.apt}")
        for package in self.pip.split():
            told = subprocess.run([python, "-c", f"import {MODULES.get(package, package)}"], capture_output=True, timeout=300, check=False)
            if told.returncode:
                raise Missing(f"pip install {self.pip}")

    def words(self, python, inputs):
        """The command, on inputs in a directory."""
        files = sorted(os.path.join(inputs, name) for name in os.listdir(inputs) if name.startswith("unit"))
        jar = max(glob.glob(self.jars), default="")
        filled = [each.replace("{in}", inputs).replace("{jar}", jar) for each in self.command]
        words = [word for each in filled for word in (files if each == "UNITS" else [each])]
        return [python, *words[1:]] if words[0] == "python3" else words


MODULES = {"llama-cpp-python": "llama_cpp", "faiss-cpu": "faiss"}
"""The modules of packages with other names."""

POINTS = """PRAGMA mmap_size=2147418112; PRAGMA cache_size=-1000;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i * 48271 % 2147483647 FROM n LIMIT 3000)
SELECT sum(t.id), max(t.v) FROM n JOIN t ON t.k = n.i % 1000003;
"""
SCAN = """PRAGMA mmap_size=2147418112; PRAGMA cache_size=-1000;
SELECT count(*), sum(k), sum(length(v)), max(v) FROM t;
SELECT count(*), min(v) FROM t WHERE v LIKE '%77%';
"""
LUCENE = "/usr/share/java/lucene-core-8*.jar"
UNIT = """
#define NAME_(a, b) a##_##b
#define NAME(a, b) NAME_(a, b)
#define PART(n)                                                                                  \\
    int NAME(f##n, UNIT)(int at) { return at + n; }                                              \\
    int (*NAME(calls##n, UNIT)[1 << 13])(int) = {[0 ...(1 << 13) - 1] = NAME(f##n, UNIT)};       \\
    int NAME(numbers##n, UNIT)[1 << 15] = {UNIT, n};
#define PARTS(n) PART(n##0) PART(n##1) PART(n##2) PART(n##3) \\
                 PART(n##4) PART(n##5) PART(n##6) PART(n##7)
PARTS(1) PARTS(2) PARTS(3)
"""
"""An object for a linker: functions, tables of addresses that it must fill in, and numbers."""


def run(words, **more):
    subprocess.run(words, check=True, timeout=900, capture_output=True, **more)


def scripted(kind):
    """What the script makes."""

    def make(place, mib, python):
        run([python, SCRIPT, f"make-{kind}", os.path.join(place, kind), str(mib)])

    return make


def database(place, mib, _python):
    run(["sqlite3", "-bail", os.path.join(place, "base")], input=MAKE_SQL.format(rows=mib * 4000), text=True)
    for name, text in (("points.sql", POINTS), ("scan.sql", SCAN)):
        with open(os.path.join(place, name), "w", encoding="ascii") as file:
            file.write(text)


def objects(place, mib, _python):
    """Objects whose symbols differ."""
    source = os.path.join(place, "source.c")
    with open(source, "w", encoding="ascii") as file:
        file.write(UNIT)
    first = os.path.join(place, "unit00.o")
    run(["gcc", "-O1", "-fno-pic", "-ffunction-sections", "-fdata-sections", "-DUNIT=0", "-c", source, "-o", first])
    for unit in range(1, max(mib * MIB // os.path.getsize(first), 2)):
        run(["objcopy", f"--prefix-symbols=u{unit}_", first, os.path.join(place, f"unit{unit:02}.o")])


def index(place, mib, _python):
    """Lucene's index, as one segment, and the program that searches it."""
    jar = max(glob.glob(LUCENE))
    run(["javac", "-d", place, "-cp", jar, os.path.join(SOURCES, "Searches.java")])
    run(["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{place}:{jar}", "Searches", "make", place, str(mib)])


INPUTS = {
    "array": scripted("array"), "lmdb": scripted("lmdb"), "sqlite": database, "arrow": scripted("arrow"), "lucene": index, "objects": objects,
    "faiss": scripted("faiss"), "usearch": scripted("usearch"), "llama": scripted("llama"),
}
"""What makes each input in a directory, of so many MiB."""


def python(name, does, kind, at, pip, **more):
    """A work of the script."""
    return Work(name, does, kind, ("python3", SCRIPT, name.split("-")[-1], "{in}/" + kind), at, pip=pip, **more)


def linker(tool, apt, *options):
    words = (tool, *options, "--no-gc-sections", "-e", "f10_0", "-o", "linked", "UNITS")
    return Work(tool, "links objects", "objects", words, ((2, 1.0),), tool=tool, apt=apt, outputs=("linked",))


def sqlite(what, does, at):
    words = ("sqlite3", "-bail", "-readonly", "{in}/base", ".read {in}/" + what + ".sql")
    return Work(f"sqlite-{what}", does, "sqlite", words, at, tool="sqlite3", apt="sqlite3")


WORKS = [
    python("numpy-rows", "np.memmap: 12,000 random rows of 1 KiB", "array", ((2, 0.1),), "numpy"),
    python("numpy-column", "np.memmap: three columns", "array", ((2, 0.5),), "numpy"),
    python("numpy-sum", "np.memmap: the sum, twice", "array", ((2, 0.8),), "numpy"),
    python("lmdb-gets", "4,000 random gets", "lmdb", ((2, 0.7),), "numpy lmdb"),
    python("lmdb-scan", "two scans", "lmdb", ((2, 1.0),), "numpy lmdb"),
    sqlite("points", "mmap_size: 3,000 lookups by an index", ((2, 0.7),)),
    sqlite("scan", "mmap_size: two scans", ((2, 1.0),)),
    python("arrow-filter", "a mapped IPC file, filtered twice", "arrow", ((2, 0.8),), "numpy pyarrow"),
    python("polars", "Polars' lazy scan of the same file, filtered twice", "arrow", ((2, 0.8),), "numpy pyarrow polars"),
    Work("lucene", "MMapDirectory: 300 queries, whose documents are read", "lucene",
         ("java", "-Xmx64m", "-XX:+UseSerialGC", "-cp", "{in}:{jar}", "Searches", "{in}"), ((2, 0.8),),
         tool="javac", apt="liblucene8-java default-jdk-headless", jars=LUCENE),
    python("usearch", "a mapped graph: 60 searches", "usearch", ((1.5, 0.5), (3, 0.5)), "numpy usearch"),
    python("faiss", "mapped inverted lists: 30 searches", "faiss", ((1.5, 0.5), (3, 0.5)), "numpy faiss-cpu"),
    python("llama", "llama.cpp: 24 tokens", "llama", ((1.1, 0.5), (1.25, 0.5), (2, 0.8)), "numpy llama-cpp-python gguf",
           options=(("--block", "64K"),)),
    linker("ld.gold", "binutils"),
    linker("ld.lld", "lld"),
    # Otherwise it works in a child that nobody waits for.
    linker("mold", "mold", "--no-fork"),
]
