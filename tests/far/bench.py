"""What the cases use: servers, the command, and programs whose memory lies on these servers."""

import contextlib
import os
import random
import re
import shutil
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "lib")]

from harness import Child, Skipped, check, free_port, need, wait_for  # noqa: E402

TIMEOUT_S = 600
OPTIONS = ("--memory", "16M", "--block")
BLOCK = "64K"
"""Options of the programs here: their data is several times as large as the budget."""
MIB = "48"
STOPPED = 125


def server_program():
    """The path of the installed server."""
    names = [os.environ.get("TERAPAGE_TEST_SERVER"), "valkey-server", "redis-server"]
    found = next((shutil.which(name) for name in names if name and shutil.which(name)), None)
    if found is None:
        raise Skipped("not installed: valkey-server, redis-server")
    return found


def tls_program(place):
    """A server that speaks TLS."""
    names = [os.environ.get("TERAPAGE_TEST_SERVER"), "valkey-server", "redis-server"]
    for name in filter(None, names):
        if shutil.which(name) is None:
            continue
        # The server reports a missing certificate, or that it has no TLS, before it starts.
        words = ["--port", "0", "--tls-port", str(free_port()), "--tls-cert-file", os.path.join(place, "nowhere")]
        ran = subprocess.run([name, *words], capture_output=True, text=True, timeout=300, cwd=place, check=False)
        if "Failed to configure TLS" in ran.stdout + ran.stderr:
            return shutil.which(name)
    raise Skipped("no valkey-server or redis-server with TLS")


