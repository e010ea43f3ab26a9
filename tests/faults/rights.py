"""Rights: doctor --fix, users, containers, what exec changes."""

import json
import os
import pathlib
import re
import shutil
import sys

from harness import NOBODY, Child, Skipped, check, need, need_restricted, need_root
from bench import BESIDE, NOBODY_ELSE, counters, for_everybody, goes_on, read_first

# This script runs in a mount namespace, so that nothing on the machine changes.
FIX_SCRIPT = """
set -e
mount -t tmpfs none "$PLACE/over" && mkdir "$PLACE/over/upper" "$PLACE/over/work"
mount -t overlay -o lowerdir=/etc,upperdir="$PLACE/over/upper",workdir="$PLACE/over/work" none /etc
mkdir -p /etc/udev/rules.d
mount -t tmpfs none /dev && mknod /dev/null c 1 3 && mknod /dev/urandom c 1 9 && mknod -m 600 /dev/userfaultfd c $DEVICE
export SUDO_USER=nobody
"$@" doctor --store "$PLACE" --fix --dry-run; stat -c 'now %a %g' /dev/userfaultfd
"$@" doctor --store "$PLACE" --fix; stat -c 'now %a %G' /dev/userfaultfd; id -nG nobody; cat /etc/udev/rules.d/70-userfaultfd.rules
"$@" doctor --store "$PLACE" --fix
"""


def doctor_fix(bench):
    """`doctor --fix` gives the device to a group, once, and says how to undo it; --dry-run changes nothing; other users are refused."""
    if not os.path.exists("/dev/userfaultfd"):
        raise Skipped("no /dev/userfaultfd (Linux 6.1)")
    need_root()
    need("unshare", "groupadd", "usermod", "setpriv")
    if read_first("/proc/sys/vm/unprivileged_userfaultfd") == "1":
        raise Skipped("everybody may use userfaultfd here")
    number = os.stat("/dev/userfaultfd").st_rdev
    os.mkdir(bench.path("over"))
    values = {"PLACE": bench.place, "DEVICE": f"{os.major(number)} {os.minor(number)}"}
    with Child(["unshare", "-m", "sh", "-c", FIX_SCRIPT, "sh", *bench.command], bench.place, env=values) as child:
        status, shown = bench.end(child), child.output()
        if "mount" in child.errors():
            raise Skipped(child.last_words())
        check(status == 0, f"status {status}: {child.last_words()} {shown}")
    dry, _, wet = shown.partition("now 600 0\n")
    check(dry.count("would ") == 4 and dry.count("undo: ") == 4 and "done " not in dry, f"dry: {dry}")
    check(wet.count("done ") == 4 and "undo: groupdel userfaultfd" in wet and "undo: chgrp 0 /dev/userfaultfd; chmod 600" in wet, wet)
    check("now 660 userfaultfd" in wet and 'MODE="0660"' in wet and re.search("^nogroup userfaultfd$", wet, re.M), wet)
    check(wet.count("nothing has to be fixed") == 1, wet)
    check("userfaultfd" not in pathlib.Path("/etc/group").read_text(encoding="utf-8"), "the machine's own groups have changed")
    with Child([*NOBODY, *for_everybody(bench), "doctor", "--fix"], bench.place) as child:
        status, lines = bench.end(child), child.errors().splitlines()
        check(status == 125 and len(lines) == 1 and "sudo" in lines[0], f"status {status}: {lines}")
    return "4 steps"


FIX_INSIDE_SCRIPT = """
set -e
mount --bind /etc /etc && mount -o remount,bind,ro /etc
mount -t tmpfs none /dev && mknod /dev/null c 1 3 && mknod /dev/urandom c 1 9
mkdir /dev/pts && mount -t devpts -o ptmxmode=666 none /dev/pts && ln -s pts/ptmx /dev/ptmx
echo 1 >"$PLACE/setting" && mount --bind "$PLACE/setting" /proc/sys/kernel/io_uring_disabled
"$@" doctor --store "$PLACE" --fix --dry-run || true
"$@" doctor --store "$PLACE" --fix </dev/null || true
echo "unasked: $(cat "$PLACE/setting")"
asked() {
    { sleep 1; echo "$1"; sleep 2; } | script -qec "$COMMAND doctor --store $PLACE --fix" /dev/null || true
    echo "asked, $1: $(cat "$PLACE/setting")"
}
asked n
asked y
mount -t tmpfs none /etc/sysctl.d
asked y
cat /etc/sysctl.d/60-terapage.conf
"""


