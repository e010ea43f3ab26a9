"""Cases of programs that load no library, which a host pages (docs/host.md)."""

import os
import re
import shutil
import subprocess

from case import SOURCES, STRICT, Case, Scale, build, c_program, compiled, seeded
from harness import Skipped, check, need, need_root, terapage


def hosted(compiler, *flags):
    """A program that loads no library, executes a dynamic program, and is executed by one."""

    def prepare(runner, _scale):
        source = os.path.join(SOURCES, "hosted.c")
        build(runner, [compiler, *flags, *STRICT, source], "hosted")
        build(runner, ["gcc", "-pthread", *STRICT, source], "other")

    def body(runner, scale):
        names = [runner.shared("hosted"), runner.shared("other")]
        for out, (one, other) in (("stdout", names), ("other", reversed(names))):
            runner.run([one, str(scale.amount), other], stdout=out, expect=5)

    return {"prepare": prepare, "body": body, "outputs": ("stdout", "other")}


# Where Debian's packages of Go libraries are.
GO_LIBRARIES = "/usr/share/gocode"


def built_by_go(runner, source, with_c=False):
    """Builds a Go program of one file."""
    need("go")
    env = {**os.environ, "CGO_ENABLED": "1" if with_c else "0", "GOCACHE": runner.shared("cache"), "GO111MODULE": "off", "GOPATH": GO_LIBRARIES}
    command = ["go", "build", "-o", runner.shared("hosted"), source]
    built = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=env)
    check(built.returncode == 0, f"go: {built.stderr.strip()[-300:]}")


def go(name="hosted.go", with_c=False):
    """A Go program, without or with C."""

    def prepare(runner, _scale):
        source = os.path.join(SOURCES, name)
        if with_c:
            text = open(source, encoding="utf-8").read()
            source = runner.shared("with_c.go")
            with open(source, "w", encoding="utf-8") as file:
                file.write(text.replace("package main\n", "package main\n\n// int one(void) { return 1; }\nimport \"C\"\n", 1))
                file.write("\nfunc init() {\n\tif C.one() != 1 {\n\t\tpanic(\"C\")\n\t}\n}\n")
        built_by_go(runner, source, with_c)

    def body(runner, scale):
        runner.run([runner.shared("hosted"), str(scale.amount)])

    return {"prepare": prepare, "body": body}


def all_hosted(prepare, body):
    """A case whose dynamic program is hosted, so that all its calls are heard."""

    class Hosting:
        """A runner with that setting."""

        def __init__(self, runner):
            self.runner = runner

        def __getattr__(self, name):
            return getattr(self.runner, name)

        def run(self, argv, env=None, **more):
            self.runner.run(argv, env={**(env or {}), "TERAPAGE_STATIC": "all"}, **more)

    return {"prepare": prepare, "body": lambda runner, scale: body(Hosting(runner), scale)}


def own_filter_prepare(runner, _scale):
    build(runner, ["gcc", "-static", *STRICT, os.path.join(SOURCES, "own_filter.c")], "own_filter")


def own_filter(runner, scale):
    """A static program with its own filter of system calls."""
    runner.run([runner.shared("own_filter"), str(scale.amount)])


def raw_exit_prepare(runner, scale):
    source = os.path.join(SOURCES, "raw_exit.s")
    build(runner, ["gcc", "-static", "-nostdlib", f"-Wa,--defsym,BYTES={scale.amount << 20}", source], "raw_exit")


def raw_exit(runner, _scale):
    """A program that ends its only thread: the pager's thread must end, too."""
    runner.run([runner.shared("raw_exit")], expect=37)


def raw_end(runner, scale):
    """The same in a dynamic program, whose C library does not learn that its threads end."""
    for way in ("instruction", "call", "threads"):
        runner.run([runner.shared("raw_end"), str(scale.amount), way], expect=37)


def one_file(prepare, does):
    """A case whose preparation builds one program, `hosted`."""

    def body(runner, scale):
        runner.run([runner.shared("hosted"), str(scale.amount)])

    body.__doc__ = does
    return {"prepare": prepare, "body": body}


