"""What kernels and containers forbid: io_uring, system calls, engines."""

import json
import os
import re
import subprocess

import hosted
from harness import NOBODY, Child, Skipped, check, need, need_restricted, need_root
from bench import TESTS, counters, for_everybody, goes_on


def io_of(path):
    """How the stores of a run were read and written, according to its counters: 1 is io_uring, 2 libaio, 3 threads."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)["io_engine"]


def io_uring_forbidden(bench):
    """A filter forbids io_uring, before the program begins or later: libaio is used; with TERAPAGE_IO=uring the program runs unpaged, and one line says so."""
    forbid, victim, doctor = bench.build("forbid.c"), bench.build("victim.c"), [*bench.command, "doctor"]
    setup, stats = "425", bench.path("stats")
    run = [*bench.command, "run", "--memory", "32M", "--store", bench.store]
    # If io_setup is forbidden too, only threads are left.
    for numbers, io in ((setup, 2), (f"{setup},206", 3)):
        for words in (
            [forbid, numbers, *run, "--require", "--stats", stats, "--", victim, "96", "once"],
            [*run, "--stats", stats, "--", forbid, numbers, victim, "96", "once"],
        ):
            with Child(words, bench.place) as child:
                status = bench.end(child)
                check(status == 0 and not child.errors(), f"{words}: status {status}: {child.last_words()}")
                check(io_of(stats) == io, f"{words}: I/O by {io_of(stats)}, not {io}")
    argv = ["env", "TERAPAGE_IO=uring", forbid, setup, *run]
    with Child([*argv, "--require", "--", "echo", "ran"], bench.place) as child:
        status, lines = bench.end(child), child.errors().splitlines()
        check(status == 125 and not child.output(), f"status {status}: {child.last_words()}")
        check(len(lines) == 1 and "io_uring" in lines[0] and "seccomp" in lines[0], f"{lines}")
    for words in ([*argv, "--", victim, "96", "once"], ["env", "TERAPAGE_IO=uring", *run, "--", forbid, setup, victim, "96", "once"]):
        with Child(words, bench.place) as child:
            status, lines = bench.end(child), child.errors().splitlines()
            check(status == 0, f"{words}: status {status}: {child.last_words()}")
            check(len(lines) == 1 and "io_uring" in lines[0] and "not paged" in lines[0], f"{words}: {lines}")
    for io, number, says in (("auto", 0, "^warning +io_uring .*libaio instead"), ("uring", 1, "^failure +io_uring")):
        with Child([forbid, setup, *doctor], bench.place, env={"TERAPAGE_IO": io}) as child:
            status = bench.end(child)
            check(status == number and re.search(says, child.output(), re.M), child.output())
    return lines[0]


def no_locked_user(bench):
    """A user may lock no memory, which rings of io_uring need: the program and a forked child are paged all the same, and the doctor says how; with TERAPAGE_IO=uring one line names the limit."""
    need("prlimit")
    need_restricted()
    (command,) = for_everybody(bench)
    counters(bench)
    victim, fork, stats = bench.build("victim.c"), bench.build("fork.c"), bench.path("counters/stats")
    os.chmod(victim, 0o755)
    os.chmod(fork, 0o755)
    confined = ["prlimit", "--memlock=0:0", *NOBODY]
    with Child([*confined, command, "doctor", "--store", bench.store], bench.place) as child:
        status, shown = bench.end(child), child.output()
    if re.search("^ok +io_uring", shown, re.M):
        raise Skipped("this kernel does not count rings as locked memory")
    check(status == 0 and re.search(r"^warning +io_uring .*\(ulimit -l\); .*libaio instead", shown, re.M), f"status {status}: {shown}")
    run = [command, "run", "--memory", "24M", "--require", "--store", bench.store, "--stats", stats, "--"]
    for program in ([victim, "64", "once"], [fork, "48"]):
        with Child([*confined, *run, *program], bench.place) as child:
            status = bench.end(child)
            check(status == 0, f"{program}: status {status}: {child.last_words()}")
        check(io_of(stats) == 2, f"{program}: I/O by {io_of(stats)}")
    with Child([*confined, *run, victim, "64", "once"], bench.place, env={"TERAPAGE_IO": "uring"}) as child:
        status, errors = bench.end(child), child.errors()
        check(status != 0 and "io_uring_setup; rings count against" in errors and "ulimit -l" in errors, f"status {status}: {errors!r}")
    return ""


# System calls that Docker's default profile forbids without further capabilities. Its answer to
# clone3 is that the kernel has none.
DOCKER_FORBIDS = """
    acct add_key bpf clock_adjtime clock_settime delete_module fanotify_init finit_module fsconfig fsmount fsopen
    fspick init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load
    keyctl lookup_dcookie mbind mount mount_setattr move_mount move_pages open_by_handle_at open_tree
    perf_event_open pidfd_getfd pivot_root process_madvise process_vm_readv process_vm_writev ptrace quotactl
    quotactl_fd reboot request_key set_mempolicy setdomainname sethostname setns settimeofday swapoff swapon syslog
    umount2 unshare userfaultfd vhangup
""".split()

# The capabilities of a Docker container.
DOCKER_KEEPS = "chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw sys_chroot mknod audit_write setfcap"


def call_numbers():
    """The numbers of this machine's system calls, by name."""
    need("gcc")
    defined = subprocess.run(
        ["gcc", "-dM", "-E", "-include", "sys/syscall.h", "-x", "c", "/dev/null"], capture_output=True, text=True, check=True, timeout=60
    )
    return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", defined.stdout)}