def doctor_fix_inside(bench):
    """In a container without the device, `doctor --fix` names what gives the device, and changes the host's settings only if told to: whole, or not at all."""
    if not os.path.exists("/dev/userfaultfd"):
        raise Skipped("no /dev/userfaultfd (Linux 6.1)")
    need_root()
    need("unshare", "script")
    settings = ["/proc/sys/vm/unprivileged_userfaultfd", "/proc/sys/kernel/io_uring_disabled", "/sys/kernel/mm/transparent_hugepage/enabled"]
    before = {path: read_first(path) for path in settings if os.path.exists(path)}
    if before[settings[0]] == "1":
        raise Skipped("everybody may use userfaultfd here")
    values = {"PLACE": bench.place, "COMMAND": " ".join(bench.command)}
    try:
        with Child(["unshare", "-m", "sh", "-c", FIX_INSIDE_SCRIPT, "sh", *bench.command], bench.place, env=values) as child:
            status, shown = bench.end(child), child.output()
            if "mount" in child.errors():
                raise Skipped(child.last_words())
            check(status == 0 and not child.errors(), f"status {status}: {child.last_words()} {shown}")
        check({path: read_first(path) for path in before} == before, f"the host was changed: {shown}")
    finally:
        if read_first(settings[0]) != before[settings[0]]:
            pathlib.Path(settings[0]).write_text(before[settings[0]], encoding="ascii")
    dry, _, rest = shown.partition("unasked: 1\n")
    check(dry.count("left     /dev/userfaultfd is not in this container: start it with --device") == 2, shown)
    check("a container does not change its host unasked (on the host: sudo terapage doctor --fix)" in dry, shown)
    check("done " not in dry and "unprivileged_userfaultfd = 1" not in shown, shown)
    rest = rest.replace("\r", "")
    refused, _, rest = rest.partition("asked, n: 1\n")
    failed, _, rest = rest.partition("asked, y: 1\n")
    check("done " not in refused and "Read-only file system" in failed and "done " not in failed, shown)
    check(rest.index("undo: sysctl kernel.io_uring_disabled=1") < rest.index("done     kernel.io_uring_disabled = 0"), rest)
    check(rest.endswith("asked, y: 0\nkernel.io_uring_disabled = 0\n"), rest)
    return ""


def rights(bench):
    """Rights, keys and locks that the kernel refuses: the memory for which they were meant is still paged."""
    need_root()
    os.chmod(bench.place, 0o755)
    os.chmod(bench.store, 0o777)
    os.mkdir(bench.path("counters"))
    os.chmod(bench.path("counters"), 0o777)
    stats = bench.path("counters/stats")
    goes_on(bench, [bench.build("short.c"), "rights", NOBODY_ELSE], "--memory", "16M", "--stats", stats, says=BESIDE)
    with open(stats, encoding="utf-8") as file:
        released = json.load(file)["released_bytes"]
    check(released == 0, f"{released >> 10} KiB are not paged any more")
    return "all is paged"


def pinned(bench):
    """Most of the budget is held for the program's own I/O: the pager does not retry continually, which took a hundred times as long."""
    stats = bench.path("stats")
    goes_on(bench, [bench.build("short.c"), "pinned", "7"], "--memory", "22M", "--block", "2M", "--stats", stats)
    with open(stats, encoding="utf-8") as file:
        tries = json.load(file)["retries"]
    check(tries < 3000, f"{tries} tries")
    return f"{tries} tries"


def no_permission(bench):
    """A user who may have no userfaultfd at all: one line before the program, which runs; with --require it does not run."""
    need_restricted()
    lacks = [*NOBODY, bench.build("forbid.c"), "323"]
    run = [*lacks, *for_everybody(bench), "run", "--memory", "64M", "--store", bench.store]
    for more, expected in (((), (0, "ran\n")), (("--require",), (125, ""))):
        with Child([*run, *more, "--", "echo", "ran"], bench.place) as child:
            status = bench.end(child)
            lines = child.errors().splitlines()
            check((status, child.output()) == expected, f"status {status}: {child.last_words()}")
            check(len(lines) == 1 and re.search("not (be )?paged.*sudo terapage doctor --fix", lines[0]), f"{lines}")
    with Child([*lacks, bench.path("terapage"), "doctor"], bench.place) as child:
        bench.end(child)
        lines_of_doctor = [line.strip() for line in child.output().splitlines()]
        begins = ["failure  userfaultfd", f"fix: sudo {bench.path('terapage')} doctor --fix", "or:  sudo setpriv", "or:  sudo sysctl vm.unprivileged_userfaultfd=1"]
        check(all(line.startswith(begin) for line, begin in zip(lines_of_doctor, begins)), f"not the gentlest way first, each on its line: {child.output()}")
    return lines[0]


