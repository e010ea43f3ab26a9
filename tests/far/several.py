"""Cases of tests/far/run with several servers: shards, pairs of them, clusters, sentinels."""

import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from bench import TIMEOUT_S
from harness import ROOT, Child, check, free_port, need, wait_for

NODE_TIMEOUT_MS = "2000"


def seed():
    """The seed of this run, or of the run that is repeated."""
    return int(os.environ.get("TERAPAGE_SEED", random.randrange(1 << 32)))


def shards(bench):
    """Blocks are on all servers. A lost server is named; one server of each pair may be lost."""
    told = []
    for placement in ("simple", "round-robin"):
        servers = [bench.server("--maxmemory", size, name=f"{placement}{size}") for size in ("40mb", "1gb")]
        # The first server is the first to be full.
        stores = ["--store", servers[0].url + "?stall=5s", "--placement", placement]
        child = bench.churn(servers[1].url + "?stall=5s", options=stores, passes="1")
        bench.ready(child)
        keys = [server.call("DBSIZE") for server in servers]
        check(min(keys) > 2, f"{placement}: keys of the servers: {keys}")
        bench.go_on()
        bench.good(child)
        for server in servers:
            server.check_empty()
        told.append(f"{placement} {keys}")
    child = bench.churn(servers[1].url + "?stall=5s", options=stores, passes="1")
    bench.ready(child)
    servers[1].stop()
    bench.go_on()
    bench.stopped(child, "refused|closed|reset", servers[1].url)
    four = [bench.server(name=f"four{number}") for number in range(4)]
    pairs = ["mirror:" + "+".join(server.url for server in four[first : first + 2]) for first in (0, 2)]
    child = bench.churn(pairs[0], options=["--store", pairs[1], "--placement", "round-robin"], passes="1")
    bench.ready(child)
    four[0].stop()
    four[3].stop()
    bench.go_on()
    bench.good(child)
    one = four[1]
    bench.refused(f"mirror:{one.url}+redis://localhost:{one.port}", "are one server")
    return ", ".join(told)


