"""What may go wrong with programs that a host pages: other roots, rights, tools that watch them. And shared memory."""

import os
import re
import shutil
import subprocess

from harness import Child, Skipped, check, need, need_root

SOURCES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "programs", "src")
RAN = '#include <stdio.h>\nint main(void) { puts("ran"); return 5; }\n'


def built(bench, name, *words):
    """Compiles a program."""
    done = subprocess.run([*words, "-o", bench.path(name)], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise Skipped(f"{' '.join(words[:2])}: {done.stderr.strip()[-200:]}")
    return bench.path(name)


def source(name):
    """A source of the test programs."""
    return os.path.join(SOURCES, name)


def starters(bench):
    """A static program that says "ran", and a static one that executes others."""
    need("gcc")
    with open(bench.path("ran.c"), "w", encoding="ascii") as file:
        file.write(RAN)
    return built(bench, "ran", "gcc", "-static", bench.path("ran.c")), built(bench, "starter", "gcc", "-static", source("starter.c"))


def ours(child):
    """The lines of Terapage on standard error."""
    return [line for line in child.errors().splitlines() if line.startswith("terapage:")]


def static_children(bench):
    """What a static program starts may start a static one in turn: that is paged, or, without a host, refused; no signal ends it."""
    ran, starter = starters(bench)
    sanitized = built(bench, "sanitized", "gcc", "-fsanitize=address", source("starter.c"))
    with bench.start([starter, sanitized, ran], "--memory", "64M") as child:
        status = bench.end(child)
        check(status == 5 and child.output() == "ran\n", f"through a sanitized program: status {status}: {child.last_words()}")
    with bench.start([starter, "/usr/bin/env", "TERAPAGE=off", ran], "--memory", "64M") as child:
        status = bench.end(child)
        check(status == 126 and len(ours(child)) == 1 and "cannot be executed here" in ours(child)[0], f"without a host: status {status}: {child.last_words()}")
    if os.geteuid() == 0:
        root = bench.path("root")
        os.mkdir(root)
        shutil.copy(ran, root)
        with bench.start([starter, shutil.which("chroot"), root, "/ran"], "--memory", "64M") as child:
            status = bench.end(child)
            check(status == 126 and "cannot be executed here" in child.errors(), f"in another root: status {status}: {child.last_words()}")
    return ""


def signalled_execs(bench):
    """Execs while signals come faster than an exec is prepared: each goes on in the end, and what handlers leave takes no memory."""
    program = bench.build("execs.c", "-static")
    told = []
    for env in (None, {"TERAPAGE_GUARD": "force"}):
        with bench.start([program, "1000"], "--memory", "64M", "--require", env=env) as child:
            status = bench.end(child)
            check(status == 0, f"{env}: status {status}: {child.last_words()}")
            told.append(child.errors().strip().splitlines()[-1])
    return "; guarded: ".join(told)


def narrow_stacks(bench):
    """A child that borrows the memory, on a stack with less room than a trapped call's registers take: nothing below it changes."""
    ran, _ = starters(bench)
    program = bench.build("narrow.c", "-static")
    for env in (None, {"TERAPAGE_GUARD": "force"}):
        with bench.start([program, ran], "--memory", "64M", "--require", env=env) as child:
            status = bench.end(child)
            check(status == 0 and child.output() == "ran\nall right\n", f"{env}: status {status}: {child.last_words()}")
    return ""


def aligned_libraries(bench):
    """Libraries that are aligned to more than a page, loaded at the start and later: their own system calls are trapped, too."""
    need("gcc")
    flags = ("-shared", "-fPIC", "-DLIBRARY", "-Wl,-z,max-page-size=0x200000", source("aligned.c"))
    for name in ("libfirst.so", "libsecond.so"):
        built(bench, name, "gcc", "-O2", *flags, f"-Wl,-soname,{name}")
    program = bench.build("aligned.c", "-L", bench.place, f"-Wl,-rpath,{bench.place}", libraries=("-lfirst",))
    for env in (None, {"TERAPAGE_GUARD": "force"}):
        with bench.start([program, bench.path("libsecond.so")], "--memory", "64M", "--require", "--static", "all", env=env) as child:
            status = bench.end(child)
            check(status == 0 and child.output() == f"{program}\n" * 2, f"{env}: status {status}: {child.output()!r} {child.last_words()}")
    return ""


def rights(bench):
    """Without CAP_SYS_ADMIN, what a static program starts gains no rights, and a fork with namespaces fails: one line says each."""
    need_root()
    need("setpriv")
    _, starter = starters(bench)
    own = bench.path("own")
    shutil.copy(shutil.which("true"), own)
    os.chmod(own, 0o4755)
    for program in (own, starter, bench.place):
        os.chmod(program, os.stat(program).st_mode | 0o055)
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    with bench.start([*nobody, starter, own], "--memory", "64M") as child:
        status, lines = bench.end(child), ours(child)
        check(status == 0 and len(lines) == 1 and "gains no rights" in lines[0], f"set-user-id: status {status}: {child.last_words()}")
    with bench.start([starter, "--clone"], "--memory", "64M") as child:
        status, lines = bench.end(child), ours(child)
        check(status == 3 and "Invalid argument" in child.errors() and len(lines) == 1 and "namespaces" in lines[0], f"clone: status {status}: {child.last_words()}")
    return ""


def libraries_of(programs):
    """The libraries that dynamic programs load, with their loader."""
    told = subprocess.run(["ldd", *programs], capture_output=True, text=True, timeout=300, check=True).stdout
    return sorted(set(re.findall(r"^\s.*?(/\S+) \(0x", told, re.MULTILINE)))


def musl_root(bench):
    """In a root that has musl, as Alpine's, and Terapage with its own libraries: a program for musl's loader, and BusyBox, are paged."""
    need_root()
    need("musl-gcc", "busybox", "unshare", "gcc")
    loader = "/lib/ld-musl-x86_64.so.1"
    if not os.path.exists(loader):
        raise Skipped(f"no {loader}")
    root = bench.path("root")
    for name in ("lib", "lib64", "bin", "proc", "dev", "tmp", "store"):
        os.makedirs(os.path.join(root, name))
    shutil.copy(loader, os.path.join(root, "lib"))
    shutil.copy(shutil.which("busybox"), os.path.join(root, "bin", "busybox"))
    os.symlink("busybox", os.path.join(root, "bin", "sh"))
    shutil.copy(built(bench, "victim", "musl-gcc", "-O2", source("victim.c")), os.path.join(root, "bin"))
    beside = os.path.dirname(os.path.realpath(bench.command[0]))
    files = [os.path.join(beside, name) for name in ("terapage", "terapage-host", "libterapage_preload.so")]
    for file in files:
        shutil.copy(file, os.path.join(root, "bin"))
    for library in libraries_of(files):
        to = root + library
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copy(library, to)
    script = f"mount -t proc proc {root}/proc && mount --rbind /dev {root}/dev && exec chroot {root} /bin/sh -c \"$1\""
    run = "/bin/terapage run --memory 24M --require --store /store --stats /store/stats"
    for command, output in ((f"{run} -- /bin/victim 96 once", ""), (f"{run} -- /bin/busybox sh -c 'seq 300000 | sort -rn | head -n 1'", "300000\n")):
        with Child(["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", command], bench.place) as child:
            status = child.wait(120)
            check(status == 0 and (not output or child.output() == output), f"{command}: status {status}: {child.last_words()}")
    stats = [name for name in os.listdir(os.path.join(root, "store")) if name.startswith("stats")]
    check(stats, "no counters: the program was not paged")
    return ", ".join(files[1:])


def watched(bench):
    """strace, gdb and perf around a static program: it ends as it does alone."""
    need("gcc")
    victim = built(bench, "victim", "gcc", "-static", "-O2", source("victim.c"))
    tools = {
        "strace": ["strace", "-o", bench.path("trace"), victim, "64", "once"],
        "gdb": ["gdb", "-batch", "-nx", "-ex", "handle SIGSYS nostop noprint pass", "-ex", "run", "-ex", "print $_exitcode", "--args", victim, "64", "once"],
        "perf": ["perf", "stat", "-o", bench.path("counts"), victim, "64", "once"],
    }
    tried = []
    for tool, words in tools.items():
        if not shutil.which(tool):
            continue
        tried.append(tool)
        with bench.start(words, "--memory", "24M") as child:
            status, said = bench.end(child), child.output()
            check(status == 0 and (tool != "gdb" or "$1 = 0" in said), f"{tool}: status {status}: {said[-300:]} {child.last_words()}")
    if not tried:
        raise Skipped("no strace, gdb or perf")
    return ", ".join(tried)


BODIES = {
    "hosted-children": static_children,
    "hosted-execs": signalled_execs,
    "hosted-narrow-stacks": narrow_stacks,
    "hosted-aligned-libraries": aligned_libraries,
    "hosted-rights": rights,
    "hosted-musl-root": musl_root,
    "hosted-watched": watched,
}
