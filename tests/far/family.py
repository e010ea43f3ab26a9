"""Cases of tests/far/run in which programs fork: what a child has of its parent's blocks, while servers hang, are
upgraded, replaced, and change their passwords."""

import json
import os
import random
import re
import signal
import subprocess
import time

from harness import Child, check, need, wait_for
from service import mirror_of, stat

TIMEOUT_S = 600


class Family:
    """A program that forks when it is told to."""

    def __init__(self, bench, url, options=(), env=None):
        need("gcc")
        self.bench = bench
        program = os.path.join(bench.place, "family")
        if not os.path.exists(program):
            source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "family.c")
            built = subprocess.run(["gcc", "-O2", source, "-o", program], capture_output=True, text=True, check=False)
            check(built.returncode == 0, f"gcc: {built.stderr.strip()[-300:]}")
        fifo = os.path.join(bench.place, f"fifo{random.random()}")
        os.mkfifo(fifo)
        self.way = os.open(fifo, os.O_RDWR)
        bench.stack.callback(os.close, self.way)
        argv = [*bench.command, "run", "--memory", "16M", "--block", "64K", *options, "--store", url, "--", program, bench.mib]
        self.child = bench.stack.enter_context(Child(argv, bench.place, stdin=fifo, env=env, stdout=f"family{random.random()}"))
        self.pids = []
        bench.ready(self.child)

    def tell(self, letter):
        """Has it do something."""
        os.write(self.way, letter.encode())

    def said(self, what):
        """Waits until it has said something; returns all that fits."""
        found = lambda: re.findall(what, self.child.output(), re.MULTILINE)
        wait_for(lambda: found() or self.child.process.poll() is not None, f"it says {what!r}", TIMEOUT_S)
        check(found(), f"it ends: {self.child.last_words()} {self.child.output()!r}")
        return found()

    def fork(self, how):
        """Has it fork; returns the child's number."""
        forked = lambda: re.findall(r"^forked (-?\d+)$", self.child.output(), re.MULTILINE)
        before = len(forked())
        self.tell(how)
        wait_for(lambda: len(forked()) > before or self.child.process.poll() is not None, "it forks", TIMEOUT_S)
        check(len(forked()) > before, f"it ends: {self.child.last_words()}")
        self.pids.append(int(forked()[-1]))
        check(self.pids[-1] > 0, "the fork fails")
        return self.pids[-1]

    def states(self):
        """What `stat` tells of all its processes, none of which has ended."""
        ended = [pid for pid in self.pids if has_ended(pid)]
        check(self.child.process.poll() is None and not ended, f"{ended or 'it'} ends: {self.child.last_words()} {self.child.output()!r}")
        return [stat(self.bench, self.child), *[stat_of(self.bench, pid) for pid in self.pids]]

    def until_in_sync(self, wanted=True):
        """Waits until all its processes say so, and have written nothing for a second if they are to be in sync.

        A server that is slow for half a second lacks what is written in that time. If the other server is stopped
        just then, this is lost.
        """
        before = None

        def is_so():
            nonlocal before
            now = self.states()
            if not all(state["in_sync"] is wanted for state in now):
                before = None
                return False
            written = [(state["page_out_bytes"], state["resynced_bytes"]) for state in now]
            is_quiet, before = written == before, written
            if wanted and not is_quiet:
                time.sleep(1)
            return is_quiet or not wanted

        wait_for(is_so, f"in sync: {wanted}", TIMEOUT_S)

    def end_children(self):
        """Has its children look at their memory, and end."""
        before = len(re.findall("^ended", self.child.output(), re.MULTILINE))
        self.tell("e")
        ended = lambda: re.findall(r"^ended (\d+)$", self.child.output(), re.MULTILINE)
        wait_for(lambda: len(ended()) > before or self.child.process.poll() is not None, "children end", TIMEOUT_S)
        check(len(ended()) > before and int(ended()[-1]) == 0, f"{self.child.last_words()} {self.child.output()!r}")
        self.pids = []

    def good(self):
        """Has it look at all memory, and end."""
        self.tell("q")
        self.bench.good(self.child)


