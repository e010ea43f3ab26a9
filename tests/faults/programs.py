"""Programs that are not paged, or behave oddly."""

import json
import os
import re
import shutil
import signal
import subprocess

from harness import NOBODY, Child, Skipped, check, need, need_restricted, need_root
from bench import for_everybody, mounted


def written(bench, name, text):
    """An executable file."""
    path = bench.path(name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)
    return path


RAN = '#include <stdio.h>\nint main(void) { puts("ran"); return 5; }\n'


def preloaded_too(bench):
    """Another library is preloaded: what it reads from the environment at its first call, which may be a call by Terapage's library, is there."""
    library, program = bench.build("remembers.c", "-shared", "-fPIC"), bench.path("program")
    os.rename(library, library + ".so")
    os.rename(bench.build("remembers.c", "-DPROGRAM"), program)
    for way in ([program], ["sh", "-c", f"{program}; exit $?"]):
        words = ["env", f"LD_PRELOAD={library}.so", "REMEMBERED=this", *way]
        with bench.start(words, "--memory", "32M") as child:
            status = bench.end(child)
            said = child.output().split()
            check(status == 0 and said and set(said) == {"this"}, f"{way}: status {status}: {said} {child.last_words()}")
    return ""


def valgrind(bench):
    """A program in Valgrind runs as natively, also without rights, and a line says that Valgrind is not paged."""
    need("valgrind")
    need_restricted()
    (command,) = for_everybody(bench)
    program = bench.build("victim.c")
    os.chmod(program, 0o755)
    run = [command, "run", "--memory", "32M", "--store", bench.store, "--"]
    for user in ((), NOBODY):
        inside = ["valgrind", "-q", "--leak-check=no", "--error-exitcode=9", program, "16", "once"]
        with Child([*user, *run, *inside], bench.place) as child:
            status, errors = bench.end(child), child.errors()
        check(status == 0 and "it is a tool of Valgrind" in errors, f"{user}: status {status}: {errors!r}")
    return errors.splitlines()[-1]


def unpaged_children(bench):
    """Programs into which the library is not loaded and that need no host, started by scripts: one line for each, once, and none into what the script reads."""
    need("gcc")
    source = written(bench, "ran.c", RAN)
    programs = {"static": (["gcc", "-static"], "static executable"), "musl": (["musl-gcc"], "linked with musl"), "narrow": (["gcc", "-m32"], "32-bit")}
    tried = []
    for name, (compiler, says) in programs.items():
        program = bench.path(name)
        if not shutil.which(compiler[0]) or subprocess.run([*compiler, source, "-o", program], capture_output=True, timeout=300, check=False).returncode:
            continue
        tried.append(name)
        nested = written(bench, f"{name}-2", f"#!{written(bench, f'{name}-1', f'#!{program}{chr(10)}')}\n")
        for words in ([program], ["sh", "-c", f"{program}; for i in 1 2; do {program}; done; exit $?"], [nested], ["sh", "-c", f"{nested}; exit $?"]):
            with bench.start(words, "--memory", "64M", "--static", "off") as child:
                status, lines = bench.end(child), child.errors().splitlines()
                check(status == 5 and child.output().startswith("ran\n"), f"{words}: status {status}: {child.last_words()}")
                check(len(lines) == 1 and says in lines[0] and "not paged" in lines[0], f"{words}: {lines}")
        with bench.start(["sh", "-c", f"test \"$({program} 2>&1)\" = ran"], "--memory", "64M", "--static", "off") as child:
            check(bench.end(child) == 0 and not child.errors(), f"{name}: its output is not its own: {child.last_words()}")
    if not tried:
        raise Skipped("no static C library, no musl, no 32-bit C library")
    return ", ".join(tried)


def doctor_of_programs(bench):
    """`terapage doctor -- PROGRAM` says which memory of the program will be paged, before it runs."""
    script = written(bench, "script", "#!/usr/bin/env -S sh -e\necho ran\n")
    java = written(bench, "java", "#!/bin/sh\n")
    shutil.copy(shutil.which("true"), java)
    shim = written(bench, "shim", f"#!/usr/bin/env bash\nset -e\nprogram=\"${{0##*/}}\"\nexec \"{bench.place}/pyenv\" exec \"$program\" \"$@\"\n")
    written(bench, "pyenv", f"#!/bin/sh\n[ $1 = which ] && [ $2 = shim ] && echo {java}\n")
    cases = [
        # A shim of a version manager is followed to the program that it executes.
        ([shim, "-XX:+UseZGC"], "failure", "java", "not paged"),
        (["true"], "ok", "program", "paged"),
        ([script], "ok", "program", "run by /usr/bin/env"),
        (["env", "A=b", "no-such-program-here"], "failure", "program", "not found"),
        ([java, "-XX:+UseZGC"], "failure", "java", "not paged"),
    ]
    if shutil.which("gcc"):
        static = bench.path("static")
        if subprocess.run(["gcc", "-static", written(bench, "ran.c", RAN), "-o", static], capture_output=True, timeout=300, check=False).returncode == 0:
            cases.append(([static], "ok", "program", "static executable"))
    for words, status, name, says in cases:
        with Child([*bench.command, "doctor", "--store", bench.store, "--json", "--", *words], bench.place) as child:
            got, answer = bench.end(child), json.loads(child.output())
            found = [entry for entry in answer["checks"] if entry["name"] == name and entry["status"] == status and says in entry["found"]]
            check(found, f"{words}: {answer['checks']}")
            check(status == "ok" or (got == 1 and found[0]["fix"]), f"{words}: status {got}, {found}")
    return f"{len(cases)} programs"