def pages(bench, words, *options, env=None, errors=""):
    """Expects that the programs that `words` start succeed, that they were paged if there are counters, and the given output; returns whether there are counters."""
    for name in os.listdir(bench.path("counters")):
        os.remove(os.path.join(bench.path("counters"), name))
    argv = [*for_everybody(bench), "run", "--memory", "32M", "--store", bench.store, "--stats", bench.path("counters/stats")]
    with Child([*argv, *options, "--", *words], bench.place, env=env) as child:
        status = bench.end(child)
        check(status == 0, f"{words}: status {status}: {child.last_words()}")
        check(re.search(f"^{errors}$", child.errors().strip()), f"{words}: {child.last_words()!r}")
    largest = 0
    for name in os.listdir(bench.path("counters")):
        with open(os.path.join(bench.path("counters"), name), encoding="utf-8") as file:
            largest = max(largest, json.load(file)["page_out_bytes"])
    return largest > 16 << 20


def rights_over_exec(bench):
    """Programs that change to another user and execute another program are paged all the same."""
    need_restricted()
    counters(bench)
    victim = bench.build("victim.c")
    grow = [victim, "96", "once"]
    drop = f"import os; os.setgid(65534); os.setuid(65534); os.execv({victim!r}, {grow!r})"
    ways = [
        [*NOBODY, *grow],
        [*NOBODY, "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", *grow],
        ["runuser", "-u", "nobody", "--", *grow],
        ["su", "-s", "/bin/sh", "nobody", "-c", " ".join(grow)],
        [sys.executable, "-c", drop],
        [sys.executable, "-c", f"import subprocess; subprocess.run({grow!r}, user=65534, env={{}}, check=True)"],
        ["unshare", "-U", *grow],
        ["sudo", "-u", "nobody", *grow],
        ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", bench.place, bench.place, "--unshare-user", *grow],
    ]
    tried = [words for words in ways if shutil.which(words[0])]
    for words in tried:
        check(pages(bench, words), f"{words}: not paged")
    return f"{len(tried)} of {len(ways)} ways"


def rights_lost(bench):
    """If the right cannot be passed on, or the user that the program becomes may not use the store, the program runs unpaged, with one line if it grows."""
    need_restricted()
    need("unshare", "mount")
    counters(bench)
    victim = bench.build("victim.c")
    inner = [*for_everybody(bench), "run", "--memory", "32M", "--store", bench.store, "--", *NOBODY]
    hidden = ["unshare", "-m", "sh", "-c", 'mount --bind /dev/null /dev/userfaultfd && exec "$@"', "sh"]
    for words, says in (([victim, "96", "once"], "terapage: victim goes on, .*not paged: it may not handle page faults"), (["true"], "")):
        with Child([*hidden, *inner, *words], bench.place) as child:
            status, lines = bench.end(child), child.errors().strip()
            check(status == 0, f"{words}: status {status}: {child.last_words()}")
            check(re.search(f"^{says}", lines) and "\n" not in lines and bool(lines) == bool(says), f"{words}: {lines!r}")
    closed = bench.path("closed")
    os.mkdir(closed, 0o700)
    says = "terapage: victim goes on, .*not paged: store .*closed: .*Permission denied.*"
    check(not pages(bench, [*NOBODY, victim, "96", "once"], "--store", closed, errors=says), "paged in a closed store")
    return "said once"


def keeps_library(bench):
    """Children keep the library and its settings with each way to execute a program, whatever their environment."""
    with bench.start([bench.build("executes.c")], "--memory", "64M") as child:
        status = bench.end(child)
        check((status, child.output(), child.errors()) == (0, "all keep it\n", ""), f"status {status}: {child.output()} {child.last_words()}")
    counters(bench)
    victim = [bench.build("victim.c"), "96", "once"]
    ways = [
        ["sh", "-c", f"env -i {' '.join(victim)}; exit $?"],
        ["bash", "-c", f"unset LD_PRELOAD ${{!TERAPAGE*}}; {' '.join(victim)}; exit $?"],
        [sys.executable, "-c", f"import subprocess; subprocess.run({victim!r}, env={{}}, close_fds=True, check=True)"],
        [sys.executable, "-c", f"import os; os.closerange(3, 4096); os.execve({victim[0]!r}, {victim!r}, {{}})"],
    ]
    for words in ways:
        check(pages(bench, words), f"{words}: not paged")
    check(not pages(bench, ["sh", "-c", f"TERAPAGE=off {' '.join(victim)}; exit $?"]), "TERAPAGE=off: paged")
    jemalloc = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
    if not os.path.exists(jemalloc):
        return f"{len(ways)} ways; SKIPPED with jemalloc: not installed"
    check(pages(bench, ["sh", "-c", f"LD_PRELOAD={jemalloc} {' '.join(victim)}; exit $?"]), "with jemalloc: not paged")
    return f"{len(ways) + 1} ways"