class Cluster:
    """The servers of a cluster: masters, each with a part of the slots, and their replicas."""

    def __init__(self, bench, masters=3, replicas=0, name="node"):
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT_MS]
        options += ["--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"]
        self.buses = [free_port() for _ in range(masters + replicas)]
        self.servers = [
            bench.server(*options, "--cluster-port", str(bus), name=f"{name}{number}") for number, bus in enumerate(self.buses)
        ]
        for number, server in enumerate(self.servers[:masters]):
            first, last = (number * 16384 // masters, (number + 1) * 16384 // masters - 1)
            check(server.call("CLUSTER", "ADDSLOTSRANGE", first, last) == "OK", "the slots are not taken")
        for number, server in enumerate(self.servers[1:], 1):
            self.servers[0].call("CLUSTER", "MEET", "127.0.0.1", server.port, self.buses[number])
        for server in self.servers:
            wait_for(lambda s=server: f"cluster_known_nodes:{len(self.servers)}" in s.call("CLUSTER", "INFO"), "all are known")
        self.ids = {server: server.call("CLUSTER", "MYID") for server in self.servers}
        for number, server in enumerate(self.servers[masters:]):
            check(server.call("CLUSTER", "REPLICATE", self.ids[self.servers[number % masters]]) == "OK", "it does not follow")
        for server in self.servers[masters:]:
            wait_for(lambda s=server: "master_link_status:up" in s.call("INFO", "replication"), "replicas follow")
        for server in self.servers:
            wait_for(lambda s=server: "cluster_state:ok" in s.call("CLUSTER", "INFO"), "the cluster is up")
        self.masters = self.servers[:masters]

    @property
    def url(self):
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return f"valkey://{hosts}?cluster=yes"

    def move(self, key, chance):
        """Has the slot of a key moved to another master, while it is used."""
        slot = self.masters[0].call("CLUSTER", "KEYSLOT", key)
        old = next(server for server in self.masters if key in server.call("KEYS", "*"))
        new = chance.choice([server for server in self.masters if server is not old])
        new.call("CLUSTER", "SETSLOT", slot, "IMPORTING", self.ids[old])
        old.call("CLUSTER", "SETSLOT", slot, "MIGRATING", self.ids[new])
        while keys := old.call("CLUSTER", "GETKEYSINSLOT", slot, "10"):
            said = old.call("MIGRATE", "127.0.0.1", new.port, "", "0", "20000", "KEYS", *keys)
            check(said in ("OK", "NOKEY"), f"MIGRATE: {said}")
        # The keys have moved, but the slot has not: the store must ask the new node for them.
        time.sleep(chance.random() / 20)
        for server in [new, old, *self.masters]:
            server.call("CLUSTER", "SETSLOT", slot, "NODE", self.ids[new])

    def keys(self):
        """All keys, as far as servers answer."""
        found = []
        for server in self.masters:
            with contextlib.suppress(OSError):
                found += [key for key in server.call("KEYS", "*") if key.startswith("tp:")]
        return found

    def check_empty(self):
        """Checks that no program has left anything."""
        check(not self.keys(), f"keys stay: {self.keys()[:5]}")


def reshard(bench, passes, least):
    """Slots move to other servers while they are used: the bytes are right, and nothing is left."""
    cluster = Cluster(bench)
    number = seed()
    chance, moves, failed, stop = random.Random(number), [], [], threading.Event()

    def move():
        try:
            while not stop.is_set():
                keys = cluster.keys()
                if keys:
                    with contextlib.suppress(StopIteration):
                        cluster.move(chance.choice(keys), chance)
                        moves.append(1)
                stop.wait(0.01)
        except Exception as error:  # pylint: disable=broad-except
            failed.append(f"{type(error).__name__}: {error}")

    # The store is given one node only, which does not say that it is a cluster until it is asked.
    url = cluster.url if passes > 1 else cluster.servers[1].url
    child = bench.churn(url, passes=str(passes))
    mover = threading.Thread(target=move)
    mover.start()
    try:
        bench.go_on()
        bench.good(child)
    finally:
        stop.set()
        mover.join()
    check(not failed, f"TERAPAGE_SEED={number}: {failed}")
    check(len(moves) >= least, f"TERAPAGE_SEED={number}: only {len(moves)} slots moved")
    cluster.check_empty()
    return f"TERAPAGE_SEED={number}, {len(moves)} slots moved"


def cluster(bench):
    """A cluster whose slots move while they are used; a mirror of a cluster with itself is refused."""
    return reshard(bench, 1, 1)


def resharded(bench):
    """The same for a longer time, by the names of all servers."""
    return reshard(bench, 6, 20)


def right_or_stopped(bench, child, number, says):
    """Expects the right bytes, or one line that says what is lost."""
    status = child.wait(TIMEOUT_S)
    lines = [line for line in child.errors().splitlines() if "warning" not in line]
    check("WRONG" not in child.output(), f"TERAPAGE_SEED={number}: wrong bytes: {child.output()}")
    if status == 0:
        check("good" in child.output(), f"TERAPAGE_SEED={number}: {child.output()!r}")
        return "good"
    check(len(lines) == 1, f"TERAPAGE_SEED={number}: {child.last_words()!r}")
    check(re.search(says, lines[0]), f"TERAPAGE_SEED={number}: nothing about '{says}' in {lines[0]!r}")
    return "stopped: " + lines[0][-160:]


def written(master):
    """Bytes that a master has not yet sent to its replicas."""
    return int(re.search(r"master_repl_offset:(\d+)", master.call("INFO", "replication"))[1])


def failed_over(bench):
    """A master is killed during the run, and its replica takes over: with a mirror the bytes are right, otherwise they are right or the program is stopped."""
    told = []
    number = seed()
    chance = random.Random(number)
    for how in ("one copy", "mirror", "one copy, stale", "mirror, stale"):
        servers = Cluster(bench, 3, 3, how)
        place = os.path.join(bench.place, f"disk {how}")
        os.makedirs(place)
        url = f"mirror:{servers.url}+{place}" if "mirror" in how else servers.url
        child = bench.churn(url, passes="12")
        bench.ready(child)
        index = chance.randrange(3)
        master, replica = servers.masters[index], servers.servers[3 + index]
        before = written(master)
        if "stale" in how:
            replica.signal(signal.SIGSTOP)
        bench.go_on()
        # More than the connection's buffers hold: that much reaches the replica all the same.
        wait_for(lambda m=master, b=before, h=how: written(m) > b + (40 << 20) * ("stale" in h), "it writes")
        time.sleep(chance.random())
        check(child.process.poll() is None, "the program ended too early")
        master.stop()
        replica.signal(signal.SIGCONT)
        if "mirror" in how:
            bench.good(child)
            told.append(how + ": good")
        else:
            told.append(how + ": " + right_or_stopped(bench, child, number, "slots went from|started again|is gone"))
        for server in servers.servers:
            server.stop()
    return f"TERAPAGE_SEED={number}, " + ", ".join(told)


class Sentinels:
    """A server, its replica, and sentinels that promote the replica."""

    def __init__(self, bench, name, count=1):
        self.master = bench.server(name=f"{name}-master")
        follows = ["--replicaof", "127.0.0.1", str(self.master.port), "--repl-diskless-sync-delay", "0"]
        self.replica = bench.server(*follows, name=f"{name}-replica")
        wait_for(lambda: "master_link_status:up" in self.replica.call("INFO", "replication"), "the replica follows")
        self.ports = []
        for number in range(count):
            port = free_port()
            place = os.path.join(bench.place, f"{name}-sentinel{number}")
            os.makedirs(place)
            path = os.path.join(place, "conf")
            with open(path, "w", encoding="ascii") as file:
                file.write(f"port {port}\nbind 127.0.0.1\ndir {place}\n")
                file.write(f"sentinel monitor far 127.0.0.1 {self.master.port} 1\n")
                file.write("sentinel down-after-milliseconds far 1000\nsentinel failover-timeout far 4000\n")
            with open(os.path.join(place, "log"), "wb") as log:
                words = [bench.server_program(), path, "--sentinel"]
                process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
            bench.stack.callback(process.wait)
            bench.stack.callback(process.kill)
            self.ports.append(port)
        for port in self.ports:
            wait_for(lambda p=port: self.knows(bench, p), "the sentinel knows the replica")

    @staticmethod
    def knows(bench, port):
        with contextlib.suppress(OSError):
            said = bench.call(port, "SENTINEL", "REPLICAS", "far")
            return isinstance(said, list) and len(said) == 1
        return False

    @property
    def url(self):
        # Nobody listens at the first address.
        hosts = ",".join(f"127.0.0.1:{port}" for port in [1, *self.ports])
        return f"valkey://{hosts}?sentinel=far"


def sentinel(bench):
    """Sentinels name the server, and later its replacement."""
    number = seed()
    chance = random.Random(number)
    told = []
    for mirrored in (False, True):
        servers = Sentinels(bench, f"s{mirrored}")
        bench.refused(servers.url.replace("=far", "=near"), "knows no server|No such")
        place = os.path.join(bench.place, f"disk-{mirrored}")
        os.makedirs(place)
        url = f"mirror:{servers.url}+{place}" if mirrored else servers.url
        child = bench.churn(url, passes="12")
        bench.ready(child)
        check(servers.master.call("DBSIZE") > 4, "the program is not paged there")
        bench.go_on()
        time.sleep(chance.random())
        check(child.process.poll() is None, "the program ended too early")
        servers.master.stop()
        if mirrored:
            bench.good(child)
            told.append("mirror: good")
        else:
            told.append(right_or_stopped(bench, child, number, "another server answers|started again|is gone"))
    return f"TERAPAGE_SEED={number}, " + ", ".join(told)


def swept_by_others(bench):
    """An idle program removes the blocks of a killed one."""
    server = bench.server()
    gone = bench.churn(server.url)
    bench.ready(gone)
    gone.process.kill()
    gone.wait(TIMEOUT_S)
    idle = bench.churn(server.url, passes="1")
    way = bench.way
    bench.ready(idle)
    wait_for(lambda: len(server.call("SMEMBERS", "tp:all")) == 1, "the dead one is removed")
    os.write(way, b"\n")
    bench.good(idle)
    server.check_empty()


def many_come_and_go(bench):
    """Two hundred killed programs leave nothing once another program has had time to sweep."""
    server = bench.server()
    program = bench.churn_program()
    argv = [*bench.command, "run", "--memory", "4M", "--block", "64K", "--store", server.url, "--", program, "8", "1000"]
    for _ in range(40):
        with contextlib.ExitStack() as stack:
            before = server.call("SCARD", "tp:all")
            children = [stack.enter_context(Child(argv, bench.place, stdout=f"out{number}")) for number in range(5)]
            wait_for(lambda: server.call("SCARD", "tp:all") >= before + 5, "they come")  # noqa: B023
            for child in children:
                child.process.kill()
    left = server.call("SCARD", "tp:all")
    idle = bench.churn(server.url, passes="1")
    bench.ready(idle)
    wait_for(lambda: server.call("SCARD", "tp:all") == 1, "the dead ones are removed")
    bench.go_on()
    bench.good(idle)
    server.check_empty()
    return f"{left} removed"


def contrib(bench):
    """The units, manifests and scripts of contrib are valid, as far as this machine can check; the scripts start and end a server."""
    root = os.path.join(ROOT, "contrib")
    told = []
    checker = ["shellcheck", "-x", "-S", "warning"] if shutil.which("shellcheck") else ["bash", "-n"]
    for name in ("prolog", "task-prolog", "epilog"):
        words = [*checker, os.path.join(root, "slurm", name)]
        said = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
        check(said.returncode == 0, f"{name}: {said.stdout}{said.stderr}")
    if shutil.which("systemd-analyze"):
        for unit in sorted(pathlib.Path(root, "systemd").iterdir()):
            name, text = unit.name, unit.read_text(encoding="utf-8").replace("/usr/local/bin/terapage", "/bin/true")
            text = text.replace("Documentation=", "#")
            path = os.path.join(bench.place, name.replace("@", "@1"))
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            said = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False)
            about = [line for line in said.stderr.splitlines() if "terapage-" in line]
            check(said.returncode == 0 and not about, f"{name}: {about}")
    else:
        told.append("no systemd-analyze")
    try:
        import yaml

        for name, kinds in (("server", {"Service", "PodDisruptionBudget", "StatefulSet"}), ("client", {"Pod"})):
            with open(os.path.join(root, "kubernetes", name + ".yaml"), encoding="utf-8") as file:
                parts = list(yaml.safe_load_all(file))
            check({part["kind"] for part in parts} == kinds, f"{name}: {parts}")
        if shutil.which("helm"):
            chart = os.path.join(root, "kubernetes", "chart")
            lint = subprocess.run(["helm", "lint", chart], capture_output=True, text=True, check=False)
            check(lint.returncode == 0, f"chart: {lint.stdout}{lint.stderr}")
            made = subprocess.run(["helm", "template", "far", chart], capture_output=True, text=True, check=True).stdout
            with open(os.path.join(root, "kubernetes", "server.yaml"), encoding="utf-8") as file:
                plain = {part["kind"]: part for part in yaml.safe_load_all(file)}
            check({part["kind"]: part for part in yaml.safe_load_all(made)} == plain, f"the chart makes something else than server.yaml: {made}")
            values = os.path.join(bench.place, "values.yaml")
            with open(values, "w", encoding="ascii") as file:
                file.write("maxmemoryBytes: 1000000000000\n")
            made = subprocess.run(["helm", "template", "far", chart, "-f", values], capture_output=True, text=True, check=True).stdout
            check('value: "1000000000000"' in made, f"a large number becomes another: {made}")
        else:
            told.append("no helm")
    except ImportError:
        told.append("no YAML")
    if os.geteuid() != 0 or not shutil.which("runuser"):
        return ", ".join([*told, "no root, or no runuser: Slurm's scripts are not run"])
    slurm(bench, os.path.join(root, "slurm"))
    return ", ".join(told)