def other_programs(bench):
    """A set-uid and a 32-bit program: one line of warning."""
    need_root()
    own = bench.path("own")
    shutil.copy(shutil.which("true"), own)
    os.chown(own, 65534, 65534)
    os.chmod(own, 0o4755)
    narrow = bench.path("narrow")
    with open(narrow, "wb") as file:
        file.write(b"\x7fELF\x01\x01\x01" + bytes(200))
    os.chmod(narrow, 0o755)
    for program, says in ((own, "set-user-id"), (narrow, "32-bit")):
        with bench.start([program], "--memory", "64M") as child:
            bench.end(child)
            lines = [line for line in child.errors().splitlines() if line.startswith("terapage:")]
            check(len(lines) == 1 and says in lines[0] and "not paged" in lines[0], f"{child.last_words()!r}")
    return ""


def overlaid(bench, layers):
    """The store directory as an overlay with its layers in a directory, for the duration of a with block."""
    for name in ("lower", "upper", "work"):
        os.mkdir(os.path.join(layers, name))
    options = ",".join(f"{name}dir={os.path.join(layers, name)}" for name in ("lower", "upper", "work"))
    return mounted(bench.store, "-t", "overlay", "-o", options, "overlay")


def overlay_in_memory(bench):
    """An overlay whose upper layer is a tmpfs saves no memory."""
    layers = bench.path("layers")
    os.mkdir(layers)
    with mounted(layers, "-t", "tmpfs", "tmpfs"), overlaid(bench, layers):
        bench.refused("--memory", "64M", says="memory")
    return ""


def overlay_last_thread(bench):
    """A process whose `main` has ended ends with its last thread, though the kernel has threads for the pager: on an overlay, as in containers, with no or with one descriptor left."""
    program = bench.build("fork.c", "-pthread")
    layers = bench.path("layers")
    os.mkdir(layers)
    with overlaid(bench, layers):
        for left in ([], ["one"]):
            with bench.start([program, "--main-ends", "64", *left], "--memory", "16M") as child:
                status = bench.end(child)
                check(status == 0, f"{left}: status {status}: {child.last_words()}")
    return ""


# A program without libraries that writes "ran" and ends with status 5.
HIGH = """.globl _start
_start:
    mov $1, %eax
    mov $1, %edi
    lea text(%rip), %rsi
    mov $4, %edx
    syscall
    mov $231, %eax
    mov $5, %edi
    syscall
text: .ascii "ran\\n"
"""


