"""The programs: how each is prepared, run, and checked.

A case runs twice through the same body, natively and paged; what it wrote is then compared.
Budgets of programs that stream are about half of what they use. Budgets of programs that
jump about are 75 % and more, so that these end soon.
"""

import contextlib
import filecmp
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

import mapped
from case import SOURCES, Case, Scale, build, c_program, compiled
from harness import ROOT, Failed, Skipped, check, need, wait_for
from heaps import HEAPS
from hosts import CANCELS, all_hosted, bbolt, go, hosted, musl_root, nim, own_filter, own_filter_prepare, raw_end, raw_exit, raw_exit_prepare, rust_musl, tools, zig

SYSTEM_PYTHON = "/usr/bin/python3"
LIBRARY = "libterapage_preload.so"


def plugin_prepare(runner, _scale):
    source = os.path.join(SOURCES, "plugin.c")
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", source]
    build(runner, [*command, "-shared", "-fPIC", "-DPLUGIN"], "libplugin.so")
    build(runner, [*command, "-Wl,-rpath,$ORIGIN", "-ldl"], "plugin")


def plugin(runner, scale):
    """A library loaded with RTLD_DEEPBIND that takes and returns memory."""
    runner.run([runner.shared("plugin"), str(scale.amount)])


def malloc_library_prepare(runner, _scale):
    source = os.path.join(SOURCES, "own_malloc.c")
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-fno-builtin", source]
    build(runner, [*command, "-shared", "-fPIC", "-DLIBRARY"], "libownmalloc.so")
    library = ["-L", runner.shared("."), "-Wl,--no-as-needed", "-lownmalloc", "-Wl,-rpath,$ORIGIN"]
    build(runner, [*command, "-DPROGRAM", *library], "own_malloc")


def malloc_library(runner, scale):
    """A malloc in a library, like tcmalloc, which stays the program's with each setting."""
    for mode in ("all", "large"):
        runner.run([runner.shared("own_malloc"), str(scale.amount)], env={"TERAPAGE_HEAP": mode})


def node_prepare(_runner, _scale):
    need("node")


def node(runner, scale):
    """A JavaScript heap beyond the budget: memory that is not paged exceeds it."""
    runner.run(["node", "--max-old-space-size=4000", os.path.join(SOURCES, "heap.js"), str(scale.amount)])


# Programs that compile while they run: what each needs, and its command. {place} has the program,
# {built} what a compiler made of it.
JITS = {
    "luajit": ("luajit", "luajit {place}/loop.lua"),
    "pypy": ("pypy3", "pypy3 {place}/loop.py"),
    "php-jit": (
        "php",
        "php -d opcache.enable_cli=1 -d opcache.jit_buffer_size=16M -d opcache.jit=tracing {place}/loop.php",
    ),
    "yjit": ("ruby", "ruby --yjit --yjit-exec-mem-size=8 {place}/loop.rb"),
    "guile": ("guile", "guile --no-auto-compile {place}/loop.scm"),
    "racket": ("racket", "racket {place}/loop.rkt"),
    "sbcl": ("sbcl", "sbcl --script {place}/loop.lisp"),
    "mono": ("mcs", "mono {built}/loop.exe"),
    "beam": ("erlc", "erl -noshell -pa {built} -eval loop:main(init:get_plain_arguments()),halt(). -extra"),
    "numba": (sys.executable, sys.executable + " {place}/loop_numba.py"),
    "wasmtime": (sys.executable, sys.executable + " {place}/loop_wasm.py"),
}

# What tells whether the compiler is there, where the program may come without it.
HAS_COMPILER = {
    "php-jit": ["php", "-r", "exit(function_exists('opcache_get_status') ? 0 : 1);"],
    "yjit": ["ruby", "--yjit", "-e", "exit"],
    "numba": [sys.executable, "-c", "import numba"],
    "wasmtime": [sys.executable, "-c", "import wasmtime"],
}

# How programs are built that do not run from source.
BUILDS = {
    "mono": ["mcs", "-out:{built}/loop.exe", "{place}/loop.cs"],
    "beam": ["erlc", "-o", "{built}", "{place}/loop.erl"],
}


def jit(name):
    """A program that compiles while it runs: its code must find a place, and its data must be right."""
    needed, command = JITS[name]

    def fill(words, runner):
        return [word.format(place=os.path.join(SOURCES, "jits"), built=runner.shared(".")) for word in words]

    def prepare(runner, _scale):
        need(needed)
        if name in HAS_COMPILER and subprocess.run(HAS_COMPILER[name], capture_output=True, timeout=300, check=False).returncode:
            raise Skipped(f"without its compiler: {name}")
        if name in BUILDS:
            built = subprocess.run(fill(BUILDS[name], runner), capture_output=True, text=True, timeout=300, check=False)
            check(built.returncode == 0, f"{needed}: {built.stderr.strip()[-300:]}")

    def body(runner, scale):
        runner.run([*fill(command.split(), runner), str(scale.amount)])

    return prepare, body


