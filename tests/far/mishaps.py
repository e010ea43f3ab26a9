"""Cases of tests/far/run with interference from outside: other clients, administrators, the network."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from harness import Skipped, check, wait_for
from relays import Relay

RIGHTS = """-@all +getrange +setrange +set +unlink +hset +hdel +hgetall +sadd +srem +smembers +time +hello
+auth +select +info +client|kill +client|id +client|setname +cluster|slots +asking""".split()
"""The rights that docs/far.md names."""
TIMEOUT_S = 600


def values(server):
    """The keys of blocks."""
    return [key for key in server.call("KEYS", "tp:*") if "." in key]


def flip(server, key):
    """Flips a bit in each block."""
    length = server.call("STRLEN", key)
    for bit in range(800, length * 8, 8 << 16):
        server.call("SETBIT", key, bit, 1 - server.call("GETBIT", key, bit))


def overwrite(server, key):
    """Writes other bytes of the same length."""
    server.call("SETRANGE", key, 0, "x" * server.call("STRLEN", key))


def shorten(server, key):
    """Removes the first bytes."""
    server.call("SET", key, "short")


def retype(server, key):
    """Replaces each by a value of another type."""
    server.call("DEL", key)
    server.call("LPUSH", key, "a list")


def meddled(bench):
    """Another client, or a fault of the server's memory, changes values: the program is stopped, or with a mirror gets the right bytes."""
    server = bench.server()
    other = bench.server(name="other")
    told = []
    for how, says in ((flip, r"are not those that were written \(key tp:"), (overwrite, r"are not those that were written \(key tp:"), (shorten, "tp:"), (retype, "WRONGTYPE|tp:")):
        child = bench.churn(server.url + "?encrypt=no&stall=5s", passes="1")
        bench.ready(child)
        for key in values(server):
            how(server, key)
        bench.go_on()
        bench.stopped(child, ".", server.url)
        line = child.errors().splitlines()[-1]
        check(re.search(says, line), f"{how.__name__}: nothing about '{says}' in {line!r}")
        server.call("FLUSHALL")
        url = f"mirror:{server.url}?encrypt=no&stall=5s+{other.url}?encrypt=no&stall=5s"
        child = bench.churn(url, passes="1")
        bench.ready(child)
        for key in values(server):
            how(server, key)
        bench.go_on()
        bench.good(child)
        server.call("FLUSHALL")
        other.call("FLUSHALL")
        told.append(how.__name__)
    return ", ".join(told)


def rights(bench):
    """The documented rights suffice, and each missing right is named before the program begins."""
    server = bench.server()
    url = f"valkey://team1:word@127.0.0.1:{server.port}?prefix=team1"

    def allow(rules):
        said = server.call("ACL", "SETUSER", "team1", "reset", "on", ">word", "~team1:*", "resetchannels", *rules)
        check(said == "OK", f"ACL SETUSER: {said}")

    allow(RIGHTS)
    child = bench.churn(url, passes="1")
    bench.go_on()
    bench.good(child)
    server.check_empty()
    for command in ("getrange", "setrange", "unlink", "hset", "info"):
        allow([rule for rule in RIGHTS if rule != "+" + command])
        bench.refused(url, "NOPERM")
    allow(RIGHTS)
    bench.refused(url.replace("prefix=team1", "prefix=team2"), "NOPERM")


def shut_out(bench):
    """The password is changed while the program runs, and its connections are ended: the program is stopped with a reason."""
    server = bench.server("--requirepass", "rightword")
    child = bench.churn(f"valkey://:rightword@127.0.0.1:{server.port}?stall=5s")
    bench.ready(child)
    server.call("CONFIG", "SET", "requirepass", "otherword")
    server.password = "otherword"
    server.call("CLIENT", "KILL", "TYPE", "normal")
    bench.go_on()
    bench.stopped(child, "WRONGPASS|NOAUTH", server.url)


def slept_too_long(bench):
    """A program that was stopped for longer than the grace time has lost its memory, and says so when it continues."""
    server = bench.server()
    child = bench.churn(server.url)
    bench.ready(child)
    os.kill(child.pid, signal.SIGSTOP)
    try:
        registry = next(key for key in server.call("KEYS", "tp:*") if "{" in key and "." not in key)
        server.call("HSET", registry, "beat", int(time.time()) - 7200)
        removed = bench.far("sweep", server.url)
        check("1 removed" in removed and not values(server), f"it is not removed: {removed}")
    finally:
        os.kill(child.pid, signal.SIGCONT)
    bench.go_on()
    bench.stopped(child, "gone", server.url)


