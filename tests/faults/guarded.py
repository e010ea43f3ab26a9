"""Guarded mode: a user without rights is paged, and what the user's programs start runs as natively."""

import contextlib
import glob
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from harness import NOBODY, Child, Failed, check, need, need_restricted, need_root, wait_for
from bench import SOURCES, TESTS, TIMEOUT_S, for_everybody
from debian import Debian, unpacked

SAID = "terapage: without rights: system calls are guarded\n"


def guarded_user(bench):
    """A user without rights is paged: system calls give what they give on unpaged memory, and a sort the same bytes."""
    need_restricted()
    need("sort")
    program = bench.build("guarded.c", "-pthread")
    run = [*NOBODY, *for_everybody(bench), "run", "--store", bench.store, "--require"]
    with Child([*run, "--memory", "24M", "--summary", "--", program, "64", "300", "1"], bench.place) as child:
        status = bench.end(child)
        check(status == 0 and " 0 differences, 0 failures" in child.output(), f"status {status}: {child.output()}{child.last_words()}")
        check("without rights: system calls are guarded" in child.errors(), child.errors())
        check(re.search(r"page-in [1-9]", child.errors()), f"nothing was read from the store: {child.errors()}")
    text = bench.path("text")
    with open(text, "w", encoding="ascii") as file:
        words = random.Random(1)
        file.writelines(f"{words.getrandbits(200):x}\n" for _ in range(300_000))
    sort = ["sort", "-S", "400M", "--parallel=2", text]
    native = subprocess.run(sort, capture_output=True, check=True, env={**os.environ, "LC_ALL": "C"}, timeout=300)
    with Child([*run, "--memory", "16M", "--", *sort], bench.place, env={"LC_ALL": "C"}) as child:
        status = bench.end(child)
        check(status == 0 and child.output().encode() == native.stdout, f"status {status}, or other bytes: {child.last_words()}")
    return "64 MiB in 24, and a sort"


def guarded_says_so(bench):
    """One line before the program, which is paged with --require; the counters, the summary and doctor name the mode."""
    need_restricted()
    stats, program = bench.path("stats"), bench.build("victim.c")
    os.chmod(bench.place, 0o777)
    run = [*NOBODY, *for_everybody(bench), "run", "--memory", "32M", "--store", bench.store, "--require"]
    os.chmod(bench.place, 0o777)
    with Child([*run, "--stats", stats, "--summary", "--", program, "96", "once"], bench.place) as child:
        status = bench.end(child)
        check(status == 0 and child.errors().startswith(SAID), f"status {status}: {child.last_words()}")
        check("1 paged without rights;" in child.errors(), child.errors())
    with open(stats, encoding="utf-8") as file:
        check('"guarded": 1' in file.read().replace('":1', '": 1'), "the counters do not name the mode")
    with Child([*NOBODY, bench.path("terapage"), "doctor", "--store", bench.store], bench.place) as child:
        bench.end(child)
        check("Paging works here (without rights: system calls are guarded)." in child.output(), child.output())
    # With an unlimited stack the kernel puts libraries where those of guarded programs lie.
    unlimited = ["sh", "-c", 'ulimit -s unlimited && exec "$@"', "sh"]
    with Child([*unlimited, *bench.command, "run", "--memory", "32M", "--store", bench.store, "--summary", "--", program, "96", "once"], bench.place) as child:
        status = bench.end(child)
        check(status == 0 and "1 paged;" in child.errors(), f"status {status}: {child.errors()}")
    return "said once"


# What runs under the inherited filter, but without the library: each line is a command.
OTHERS = """
busybox seq 3
./static-pie one two
env -u LD_PRELOAD ./dynamic three
setarch -L ./static-pie four
env TERAPAGE=off ./dynamic five
env LD_PRELOAD=nowhere.so ./dynamic six 2>&1
ulimit -s unlimited; LD_PRELOAD= TERAPAGE=off ./dynamic nine; ulimit -s
./lacks-library; echo $?
mv libterapage_preload.so hidden.so; ./dynamic seven 2>/dev/null; mv hidden.so libterapage_preload.so
"""