def jdks():
    """The installed JDKs, oldest first."""
    found = {}
    for java in [*sorted(glob.glob("/usr/lib/jvm/*/bin/java")), shutil.which("java")]:
        if java and os.path.exists(os.path.join(os.path.dirname(os.path.realpath(java)), "javac")):
            path = os.path.realpath(java)
            words = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=300, check=False).stderr
            version = re.search(r'version "(\d+)', words)
            if version:
                found[path] = int(version.group(1))
    return sorted(found, key=found.get)


# The largest heaps (-Xmx) for each collector: small and large heaps lie at different addresses.
COLLECTORS = {
    "Serial": ("512m", "40g"),
    "Parallel": ("512m", "3g"),
    "G1": ("512m", "40g"),
    "Z": ("512m", "3g", "5g", "20g"),
    "Shenandoah": ("512m", "40g"),
}


def java_prepare(runner, _scale):
    if not jdks():
        raise Skipped("not installed: a JDK")
    compiler = os.path.join(os.path.dirname(jdks()[0]), "javac")
    built = subprocess.run(
        [compiler, "-d", runner.shared("."), os.path.join(SOURCES, "Data.java")],
        capture_output=True, text=True, timeout=300, check=False,
    )
    check(built.returncode == 0, f"javac: {built.stderr.strip()[-300:]}")


def has_collector(java, collector):
    return subprocess.run([java, f"-XX:+Use{collector}GC", "-version"], capture_output=True, timeout=300, check=False).returncode == 0


def java_runs(whole):
    """The combinations of JDK, collector and heap: all of them, or a few."""
    all_jdks = jdks()
    if not whole:
        oldest, newest = all_jdks[0], all_jdks[-1]
        few = [(oldest, "G1"), (oldest, "Z")] + [(newest, "Z")] * (newest != oldest)
        return [(java, collector, COLLECTORS[collector][0]) for java, collector in few if has_collector(java, collector)]
    every = [(java, collector) for java in all_jdks for collector in COLLECTORS if has_collector(java, collector)]
    return [(java, collector, heap) for java, collector in every for heap in COLLECTORS[collector]]


def java(runner, scale):
    """Each collector: ZGC's heap is shared memory, which is not paged; the program must start and be right."""
    for index, (path, collector, heap) in enumerate(java_runs(scale.amount > 200)):
        options = [f"-XX:+Use{collector}GC", f"-Xmx{heap}", "-Xms32m", "-cp", runner.shared(".")]
        runner.run([path, *options, "Data", str(scale.amount)], stdout=f"java{index}")
        with open(runner.path(f"java{index}"), encoding="ascii") as file:
            said = file.read()
        if index == 0:
            first = said
        check(said == first, f"{path} {collector} {heap}: {said!r}, not {first!r}")


def scattered(runner, scale):
    """Blocks of 64 KiB of which one page each was used when paging began."""
    runner.run([runner.shared("scattered"), str(scale.amount)], env={"TERAPAGE_BLOCK": "64K"})


def split(runner, scale):
    """One page of each block, at random: the blocks of the process are split into pages, on any disk."""
    runner.run([runner.shared("split"), str(scale.amount), str(scale.amount * 900), "apart"])
    if runner.paging is not None:
        # A counter that children have, too: the first file is the program's own.
        with open(runner.path(f"stats{runner.paging.runs}.json"), encoding="utf-8") as file:
            block = json.load(file)["block_bytes"]
        check(block == 4096, f"blocks of {block} bytes at the end, not split")


def learn(runner, scale):
    """Pages at random places, twice in the same order: the second run has what the first has learnt."""
    waits = []
    for _ in range(2):
        runner.run([runner.shared("split"), str(scale.amount), str(scale.amount * 600)], env={"TERAPAGE_LEARN": runner.path("learnt")})
        if runner.paging is not None:
            with open(runner.path(f"stats{runner.paging.runs}.json"), encoding="utf-8") as file:
                waits.append(json.load(file)["major_faults"])
    check(not waits or waits[1] * 4 < waits[0] * 3, f"major faults of the two runs: {waits}")


def bad_calls(*flags):
    """Calls with bad arguments, from the seeds that have found something, or from those that TERAPAGE_SEED names."""
    seeds = os.environ.get("TERAPAGE_SEED", "1 2 3 4 6").split()
    return c_program("bad_calls.c", *flags, arguments=lambda scale: [str(scale.amount), "1000", *seeds])


def server_prepare(runner, scale):
    c_program("server.c")["prepare"](runner, scale)


def server(runner, scale):
    """A program that gives up root's rights: its store's directory must be open to it then."""
    store = runner.path("store")
    os.makedirs(store, exist_ok=True)
    os.chmod(runner.shared("."), 0o711)
    for place in (runner.place, store):
        os.chmod(place, 0o777)
    runner.run([runner.shared("server"), str(scale.amount)])