class Hole:
    """A relay between a program and a server that from some moment on sends nothing on the existing connections."""

    def __init__(self, port):
        self.to_port = port
        self.silent = set()
        self.all = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.to_port))
                self.all.append((client, server))
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self.carry, args=pair, daemon=True).start()

    def carry(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if client_of(source, target, self.all) in self.silent:
                    # Neither end hears of it, as when the other one has lost its power.
                    continue
                target.sendall(data)
            if client_of(source, target, self.all) not in self.silent:
                target.shutdown(socket.SHUT_WR)

    def fall_silent(self):
        self.silent = {id(client) for client, _ in self.all}

    def close(self):
        self.listener.close()


def client_of(source, target, pairs):
    """The connection that has these ends."""
    return next((id(client) for client, server in pairs if {id(source), id(target)} == {id(client), id(server)}), None)


def half_open(bench):
    """Connections that stay open but carry nothing are given up and made again."""
    server = bench.server()
    hole = Hole(server.port)
    try:
        child = bench.churn(f"valkey://127.0.0.1:{hole.port}?stall=9s", passes="1")
        bench.ready(child)
        before = len(hole.all)
        hole.fall_silent()
        bench.go_on()
        bench.good(child)
        check(len(hole.all) > before, "no connection was made anew")
        return f"{len(hole.all) - before} connections made anew"
    finally:
        hole.close()


@contextlib.contextmanager
def namespace(name):
    """A separate network namespace, joined to this one by a pair of cards: its address."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        raise Skipped("root and ip(8) are needed for network namespaces")

    def ip(*words):
        ran = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        return ran.stderr if ran.returncode else ""

    why = ip("netns", "add", name)
    if why:
        raise Skipped(f"no network namespace can be made: {why.strip()}")
    try:
        subnet = f"198.18.{240 + os.getpid() % 8}"
        card = name[:14]
        for words in (
            ("link", "add", card, "type", "veth", "peer", "name", "far", "netns", name),
            ("addr", "add", subnet + ".1/30", "dev", card),
            ("link", "set", card, "up"),
            ("-n", name, "addr", "add", subnet + ".2/30", "dev", "far"),
            ("-n", name, "link", "set", "far", "up"),
            ("-n", name, "link", "set", "lo", "up"),
        ):
            why = ip(*words)
            if why:
                raise Skipped(f"ip {' '.join(words)}: {why.strip()}")
        yield subnet + ".1", lambda *words: ip("-n", name, *words)
    finally:
        ip("netns", "del", name)


def without_route(bench):
    """Without a network path to the server nothing begins; if the path is lost, the program waits for it as long as `stall` allows."""
    server = bench.server("--bind", "0.0.0.0", "--protected-mode", "no")
    with namespace(f"tpfar{os.getpid()}") as (address, inside):
        name = f"tpfar{os.getpid()}"
        plain = bench.command
        bench.command = ["ip", "netns", "exec", name, *plain]
        try:
            bench.refused(f"valkey://10.255.255.1:{server.port}?stall=2s", "unreachable|connect")
            url = f"valkey://{address}:{server.port}"
            child = bench.churn(url + "?stall=20s", passes="1")
            bench.ready(child)
            check(not inside("link", "set", "far", "down"), "the card stays up")
            bench.go_on()
            time.sleep(3)
            check(child.process.poll() is None, f"it does not wait: {child.last_words()}")
            check(not inside("link", "set", "far", "up"), "the card stays down")
            bench.good(child)
            child = bench.churn(url + "?stall=5s", passes="1")
            bench.ready(child)
            inside("link", "set", "far", "down")
            bench.go_on()
            bench.stopped(child, "unreachable|no answer|nothing was done|connect", url)
        finally:
            bench.command = plain


def policy_changed(bench):
    """Another client lets the server discard blocks: the program is warned within a minute, and continues."""
    server = bench.server()
    child = bench.churn(server.url, passes="1")
    bench.ready(child)
    server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    wait_for(lambda: "allkeys-lru" in child.errors(), "the program is told")
    bench.go_on()
    bench.good(child)


def second_late(bench):
    """One reply in a hundred arrives seconds late, and the bytes are right."""

    def late(_random, data):
        time.sleep(2)
        return data

    server = bench.server()
    relay = Relay(server, late, 1)
    try:
        child = bench.churn(relay.url + "?stall=30s", passes="1")
        bench.go_on()
        bench.good(child)
        check(relay.spoilt > 0, "none was late")
        return f"{relay.spoilt} replies were late"
    finally:
        relay.close()


CI = [meddled, rights, shut_out, slept_too_long, half_open, without_route]
SOAK = [policy_changed, second_late]
