"""Servers and bare peers of tests/far/figures, each in a network namespace of its own."""

import json
import os
import re
import shutil
import socket
import subprocess

from harness import Skipped, check, need, wait_for

TIMEOUT_S = 300
RATE = "1gbit"
WORD = "figures"
"""The servers' password: what they hold is of no worth, and they are gone with the run."""


def run(*words, **options):
    """Runs a command, and returns what it prints."""
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, **options)
    check(ran.returncode == 0, f"{' '.join(map(str, words))}: status {ran.returncode}: {ran.stderr.strip()[-300:]}")
    return ran.stdout


class Node:
    """A network namespace with one process in it, joined to this one by a pair of cards."""

    def __init__(self, bench, rate=None):
        if os.geteuid() != 0:
            raise Skipped("root is needed for network namespaces")
        need("ip", "tc")
        self.bench = bench
        number = bench.nodes
        bench.nodes += 1
        self.name = f"tpfig{os.getpid()}-{number}"
        card = f"tpf{os.getpid()}-{number}"
        # Of the addresses that are for measurements between networks (RFC 2544).
        net = f"198.19.{os.getpid() % 25 * 10 + number % 10}"
        self.address = net + ".2"
        bench.stack.callback(self.gone)
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", card, "type", "veth", "peer", "name", "far", "netns", self.name)
        run("ip", "addr", "add", net + ".1/30", "dev", card)
        run("ip", "link", "set", card, "up")
        for words in (("addr", "add", net + ".2/30", "dev", "far"), ("link", "set", "far", "up"), ("link", "set", "lo", "up")):
            run("ip", "-n", self.name, *words)
        if rate:
            limit = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
            run("tc", "qdisc", "add", "dev", card, *limit)
            run("tc", "-n", self.name, "qdisc", "add", "dev", "far", *limit)
        self.process = None

    def start(self, *words):
        """Starts a process in the namespace that listens on 6379."""
        log = os.path.join(self.bench.place, self.name + ".log")
        with open(log, "wb") as said:
            argv = ["ip", "netns", "exec", self.name, *words]
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True)

        def is_up():
            with open(log, encoding="utf-8", errors="replace") as said:
                check(self.process.poll() is None, f"{words[0]} ends: {said.read()[-300:]}")
            return subprocess.run(
                ["bash", "-c", f"exec 3<>/dev/tcp/{self.address}/6379"], capture_output=True, check=False
            ).returncode == 0

        wait_for(is_up, f"{words[0]} listens", 20)

    def processor_s(self):
        """Seconds of processor time that its process has used."""
        with open(f"/proc/{self.process.pid}/stat", encoding="latin-1") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self):
        """Ends its process abruptly, as a power failure does."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def gone(self):
        self.kill()
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)


class Peer(Node):
    """A bare peer."""

    def __init__(self, bench, rate=None):
        super().__init__(bench, rate)
        self.start(bench.tool, "serve", self.address, "6379")

    def ask(self, kind, size, depth, seconds):
        return json.loads(run(self.bench.tool, "ask", kind, self.address, "6379", str(size), str(depth), str(seconds)))


class Server(Node):
    """A server, as `terapage far serve` starts it."""

    def __init__(self, bench, memory="3G", rate=None, tls=None):
        super().__init__(bench, rate)
        words = [*bench.command, "far", "serve", "--memory", memory, "--bind", self.address]
        wanted = os.environ.get("TERAPAGE_TEST_SERVER")
        words += ["--server", shutil.which(wanted)] if wanted and shutil.which(wanted) else []
        words += ["--tls-dir", tls] if tls else ["--password-file", bench.word]
        self.start(*words)

    def url(self, options="encrypt=no"):
        return f"valkey://:{WORD}@{self.address}?{options}"

    def ask(self, kind, size, depth, seconds):
        return json.loads(run(self.bench.tool, "ask", kind, self.address, "6379", str(size), str(depth), str(seconds), WORD))

    def call(self, *words):
        """The text of a command's reply."""
        with socket.create_connection((self.address, 6379), 20) as connection:
            file = connection.makefile("rwb")
            for command in (("AUTH", WORD), words):
                text = "".join(f"${len(word)}\r\n{word}\r\n" for word in command)
                file.write(f"*{len(command)}\r\n{text}".encode())
                file.flush()
                line = file.readline()
                if line[:1] == b"$":
                    line = file.read(int(line[1:]) + 2)
            return line.decode()

    def info(self, section, name):
        return int(re.search(name + r"[:=](\d+)", self.call("INFO", section))[1])