def fails_alone(shared, conf, env, scripts):
    """A job whose number ends in the same digits has a port and a server of its own; a server that cannot start is told, and not named."""

    def run(name, job, settings=conf):
        words = [os.path.join(scripts, name)]
        env_of_job = {**env, "SLURM_JOB_ID": job, "TERAPAGE_SLURM_CONF": settings}
        ran = subprocess.run(words, env=env_of_job, capture_output=True, text=True, timeout=300, check=False)
        check(ran.returncode == 0, f"{name}: {ran.stderr}")
        return ran.stderr

    job = env["SLURM_JOB_ID"]
    other, third = str(int(job) + 1000), str(int(job) + 2000)
    try:
        said = run("prolog", other)
        urls = [pathlib.Path(shared, one, "url.here").read_text(encoding="ascii").strip() for one in (job, other)]
        check(urls[0] != urls[1] and not said, f"{urls}: {said}")
        port = int(urls[1].rsplit(":", 1)[1])
        word = pathlib.Path(shared, other, "password").read_text(encoding="ascii").strip()
        with socket.create_connection((urls[1].removeprefix("valkey://").split(":")[0], port), 20) as connection:
            connection.sendall(f"AUTH {word}\r\n".encode())
            check(connection.recv(100).startswith(b"+OK"), "the server has another password")
        with open(conf + ".small", "w", encoding="ascii") as file, open(conf, encoding="ascii") as whole:
            file.write(whole.read().replace("MEMORY=64M", "MEMORY=32M"))
        said = run("prolog", third, conf + ".small")
        check("no memory server for job" in said and "at least 64M" in said, f"the failure is not told: {said!r}")
        check(not os.path.exists(os.path.join(shared, third, "url.here")), "a server that is not there is named")
    finally:
        run("epilog", other)
        run("epilog", third)