def stat_of(bench, pid):
    """What `terapage stat` tells of a child, which may not have come so far."""
    check(os.path.exists(f"/proc/{pid}"), f"process {pid} has ended")
    ran = subprocess.run([*bench.command, "stat", str(pid), "--json"], capture_output=True, text=True, timeout=300, check=False)
    if ran.returncode == 1 and "is not paged" in ran.stderr:
        return {"in_sync": None}
    check(ran.returncode == 0, f"stat {pid}: {ran.stderr}")
    return json.loads(ran.stdout)


def has_ended(pid):
    """Whether a child has ended that its parent has not waited for."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"


def blocks(server):
    """The keys of blocks on a server."""
    return [key for key in server.call("KEYS", "tp:*") if "." in key]


def child_ends(bench):
    """A server hangs while a program forks, so it has not noted the child: the child's end removes nothing of its parent's."""
    servers = [bench.server(name=name) for name in ("one", "other")]
    family = Family(bench, mirror_of(servers))
    parents = {key.split(".")[0] for key in blocks(servers[0])}
    servers[0].signal(signal.SIGSTOP)
    try:
        family.fork("s")
    finally:
        servers[0].signal(signal.SIGCONT)
    family.until_in_sync()
    servers[1].stop()
    # The child has values of its own, too.
    values = lambda: len([key for key in blocks(servers[0]) if key.split(".")[0] in parents])
    before = values()
    family.end_children()
    check(values() >= before > 4, f"{values()} of {before} values are left")
    family.good()
    servers[0].check_empty()


def forks_while_servers_hang(bench):
    """Both servers of a mirror hang for a moment, or one while the other is away: a fork waits for them."""
    servers = [bench.server(name=name) for name in ("one", "other")]
    family = Family(bench, mirror_of(servers))
    for is_away in (False, True):
        if is_away:
            # One may lag behind: it has hung.
            family.until_in_sync()
            servers[1].stop()
        there = servers[:1] if is_away else servers
        for server in there:
            server.signal(signal.SIGSTOP)
        family.tell("r")
        time.sleep(2)
        check(family.child.process.poll() is None, f"it does not wait: {family.child.last_words()}")
        for server in there:
            server.signal(signal.SIGCONT)
        wait_for(lambda n=1 + is_away: len(re.findall("^forked", family.child.output(), re.MULTILINE)) == n, "it forks", TIMEOUT_S)
        family.pids = [int(pid) for pid in family.said(r"^forked (\d+)$")]
    family.end_children()
    family.good()
    servers[0].check_empty()


def forks_while_one_is_away(bench):
    """A server of a mirror is away while a program forks: its children, too, are in sync once it is back."""
    servers = [bench.server(name=name) for name in ("one", "other")]
    family = Family(bench, mirror_of(servers))
    family.until_in_sync()
    servers[0].stop()
    family.until_in_sync(False)
    for how in "rsw":
        family.fork(how)
    servers[0] = bench.server(port=servers[0].port, name="again")
    family.until_in_sync()
    # What they have is there.
    servers[1].stop()
    family.end_children()
    family.good()
    servers[0].check_empty()


def upgraded_with_workers(bench):
    """Both servers of a mirror are restarted in turn, each when all processes say that all is in sync: workers go on."""
    servers = [bench.server(name=name) for name in ("one", "other")]
    family = Family(bench, mirror_of(servers))
    for how in "rsw":
        family.fork(how)
    family.until_in_sync()
    for turn in range(4):
        index = turn % 2
        servers[index].stop()
        family.until_in_sync(False)
        servers[index] = bench.server(port=servers[index].port, name=f"again{turn}")
        family.until_in_sync()
    family.end_children()
    family.good()
    for server in servers:
        server.check_empty()


def upgraded_without_parent(bench):
    """The parent has ended: its children write again what a restarted server has lost."""
    servers = [bench.server(name=name) for name in ("one", "other")]
    family = Family(bench, mirror_of(servers))
    pids = [family.fork("r"), family.fork("r")]
    family.until_in_sync()
    family.tell("x")
    family.child.process.wait(TIMEOUT_S)
    in_sync = lambda wanted: all(stat_of(bench, pid)["in_sync"] is wanted for pid in pids)
    try:
        for turn in range(3):
            index = turn % 2
            servers[index].stop()
            wait_for(lambda: in_sync(False), "it is noticed", TIMEOUT_S)
            servers[index] = bench.server(port=servers[index].port, name=f"again{turn}")
            wait_for(lambda: in_sync(True), "all is in sync", TIMEOUT_S)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGUSR1)
    good = lambda: len(re.findall("^child good", family.child.output(), re.MULTILINE))
    wait_for(lambda: good() == 2, "children end", TIMEOUT_S)
    for server in servers:
        wait_for(lambda s=server: s.call("DBSIZE") == 0, "nothing is left")


def spares_in_use(bench):
    """Spares have replaced both servers: children, and later programs, begin with them."""
    servers = [bench.server(name=f"server{number}") for number in range(4)]
    url = mirror_of(servers[:2]) + "".join(f"+{server.url}?spare=2s" for server in servers[2:])
    family = Family(bench, url)
    early = family.fork("r")
    for server in servers[:2]:
        server.stop()
        family.until_in_sync(False)
        family.until_in_sync()
    lines = len(family.child.errors().splitlines())
    family.fork("w")
    family.until_in_sync()
    check(stat_of(bench, early)["mirror_copies"] == 2, "a child counts other copies")
    family.end_children()
    check(len(family.child.errors().splitlines()) == lines, f"children repeat lines: {family.child.errors()}")
    later = bench.churn(url, passes="1")
    bench.ready(later)
    bench.go_on()
    bench.good(later)
    check("spare" in later.errors(), later.errors())
    family.good()
    for server in servers[2:]:
        server.check_empty()


def forks_after_new_password(bench):
    """The password has changed since the program began: its children know the new one."""
    servers = [bench.server("--requirepass", "rightword", name=name) for name in ("one", "other")]
    word = os.path.join(bench.place, "word")

    def write(text):
        with open(word + ".new", "w", encoding="ascii") as file:
            file.write(text + "\n")
        os.rename(word + ".new", word)

    write("rightword")
    family = Family(bench, servers[0].url + "?stall=10s", env={"TERAPAGE_STORE_PASSWORD_FILE": word})
    servers[0].call("CONFIG", "SET", "requirepass", "otherword")
    servers[0].password = "otherword"
    servers[0].call("CLIENT", "KILL", "TYPE", "normal")
    write("otherword")
    for how in "rw":
        family.fork(how)
    family.end_children()
    family.good()
    servers[0].check_empty()


def killed_families(bench):
    """A program and its children are killed: what they kept counts as dead at once."""
    server = bench.server()
    family = Family(bench, server.url)
    pids = [family.fork("r"), family.fork("w")]
    claims = lambda: [value for key in server.call("KEYS", "tp:{*") if "." not in key for value in server.call("HGETALL", key)]
    wait_for(lambda: claims() and not any("forked" in value for value in claims()), "children make their claims")
    family.child.process.kill()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    family.child.process.wait(TIMEOUT_S)
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "they are gone")
    listed = bench.far("ls", server.url)
    check("dead" in listed and "in use" not in listed, listed)
    bench.far("sweep", server.url)
    server.check_empty()


def drained_with_workers(bench):
    """A server is emptied while workers live: they leave it, too."""
    servers = [bench.server(name=f"server{number}") for number in range(3)]
    family = Family(bench, mirror_of(servers[:2]) + f"+{servers[2].url}?spare=1h")
    for how in "rw":
        family.fork(how)
    family.until_in_sync()
    # It ends by itself if nothing moves for a minute.
    argv = [*bench.command, "far", "drain", servers[0].url]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    said = ran.stdout + ran.stderr
    check("is empty" in said and not blocks(servers[0]), said)
    servers[0].stop()
    family.until_in_sync()
    family.end_children()
    family.good()
    for server in servers[1:]:
        server.check_empty()


def list_drained_with_workers(bench):
    """A server of a list is emptied while workers read there: `drain` names them, and ends when they have ended."""
    servers = [bench.server(name=f"server{number}") for number in range(2)]
    file = os.path.join(bench.place, "servers")
    with open(file, "w", encoding="ascii") as lines:
        lines.writelines(f"127.0.0.1:{server.port}\n" for server in servers)
    family = Family(bench, f"valkey+list://{file}")
    for how in "rs":
        family.fork(how)
    drain = lambda: subprocess.run([*bench.command, "far", "drain", servers[0].url], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    # It ends by itself if nothing moves for a minute.
    ran = drain()
    check(ran.returncode != 0 and len(ran.stderr.splitlines()) == 1, f"status {ran.returncode}: {ran.stdout + ran.stderr}")
    pids = ", ".join(map(str, sorted(family.pids)))
    check("forked children" in ran.stderr and f"PID {pids} on" in ran.stderr and "no spare" not in ran.stderr, ran.stderr)
    conditions = [state["condition"] or "" for state in family.states()]
    check(all("parent's blocks" in said for said in conditions[1:]) and "no other server" not in str(conditions), f"{conditions}")
    family.end_children()
    ran = drain()
    check("is empty" in ran.stdout and not blocks(servers[0]), ran.stdout + ran.stderr)
    servers[0].stop()
    family.good()
    servers[1].check_empty()


def refused_by_one(bench):
    """A server of a mirror refuses writes: the other one goes on at once, and `stat` names the first."""
    servers = [bench.server(name=name) for name in ("one", "other")]
    child = bench.churn(mirror_of(servers, "?stall=100s"), passes="100000")
    bench.ready(child)
    servers[0].call("CONFIG", "SET", "maxmemory", "2mb")
    bench.go_on()
    names_it = lambda: servers[0].url in (stat(bench, child)["condition"] or "")
    wait_for(names_it, "it is named")
    before = stat(bench, child)["page_out_bytes"]
    goes_on = lambda: stat(bench, child)["page_out_bytes"] > before + (20 << 20)
    # It would wait for as long as `stall` says, if it waited for the server.
    wait_for(goes_on, "the program goes on")
    check(stat(bench, child)["in_sync"] is False, "it says that all is in sync")
    servers[0].call("CONFIG", "SET", "maxmemory", "2gb")
    child.process.send_signal(signal.SIGUSR1)
    bench.good(child)
    for server in servers:
        server.check_empty()


def shown_while_it_hangs(bench):
    """The only server hangs: `stat` says so, and counts the time, while it lasts."""
    server = bench.server()
    child = bench.churn(server.url + "?stall=300s", passes="1")
    bench.ready(child)
    server.signal(signal.SIGSTOP)
    try:
        before = stat(bench, child)["stalled_us"]
        bench.go_on()
        wait_for(lambda: stat(bench, child)["stalled_us"] > before + 1_000_000, "the time is counted")
        wait_for(lambda: server.url in (stat(bench, child)["condition"] or ""), "the server is named")
    finally:
        server.signal(signal.SIGCONT)
    bench.good(child)


def families_and_kills(bench):
    """Two hundred times a server of two is killed, and comes back with nothing, while a program and its workers work."""
    number = int(os.environ.get("TERAPAGE_SEED", random.randrange(1 << 32)))
    rounds = int(os.environ.get("TERAPAGE_RUNS", "200"))
    chance = random.Random(number)
    servers = [bench.server(name=name) for name in ("one", "other")]
    family = Family(bench, mirror_of(servers))
    for turn in range(rounds):
        if turn % 10 == 0:
            if family.pids:
                family.end_children()
            for _ in range(3):
                family.fork(chance.choice("rrsw"))
            family.until_in_sync()
        index = chance.randrange(2)
        servers[index].stop()
        family.until_in_sync(False)
        time.sleep(chance.random())
        servers[index] = bench.server(port=servers[index].port, name=f"turn{turn}")
        check(family.child.process.poll() is None, f"TERAPAGE_SEED={number}, turn {turn}: {family.child.last_words()}")
        family.until_in_sync()
    family.child.began = time.monotonic()
    family.end_children()
    family.good()
    for server in servers:
        server.check_empty()
    return f"TERAPAGE_SEED={number}, {rounds} kills"


CI = [
    child_ends,
    forks_while_servers_hang,
    forks_while_one_is_away,
    upgraded_with_workers,
    upgraded_without_parent,
    spares_in_use,
    forks_after_new_password,
    killed_families,
    drained_with_workers,
    list_drained_with_workers,
    refused_by_one,
    shown_while_it_hangs,
]
SOAK = [families_and_kills]