def docker_profile(bench):
    """With Docker's default profile and capabilities, and --device /dev/userfaultfd, programs and their children are paged."""
    if not os.path.exists("/dev/userfaultfd"):
        raise Skipped("no /dev/userfaultfd (Linux 6.1)")
    need_root()
    need("setpriv")
    numbers = call_numbers()
    forbidden = [str(numbers[name]) for name in DOCKER_FORBIDS if name in numbers] + [f"{numbers['clone3']}=38"]
    keeps = ",".join(["-all", *(f"+{name}" for name in DOCKER_KEEPS.split())])
    confined = ["setpriv", "--bounding-set", keeps, "--inh-caps", "-all", bench.build("forbid.c"), ",".join(forbidden)]
    stats, second = bench.path("stats"), bench.path("second")
    os.mkdir(second)
    run = [*bench.command, "run", "--memory", "24M", "--require", "--store"]
    # The second one limits its open files, and so cannot write counters.
    victim, fork = ["--stats", stats, "--", bench.build("victim.c"), "96", "once"], ["--", bench.build("fork.c"), "48"]
    stores = [bench.store, f"mirror:{bench.store}+{second}", f"tier:ram:8M+{bench.store}"]
    # A host traps what the profile lets pass, though programs find no clone3 anyway.
    static = ["--stats", stats, "--", hosted.built(bench, "static", "gcc", "-static", "-O2", hosted.source("victim.c")), "96", "once"]
    for store in stores:
        for program in (victim, fork, static) if store == bench.store else (victim,):
            with Child([*confined, *run, store, *program], bench.place) as child:
                status = bench.end(child)
                check(status == 0 and not child.errors(), f"{store} {program}: status {status}: {child.last_words()}")
                check(io_of(stats) == 2, f"{store} {program}: I/O by {io_of(stats)}")
    with Child([*confined, *bench.command, "doctor", "--store", bench.store], bench.place, env={"container": "docker"}) as child:
        status, shown = bench.end(child), child.output()
        check(status == 0 and "docker run --device /dev/userfaultfd" in shown, f"status {status}: {shown}")
    return f"{len(forbidden)} calls forbidden, {1 + len(stores)} runs"


def io_engines(bench):
    """Each way to read and write stores gives the same bytes: with one store, two stores, encryption, a failing mirror, and in children of forks."""
    victim, fork, second = [bench.build("victim.c"), "64", "once"], [bench.build("fork.c"), "48"], bench.path("second")
    os.mkdir(second)
    stats = bench.path("stats")
    for number, io in enumerate(("uring", "aio", "threads"), 1):
        env = {"TERAPAGE_IO": io}
        goes_on(bench, victim, "--memory", "24M", "--stats", stats, env=env)
        check(io_of(stats) == number, f"{io}: I/O by {io_of(stats)}")
        two = ("--memory", "24M", "--store", second)
        goes_on(bench, victim, *two, "--placement", "round-robin", "--encrypt", env=env)
        both = f"mirror:{bench.store}+{second}"
        goes_on(bench, victim, "--memory", "24M", store=both, env={**env, "TERAPAGE_FAULTS": "errors=50000,short=20000,copy=1"})
        if io != "uring":
            goes_on(bench, fork, "--memory", "24M", env=env)
    bench.refused(env={"TERAPAGE_IO": "posix"}, says="TERAPAGE_IO: 'posix' is unknown")
    return ""


def seccomp_profile(bench):
    """The profile for containers that need one is valid for Docker: its calls exist, and those that paging needs are allowed."""
    with open(os.path.join(os.path.dirname(TESTS), "contrib", "seccomp", "terapage.json"), encoding="utf-8") as file:
        profile = json.load(file)
    check(profile["defaultAction"] == "SCMP_ACT_ALLOW", profile["defaultAction"])
    rules = profile["syscalls"]
    keys = {"names", "action", "args", "comment", "errnoRet"}
    check(all(set(rule) <= keys and rule["action"] == "SCMP_ACT_ERRNO" for rule in rules), "a rule that Docker does not know")
    whole = {name: rule.get("errnoRet", 1) for rule in rules if "args" not in rule for name in rule["names"]}
    numbers = call_numbers()
    check(numbers.keys() >= {"mount", "bpf", "unshare"} and whole.keys() & numbers.keys() >= {"mount", "bpf", "unshare"}, "too few")
    needed = {"userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register", "io_setup", "io_submit", "process_madvise"}
    check(not needed & whole.keys(), f"forbidden: {needed & whole.keys()}")
    filters = ",".join(f"{numbers[name]}={error}" for name, error in whole.items() if name in numbers)
    stats = bench.path("stats")
    run = [*bench.command, "run", "--memory", "24M", "--require", "--store", bench.store]
    program = ["--stats", stats, "--", bench.build("victim.c"), "96", "once"]
    with Child([bench.build("forbid.c"), filters, *run, *program], bench.place) as child:
        status = bench.end(child)
        check(status == 0 and not child.errors(), f"status {status}: {child.last_words()}")
        check(io_of(stats) == 1, f"I/O by {io_of(stats)}")
    return f"{len(whole)} calls"