def compile_with(runner, command, env=None):
    """Runs a compiler with its own caches; what it says if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=env, cwd=runner.shared("."))
    return "" if done.returncode == 0 else done.stderr.strip()[-300:] or f"status {done.returncode}"


def rust_musl():
    """A Rust program with musl."""

    def prepare(runner, _scale):
        need("rustc")
        command = ["rustc", "--edition", "2024", "-O", "--target", "x86_64-unknown-linux-musl", os.path.join(SOURCES, "hosted.rs")]
        why = compile_with(runner, [*command, "-o", runner.shared("hosted")])
        if "E0463" in why:
            raise Skipped("rustup has no target x86_64-unknown-linux-musl")
        check(not why, f"rustc: {why}")

    return one_file(prepare, rust_musl.__doc__)


def bbolt():
    """A Go program that keeps pairs in a bbolt file, which it maps, and in large transactions."""

    def prepare(runner, _scale):
        if not os.path.isdir(f"{GO_LIBRARIES}/src/go.etcd.io/bbolt"):
            raise Skipped("not installed: golang-github-coreos-bbolt-dev")
        built_by_go(runner, os.path.join(SOURCES, "bbolt.go"))

    def body(runner, scale):
        runner.run([runner.shared("hosted"), str(scale.amount), runner.path("pairs.db")])

    return {"prepare": prepare, "body": body}


def nim():
    """A static Nim program: sequences, tables and strings in its own heap."""

    def prepare(runner, _scale):
        need("nim")
        flags = ["-d:release", "--passL:-static", f"--nimcache:{runner.shared('cache')}", f"--out:{runner.shared('hosted')}"]
        why = compile_with(runner, ["nim", "c", *flags, os.path.join(SOURCES, "hosted.nim")])
        check(not why, f"nim: {why}")

    return one_file(prepare, nim.__doc__)


def zig():
    """A Zig program without a C library, which makes all system calls by the instruction."""

    def prepare(runner, scale):
        need("zig")
        with open(os.path.join(SOURCES, "hosted.zig"), encoding="utf-8") as file:
            text = file.read().replace("MIB", str(scale.amount))
        with open(runner.shared("sized.zig"), "w", encoding="utf-8") as file:
            file.write(text)
        env = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": runner.shared("cache"), "ZIG_LOCAL_CACHE_DIR": runner.shared("cache")}
        command = ["zig", "build-exe", "-O", "ReleaseSafe", f"-femit-bin={runner.shared('hosted')}", runner.shared("sized.zig")]
        why = compile_with(runner, command, env)
        check(not why, f"zig: {why}")

    return one_file(prepare, zig.__doc__)


# A root as Alpine's: musl's loader and BusyBox. The C library and the directory of the host and the
# paging library are there as well, as in a container that has Terapage.
MUSL_ROOT = """\
set -e
root=$1 terapage=$2 here=$3
shift 3
for dir in bin lib lib/x86_64-linux-gnu lib64 dev proc "$terapage" "$here"; do mkdir -p "$root/$dir"; done
cp /lib/ld-musl-x86_64.so.1 "$root/lib/"
cp /bin/busybox "$root/bin/"
for name in sh echo sort; do ln -sf busybox "$root/bin/$name"; done
for dir in /lib/x86_64-linux-gnu /lib64 /dev /proc "$terapage" "$here"; do mount --rbind "$dir" "$root$dir"; done
exec chroot "$root" "$@"
"""


def musl_root():
    """In a root as Alpine's: a program for musl's loader, and BusyBox."""

    def prepare(runner, _scale):
        need_root()
        need("unshare", "chroot", "busybox")
        build(runner, ["musl-gcc", *STRICT, os.path.join(SOURCES, "hosted.c")], "hosted")
        with open(runner.shared("enter.sh"), "w", encoding="ascii") as file:
            file.write(MUSL_ROOT)
        with open(runner.shared("lines"), "w", encoding="ascii") as file:
            file.writelines(f"{number * 7919 % 1000003:048}\n" for number in range(400_000))

    def body(runner, scale):
        for name in ("hosted", "lines"):
            shutil.copy(runner.shared(name), runner.path(name))
        enter = ["unshare", "-m", "sh", runner.shared("enter.sh"), runner.path("root"), os.path.dirname((terapage() or ["/opt/none"])[0]), runner.place]
        program = runner.path("hosted")
        runner.run([*enter, program, str(scale.amount), program], expect=5)
        runner.run([*enter, "/bin/sh", "-c", 'exec sort "$0"', runner.path("lines")], stdout="sorted")

    return {"prepare": prepare, "body": body}


# gdb stops at the first trapped call, when the program is loaded: then it can set breakpoints.
GDB = """\
set pagination off
set startup-with-shell off
handle SIGPROF SIGSEGV nostop noprint pass
{first}
handle SIGSYS nostop noprint pass
tbreak forks
{then}
backtrace
print count
continue
"""


def tools():
    """A static program alone, and in strace, perf and gdb."""

    def prepare(runner, _scale):
        need("strace", "perf", "gdb")
        source = os.path.join(SOURCES, "hosted.c")
        build(runner, ["gcc", "-static", "-pthread", *STRICT, "-g", "-O0", source], "hosted")
        build(runner, ["gcc", "-pthread", *STRICT, source], "other")

    def body(runner, scale):
        program = [runner.shared("hosted"), str(scale.amount), runner.shared("other")]
        runner.run(program, expect=5)
        runner.run(["strace", "-f", "-qq", "-o", runner.path("calls"), *program], stdout="traced", expect=5)
        runner.run(["perf", "record", "-q", "-o", runner.path("samples"), *program], stdout="counted", expect=5)
        first, then = ("", "run") if runner.paging is None else ("run", "continue")
        with open(runner.path("commands"), "w", encoding="ascii") as file:
            file.write(GDB.format(first=first, then=then))
        runner.run(["gdb", "-q", "-nx", "-batch", "-x", runner.path("commands"), "--args", *program], stdout="gdb")
        with open(runner.path("gdb"), encoding="utf-8") as file:
            said = file.read()
        check(re.search(r"^#0 +forks .*\n#1 .* main ", said, re.M) and f"$1 = {scale.amount << 17}\n" in said, f"gdb: {said[-500:]}")
        with open(runner.path("stopped"), "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in said.splitlines() if re.match("at the end: |own file: |a child reads ", line))

    return {"prepare": prepare, "body": body}


def cancels(name, prepare, body):
    """A case of threads that are cancelled in calls; with `-fexceptions` their stacks are unwound."""
    return Case(name, Scale(16, 32), Scale(64, 256), prepare, body, per_process=True)


CANCELS = (
    cancels("cancels", **c_program("cancels.c", "-fexceptions", arguments=seeded("1"))),
    cancels("cancels-static", **c_program("cancels.c", "-fexceptions", "-static", arguments=seeded("1"))),
    cancels("cancels-musl", **compiled("musl-gcc", "cancels.c", "-O2", arguments=seeded("1"))),
    cancels("cancels-hosted", **all_hosted(**c_program("cancels.c", "-fexceptions", arguments=seeded("1")))),
)