class Server:
    """A separate server; with `tls`, a directory of `terapage far cert`, it listens with TLS as well."""

    def __init__(self, place, *options, port=None, name="server", tls=None, clients="no"):
        self.port = port or free_port()
        self.place = os.path.join(place, name)
        os.makedirs(self.place, exist_ok=True)
        self.socket = os.path.join(self.place, "s")
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        words += ["--maxmemory", "2gb"] if "--maxmemory" not in options else []
        words += ["--unixsocket", self.socket, "--dir", self.place, *options]
        self.password = options[options.index("--requirepass") + 1] if "--requirepass" in options else None
        program = tls_program(place) if tls else server_program()
        if tls:
            self.tls = tls
            self.tls_port = free_port()
            files = {"cert": "server.crt", "key": "server.key", "ca-cert": "ca.crt"}
            words += ["--tls-port", str(self.tls_port), "--tls-auth-clients", clients]
            for option, file in files.items():
                words += [f"--tls-{option}-file", os.path.join(tls, file)]
        with open(os.path.join(self.place, "log"), "wb") as log:
            self.process = subprocess.Popen(
                [program, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        wait_for(self.answers, "the server answers")

    def answers(self):
        check(self.process.poll() is None, f"the server ends: {self.log()}")
        try:
            return self.call("PING") == "PONG"
        except OSError:
            return False

    def log(self):
        """The end of what the server has said."""
        with open(os.path.join(self.place, "log"), encoding="utf-8", errors="replace") as log:
            return log.read()[-300:]

    @property
    def url(self):
        return f"valkey://127.0.0.1:{self.port}"

    def tls_url(self, host="localhost", **options):
        """Its name for TLS."""
        options = {"ca": os.path.join(self.tls, "ca.crt"), **options}
        return f"valkeys://{host}:{self.tls_port}?" + "&".join(f"{key}={value}" for key, value in options.items())

    def bytes_of(self, key):
        """A value, as raw bytes."""
        with socket.create_connection(("127.0.0.1", self.port), 20) as connection:
            file = connection.makefile("rwb")
            file.write(f"*2\r\n$3\r\nGET\r\n${len(key)}\r\n{key}\r\n".encode())
            file.flush()
            return file.read(int(file.readline()[1:]))

    def call(self, *words):
        """A command's reply; errors are returned as texts."""
        return call(self.port, *words, password=self.password)

    def signal(self, number):
        os.kill(self.process.pid, number)

    def stop(self):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()

    def check_empty(self):
        """Checks that no program has left anything."""
        keys = self.call("DBSIZE")
        check(keys == 0, f"{keys} keys stay on the server: {sorted(self.call('KEYS', '*'))[-3:]} {self.call('SMEMBERS', 'tp:all')} {[self.call('HGETALL', key) for key in self.call('KEYS', 'tp:{????????????????}')]}")


def calls_of(text, *names):
    """How often a server has executed commands, by its `INFO commandstats`."""
    return sum(int(count) for name in names for count in re.findall(rf"cmdstat_{name}:calls=(\d+)", text))


def kill_connections(server, stop, pause_s):
    """Ends all connections of a server again and again, each time once blocks were read or written."""
    before = 0
    while not stop.wait(pause_s):
        with contextlib.suppress(OSError):
            done = calls_of(server.call("INFO", "commandstats"), "get", "getrange", "set", "setrange")
            if done > before + 4:
                server.call("CLIENT", "KILL", "TYPE", "normal")
                before = done


def call(port, *words, password=None):
    """A command's reply; errors are returned as texts."""
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        file = connection.makefile("rwb")
        for command in [["AUTH", password]] * bool(password) + [words]:
            text = "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in map(str, command))
            file.write(f"*{len(command)}\r\n{text}".encode())
            file.flush()
            reply = read_reply(file)
        return reply


def read_reply(file):
    line = file.readline().rstrip(b"\r\n")
    sign, rest = line[:1], line[1:].decode()
    if sign == b":":
        return int(rest)
    if sign == b"$":
        return None if int(rest) < 0 else file.read(int(rest) + 2)[:-2].decode(errors="replace")
    if sign == b"*":
        return [read_reply(file) for _ in range(int(rest))]
    if sign == b"-":
        return "error: " + rest
    return rest


class Bench:
    """A case's means."""

    def __init__(self, place, command):
        self.place = place
        self.command = command
        self.stack = contextlib.ExitStack()

    mib = MIB
    call = staticmethod(call)
    server_program = staticmethod(server_program)

    def server(self, *options, **more):
        server = Server(self.place, *options, **more)
        self.stack.callback(server.stop)
        return server

    def certificates(self, *words, name="tls", says=None):
        """A directory with the files of `terapage far cert`."""
        place = os.path.join(self.place, name)
        argv = [*self.command, "far", "cert", "--dir", place, *words]
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        if says:
            check(ran.returncode == STOPPED, f"{words}: status {ran.returncode}: {ran.stderr}")
            check(len(ran.stderr.splitlines()) == 1 and says in ran.stderr, f"{words}: {ran.stderr!r}")
        else:
            check(ran.returncode == 0, f"{words}: {ran.stderr}")
            self.told = ran.stdout
        return place

    def churn_program(self):
        """The program for these cases."""
        need("gcc")
        program = os.path.join(self.place, "churn")
        if not os.path.exists(program):
            source = os.path.join(HERE, "churn.c")
            built = subprocess.run(["gcc", "-O2", source, "-o", program], capture_output=True, text=True, check=False)
            check(built.returncode == 0, f"gcc: {built.stderr.strip()[-300:]}")
        return program

    def churn(self, url, *words, options=(), env=None, passes="2", block=BLOCK):
        """Starts the program of these cases, which waits for a signal to continue."""
        program = self.churn_program()
        fifo = os.path.join(self.place, f"fifo{random.random()}")
        os.mkfifo(fifo)
        self.way = os.open(fifo, os.O_RDWR)
        self.stack.callback(os.close, self.way)
        argv = [*self.command, "run", *OPTIONS, block, *options, "--store", url, "--", program, MIB, passes, *words]
        child = self.stack.enter_context(Child(argv, self.place, stdin=fifo, env=env))
        return child

    def far(self, *words):
        """The output of `terapage far`."""
        ran = subprocess.run([*self.command, "far", *words], capture_output=True, text=True, timeout=60, check=False)
        check(ran.returncode == 0, f"far {words}: {ran.stderr}")
        return ran.stdout

    def ready(self, child):
        """Waits until the program has filled its memory."""
        wait_for(lambda: "ready" in child.output() or child.process.poll() is not None, "the program is ready", TIMEOUT_S)
        check("ready" in child.output(), f"the program does not come so far: {child.last_words()}")

    def go_on(self):
        os.write(self.way, b"\n")

    def good(self, child, also=""):
        """Expects the right bytes."""
        status = child.wait(TIMEOUT_S)
        check(status == 0, f"status {status}: {child.last_words()} {child.output()[-200:]}")
        check("good" in child.output() and also in child.output(), f"it said {child.output()!r}")
        check("could not be removed" not in child.errors(), child.errors())
        check(not child.left_over, f"processes stay behind: {child.left_over}")

    def stopped(self, child, says, url=None):
        """Expects the end, with one line that says why."""
        status = child.wait(TIMEOUT_S)
        lines = [line for line in child.errors().splitlines() if "warning" not in line]
        check("WRONG" not in child.output(), f"wrong bytes: {child.output()}")
        check(status != 0, f"it is not stopped: {child.output()!r}")
        check(len(lines) == 1, f"{len(lines)} lines, not one: {child.last_words()!r}")
        check(re.search(says, lines[0], re.IGNORECASE), f"nothing about '{says}' in {lines[0]!r}")
        check(url is None or url in lines[0], f"the server is not named in {lines[0]!r}")
        check(not child.left_over, f"processes stay behind: {child.left_over}")

    def refused(self, url, says, env=None, options=()):
        """Expects that the program does not start."""
        argv = [*self.command, "run", *OPTIONS, BLOCK, *options, "--store", url, "--", "echo", "ran"]
        with Child(argv, self.place, env=env) as child:
            self.stopped(child, says)
            check("ran" not in child.output(), "the program ran")
