"""Adopted programs that are given back while they run: `terapage release`."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

import adopt
from bench import for_everybody, of_threads, open_files, read_first
from harness import Child, Failed, Late, Skipped, anonymous_bytes, check, need, need_restricted, need_root, wait_for
from oci import own_device

MIB = 1 << 20
RUNS = int(os.environ.get("TERAPAGE_RUNS", "1"))
OURS = ("terapage", "terapage-make", "terapage-files")


def release(bench, pid, who=()):
    """Runs `terapage release`, by the command `who`, and returns what it has said and its status."""
    done = subprocess.run([*who, *bench.command, "release", str(pid)], capture_output=True, text=True, timeout=300, check=False)
    return done.stderr.strip(), done.returncode


def counters(bench, pid):
    """The counters of a process; None if it has ended."""
    done = subprocess.run([*bench.command, "stat", "--json", str(pid)], capture_output=True, text=True, timeout=300, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def start_of(bench):
    seed = int(os.environ.get("TERAPAGE_SEED", time.time_ns() % 1000000))
    print(f"seed {seed}", flush=True)
    return random.Random(seed)


def check_released(bench, child, where):
    """Nothing of the pager is left in a released program, and it cannot be adopted again."""
    now = counters(bench, child.pid)
    if now is None or child.process.poll() is not None:
        return
    check(now["released"] == 1 and now["resident_bytes"] == 0 and now["store_bytes"] == 0, f"{where}: {now}")
    # The pager's thread is just ending.
    wait_for(lambda: not [name for name in of_threads(child.pid, "comm") if name in OURS], f"{where}: the pager's threads have ended")
    links = [link for link in open_files(child.pid) if "userfaultfd" in link or "io_uring" in link]
    check(not links, f"{where}: {links}")
    for said, status in (adopt.adopt(bench, child.pid, "64M"), release(bench, child.pid)):
        ended = "ended" in said or "no process" in said or "no such process" in said
        check(status == 125 and said.count("\n") == 0 and ("released" in said or ended), f"{where}: status {status}: {said}")


def at_random(bench):
    """10 threads that check each word, allocate, map, fork, wait, and have a handler on a stack of its own: adopted and released at random moments, dynamic and static."""
    moments = start_of(bench)
    for run in range(RUNS):
        program = adopt.victim(bench, *(["-static"] if run % 2 else []))
        with Child([program, adopt.LONG_S, "14", "10"], bench.place) as child:
            time.sleep(moments.uniform(0, 3))
            said, status = adopt.adopt(bench, child.pid, "64M")
            check(status == 0, f"run {run}: {said}")
            time.sleep(moments.uniform(0, 2))
            said, status = release(bench, child.pid)
            check(status == 0 and "no longer paged" in said and said.count("\n") == 0, f"run {run}: status {status}: {said}")
            check_released(bench, child, f"run {run}")
            wait_for(lambda: anonymous_bytes(child.pid) > 120 * MIB or child.process.poll() is not None, "all is in memory")
            status = adopt.ended_early(bench, child, 5)
            check(status == 0 and child.output() == "0 wrong\n", f"run {run}: status {status}: {child.output()} {child.last_words()}")
    return ""


def cancelled(bench):
    """Ctrl-C at random moments of a release: the program stays paged and whole, and is released by the next one."""
    moments, undone = start_of(bench), 0
    program = adopt.victim(bench)
    for run in range(20):
        with Child([program, adopt.LONG_S, "24"], bench.place) as child:
            wait_for(lambda: anonymous_bytes(child.pid) > 180 * MIB, "the program has begun")
            said, status = adopt.adopt(bench, child.pid, "64M")
            check(status == 0, said)
            for _ in range(4 * RUNS):
                said, status = interrupted(bench, child, moments)
                if status == 0:
                    break
                check(said.count("\n") == 0 and (status == -signal.SIGINT or "paged as before" in said), f"run {run}: status {status}: {said}")
                undone += "paged as before" in said
                wait_for(lambda: anonymous_bytes(child.pid) < 64 * MIB + adopt.SLACK, "it is within its budget again")
            else:
                said, status = release(bench, child.pid)
                check(status == 0, f"at last: {said}")
            check_released(bench, child, "at last")
            status = adopt.ended_early(bench, child)
            check(status == 0 and child.output() == "0 wrong\n", f"status {status}: {child.output()} {child.last_words()}")
        # The first release may have been too fast for Ctrl-C.
        if undone:
            return f"{undone} undone"
    raise Failed("no release was undone")


def interrupted(bench, child, moments, budget=64 * MIB):
    """Starts a release, and presses Ctrl-C at a random moment, or once some memory is back. Returns what it has said and its status."""
    with subprocess.Popen([*bench.command, "release", str(child.pid)], stderr=subprocess.PIPE, text=True) as command:
        if moments.random() < 0.3:
            time.sleep(moments.uniform(0, 0.4))
        else:
            most = budget + moments.randrange(adopt.SLACK)
            wait_for(lambda: command.poll() is not None or anonymous_bytes(child.pid) > most, "memory comes back")
        command.send_signal(signal.SIGINT)
        return command.communicate(timeout=300)[1].strip(), command.returncode


def cancelled_in_a_group(bench):
    """Ctrl-C during the releases of programs that share a budget: they stay within it, and are released by the next ones."""
    moments, undone = start_of(bench), 0
    program = adopt.victim(bench)
    limit = adopt.cgroup(f"terapage-release-{os.getpid()}")
    group = os.path.dirname(limit)
    try:
        for run in range(10):
            undone += cancelled_pair(bench, group, program, moments, f"run {run}")
            # The first releases may have been too fast for Ctrl-C.
            if undone:
                return f"{undone} undone"
    finally:
        wait_for(lambda: not adopt.members(group), "the cgroup is empty")
        os.rmdir(group)
    raise Failed("no release was undone")


def cancelled_pair(bench, group, program, moments, where):
    """Releases two programs of a cgroup that share a budget, while Ctrl-C is pressed. Returns the number of releases that were undone."""
    undone, budget, every = 0, 96 * MIB, []
    with contextlib.ExitStack() as stack:
        for name in "ab":
            os.makedirs(bench.path(name), exist_ok=True)
            every.append(stack.enter_context(Child(adopt.in_group(group, program, adopt.LONG_S, "16"), bench.path(name))))
        wait_for(lambda: all(anonymous_bytes(child.pid) > 120 * MIB for child in every), "the programs have begun")
        said, status = adopt.adopt(bench, f"--cgroup={group}", "96M")
        check(status == 0, said)
        left = every[:]
        for attempt in range(4 * RUNS):
            where_now = f"{where}, attempt {attempt}"
            for child, said, status in [(child, *outcome) for child, outcome in zip(left[:], interrupted_together(bench, left, moments))]:
                undone += "paged as before" in said
                if status == 0:
                    left.remove(child)
                    check_released(bench, child, where_now)
                else:
                    check(said.count("\n") == 0 and (status == -signal.SIGINT or "paged as before" in said), f"{where_now}: status {status}: {said}")
            if left:
                check_has_budget(bench, left, budget, where_now)
        for child in left:
            said, status = release(bench, child.pid)
            check(status == 0, f"{where}, at last: {said}")
            check_released(bench, child, where)
        for child in every:
            status = adopt.ended_early(bench, child)
            check((status, child.output()) == (0, "0 wrong\n"), f"{where}: status {status}: {child.output()} {child.last_words()}")
    return undone


def interrupted_together(bench, children, moments):
    """As `interrupted`, for several programs at the same time. Returns what was said of each, and the status."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        # Each has its share of the budget.
        return list(pool.map(lambda child: interrupted(bench, child, moments, 96 * MIB // len(children)), children))


def by_a_user(bench):
    """An ordinary user releases a program of their own, with a handler on a stack of its own; another user cannot."""
    need_restricted()
    need("unshare")
    program = adopt.victim(bench)
    bench.command = for_everybody(bench)
    user, other = (["setpriv", "--reuid", number, "--regid", number, "--clear-groups"] for number in ("1001", "1002"))
    lent = f'mount --bind {own_device(bench.place, 1001)} /dev/userfaultfd && exec "$@"'
    with Child([*user, program, adopt.LONG_S, "12", "10"], bench.place) as child:
        wait_for(lambda: anonymous_bytes(child.pid) > 100 * MIB, "the program has begun")
        said, status = adopt.adopt(bench, child.pid, "64M", who=["unshare", "-m", "sh", "-c", lent, "sh", *user])
        if status == 125 and "ptrace_scope" in said:
            raise Skipped(said)
        check(status == 0, said)
        said, status = release(bench, child.pid, who=other)
        check(status == 125 and said.count("\n") == 0, f"another user: status {status}: {said}")
        check(counters(bench, child.pid)["released"] == 0, "another user has released it")
        said, status = release(bench, child.pid, who=user)
        check(status == 0 and "no longer paged" in said and said.count("\n") == 0, f"status {status}: {said}")
        check_released(bench, child, "released")
        status = adopt.ended_early(bench, child)
        check((status, child.output()) == (0, "0 wrong\n"), f"status {status}: {child.output()} {child.last_words()}")
    return said.rpartition(": ")[2]


def rights(bench):
    """Memory of a released program is mapped anew without rights in the same place, and then gets rights, which it has."""
    need_root()
    program = bench.build("released_rights.c")
    for run in range(RUNS):
        goes_on = bench.path(f"goes-on-{run}")
        with Child([program, goes_on], bench.place) as child:
            wait_for(lambda: child.output() == "ready\n", "the program has begun")
            for said, status in (adopt.adopt(bench, child.pid, "16M"), release(bench, child.pid)):
                check(status == 0, said)
            pathlib.Path(goes_on).touch()
            status = bench.end(child)
            check((status, child.output()) == (0, "ready\nwritten\n"), f"status {status}: {child.output()} {child.last_words()}")
    return ""


STARTS = """
import os, subprocess, sys, time
data = bytearray(os.urandom(1 << 20)) * 150
print("filled", flush=True)
sys.stdin.readline()
child = os.fork()
if child == 0:
    more = bytearray(data[: 64 << 20])
    print("child", more[-1] == data[(64 << 20) - 1], "stat" if "terapage" in "".join(os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{fd}") and "userfaultfd" in os.readlink(f"/proc/self/fd/{fd}")) else "unpaged", flush=True)
    os._exit(0)
os.waitpid(child, 0)
program = "import os; x = bytearray(80 << 20); maps = open('/proc/self/maps').read(); print('terapage' in maps, 'TERAPAGE_ROOT' in os.environ)"
subprocess.run([sys.executable, "-c", program])
print(subprocess.run(["busybox" if len(sys.argv) > 1 else "echo", *(["echo"] if len(sys.argv) > 1 else []), "hello"], capture_output=True, text=True).stdout.strip(), flush=True)
os.system("grep -c -e terapage /proc/$$/maps")
print(os.popen("cat /proc/$$/maps").read().count("terapage"), flush=True)
more = bytearray(100 << 20)
print(len(data) + len(more), flush=True)
"""


def children(bench):
    """Children of a released program, and programs that it starts, are not paged."""
    need_root()
    words = ["busybox"] if shutil.which("busybox") else []
    os.mkfifo(bench.path("fifo"))
    with open(bench.path("fifo"), "r+b", buffering=0) as pipe:
        with Child([adopt.INTERPRETER, "-c", STARTS, *words], bench.place, stdin=bench.path("fifo")) as child:
            wait_for(lambda: "filled" in child.output(), "the program has begun")
            said, status = adopt.adopt(bench, child.pid, "64M")
            check(status == 0, said)
            said, status = release(bench, child.pid)
            check(status == 0, said)
            pipe.write(b"\n")
            status = bench.end(child)
            expected = f"filled\nchild True unpaged\nFalse False\nhello\n0\n0\n{250 << 20}\n"
            check(status == 0 and child.output() == expected, f"status {status}: {child.output()} {child.last_words()}")
    return ""


def of_a_cgroup(bench):
    """Programs that share a budget, two of an ordinary user, and fork all the time, are released one by one: the others stay paged, within the budget."""
    moments, program = start_of(bench), adopt.victim(bench)
    os.chmod(bench.place, 0o755)
    os.chmod(bench.store, 0o777)
    user = ["setpriv", "--reuid", "1001", "--regid", "1001", "--clear-groups"]
    for run in range(RUNS):
        limit = adopt.cgroup(f"terapage-release-{os.getpid()}")
        group = os.path.dirname(limit)
        places = [bench.path(f"{name}-{run}") for name in "abc"]
        try:
            with contextlib.ExitStack() as stack:
                every = []
                for place in places:
                    os.mkdir(place)
                    words = [*(user if every else []), program, adopt.LONG_S, "12", "5"]
                    every.append(stack.enter_context(Child(adopt.in_group(group, *words), place)))
                wait_for(lambda: sum(anonymous_bytes(child.pid) for child in every) > 150 * MIB, "the programs have begun")
                said, status = adopt.adopt(bench, f"--cgroup={group}", "72M")
                check(status == 0, said)
                paged = every[:]
                moments.shuffle(paged)
                for number in (1, 2, 3):
                    time.sleep(moments.uniform(0, 1))
                    child = paged.pop()
                    said, status = release(bench, child.pid)
                    check(status == 0 and "no longer paged" in said, f"run {run}: status {status}: {said}")
                    check_released(bench, child, f"run {run}, release {number}")
                    now = counters(bench, child.pid)
                    check((now["job"], now["job_processes"], now["lease_bytes"]) == (0, 0, 0), f"run {run}: it is still in the job: {now}")
                    check(not paged or counters(bench, paged[0].pid)["released"] == 0, "another was released, too")
                    if paged:
                        check_has_budget(bench, paged, 72 * MIB, f"run {run}, release {number}")
                again, status = adopt.adopt(bench, f"--cgroup={group}", "72M")
                is_refused = all(f"process {child.pid} is not adopted: it was released" in again for child in every if is_alive(child))
                check(status == 125 and is_refused, f"run {run}: adopted again: status {status}: {again}")
                for child in every:
                    status = adopt.ended_early(bench, child)
                    check((status, child.output()) == (0, "0 wrong\n"), f"run {run}: status {status}: {child.output()} {child.last_words()}")
        finally:
            wait_for(lambda: not adopt.members(group), "the cgroup is empty")
            os.rmdir(group)
    return said.rpartition(": ")[2]


def is_alive(child):
    return child.process.poll() is None


def check_has_budget(bench, paged, budget, where):
    """Those that are still paged come to have the budget between them, and no more. Their children have the rest for moments."""

    def leased():
        return sum(counters(bench, child.pid)["lease_bytes"] for child in paged)

    # Read one after the other, while leases move from one to another.
    wait_for(lambda: budget * 0.7 < leased() <= budget, f"{where}: the lease of the released one is taken, and no more")
    wait_for(lambda: sum(anonymous_bytes(child.pid) for child in paged) < budget + len(paged) * adopt.SLACK, f"{where}: they are within the budget")


FORKS = """
import hashlib, os, select, sys
data = bytearray(os.urandom(1 << 20)) * 120
for at in range(0, len(data), 4096):
    data[at] = at * 7 >> 12 & 255
wanted = hashlib.sha256(data).hexdigest()
ends, writes = os.pipe()
print("filled", flush=True)
sys.stdin.readline()
child = os.fork()
if child == 0:
    os.close(writes)
    # It needs its budget until it has been looked at.
    number = 0
    while not select.select([ends], [], [], 0)[0]:
        number += 1
        data[number % 1000 * 99991] ^= number & 255
        data[number % 1000 * 99991] ^= number & 255
        if hashlib.sha256(data).hexdigest() != wanted:
            print("wrong", flush=True)
    print(hashlib.sha256(data).hexdigest() == wanted, flush=True)
    os._exit(0)
print(child, flush=True)
sys.stdin.readline()
print(hashlib.sha256(data).hexdigest() == wanted, flush=True)
os.close(writes)
print(os.waitpid(child, 0)[1], flush=True)
"""


def with_a_child(bench):
    """An adopted program shares its budget with the child that it forks, which keeps all of it when the program is released, and is released then."""
    need_root()
    os.mkfifo(bench.path("fifo"))
    with open(bench.path("fifo"), "r+b", buffering=0) as pipe:
        with Child([adopt.INTERPRETER, "-c", FORKS], bench.place, stdin=bench.path("fifo")) as child:
            wait_for(lambda: "filled" in child.output(), "the program has begun")
            said, status = adopt.adopt(bench, child.pid, "64M")
            check(status == 0, said)
            pipe.write(b"\n")
            forked = int(wait_for(lambda: child.output().split()[1:], "it has forked")[0])
            job = wait_for(lambda: counters(bench, forked)["job"], "the child has its share")
            check(job == counters(bench, child.pid)["job"], "they do not share a budget")
            wait_for(lambda: sum(counters(bench, pid)["lease_bytes"] for pid in (child.pid, forked)) <= 64 * MIB, "they lease no more than the budget")
            said, status = release(bench, child.pid)
            check(status == 0, said)
            check_released(bench, child, "the program")
            wait_for(lambda: counters(bench, forked)["lease_bytes"] > 60 * MIB, "the child has the budget")
            check(anonymous_bytes(forked) < 64 * MIB + adopt.SLACK, f"{anonymous_bytes(forked) >> 20} MiB of the child are in memory")
            said, status = release(bench, forked)
            check(status == 0 and counters(bench, forked)["released"] == 1, f"the child: status {status}: {said}")
            pipe.write(b"\n")
            status = bench.end(child)
            expected = ["filled", str(forked), "True", "True", "0"]
            check(status == 0 and child.output().split() == expected, f"status {status}: {child.output()} {child.last_words()}")
    return ""


def refused(bench):
    """What cannot be released is refused in one line, with status 125, and stays paged."""
    program = adopt.victim(bench)
    for pid, why in ((999_999_999, "no process"), (os.getpid(), "is not paged")):
        said, status = release(bench, pid)
        check(status == 125 and why in said and said.count("\n") == 0, f"{why}: status {status}: {said}")
    limit = adopt.cgroup(f"terapage-release-{os.getpid()}")
    group = os.path.dirname(limit)
    try:
        with open(limit, "w", encoding="ascii") as file:
            # Its forked children have copies of what it changes until it is adopted.
            file.write(str(520 * MIB))
        with Child(adopt.in_group(group, program, adopt.LONG_S, "20"), bench.place) as child:
            wait_for(lambda: anonymous_bytes(child.pid) > 170 * MIB, "the program has begun")
            said, status = adopt.adopt(bench, child.pid, "48M")
            check(status == 0, said)
            wait_for(lambda: lowered(limit, 150 * MIB), "the limit is lowered")
            said, status = release(bench, child.pid)
            check(status == 125 and "its cgroup has only" in said and said.count("\n") == 0, f"status {status}: {said}")
            check(counters(bench, child.pid)["released"] == 0, "it was released")
            with open(limit, "w", encoding="ascii") as file:
                file.write(str(500 * MIB))
            released, status = release(bench, child.pid)
            check(status == 0, released)
            check(adopt.ended_early(bench, child) == 0 and child.output() == "0 wrong\n", child.last_words())
    finally:
        wait_for(lambda: not read_first(f"{group}/cgroup.procs"), "the cgroup is empty")
        os.rmdir(group)
    return said


def lowered(limit, size):
    """Tries to set a limit, which fails while the kernel cannot reclaim enough."""
    try:
        with open(limit, "w", encoding="ascii") as file:
            file.write(str(size))
    except OSError:
        return False
    return True


class Client(threading.Thread):
    """Sets and gets keys of a Redis server, and compares, until it is told to stop."""

    def __init__(self, path, number):
        super().__init__(daemon=True)
        self.path, self.number, self.done, self.wrong, self.stops = path, number, 0, [], False

    def run(self):
        numbers, keys = random.Random(self.number), {}
        with socket.socket(socket.AF_UNIX) as server:
            wait_for(lambda: server.connect_ex(self.path) == 0, "the server listens")
            file = server.makefile("rb")
            while not self.stops:
                key = f"{self.number}:{numbers.randrange(3000)}"
                if key in keys and numbers.random() < 0.6:
                    self.send(server, "GET", key)
                    got = file.read(int(file.readline()[1:]) + 2)[:-2]
                    if got != keys[key]:
                        self.wrong.append(key)
                else:
                    keys[key] = (f"{numbers.randrange(1 << 60):x} " * numbers.randrange(40, 900)).encode()
                    self.send(server, "SET", key, keys[key])
                    if file.readline() != b"+OK\r\n":
                        self.wrong.append(key)
                self.done += 1

    @staticmethod
    def send(server, *words):
        words = [word if isinstance(word, bytes) else word.encode() for word in words]
        server.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))


def redis_under_load(bench, name, act):
    """Starts a server and its clients, acts on it once it has data, and stops all. Returns the number of answers, all of them right."""
    path = bench.path(f"socket-{name}")
    argv = ["redis-server", "--port", "0", "--unixsocket", path, "--dir", bench.place, "--save", "3 100", "--dbfilename", f"dump-{name}"]
    with Child(argv, bench.place) as child:
        wait_for(lambda: os.path.exists(path), "the server has begun")
        clients = [Client(path, number) for number in range(4)]
        for client in clients:
            client.start()
        wait_for(lambda: anonymous_bytes(child.pid) > 60 * MIB or child.process.poll() is not None, "the server has data")
        act(child)
        for client in clients:
            client.stops = True
        for client in clients:
            client.join(300)
            if client.is_alive():
                raise Late(f"{name}: client {client.number} gets no answer; {child.last_words()}")
            check(client.done and not client.wrong, f"{name}: client {client.number}: {client.done} done, wrong {client.wrong[:5]}; {child.last_words()}")
        check(child.process.poll() is None, f"{name}: the server has ended: {child.last_words()}")
        return sum(client.done for client in clients)


def redis(bench):
    """Redis under load is adopted and released at random moments, and saves by fork meanwhile: no answer is wrong."""
    need_root()
    need("redis-server")
    moments, answers = start_of(bench), 0

    def act(child):
        time.sleep(moments.uniform(0, 2))
        said, status = adopt.adopt(bench, child.pid, "48M")
        check(status == 0, said)
        time.sleep(moments.uniform(0, 6))
        said, status = release(bench, child.pid)
        check(status == 0, said)
        print(said.rpartition(": ")[2], flush=True)
        time.sleep(4)

    for run in range(RUNS):
        answers += redis_under_load(bench, f"run-{run}", act)
    return f"{answers} answers"


BODIES = {
    "release": at_random,
    "release-cancelled": cancelled,
    "release-cancelled-cgroup": cancelled_in_a_group,
    "release-user": by_a_user,
    "release-children": children,
    "release-rights": rights,
    "release-cgroup": of_a_cgroup,
    "release-child": with_a_child,
    "release-refused": refused,
    "release-redis": redis,
}