def namespaces(*flags):
    """Processes whose children get a namespace of processes of their own."""
    case = c_program("namespaces.c", *flags)

    def prepare(runner, scale):
        if subprocess.run(["unshare", "--pid", "--fork", "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            raise Skipped("a namespace of processes takes root")
        case["prepare"](runner, scale)

    return {**case, "prepare": prepare}


def text(runner, scale):
    """Writes `amount` MB of text."""
    with open(runner.shared("text"), "wb") as file:
        generate = [sys.executable, os.path.join(ROOT, "tools", "gen-text"), str(scale.amount)]
        subprocess.run(generate, stdout=file, timeout=300, check=True)


def sort_prepare(runner, scale):
    need("sort")
    text(runner, scale)


def sort(runner, _scale):
    """GNU sort, its text and line table in memory."""
    runner.run(["sort", "-S", "6G", "--parallel=2", runner.shared("text")], env={"LC_ALL": "C"})


def xz_prepare(runner, scale):
    need("xz")
    text(runner, scale)


def xz(runner, _scale):
    """Compresses with two threads and decompresses again."""
    runner.run(["xz", "-T2", "-1", "--block-size=8MiB", "-c", runner.shared("text")], stdout="packed")
    runner.run(["xz", "-T2", "-dc", runner.path("packed")])
    same = filecmp.cmp(runner.shared("text"), runner.path("stdout"), shallow=False)
    check(same, "the text is not what it was")


SQL = """\
PRAGMA temp_store = MEMORY;
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, kind INTEGER, price INTEGER);
INSERT INTO item
  WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
  SELECT i, printf('item %09d of a list that is long', i * 7919 % {rows}), i % 97, i * 31 % 10007 FROM n;
CREATE INDEX item_price ON item (price, id);
SELECT count(*), sum(price), count(DISTINCT kind) FROM item;
SELECT kind, count(*), sum(price), min(name), max(name) FROM item GROUP BY kind ORDER BY kind;
SELECT count(*) FROM item WHERE price BETWEEN 100 AND 120;
UPDATE item SET price = price + 1 WHERE id % 5 = 0;
DELETE FROM item WHERE id % 11 = 0;
SELECT count(*), sum(price), max(length(name)) FROM item;
PRAGMA integrity_check;
"""


def sqlite_prepare(runner, scale):
    need("sqlite3")
    with open(runner.shared("script.sql"), "w", encoding="utf-8") as file:
        file.write(SQL.format(rows=scale.amount))


def sqlite(runner, _scale):
    """A database in memory: inserts, an index, sums, an integrity check."""
    runner.run(["sqlite3", "-bail", ":memory:"], stdin=runner.shared("script.sql"))
    with open(runner.path("stdout"), encoding="utf-8") as file:
        last = file.read().split("\n")[-2]
    check(last == "ok", f"integrity check: {last}")


def numpy_prepare(_runner, _scale):
    need(SYSTEM_PYTHON)
    found = subprocess.run([SYSTEM_PYTHON, "-c", "import numpy"], capture_output=True, timeout=300, check=False)
    if found.returncode != 0:
        need("python3-numpy")


def numpy(runner, scale):
    """Sort, gather and matrix product, with two threads in the linear algebra."""
    runner.run([SYSTEM_PYTHON, os.path.join(SOURCES, "arrays.py"), str(scale.amount)], env={"OPENBLAS_NUM_THREADS": "2"})


def forks(runner, scale):
    """Children of Python with numpy."""
    runner.run([SYSTEM_PYTHON, os.path.join(SOURCES, "forks.py"), str(scale.amount)])


def limits_python(runner, scale):
    """Python's `resource`, and limits that a shell or a fork's child sets before it runs another program."""
    runner.run([SYSTEM_PYTHON, os.path.join(SOURCES, "limits.py"), str(scale.amount)])


def redis_value(key):
    """The value of a key: 40 to 300 bytes, mostly short."""
    return hashlib.sha256(b"%d" % key).hexdigest() * (1 + (key % 7 == 0) + 2 * (key % 31 == 0))


def redis_prepare(runner, scale):
    need("redis-server", "redis-cli")
    with open(runner.shared("fill"), "w", encoding="ascii", newline="") as file:
        for key in range(scale.amount):
            value = redis_value(key)
            file.write(f"*3\r\n$3\r\nSET\r\n${len(str(key)) + 4}\r\nkey:{key}\r\n${len(value)}\r\n{value}\r\n")


def redis(runner, scale):
    """Fills a server, saves in the background while values change, reloads, and checks the values.

    The server listens on a socket in the run's own directory alone.
    """
    socket = runner.path("redis.sock")
    server = ["redis-server", "--port", "0", "--unixsocket", socket, "--dir", runner.place, "--save", "", "--daemonize", "no"]
    server += ["--enable-debug-command", "local"]

    def ask(*words, stdin=subprocess.DEVNULL):
        done = subprocess.run(
            ["redis-cli", "-s", socket, *words], stdin=stdin, capture_output=True, text=True, timeout=runner.timeout_s, check=False
        )
        return done.stdout.strip()

    def up(child):
        check(child.process.poll() is None, f"the server ended: {child.last_words()} {child.output()[-300:]}")
        return ask("ping") == "PONG"

    def expect(answer, wanted, what):
        check(answer == wanted, f"{what}: {answer[:200]!r}, not {wanted[:200]!r}")

    def values_are_right():
        expect(ask("dbsize"), str(scale.amount), "dbsize")
        for key in range(0, scale.amount, max(1, scale.amount // 200)):
            wanted = redis_value(key)
            expect(ask("get", f"key:{key}"), wanted, f"key:{key}")

    with runner.start(server, stdout="server") as child:
        wait_for(lambda: up(child), "the server answers")
        with open(runner.shared("fill"), "rb") as fill:
            answer = ask("--pipe", stdin=fill)
        check(f"errors: 0, replies: {scale.amount}" in answer, f"filling: {answer[-300:]}")
        values_are_right()
        expect(ask("bgsave"), "Background saving started", "bgsave")
        # These are written while the child saves: the file must hold the values as of the fork.
        for key in range(0, scale.amount, max(1, scale.amount // 50)):
            expect(ask("set", f"key:{key}", "changed"), "OK", "set")
        wait_for(lambda: "rdb_bgsave_in_progress:0" in ask("info", "persistence"), "the save ends", runner.timeout_s)
        check("rdb_last_bgsave_status:ok" in ask("info", "persistence"), "the save failed")
        ask("shutdown", "nosave")
        runner.finish(child)
    with runner.start(server, stdout="server") as child:
        wait_for(lambda: up(child) and "loading:0" in ask("info", "persistence"), "the server loads", runner.timeout_s)
        values_are_right()
        with open(runner.path("stdout"), "w", encoding="ascii") as file:
            print(ask("debug", "digest") if ask("dbsize") == str(scale.amount) else "no digest", file=file)
        ask("shutdown", "nosave")
        runner.finish(child)


POSTGRES = "SELECT setting FROM pg_settings WHERE name IN ('work_mem', 'maintenance_work_mem') ORDER BY name;"
POSTGRES += """
CREATE UNLOGGED TABLE t AS
    SELECT g AS id, g * 2654435761 %% 4294967291 AS k, md5(g::text) AS s FROM generate_series(1, %(rows)d::bigint) g;
ANALYZE t;
SELECT count(*), sum(a.k %% 1000 * b.id %% 1000003) FROM t a JOIN t b USING (id, k);
SELECT sum(k %% 1000 * n %% 1000003) FROM (SELECT k, row_number() OVER (ORDER BY k) n FROM t) numbered;
SELECT md5(string_agg(n || ':' || c || ':' || l, ',' ORDER BY n)) FROM (SELECT left(s, 3) n, count(*) c, max(k) l FROM t GROUP BY 1) g;
SELECT percentile_disc(0.25) WITHIN GROUP (ORDER BY k) FROM t;
CREATE INDEX by_text ON t (s);
SET enable_seqscan = off;
SELECT count(*), min(s), max(s) FROM t WHERE s BETWEEN '4' AND '8';
"""


def postgres_prepare(_runner, _scale):
    need("psql", "runuser")
    if os.geteuid() != 0:
        raise Skipped("needs root, which becomes PostgreSQL's user")
    if not postgres_programs() or subprocess.run(["id", "postgres"], capture_output=True, timeout=300, check=False).returncode:
        raise Skipped("not installed: PostgreSQL's server, with a user postgres")


def postgres_programs():
    """Debian's directory of the server's programs, of the newest version."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
    return os.path.dirname(found[-1]) if found else None


def postgres(runner, scale):
    """A server that root starts as another user, by an exec: the processes that it forks join, sort and build an index.

    It listens on a socket in the run's own directory alone.
    """
    programs, data = postgres_programs(), runner.path("data")
    as_user = ["runuser", "-u", "postgres", "--"]
    os.makedirs(runner.path("store"), exist_ok=True)
    os.chmod(runner.shared("."), 0o711)
    for place in (runner.place, runner.path("store")):
        os.chmod(place, 0o777)
    os.mkdir(data)
    shutil.chown(data, "postgres")

    def administer(*words, stdin=None):
        done = subprocess.run(
            [*as_user, *words], cwd=runner.place, input=stdin, capture_output=True, text=True, timeout=runner.timeout_s, check=False
        )
        check(done.returncode == 0, f"{words[0]}: {done.stderr.strip()[-300:]}")
        return done.stdout

    administer(f"{programs}/initdb", "-D", data, "--auth=trust", "--no-sync", "--locale=C")
    settings = {
        "listen_addresses": "", "unix_socket_directories": runner.place, "work_mem": "256MB", "maintenance_work_mem": "256MB",
        "shared_buffers": "32MB", "max_parallel_workers_per_gather": "0", "max_parallel_maintenance_workers": "0", "fsync": "off",
    }
    server = [*as_user, f"{programs}/postgres", "-D", data]
    server += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    # The build may be in a directory that only its owner can enter.
    library = os.path.join(os.path.dirname(os.path.realpath(runner.paging.prefix[0])), LIBRARY) if runner.paging else None
    env = {"TERAPAGE_LIBRARY": shutil.copy(library, runner.shared(LIBRARY))} if library else None
    with runner.start(server, stdout="server", env=env) as child:
        ask = ["psql", "-h", runner.place, "-d", "postgres", "-AtX", "-v", "ON_ERROR_STOP=1"]

        def up():
            check(child.process.poll() is None, f"the server ended: {child.last_words()}")
            return subprocess.run([*as_user, *ask, "-c", "SELECT 1"], capture_output=True, timeout=300, check=False).returncode == 0

        wait_for(up, "the server answers")
        answers = administer(*ask, stdin=POSTGRES % {"rows": scale.amount})
        check(f"{scale.amount}|" in answers, f"the join: {answers[:300]!r}")
        with open(runner.path("stdout"), "w", encoding="ascii") as file:
            file.write(answers)
        administer(f"{programs}/pg_ctl", "stop", "-D", data, "-m", "fast")
        runner.finish(child)


def workers(kind, count):
    """Preparation and body for workers that each want more than the budget of all."""

    def body(runner, scale):
        runner.run([runner.shared("share"), "work", kind, str(count), str(scale.amount), "2"])

    return {"prepare": c_program("share.c")["prepare"], "body": body}


POOL = """
import multiprocessing, multiprocessing.resource_tracker, sys

def work(number):
    array = bytearray(number.to_bytes(1, "little") * (int(sys.argv[1]) << 20))
    for at in range(0, len(array), 4096):
        array[at] = (array[at] + at // 4096) % 256
    return number, sum(array[::4096]), array.count(number)

if __name__ == "__main__":
    for kind in ("fork", "spawn"):
        with multiprocessing.get_context(kind).Pool(3) as pool:
            print(kind, pool.map(work, range(1, 7)))
    # Otherwise the tracker ends some time after this process.
    multiprocessing.resource_tracker._resource_tracker._stop()
"""


def multiprocessing_prepare(runner, _scale):
    need(SYSTEM_PYTHON)
    with open(runner.shared("pool.py"), "w", encoding="ascii") as file:
        file.write(POOL)


def multiprocessing(runner, scale):
    """Python's workers, forked and spawned."""
    runner.run([SYSTEM_PYTHON, runner.shared("pool.py"), str(scale.amount)])


def make_prepare(runner, scale):
    need("make")
    c_program("share.c")["prepare"](runner, scale)


def make(runner, scale):
    """The commands of make -j, each in a shell."""
    rules = "all: 1 2 3 4\n%:\n\t@sleep 0; {} one $@ {} 1 > $@\n"
    with open(runner.path("Makefile"), "w", encoding="ascii") as file:
        file.write(rules.format(runner.shared("share"), scale.amount))
    runner.run(["make", "-s", "-j4"])
    with open(runner.path("stdout"), "a", encoding="ascii") as out:
        for number in range(1, 5):
            with open(runner.path(str(number)), encoding="ascii") as file:
                out.write(file.read())


def stress_prepare(_runner, _scale):
    need("stress-ng")


def stress(runner, scale):
    """The methods of stress-ng that check memory, each for a fixed number of operations."""
    for method in ("flip", "gray", "incdec", "inc-nybble", "move-inv", "ror", "swap", "walk-0a", "zero-one"):
        command = ["stress-ng", "--vm", "1", "--vm-bytes", f"{scale.amount}M", "--vm-method", method]
        runner.run([*command, "--vm-ops", "300", "--verify", "--temp-path", runner.place, "--no-rand-seed"], stdout=method)
        with open(runner.path(method + ".err"), encoding="utf-8", errors="replace") as file:
            words = file.read()
        if "fail:" in words or "error:" in words:
            raise Failed(f"{method}: {words.strip()[-300:]}")


def busybox_prepare(runner, scale):
    need("busybox")
    sort_prepare(runner, scale)


def busybox(runner, _scale):
    """BusyBox: static, in the package busybox-static."""
    runner.run([shutil.which("busybox"), "sort", runner.shared("text")], env={"LC_ALL": "C"})


def guarded(runner, scale):
    """System calls on memory that is out, while the kernel hands none of its own faults to the pager."""
    runner.run([runner.shared("guarded"), "64", str(scale.amount), "1"], env={"TERAPAGE_GUARD": "force"})


def stopped_guarded(runner, scale):
    """A stopped program whose memory others read: nobody waits for the pager, which is stopped too."""
    runner.run([runner.shared("stopped"), str(scale.amount), "guarded"], env={"TERAPAGE_GUARD": "force"})


CASES = [
    Case("sort", Scale(80, 60), Scale(768, 600), sort_prepare, sort),
    Case("xz", Scale(32, 30), Scale(32, 300), xz_prepare, xz, outputs=("packed", "stdout")),
    Case("sqlite", Scale(68, 600_000), Scale(680, 6_000_000), sqlite_prepare, sqlite),
    Case("numpy", Scale(64, 5_000_000), Scale(768, 60_000_000), numpy_prepare, numpy),
    Case("redis", Scale(56, 400_000), Scale(560, 4_000_000), redis_prepare, redis, per_process=True),
    Case("postgres", Scale(24, 300_000), Scale(200, 3_000_000), postgres_prepare, postgres, only_soak=True, per_process=True),
    Case("stress-ng", Scale(64, 80), Scale(512, 640), stress_prepare, stress, outputs=(), pages=False, per_process=True, only_soak=True),
    Case("openmp", Scale(56, 4), Scale(640, 48), **compiled("gcc", "openmp.c", "-O2", "-fopenmp", "-DN=({amount}L<<20)")),
    Case(
        "fortran",
        Scale(56, 4_000_000),
        Scale(640, 48_000_000),
        **compiled("gfortran", "common.f90", "-cpp", "-O2", "-DN_VALUES={amount}"),
    ),
    Case(
        "containers",
        Scale(62, 300_000),
        Scale(640, 3_000_000),
        **compiled("g++", "containers.cpp", "-O2", "-std=c++17"),
    ),
    Case(
        "rust",
        Scale(68, 1_000_000),
        Scale(700, 10_000_000),
        **compiled("rustc", "collections.rs", "-O", "--edition=2024"),
    ),
    Case("fork", Scale(32, 32), Scale(300, 400), **c_program("fork.c"), per_process=True),
    Case("cold-fork", Scale(32, 128), Scale(64, 640), **c_program("cold_fork.c", "-Wno-pointer-arith"), per_process=True),
    Case("workers", Scale(128, 110), Scale(512, 400), **workers("exec", 4), shares=True),
    Case("forked-workers", Scale(128, 110), Scale(512, 400), **workers("fork", 4), shares=True),
    # The workers of a pool are killed, so they write no counters.
    Case("multiprocessing", Scale(64, 110), Scale(300, 500), multiprocessing_prepare, multiprocessing, pages=False, shares=True, only_soak=True),
    Case("make", Scale(96, 80), Scale(512, 400), make_prepare, make, shares=True),
    Case("huge-fork", Scale(64, 90), Scale(512, 700), **c_program("huge_fork.c"), per_process=True),
    Case("forks", Scale(40, 10_000_000), Scale(128, 60_000_000), numpy_prepare, forks, per_process=True),
    Case("mappings", Scale(24, 16), Scale(256, 256), **c_program("mappings.c")),
    Case("refusals", Scale(8, 16), Scale(128, 256), **c_program("refusals.c", "-pthread")),
    Case("mapping-walk", Scale(8, 6000), Scale(8, 60_000), **c_program("mapping_walk.c")),
    # With this seed, memory of several mappings is moved in one call.
    Case("mapping-walk-moves", Scale(8, 10_000), Scale(8, 10_000), **c_program("mapping_walk.c", arguments=lambda scale: [str(scale.amount), "0", "7314"])),
    Case("heap-walk", Scale(6, 500), Scale(6, 20_000), **c_program("heap_walk.c", "-fno-builtin")),
    Case("transfer-walk", Scale(6, 450), Scale(6, 15_000), **c_program("transfer_walk.c")),
    Case("thread-walk", Scale(6, 300), Scale(6, 10_000), **c_program("thread_walk.c")),
    Case("direct-walk", Scale(8, 1500), Scale(8, 30_000), **c_program("direct_walk.c", "-pthread")),
    Case("begin", Scale(32, 18), Scale(256, 140), **c_program("begin.c"), pages=False),
    Case("mapping-walk-wide", Scale(8, 6000), Scale(8, 60_000), **c_program("mapping_walk.c", arguments=lambda scale: [str(scale.amount), "1024"])),
    Case("object-walk", Scale(8, 400), Scale(8, 6000), **c_program("object_walk.c", "-fno-builtin")),
    Case("reservations", Scale(16, 32), Scale(128, 512), **c_program("reservations.c")),
    Case("scattered", Scale(32, 48), Scale(128, 192), c_program("scattered.c")["prepare"], scattered),
    Case("split", Scale(16, 48), Scale(128, 512), c_program("split.c")["prepare"], split, per_process=True),
    Case("learn", Scale(16, 48), Scale(128, 512), c_program("split.c")["prepare"], learn, per_process=True),
    Case("handlers", Scale(32, 64), Scale(256, 512), **c_program("handlers.c"), per_process=True),
    Case("waits", Scale(24, 48), Scale(128, 512), **c_program("waits.c", "-pthread"), per_process=True),
    Case("waits-static", Scale(24, 48), Scale(128, 512), **c_program("waits.c", "-pthread", "-static"), per_process=True),
    Case("waits-musl", Scale(24, 48), Scale(128, 512), **compiled("musl-gcc", "waits.c", "-O2"), per_process=True),
    Case("waits-hosted", Scale(24, 48), Scale(128, 512), **all_hosted(**c_program("waits.c", "-pthread")), per_process=True),
    *CANCELS,
    Case("processors", Scale(16, 32), Scale(64, 256), **c_program("processors.c")),
    Case("stopped", Scale(16, 64), Scale(128, 512), **c_program("stopped.c"), per_process=True),
    Case("stopped-guarded", Scale(16, 64), Scale(128, 512), c_program("stopped.c")["prepare"], stopped_guarded, per_process=True),
    Case("own-memory", Scale(16, 64), Scale(128, 512), **c_program("own_memory.c", "-pthread"), per_process=True),
    Case("own-memory-static", Scale(16, 64), Scale(128, 512), **c_program("own_memory.c", "-pthread", "-static"), per_process=True),
    Case("spawned-actions", Scale(16, 64), Scale(128, 512), **c_program("spawned_actions.c", "-pthread"), per_process=True),
    Case("spawned-actions-static", Scale(16, 64), Scale(128, 512), **c_program("spawned_actions.c", "-pthread", "-static"), per_process=True),
    Case("vforks", Scale(24, 48), Scale(128, 320), **c_program("vforks.c"), per_process=True),
    Case("vforks-static", Scale(24, 48), Scale(128, 320), **c_program("vforks.c", "-static"), per_process=True),
    Case("processors-static", Scale(16, 32), Scale(64, 256), **c_program("processors.c", "-static")),
    Case("bad-calls", Scale(8, 16), Scale(64, 128), **bad_calls(), per_process=True),
    Case("bad-calls-static", Scale(8, 16), Scale(64, 128), **bad_calls("-static"), per_process=True),
    Case("registers-static", Scale(16, 48), Scale(64, 256), **c_program("registers.c", "-static"), per_process=True),
    Case("mutexes", Scale(8, 16), Scale(64, 160), **c_program("mutexes.c")),
    Case("namespaces", Scale(8, 16), Scale(64, 320), **namespaces()),
    Case("namespaces-static", Scale(8, 16), Scale(64, 320), **namespaces("-static")),
    Case("personality", Scale(8, 16), Scale(64, 320), **c_program("personality.c")),
    Case("static", Scale(32, 96), Scale(256, 512), **hosted("gcc", "-static", "-pthread"), per_process=True),
    Case("static-pie", Scale(32, 96), Scale(256, 512), **hosted("gcc", "-static-pie", "-pthread"), per_process=True),
    Case("musl", Scale(32, 96), Scale(256, 512), **hosted("musl-gcc"), per_process=True),
    Case("musl-static", Scale(32, 96), Scale(256, 512), **hosted("musl-gcc", "-static"), per_process=True),
    Case("go", Scale(48, 500_000), Scale(400, 4_000_000), **go(), per_process=True),
    Case("go-with-c", Scale(48, 500_000), Scale(400, 4_000_000), **go(with_c=True), per_process=True),
    Case("go-server", Scale(64, 160), Scale(400, 1024), **go("server.go"), per_process=True, only_soak=True),
    Case("rust-musl", Scale(32, 6_000_000), Scale(256, 60_000_000), **rust_musl()),
    Case("bbolt", Scale(20, 60_000), Scale(120, 400_000), **bbolt(), per_process=True),
    Case("nim", Scale(56, 400_000), Scale(400, 4_000_000), **nim()),
    Case("zig", Scale(32, 96), Scale(256, 512), **zig()),
    Case("musl-root", Scale(32, 96), Scale(256, 512), **musl_root(), outputs=("stdout", "sorted"), per_process=True),
    Case("tools", Scale(32, 64), Scale(128, 256), **tools(), outputs=("stdout", "traced", "counted", "stopped"), per_process=True),
    Case("busybox", Scale(48, 24), Scale(900, 300), busybox_prepare, busybox),
    Case("own-filter", Scale(32, 96), Scale(256, 512), own_filter_prepare, own_filter, per_process=True),
    Case("raw-exit", Scale(32, 96), Scale(256, 512), raw_exit_prepare, raw_exit, pages=False),
    Case("raw-end", Scale(32, 96), Scale(256, 512), c_program("raw_end.c")["prepare"], raw_end),
    Case("server", Scale(32, 64), Scale(256, 512), server_prepare, server, per_process=True),
    Case("own-malloc", Scale(32, 64), Scale(256, 512), **c_program("own_malloc.c", "-fno-builtin", "-rdynamic")),
    *(
        Case(name, Scale(32, 64), Scale(256, 512), **c_program("own_malloc.c", "-fno-builtin", "-rdynamic", "-DRESERVES=" + rights))
        for name, rights in (("malloc-reserves", "PROT_NONE"), ("malloc-maps-all", "PROT_READ|PROT_WRITE"))
    ),
    Case("malloc-library", Scale(32, 64), Scale(256, 512), malloc_library_prepare, malloc_library),
    *HEAPS,
    Case("brk", Scale(16, 64), Scale(128, 512), **c_program("brk.c")),
    Case("mallinfo", Scale(16, 64), Scale(128, 512), **c_program("mallinfo.c", "-fno-builtin", "-Wno-deprecated-declarations")),
    Case("chunks", Scale(16, 64), Scale(128, 512), **c_program("chunks.c")),
    Case("node", Scale(64, 60_000), Scale(400, 400_000), node_prepare, node),
    Case("java", Scale(48, 80), Scale(300, 700), java_prepare, java, outputs=()),
    Case("hints", Scale(16, 64), Scale(128, 512), **c_program("hints.c")),
    # Not paged: the heaps of Racket and SBCL are executable, and wasmtime maps past the C library,
    # unless it is hosted.
    Case("luajit", Scale(72, 500_000), Scale(300, 3_000_000), *jit("luajit")),
    Case("pypy", Scale(96, 400_000), Scale(500, 3_000_000), *jit("pypy")),
    Case("php-jit", Scale(64, 300_000), Scale(300, 2_000_000), *jit("php-jit")),
    Case("yjit", Scale(36, 200_000), Scale(300, 2_000_000), *jit("yjit")),
    Case("guile", Scale(64, 400_000), Scale(300, 3_000_000), *jit("guile")),
    Case("racket", Scale(160, 400_000), Scale(800, 2_000_000), *jit("racket"), pages=False),
    Case("sbcl", Scale(64, 300_000), Scale(600, 2_000_000), *jit("sbcl"), pages=False),
    Case("mono", Scale(40, 400_000), Scale(300, 4_000_000), *jit("mono")),
    Case("beam", Scale(128, 400_000), Scale(500, 3_000_000), *jit("beam")),
    Case("numba", Scale(96, 2_000_000), Scale(300, 12_000_000), *jit("numba")),
    Case("wasmtime", Scale(192, 2_000), Scale(900, 12_000), *jit("wasmtime"), pages=False),
    Case("wasmtime-hosted", Scale(64, 2_000), Scale(900, 12_000), **all_hosted(*jit("wasmtime"))),
    Case("direct-walk-hosted", Scale(8, 1500), Scale(8, 30_000), **all_hosted(**c_program("direct_walk.c", "-pthread"))),
    Case("node-hosted", Scale(64, 60_000), Scale(400, 400_000), **all_hosted(node_prepare, node)),
    Case("limits", Scale(32, 160), Scale(256, 1024), **c_program("limits.c", "-fno-builtin")),
    Case("limits-python", Scale(48, 256), Scale(256, 1024), lambda *_: need(SYSTEM_PYTHON), limits_python),
    Case("guarded", Scale(24, 1500), Scale(24, 200_000), c_program("guarded.c", "-pthread")["prepare"], guarded),
    Case("zero-copy", Scale(32, 128), Scale(256, 640), **c_program("zero_copy.c")),
    Case("plugin", Scale(32, 64), Scale(256, 512), plugin_prepare, plugin),
    Case("allocations", Scale(36, 48), Scale(400, 512), **c_program("allocations.c", "-fno-builtin")),
    Case("mapped-sqlite", Scale(24, 45), Scale(256, 500), mapped.sqlite_prepare, mapped.sqlite),
    Case("mapped-lmdb", Scale(24, 48), Scale(256, 512), **mapped.in_python("mapped_lmdb.py", "lmdb", "LMDB: random gets, and a scan.")),
    Case("mapped-numpy", Scale(24, 48), Scale(256, 512), **mapped.in_python("mapped_arrays.py", "numpy", "numpy.memmap: columns, random rows, a sum.")),
    Case(
        "mapped-numpy-changed",
        Scale(24, 48),
        Scale(256, 512),
        **mapped.in_python("mapped_arrays.py", "numpy", "numpy.memmap in mode c: half of a matrix is changed, in memory only.", "change"),
    ),
    Case("mapped-linker", Scale(24, 40), Scale(96, 200), mapped.linker_prepare, mapped.linker, outputs=("stdout", "linked")),
    Case("kept", Scale(16, 48), Scale(24, 56), **c_program("kept.c", "-fno-builtin"), pages=False),
]

# Cases that `make test` runs a second time, while the kernel gives huge pages to all memory.
ALWAYS = ("numpy", "forks", "mappings", "reservations", "mapping-walk-wide", "heap-walk", "object-walk", "transfer-walk")

# Cases that `make test` runs as a user without rights, too.
GUARDED = (
    *("sort", "xz", "sqlite", "redis", "openmp", "workers", "heap-walk", "transfer-walk", "thread-walk", "begin"),
    *("static", "musl", "waits-static", "cancels", "cancels-static", "cancels-musl", "vforks-static"),
    *("own-memory-static", "own-malloc", "malloc-reserves", "malloc-maps-all", "malloc-library", "bad-calls", "refusals"),
)