def guarded_others(bench):
    """Programs that a guarded program starts run as natively: static ones, which are hosted, and those that do not find the library."""
    need_restricted()
    need("busybox", "setarch")
    for name, flags in (("static-pie", ("-static-pie",)), ("static", ("-static",)), ("dynamic", ())):
        os.rename(bench.build("unguarded.c", *flags), bench.path(name))
    empty = bench.path("empty.c")
    with open(empty, "w", encoding="ascii"):
        pass
    subprocess.run(["gcc", "-shared", "-o", bench.path("libgone.so"), empty], check=True, timeout=300)
    lacking = bench.build("unguarded.c", libraries=("-Wl,--no-as-needed", "-L" + bench.place, "-lgone"))
    os.rename(lacking, bench.path("lacks-library"))
    os.remove(bench.path("libgone.so"))
    command = for_everybody(bench)
    os.chmod(bench.place, 0o777)
    lines = OTHERS.strip().splitlines() + ["./static eight"]
    for line in lines:
        script = ["sh", "-c", line + " | cat"]
        with Child([*NOBODY, *script], bench.place) as child:
            native = (child.wait(60), child.output())
        run = [*NOBODY, *command, "run", "--store", bench.store, "--memory", "32M", "--require", "--", *script]
        with Child(run, bench.place) as child:
            found = (bench.end(child), child.output().replace(SAID, ""))
            paged = [text for text in found[1].splitlines(True) if not text.startswith("ERROR: ld.so: object")]
            expected = [text for text in native[1].splitlines(True) if not text.startswith("ERROR: ld.so: object")]
            check((found[0], paged) == (native[0], expected), f"{line}: {found}, natively {native}; {child.last_words()}")
    return f"{len(lines)} programs"


def guarded_hosted(bench):
    """Static, musl and Go programs of a user without rights are paged: threads, signals, forks, children of each kind; a static one compares calls."""
    need_restricted()
    source = os.path.join(os.path.dirname(os.path.dirname(__file__)), "programs", "src")
    dynamic = bench.build("hosted.c", "-pthread")
    compilers = {"static": ["gcc", "-static", "-pthread"], "static-pie": ["gcc", "-static-pie", "-pthread"], "musl": ["musl-gcc"], "go": ["go", "build"]}
    run = [*NOBODY, *for_everybody(bench), "run", "--store", bench.store, "--require", "--summary"]
    done = []
    for name, compiler in compilers.items():
        if not shutil.which(compiler[0]):
            continue
        program = bench.path(name)
        file = "hosted.go" if name == "go" else "hosted.c"
        subprocess.run([*compiler, "-o", program, os.path.join(source, file)], check=True, timeout=300, capture_output=True)
        commands = [[program, "500000"]] if name == "go" else [[program, "64", dynamic], [dynamic, "64", program]]
        for command in commands:
            with Child([*NOBODY, *command], bench.place) as child:
                native = (child.wait(TIMEOUT_S), child.output())
            with Child([*run, "--memory", "24M", "--", *command], bench.place) as child:
                found = (bench.end(child), child.output())
                check(found == native, f"{command}: {found}, natively {native}; {child.last_words()}")
                check(child.errors().startswith(SAID) and "paged without rights" in child.errors(), f"{command}: {child.errors()}")
        done.append(name)
    static = bench.build("guarded.c", "-static", "-pthread")
    with Child([*run, "--memory", "24M", "--", static, "64", "300", "1"], bench.place) as child:
        status = bench.end(child)
        check(status == 0 and " 0 differences, 0 failures" in child.output(), f"status {status}: {child.output()}{child.last_words()}")
        check(re.search(r"page-in [1-9]", child.errors()), f"nothing was read from the store: {child.errors()}")
    return ", ".join(done)