def slurm(bench, scripts):
    """Runs Slurm's scripts as Slurm does, for a job on this node and another."""
    conf = os.path.join(bench.place, "conf")
    shared = os.path.join(bench.place, "shared")
    os.makedirs(shared)
    job = str(random.randrange(10**8, 10**9) // 1000 * 1000 + 1)
    with open(conf, "w", encoding="ascii") as file:
        file.write(f"PARTITION=far\nMEMORY=64M\nDIRECTORY={shared}\nPORT={free_port() - 1}\n")
    path = os.path.dirname(bench.command[0]) + ":" + os.environ["PATH"]
    env = {**os.environ, "PATH": path, "TERAPAGE_SLURM_CONF": conf, "SLURM_JOB_ID": job, "SLURM_JOB_UID": "0"}
    env |= {"SLURM_JOB_PARTITION": "far", "SLURMD_NODENAME": "here"}

    def run(name, **more):
        words = [os.path.join(scripts, name)]
        ran = subprocess.run(words, env={**env, **more}, capture_output=True, text=True, timeout=300, check=False)
        check(ran.returncode == 0, f"{name}: {ran.stderr}")
        return ran.stdout

    run("prolog", SLURM_JOB_PARTITION="other")
    check(not os.listdir(shared), "a job of another partition gets a server")
    try:
        run("prolog")
        check(run("task-prolog") == "", "a node is its own server")
        said = dict(line.split("=", 1) for line in run("task-prolog", SLURMD_NODENAME="there").splitlines())
        url = said["export TERAPAGE_FAR"].rsplit(" ", 1)[1]
        child = bench.churn(url, env={"TERAPAGE_STORE_PASSWORD_FILE": said["export TERAPAGE_STORE_PASSWORD_FILE"]}, passes="1")
        bench.go_on()
        status = child.wait(TIMEOUT_S)
        # The program is as large as the server, which keeps some memory free.
        check(status == 0 or "full" in child.errors(), f"status {status}: {child.last_words()}")
        check("WRONG" not in child.output(), child.output())
        fails_alone(shared, conf, env, scripts)
    finally:
        run("epilog")
    check(not os.listdir(shared), f"{os.listdir(shared)} stay behind")
    host, port = url.removeprefix("valkey://").split(":")

    def is_gone():
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            return True
        return False

    wait_for(is_gone, "the server is gone")


def bare(bench):
    """The program by which the design of far memory is judged has the right bytes in each design, without Terapage."""
    need("gcc")
    program = os.path.join(bench.place, "bare")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bare.c")
    built = subprocess.run(["gcc", "-O2", "-pthread", source, "-o", program], capture_output=True, text=True, check=False)
    check(built.returncode == 0, f"gcc: {built.stderr.strip()[-300:]}")
    runs = [["stream", design] for design in ("peer", "one", "receiver", "copy")]
    runs += [["stream", "receiver", "connections=2", "run=4"], ["latency"]]
    for words in runs:
        small = ["data=64", "pool=16"]
        ran = subprocess.run([program, *words, *small], capture_output=True, text=True, timeout=300, check=False)
        check(ran.returncode == 0, f"{words}: status {ran.returncode}: {ran.stderr}")
    return f"{len(runs)} runs"


CI = [shards, cluster, contrib, bare]
SOAK = [resharded, failed_over, sentinel, swept_by_others, many_come_and_go]