def static_program(bench):
    """Static programs for which no host is used, or none can be: one line, and they run, or do not run with --require."""
    source = bench.path("static.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write('#include <stdio.h>\nint main(void) { puts("ran"); return 5; }\n')
    need("gcc")
    program = bench.path("static")
    built = subprocess.run(["gcc", "-static", source, "-o", program], capture_output=True, timeout=300, check=False)
    if built.returncode != 0:
        raise Skipped("no static C library")
    high, code = bench.path("high"), bench.path("high.s")
    with open(code, "w", encoding="utf-8") as file:
        file.write(HIGH)
    built = subprocess.run(["gcc", "-static", "-nostdlib", "-Wl,-Ttext-segment=0x200000000000", code, "-o", high], capture_output=True, timeout=300, check=False)
    check(built.returncode == 0, built.stderr.decode()[-300:])
    for name, flags, says in ((program, ("--static", "off"), "static"), (high, (), "beyond 4 GiB")):
        with bench.start([name], "--memory", "64M", *flags) as child:
            status = bench.end(child)
            check(status == 5 and child.output() == "ran\n", f"status {status}, output {child.output()!r}")
            lines = child.errors().splitlines()
            check(len(lines) == 1 and says in lines[0] and "not paged" in lines[0], f"not one line of warning: {child.last_words()!r}")
        with bench.start([name], "--memory", "64M", "--require", *flags) as child:
            status = bench.end(child)
            check(status == 125 and not child.output() and says in child.errors(), f"status {status}: {child.last_words()!r}")
    for words in (["env", "TERAPAGE=off", program], [program]):
        with bench.start(words, "--memory", "64M") as child:
            status = bench.end(child)
            check(status == 5 and child.output() == "ran\n" and not child.errors(), f"{words}: status {status}: {child.last_words()!r}")
    return ""


def no_program(bench):
    """Like env(1): 127 if the program is missing, 126 if it cannot be executed."""
    text = bench.path("text")
    with open(text, "w", encoding="utf-8") as file:
        file.write("no program\n")
    bench.refused("--memory", "64M", status=127, program=("no-such-program-here",), says="no-such-program-here")
    bench.refused("--memory", "64M", status=127, program=(bench.path("nothing"),), says="nothing")
    bench.refused("--memory", "64M", status=126, program=(text,), says="text")
    bench.refused("--memory", "64M", status=126, program=(bench.store,), says="store")
    bench.refused("--memory", "64M", status=126, program=(os.path.join(text, "below"),), says="below")
    script = bench.path("script")
    with open(script, "w", encoding="utf-8") as file:
        file.write("#!/no/such/interpreter\n")
    os.chmod(script, 0o755)
    bench.refused("--memory", "64M", status=127, program=(script,), says="script: the interpreter or loader that it names")
    return ""


def library_missing(bench):
    """The library is not at the path in TERAPAGE_LIBRARY."""
    nowhere = {"TERAPAGE_LIBRARY": bench.path("nowhere.so")}
    bench.refused("--memory", "64M", status=125, env=nowhere, says="library|nowhere.so")
    return ""


def streams_and_status(bench):
    """The program's own status and streams are passed on unchanged."""
    text = bench.path("text")
    with open(text, "w", encoding="utf-8") as file:
        file.write("through\n")
    with bench.start(["sh", "-c", "cat; echo words >&2; exit 77"], "--memory", "64M", stdin=text) as child:
        status = bench.end(child)
        check((status, child.output(), child.errors()) == (77, "through\n", "words\n"), f"{status}: {child.last_words()}")
    return ""


def sanitizer(bench):
    """A program with a sanitizer, which manages the memory itself, runs unpaged, and a line says so."""
    ways = [
        (kind, *inside)
        for kind, library in (("thread", "tsan"), ("address", "asan"), ("leak", "lsan"))
        for inside in ((), (f"-static-lib{library}",))
    ]
    for way in ways:
        program = bench.build("plain.c", f"-fsanitize={way[0]}", *way[1:])
        with bench.start([program], "--memory", "1G") as child:
            status, errors = bench.end(child), child.errors().strip()
        check(status == 0, f"{way}: status {status}: {errors!r}")
        check(re.search(r"^terapage: .* built with a sanitizer.*: it is not paged$", errors), f"{way}: {errors}")
    return f"{len(ways)} kinds"


def own_descriptors(bench):
    """A program with a thread that lost the pager's descriptors by a direct system call is stopped before a child reads what that thread writes."""
    program = bench.build("own_descriptors.c")
    for env in ({}, {"TERAPAGE_VERIFY": "0"}):
        with bench.start([program], "--memory", "4M", env=env) as child:
            status, errors = bench.end(child), child.errors().strip()
        check(status == 0, f"{env}: status {status}: {errors!r}")
        check(re.search("^terapage: a forked child cannot be seen to end.*is stopped", errors) and "\n" not in errors, f"{env}: {errors!r}")
    return errors


def closes_by_number(bench):
    """A program that closes all descriptors by `syscall` keeps its memory."""
    program = bench.build("closes.c")
    for options in ((), ("--static", "all")):
        with bench.start([program], "--memory", "32M", *options) as child:
            status = bench.end(child)
            check(status == 0, f"{options}: status {status}: {child.last_words()}")
    return "descriptors kept"


def closes_all(bench):
    """A program that closes all numbers at once costs calls for what is open, not for each number that may be open."""
    need("strace", "python3")
    trace = bench.path("trace")
    closes = "import os; [os.open('/dev/null', 0) for _ in range(600)]; [os.closerange(3, 1 << 30) for _ in range(20)]"
    with bench.start(["strace", "-f", "-e", "trace=fcntl", "-o", trace, "python3", "-c", closes], "--memory", "32M") as child:
        status = bench.end(child)
        check(status == 0, f"status {status}: {child.last_words()}")
    with open(trace, encoding="utf-8", errors="replace") as file:
        calls = sum("F_GETFD" in line for line in file)
    check(600 <= calls < 2000, f"{calls} calls")
    return f"{calls} calls"


def direct_calls(bench):
    """Memory that a program removes by a direct system call reads as zeros; if it unmaps or moves memory in this way, it is stopped at the call."""
    program = bench.build("direct_call.c")
    with bench.start([program, "96", "removes"], "--memory", "32M") as child:
        status = bench.end(child)
        check(status == 0, f"removes: status {status}: {child.last_words()}")
    for call in ("unmaps", "maps", "moves", "moves-pages", "shrinks"):
        with bench.start([program, "96", call], "--memory", "32M", shell=True) as child:
            status = bench.end(child)
            lines = [line for line in child.errors().splitlines() if line.startswith("terapage:")]
        check(status == 128 + signal.SIGABRT, f"{call}: status {status}: {lines}")
        check(len(lines) == 1 and re.search("paged memory.* by a direct system call", lines[0]), f"{call}: {lines}")
        # A host hears of the call, and the program goes on.
        with bench.start([program, "96", call], "--memory", "32M", "--static", "all") as child:
            status = bench.end(child)
            check(status == 0 and child.output() == "went on\n" and not child.errors(), f"{call}, hosted: status {status}: {child.last_words()}")
    return lines[0]