def guarded_cancelled(bench, libraries=()):
    """Threads that are cancelled while they wait with paged memory, with and without a trap, run their destructors."""
    need_restricted()
    program = bench.build("cancelled.c", "-pthread", "-fexceptions", libraries=libraries)
    run = [*NOBODY, *for_everybody(bench), "run", "--store", bench.store, "--memory", "16M", "--require", "--", program]
    with Child(run, bench.place) as child:
        status = bench.end(child)
        check((status, child.output()) == (0, "3 destructors\n"), f"status {status}: {child.output()}{child.last_words()}")
    return "3 threads"


def same_as_natively(bench, source, *words, memory="12M", flags=()):
    """A program gives the same output as natively, and ends well."""
    need_restricted()
    return as_natively(bench, [bench.build(source, "-pthread", *flags), *words], memory)


def as_natively(bench, program, memory):
    """The same of a program that was built already, with its arguments."""
    os.chmod(bench.place, 0o755)
    native = subprocess.run([*NOBODY, *program], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    run = [*NOBODY, *for_everybody(bench), "run", "--store", bench.store, "--memory", memory, "--require", "--", *program]
    with Child(run, bench.place) as child:
        status = bench.end(child)
        check((status, child.output()) == (0, native.stdout), f"status {status}: {child.output()}{child.last_words()}")
        check("does not hold" not in child.errors(), child.errors())
    return native.stdout.splitlines()[-1]


def guarded_cancelled_newer(bench):
    """The same with the C library of Debian 13 (glibc 2.41), which cancels a thread only at an instruction of its own."""
    need_restricted()
    here = {"x86_64": ("amd64", "lib64/ld-linux-x86-64.so.2"), "aarch64": ("arm64", "lib/ld-linux-aarch64.so.1")}
    architecture, loader = here[os.uname().machine]
    debian = Debian(os.path.join(os.path.dirname(TESTS), "target", "guest"), "trixie", architecture)
    place = unpacked([debian.newest("libc6"), debian.newest("libgcc-s1")], bench.path("debian"))
    (libraries,) = glob.glob(os.path.join(place, "usr", "lib", "*-linux-gnu"))
    return guarded_cancelled(bench, (f"-Wl,--dynamic-linker={place}/usr/{loader}", f"-Wl,-rpath,{libraries}"))


def guarded_cancelled_hosted(bench):
    """The same in a static program, and in one with musl, which compares instructions, too."""
    need_restricted()
    need("musl-gcc")
    static = same_as_natively(bench, "cancelled.c", memory="16M", flags=("-fexceptions", "-static"))
    program = bench.path("with-musl")
    subprocess.run(["musl-gcc", "-O2", "-static", os.path.join(SOURCES, "cancelled.c"), "-o", program], check=True, timeout=300)
    return f"{static}; musl: {as_natively(bench, [program], '16M')}"


def guarded_cancel_points(bench):
    """A signal ends a call only while its instruction has had no effect, as glibc 2.41 compares: 3,000 reads are left or get their byte, in a dynamic and in a static program; TERAPAGE_SEED says which."""
    seed = os.environ.get("TERAPAGE_SEED") or str(random.randrange(1 << 32))
    try:
        for flags in ((), ("-static",)):
            said = same_as_natively(bench, "cancel_points.c", "48", "3000", seed, flags=flags)
        return f"{said}, seed {seed}"
    except Failed as why:
        raise Failed(f"seed {seed}: {why}") from None


def seeds(runs):
    """The seeds of some runs: TERAPAGE_SEED is the first, and TERAPAGE_RUNS their number."""
    first = int(os.environ.get("TERAPAGE_SEED") or random.randrange(1 << 20))
    return range(first, first + int(os.environ.get("TERAPAGE_RUNS", runs)))


def each_seed(run):
    """Calls a function with the text of each of two seeds, or of those that the environment names. What it says of the last one; a failure names its seed."""
    for seed in (runs := seeds(2)):
        try:
            said = run(str(seed))
        except Failed as why:
            raise Failed(f"seed {seed}: {why}") from None
    return f"{said[-1]}, {runs}"


def guarded_cancelled_children(bench):
    """Children of forks cancel threads that wait in calls, at any moment: dynamic, static, and with musl; TERAPAGE_SEED says how, TERAPAGE_RUNS how often."""
    need_restricted()
    need("musl-gcc")
    musl = bench.path("with-musl")
    source = os.path.join(SOURCES, "cancelled_child.c")
    subprocess.run(["musl-gcc", "-O2", "-static", source, "-o", musl], check=True, timeout=300)

    def run(seed):
        for flags in (("-fexceptions",), ("-static",)):
            same_as_natively(bench, "cancelled_child.c", "48", "30", seed, memory="16M", flags=flags)
        return [as_natively(bench, [musl, "48", "30", seed], "16M")]

    return each_seed(run)


def guarded_cancelled_often(bench):
    """Threads are cancelled in reads and writes of paged memory, while these prepare as well: their stacks are unwound, and none ends with a lock of the library; TERAPAGE_SEED says when, TERAPAGE_RUNS how often."""
    return each_seed(lambda seed: [
        same_as_natively(bench, "cancels.c", "32", "200", seed, kind, memory="16M", flags=("-fexceptions",)) for kind in ("read", "writev")
    ])


def guarded_noted(bench):
    """Threads, handlers and children set and read the action for SIGSYS at the same time: each exchange is whole; dynamic and static."""
    return each_seed(lambda seed: [same_as_natively(bench, "noted_actions.c", "24", "12", seed, flags=flags) for flags in ((), ("-static",))])


def guarded_stopped(bench):
    """Processes that share a budget make long calls: while one is stopped, the others end, and it goes on; one is killed, and the others do not see it."""
    need_restricted()
    program = bench.build("shared_calls.c", "-pthread")
    run = [*NOBODY, *for_everybody(bench), "run", "--store", bench.store, "--memory", "16M", "--require", "--", program]
    stopped = 0
    for seed in (runs := seeds(2)):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            chance = random.Random(seed)
            with Child([*run, "32", "3", "60", str(seed)], bench.place) as child:
                wait_for(lambda child=child: len(children_of(child.pid)) == 3, "three children")
                others = sorted(children_of(child.pid))
                time.sleep(chance.uniform(0, 0.5))
                one = others.pop(chance.randrange(3))
                send(one, signal.SIGSTOP)
                wait_for(lambda one=one: state_of(one) in "TZX", "it is stopped, or has ended")
                # The signal of a process that has ended changes nothing.
                is_stopped = state_of(one) == "T"
                wrong = 1 if number == signal.SIGKILL and is_stopped else 0
                stopped += is_stopped
                send(one, number)
                wait_for(lambda others=others: not any(map(runs_now, others)), f"seed {seed}: while {one} is stopped, the others end", TIMEOUT_S)
                send(one, signal.SIGCONT)
                status = bench.end(child)
                said = child.output(), child.errors().replace(SAID, "")
                check((status, *said) == (wrong, f"{wrong} wrong\n", ""), f"seed {seed}: status {status}: {said}")
    return f"{runs}, {stopped} of {2 * len(runs)} still ran"


def send(pid, number):
    """Sends a signal to a process, unless it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def children_of(pid):
    """The children of a process."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]
    return []


def state_of(pid):
    """The state of a process, "X" if there is none."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rsplit(")", 1)[1].split()[0]
    return "X"


def runs_now(pid):
    """Whether a process has not ended."""
    return state_of(pid) not in "ZX"


def guarded_words(bench):
    """A thread begun by `clone`, `clone3` or their numbers, whose words are out at its end: the kernel clears them."""
    return same_as_natively(bench, "words.c", "48")


def guarded_frames(bench):
    """A signal, and a trapped call, on stacks in the heap that `makecontext` or `pthread_attr_setstack` names, whose next block is out."""
    # A stack that the program has freed is paged again.
    same_as_natively(bench, "contexts.c", "3000", memory="16M")
    return same_as_natively(bench, "frames.c", "48")


def guarded_aside(bench):
    """While a call waits, a handler makes another on a stack that the kernel has forgotten for as long as the handler runs."""
    return "; ".join(same_as_natively(bench, "aside.c", "48", flags=flags) for flags in ((), ("-static",)))


def guarded_robust(bench):
    """Owners of robust mutexes that are out end, threads and a process, in a dynamic and in a static program: the next owners see it."""
    return "; ".join(same_as_natively(bench, "robust.c", "48", flags=flags) for flags in ((), ("-static",)))


def guarded_left(bench):
    """Handlers make calls while calls wait, restart and interrupt them, and leave 100,000 by long jumps: no pins stay behind."""
    return "; ".join(same_as_natively(bench, "left.c", "48", flags=flags) for flags in ((), ("-static",)))


def guarded_made_code(bench):
    """Code that a program makes in paged memory calls the kernel with pointers to pointers."""
    return same_as_natively(bench, "made_code.c", "48")


def guarded_crowd(bench):
    """64 threads wait at the same time with more memory than the budget, then read a file: all get their bytes, also in a run within a run that has less than it asks for."""
    said = same_as_natively(bench, "crowd.c", "64", "64")
    command = for_everybody(bench)
    inner = [*command, "run", "--store", bench.store, "--memory", "256M", "--", bench.path("crowd"), "64", "64"]
    with Child([*NOBODY, *command, "run", "--store", bench.store, "--memory", "12M", "--", *inner], bench.place) as child:
        status = bench.end(child)
        check((status, child.output()) == (0, said + "\n"), f"status {status}: {child.output()}{child.last_words()}")
    return said


def guarded_together(bench):
    """A parent and its children, which share a budget, make calls at the same time that name much of it, in pieces and at once; dynamic and static; TERAPAGE_SEED says which calls, TERAPAGE_RUNS how many runs."""
    return each_seed(lambda seed: [
        same_as_natively(bench, "shared_calls.c", "32", "3", "30", seed, "whole", memory="16M", flags=flags) for flags in ((), ("-static",))
    ])


def guarded_process_memory(bench):
    """Copies between arrays of buffers of two processes, or of one: those that are longer than may be in memory at once, overlap, are partly not there, or are refused, and those whose arrays or data change meanwhile; dynamic and static; TERAPAGE_SEED says which, TERAPAGE_RUNS how many runs."""
    return each_seed(lambda seed: [same_as_natively(bench, "process_memory.c", "16", "150", seed, flags=flags) for flags in ((), ("-static",))])


def guarded_sandboxes(bench):
    """Filters of the program's own: calls that a filter refuses, and calls that arrive in the program's handler, with their memory out."""
    return "; ".join(same_as_natively(bench, "sandboxes.c", "24", kind, memory="8M") for kind in ("deny", "broker"))


def guarded_still(bench):
    """Calls on a static array, with threads, a signal handler and forks; two such programs at once in one budget, of one user and of two."""
    need_restricted()
    files = bench.path("files")
    os.mkdir(files)
    os.chmod(files, 0o777)
    right = same_as_natively(bench, "still.c", os.path.join(files, "alone"), "40") + "\n"
    program, other = bench.path("still"), ("setpriv", "--reuid", "65533", "--regid", "65533", "--clear-groups")
    command, here = for_everybody(bench), ["--store", bench.store, "--memory", "16M", "--"]
    both = ["sh", "-c", '$1 "$3" "$4/one" 24 & a=$!; $2 "$3" "$4/two" 24 && wait $a', "sh"]
    own = [*NOBODY, *command, "run", "--require", *here, *both, "", "", program, files]
    users = [*command, "run", *here, *both, " ".join(NOBODY), " ".join(other), program, files]
    for run, env in ((own, {}), (users, {"TERAPAGE_GUARD": "force"})):
        with Child(run, bench.place, env=env) as child:
            status = bench.end(child)
            check((status, child.output()) == (0, right * 2), f"status {status}: {child.output()}{child.last_words()}")
            check("are guarded" in child.errors(), child.errors())
    return right.strip()


# More calls than this are made by several processes, with their files in memory: a disk would limit
# the rate.
FEW_CALLS = 1000


def guarded_calls(bench, static=False):
    """Each call of the table, as that user, with its memory absent: it does what it does on memory that is not paged. TERAPAGE_RUNS says how many calls, TERAPAGE_SEED which."""
    need_restricted()
    words = [bench.test_program("terapage-calls", "touched", static), "--exact", "calls_on_absent_memory_do_the_same", "--nocapture"]
    run = [*NOBODY, *for_everybody(bench), "run", "--store", bench.store, "--require", "--memory", "2M", "--block", "4K", "--prefetch", "off", "--", *words]
    count, seed = int(os.environ.get("TERAPAGE_RUNS", "1000")), int(os.environ.get("TERAPAGE_SEED", "1"))
    jobs = os.cpu_count() if count > FEW_CALLS else 1
    with contextlib.ExitStack() as stack:
        if count > FEW_CALLS and os.path.isdir("/dev/shm"):
            files = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        else:
            files = bench.path("files")
            os.mkdir(files)
        children = []
        for job in range(jobs):
            place = os.path.join(files, str(job))
            os.mkdir(place)
            os.chmod(place, 0o777)
            env = {"TMPDIR": place, "TERAPAGE_RUNS": str(-(-count // jobs)), "TERAPAGE_SEED": str(seed + job)}
            children.append(stack.enter_context(Child(run, bench.place, stdout=f"stdout{job}", env=env)))
        os.chmod(files, 0o777)
        watch_calls(children, count)
        told = [result_of_calls(child, TIMEOUT_S + count) for child in children]
    return "; ".join(told)


def watch_calls(children, count):
    """Says on a terminal how far the children are, until all have ended."""
    began = time.monotonic()
    while any(child.process.poll() is None for child in children):
        time.sleep(0.2)
        if sys.stderr.isatty() and time.monotonic() > began + 2:
            counts = [re.findall(r"^(\d+) calls", child.output(), re.MULTILINE) for child in children]
            done = sum(int(each[-1]) for each in counts if each)
            print(f"\r{done} of {count} calls, {time.monotonic() - began:.0f} s", end="", file=sys.stderr, flush=True)
        if time.monotonic() > began + TIMEOUT_S + count:
            break
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def result_of_calls(child, timeout_s):
    """What a process says of the calls that it has compared."""
    status = child.wait(timeout_s)
    told = [line for line in child.output().splitlines() if " differences" in line or "; Unit" in line]
    check(status == 0 and len(told) == 1, f"status {status}: {told[:20]}: {child.last_words()}")
    return told[0]


def guarded_calls_static(bench):
    """The same in a static program, which is hosted."""
    return guarded_calls(bench, static=True)


# Of programs that trace others: each trapped call is a signal, of which they see nothing.
TRACED_SUM = "sum 19789818886400\n"


def traced(bench, *words, options=(), user=NOBODY):
    """Runs a tool on the program that is traced, with 48 MiB in 24. Returns the status, the output and the errors, without the line about guarded calls."""
    need_restricted()
    need(words[0])
    program = bench.build("tracer.c", "-g", "-pthread")
    run = [*user, *for_everybody(bench), "run", "--store", bench.store, "--memory", "24M", *options, "--"]
    env = {"DEBUGINFOD_URLS": "", "HOME": bench.place}
    with Child([*run, *words, program, "tracee", "48"], bench.place, env=env) as child:
        return bench.end(child), child.output(), child.errors().replace(SAID, "")


def traced_own(bench):
    """A tracer sees the same stops of children of fork and vfork, and of two threads, as natively, from call to call, too, and by each function that waits."""
    need_restricted()
    return as_natively(bench, [bench.build("tracer.c", "-pthread")], "24M")


def traced_rightful(bench):
    """The same with the right to page, where no call is trapped; gdb stops at a breakpoint, and the program ends as natively."""
    need_root()
    program = bench.build("tracer.c", "-pthread")
    native = subprocess.run([program], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    with bench.start([program], "--memory", "24M", "--require") as child:
        status = bench.end(child)
        check((status, child.output(), child.errors()) == (0, native.stdout, ""), f"status {status}: {child.output()}{child.errors()}")
    orders = ("handle SIGUSR2 nostop noprint pass", "handle SIGSYS nostop print pass", "break reached", "run", "backtrace", "continue")
    words = [word for order in orders for word in ("-ex", order)]
    said, errors = traced(bench, "gdb", "-nx", "-batch", *words, "--args", user=())[1:]
    check(re.search(r"hit Breakpoint 1, reached \(sum=\S*19789818886400\)", said) and re.search(r"#1 .* in tracee", said), said + errors)
    check(TRACED_SUM in said and "exited with code 03" in said, said + errors)
    return native.stdout.splitlines()[-1]


def gdb(bench, *orders):
    """What gdb says of the program."""
    orders = ("handle SIGUSR2 nostop noprint pass", *orders)
    words = [word for order in orders for word in ("-ex", order)]
    return traced(bench, "gdb", "-nx", "-batch", *words, "--args")[1:]


def traced_gdb(bench):
    """gdb starts a program, stops at its own signal and at a breakpoint, and sees it end."""
    said, errors = gdb(bench, "break reached", "run", "continue", "backtrace", "kill")
    check(re.search(r"hit Breakpoint 1, reached \(sum=\S*19789818886400\)", said), said + errors)
    check(re.search(r"#1 .* in tracee", said), said + errors)
    check(re.findall(r"received signal (\S+),", said) == ["SIGSYS"], f"its own signal only: {said}{errors}")
    said, errors = gdb(bench, "handle SIGSYS nostop print pass", "run")
    check(TRACED_SUM in said and "exited with code 03" in said, said + errors)
    check(re.findall(r"received signal (\S+),", said) == ["SIGSYS"], f"its own signal only: {said}{errors}")
    return "a breakpoint, a backtrace, an end"


def traced_strace(bench):
    """strace follows a program: its output and status are as natively, and no trapped call is seen as a signal."""
    trace = bench.path("trace")
    os.chmod(bench.place, 0o777)
    with open(trace, "w", encoding="ascii"):
        os.chmod(trace, 0o666)
    status, said, errors = traced(bench, "strace", "-f", "-o", trace)
    check((status, said, errors) == (3, TRACED_SUM, ""), f"status {status}: {said}{errors}")
    with open(trace, encoding="utf-8", errors="replace") as file:
        signals = re.findall(r"--- (SIG\w+)", file.read())
    check(signals == ["SIGUSR2", "SIGSYS"], f"{signals}")
    return "its own signals only"


def traced_proot(bench):
    """What proot runs is not paged without rights, and a line says so: by `terapage run`, and by a program within."""
    for words in (("proot", "-r", "/"), ("sh", "-c", 'proot -r / "$@"', "sh")):
        need("proot")
        status, said, errors = traced(bench, *words)
        check((status, said) == (3, TRACED_SUM), f"{words}: status {status}: {said}{errors}")
        check(len(errors.splitlines()) == 1 and "proot runs, but its memory is not paged: it is a tracer" in errors, f"{words}: {errors}")
    status, said, errors = traced(bench, "proot", "-r", "/", options=("--require",))
    check(status == 125 and not said and "proot is not run" in errors, f"--require: status {status}: {said}{errors}")
    return errors.strip()[:60]


def traced_valgrind(bench):
    """A program in Valgrind runs as natively with `--static all`, too, where a host loads Valgrind's own script; also without rights."""
    need("valgrind")
    for user in ((), NOBODY):
        status, said, errors = traced(bench, "valgrind", "-q", "--leak-check=no", options=("--static", "all"), user=user)
        check((status, said) == (3, TRACED_SUM) and "it is a tool of Valgrind" in errors, f"{user}: status {status}: {said}{errors}")
    return "as root, and as another user"


# A child of vfork whose handler runs before the exec. Natively it would stop, and nobody could
# let it go on.
HANDLED = "vfork, handled: TRAP USR2 status 3\n - 1 - - - - - - - - - - 1 -\n"


def traced_vfork(bench):
    """A tracer's children of fork and vfork, also of several threads at once: their execs fail early or late, they execute in handlers, signals wait for the program, or handlers run before the exec."""
    said = same_as_natively(bench, "traces.c", "24", memory="16M")
    run = [*NOBODY, *for_everybody(bench), "run", "--store", bench.store, "--memory", "16M", "--require", "--"]
    with Child([*run, bench.path("traces"), "24", "handled"], bench.place) as child:
        status = bench.end(child)
        check((status, child.output()) == (0, HANDLED * 8), f"status {status}: {child.output()}{child.last_words()}")
    return said


def hosted_tracer(bench):
    """The same of a hosted tracer, with the right to page, and without."""
    need_root()
    program = bench.build("traces.c", "-pthread", "-static")
    native = subprocess.run([program, "24"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    for env in (None, {"TERAPAGE_GUARD": "force"}):
        for words, expected in (((), native.stdout), (("handled",), HANDLED * 8)):
            with bench.start([program, "24", *words], "--memory", "16M", "--require", env=env) as child:
                status = bench.end(child)
                check((status, child.output()) == (0, expected), f"{env}, {words}: status {status}: {child.output()}{child.last_words()}")
    return native.stdout.splitlines()[0]


def hosted_gdb(bench):
    """A hosted gdb starts programs, dynamic and static, and sees them end, with the right to page, and without; in a static one it stops at a breakpoint."""
    need_root()
    need("gdb")

    def said(program, env, *orders):
        words = [word for order in ("handle SIGUSR2 nostop noprint pass", *orders) for word in ("-ex", order)]
        run = ["gdb", "-nx", "-batch", *words, "--args", program, "tracee", "48"]
        with bench.start(run, "--memory", "64M", "--static", "all", env={"DEBUGINFOD_URLS": "", "HOME": bench.place, **env}) as child:
            bench.end(child)
            said = child.output() + child.errors()
            check(TRACED_SUM in said and "exited with code 03" in said, f"{program}, {env}: {said}")
            return said

    quiet = "handle SIGSYS nostop noprint pass"
    for flags in ((), ("-static",)):
        program = bench.build("tracer.c", "-g", "-pthread", *flags)
        for env in ({}, {"TERAPAGE_GUARD": "force"}):
            said(program, env, quiet, "run")
    told = said(program, {}, "run", quiet, "break reached", "continue", "backtrace", "continue")
    check(re.search(r"hit Breakpoint 1, reached \(sum=\S*19789818886400\)", told) and re.search(r"#1 .* in tracee", told), told)
    return "a breakpoint, a backtrace, an end"


TRACED = {
    "traced-own": traced_own,
    "traced-rightful": traced_rightful,
    "traced-gdb": traced_gdb,
    "traced-strace": traced_strace,
    "traced-proot": traced_proot,
    "traced-valgrind": traced_valgrind,
    "traced-vfork": traced_vfork,
    "traced-by-hosted": hosted_tracer,
    "traced-by-hosted-gdb": hosted_gdb,
}
