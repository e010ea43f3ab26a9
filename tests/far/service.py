"""Cases of tests/far/run in which far memory is run like a service: mirrors that are made whole again, upgrades,
servers that come and go, secrets that change."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time

from harness import check, wait_for
from relays import Relay

TIMEOUT_S = 600


def stat(bench, child):
    """What `terapage stat` tells of the program now."""
    ran = subprocess.run([*bench.command, "stat", str(child.pid), "--json"], capture_output=True, text=True, timeout=300, check=False)
    check(ran.returncode == 0, f"stat: {ran.stderr} {child.last_words()}")
    return json.loads(ran.stdout)


def until_in_sync(bench, child, wanted=True):
    """Waits until all copies have all that they should, or until they are known not to."""
    wait_for(lambda: stat(bench, child)["in_sync"] is wanted, f"in sync: {wanted}")
    return stat(bench, child)


def mirror_of(servers, options=""):
    """The mirror of some servers."""
    return "mirror:" + "+".join(server.url + options for server in servers)


def upgraded(bench):
    """Servers of a mirror are restarted in turn, each when all is in sync; the program sleeps, and has all at the end."""
    servers = [bench.server(name=name) for name in ("one", "other")]
    child = bench.churn(mirror_of(servers), passes="1")
    bench.ready(child)
    until_in_sync(bench, child)
    for turn in range(6):
        index = turn % 2
        servers[index].stop()
        until_in_sync(bench, child, False)
        servers[index] = bench.server(port=servers[index].port, name=f"again{turn}")
        now = until_in_sync(bench, child)
        check(now["mirror_copies"] == 2 and now["condition"] is None, f"{now['condition']}")
    check(now["resynced_bytes"] > 6 * (int(bench.mib) - 16) << 20, f"only {now['resynced_bytes']} bytes were copied")
    text = subprocess.run([*bench.command, "stat", str(child.pid)], capture_output=True, text=True, timeout=300, check=False)
    check(re.search(r"^in sync +yes, 2 copies$", text.stdout, re.MULTILINE), text.stdout)
    servers[0].stop()
    bench.go_on()
    bench.good(child)
    servers[1].check_empty()
    return f"{now['resynced_bytes'] >> 20} MiB copied"


def hung(bench):
    """A server of a mirror hangs: the program goes on with the other, and the server is filled when it goes on."""
    servers = [bench.server(name=name) for name in ("one", "other")]
    child = bench.churn(mirror_of(servers, "?stall=100s"), passes="100000")
    bench.ready(child)
    servers[0].signal(signal.SIGSTOP)
    bench.go_on()
    # It would wait for as long as `stall` says, if it waited for the server.
    wait_for(lambda: stat(bench, child)["mirror_missing"] == 1, "it is missed")
    before = stat(bench, child)["page_in_bytes"]
    wait_for(lambda: stat(bench, child)["page_in_bytes"] > before + (20 << 20), "the program goes on")
    servers[0].signal(signal.SIGCONT)
    until_in_sync(bench, child)
    child.process.send_signal(signal.SIGUSR1)
    bench.good(child)
    for server in servers:
        server.check_empty()


def degraded(bench):
    """A mirror begins though one server is away, says so, and fills it when it comes; both being away, it does not begin."""
    server = bench.server(name="one")
    other = bench.server(name="other")
    other.stop()
    url = mirror_of((server, other))
    child = bench.churn(url, passes="1")
    bench.ready(child)
    lines = child.errors().splitlines()
    check(len(lines) == 1 and other.url in lines[0] and "1 of 2 copies" in lines[0], f"{lines}")
    now = stat(bench, child)
    check(now["in_sync"] is False and other.url in now["condition"], f"{now['condition']}")
    other = bench.server(port=other.port, name="again")
    until_in_sync(bench, child)
    server.stop()
    bench.go_on()
    bench.good(child)
    other.check_empty()
    other.stop()
    bench.refused(url, "cannot be connected to")
    wrong = bench.server("--requirepass", "rightword", name="wrong")
    bench.refused(mirror_of((bench.server(port=server.port, name="third"), wrong)), "NOAUTH")


def one_server_twice(bench):
    """Two names of one server are found out even if the second name leads nowhere at the start."""
    server = bench.server()
    relay = Relay(server, lambda _random, data: data, 1, port=1)
    try:
        child = bench.churn(f"mirror:{server.url}+{relay.url}", passes="1")
        bench.ready(child)
        relay.to_port = server.port
        said = lambda: stat(bench, child)["condition"] or ""
        wait_for(lambda: "is the server of another copy" in said(), "it is found out")
        check(stat(bench, child)["in_sync"] is False, "it counts as a copy")
        bench.go_on()
        bench.good(child)
    finally:
        relay.close()


def listed(bench):
    """What a program keeps is listed from the start, and told when it is removed."""
    server = bench.server()
    child = bench.churn(server.url)
    bench.ready(child)
    stored = stat(bench, child)["store_bytes"]
    size = lambda: json.loads(bench.far("ls", server.url, "--json"))[0]["bytes"]
    check(size() >= stored > 20 << 20, f"{size()} of {stored} bytes are listed")
    child.process.kill()
    child.wait(TIMEOUT_S)
    said = bench.far("sweep", server.url)
    check(re.search(r"^1 removed, [1-9]", said), said)


def new_password(bench):
    """The password is changed on the server and in its file: the program goes on with the new one."""
    server = bench.server("--requirepass", "rightword")
    word = os.path.join(bench.place, "word")

    def write(text):
        with open(word + ".new", "w", encoding="ascii") as file:
            file.write(text + "\n")
        os.rename(word + ".new", word)

    write("rightword")
    child = bench.churn(server.url, env={"TERAPAGE_STORE_PASSWORD_FILE": word})
    bench.ready(child)
    server.call("CONFIG", "SET", "requirepass", "otherword")
    server.password = "otherword"
    server.call("CLIENT", "KILL", "TYPE", "normal")
    bench.go_on()
    # It is refused for a while.
    time.sleep(1)
    check(child.process.poll() is None, f"it does not wait: {child.last_words()}")
    write("otherword")
    bench.good(child)
    server.check_empty()


def new_certificates(bench):
    """CA, certificates and keys are replaced on both sides: the program goes on with the new ones."""
    place = bench.certificates("--server", "localhost,127.0.0.1")
    other = bench.certificates("--server", "localhost,127.0.0.1", name="other")
    server = bench.server(tls=place, clients="yes")
    pair = {"cert": os.path.join(place, "client.crt"), "key": os.path.join(place, "client.key")}
    child = bench.churn(server.tls_url(**pair))
    bench.ready(child)
    for name in ("ca.crt", "server.crt", "server.key", "client.crt", "client.key"):
        shutil.copy(os.path.join(other, name), os.path.join(place, name))
    files = {"cert": "server.crt", "key": "server.key", "ca-cert": "ca.crt"}
    words = [word for option, name in files.items() for word in (f"tls-{option}-file", os.path.join(place, name))]
    said = server.call("CONFIG", "SET", *words)
    check(said == "OK", f"CONFIG SET: {said}")
    server.call("CLIENT", "KILL", "TYPE", "normal")
    bench.go_on()
    bench.good(child)
    server.check_empty()


def repaired_by_spare(bench):
    """A server is gone for good: a spare takes its place, and is enough when the other one goes, too."""
    servers = [bench.server(name=name) for name in ("one", "other", "spare")]
    child = bench.churn(mirror_of(servers[:2]) + f"+{servers[2].url}?spare=2s", passes="1")
    bench.ready(child)
    check(servers[2].call("DBSIZE") == 0, "a spare keeps something")
    servers[0].stop()
    wait_for(lambda: servers[2].call("DBSIZE") > 4, "the spare is used")
    until_in_sync(bench, child)
    servers[1].stop()
    bench.go_on()
    bench.good(child)
    servers[2].check_empty()


def drained(bench):
    """A server is emptied while a program works: a mirror's copy, and the only copy; a mirror without a spare says so."""
    for copies in (2, 1):
        servers = [bench.server(name=f"{copies}copies{number}") for number in range(copies + 1)]
        spare = servers[-1]
        child = bench.churn(mirror_of(servers[:-1]) + f"+{spare.url}?spare=1h", passes="100000")
        bench.ready(child)
        check(servers[0].call("DBSIZE") > 4, "nothing is there")
        bench.go_on()
        said = bench.far("drain", servers[0].url)
        check("is empty" in said, said)
        check(not [key for key in servers[0].call("KEYS", "tp:*") if "." in key], "blocks are still there")
        now = until_in_sync(bench, child)
        check(now["mirror_copies"] == copies, f"{now['mirror_copies']} copies")
        for server in servers[:-1]:
            server.stop()
        child.process.send_signal(signal.SIGUSR1)
        bench.good(child)
        spare.check_empty()
    servers = [bench.server(name=f"no-spare{number}") for number in range(2)]
    child = bench.churn(mirror_of(servers), passes="1")
    bench.ready(child)
    servers[0].call("SET", "tp:drain", "1")
    wait_for(lambda: "no spare" in (stat(bench, child)["condition"] or ""), "it says so")
    bench.far("drain", servers[0].url, "--undo")
    wait_for(lambda: stat(bench, child)["condition"] is None, "it says nothing more")
    bench.go_on()
    bench.good(child)


def server_list(bench):
    """Servers are added to a list and taken out of it while a program works: it takes them up, and leaves them."""
    one, two, three = [bench.server(name=name) for name in ("one", "two", "three")]
    file = os.path.join(bench.place, "servers")

    def write(*servers, also=""):
        with open(file + ".new", "w", encoding="ascii") as new:
            new.writelines(f"127.0.0.1:{server.port}\n" for server in servers)
            new.write(also)
        os.rename(file + ".new", file)

    values = lambda server: len([key for key in server.call("KEYS", "tp:*") if "." in key])
    url = f"valkey+list://{file}"
    write(also="# none\n")
    bench.refused(url, "names no server")
    write(one, also="far-1:6379\n")
    bench.refused(url, "no address in line 2: 'far-1:6379'")
    bench.refused(f"mirror:valkey++list://{file}+{two.url}", "no copy of a mirror")
    write(one)
    child = bench.churn(url, "more", passes="100000")
    bench.ready(child)
    check(values(one) > 2, "nothing is there")
    write(one, two, also="nonsense!\n")
    wait_for(lambda: "no address in line 3" in child.errors(), "the wrong line is named")
    write(one, two)
    # The program connects to it before it needs room.
    wait_for(lambda: "connected_clients:1\r" not in two.call("INFO", "clients"), "the new server is taken up")
    bench.go_on()
    wait_for(lambda: "more" in child.output(), "the rest is filled")
    check(values(two) > 2, "the new server got nothing")
    bench.go_on()
    before = stat(bench, child)
    check(before["mirror_copies"] == 0 and before["condition"] is None, f"{before}")
    write(two, three)
    wait_for(lambda: values(one) == 0, "the server that was taken out is empty")
    one.stop()
    said = bench.far("drain", two.url)
    check("is empty" in said and values(two) == 0, said)
    two.stop()
    child.process.send_signal(signal.SIGUSR1)
    bench.good(child)
    three.check_empty()
    # A fork's child reads the blocks of its parent where they were.
    one, two = [bench.server(name=f"fork{number}") for number in range(2)]
    write(one)
    child = bench.churn(url, "fork", passes="8")
    bench.ready(child)
    bench.go_on()
    registries = lambda: [key for key in one.call("KEYS", "tp:{*") if "." not in key]
    wait_for(lambda: len(registries()) == 2, "the child has a store of its own")
    write(two)
    bench.good(child)
    one.check_empty()
    two.check_empty()


def odd_list(bench):
    """A list that names nobody, or cannot be read, changes nothing: the program goes on, and a server that is named again has one store."""
    one = bench.server()
    file = os.path.join(bench.place, "servers")

    def write(text):
        with open(file + ".new", "w", encoding="ascii") as new:
            new.write(text)
        os.rename(file + ".new", file)

    write(f"127.0.0.1:{one.port}\n")
    child = bench.churn(f"valkey+list://{file}", passes="4")
    bench.ready(child)
    registries = lambda: len([key for key in one.call("KEYS", "tp:{*") if "." not in key])
    check(registries() == 1, f"{registries()} stores")
    write("# nobody\n")
    wait_for(lambda: "names no server" in child.errors(), "the empty list is refused")
    write(f"127.0.0.1:{one.port} # again\n")
    # A pipe that nobody writes to is a file on a machine that does not answer.
    time.sleep(2)
    os.mkfifo(file + ".new")
    os.rename(file + ".new", file)
    time.sleep(3)
    try:
        check(registries() == 1, f"{registries()} stores")
        bench.go_on()
        bench.good(child)
    finally:
        os.close(os.open(file, os.O_RDWR | os.O_NONBLOCK))
    one.check_empty()


def released(bench):
    """A program that is released, alone or with a child, takes its blocks back from the server, and leaves none there, long before it ends."""
    for how in ("alone", "fork"):
        server = bench.server(name=how)
        child = bench.churn(server.url, *(("fork",) if how == "fork" else ()), passes="2" if how == "alone" else "8")
        bench.ready(child)
        check(stat(bench, child)["store_bytes"] > 0, "nothing is on the server")
        if how == "fork":
            bench.go_on()
            wait_for(lambda: stat(bench, child)["forks"], "it has forked")
        ran = subprocess.run([*bench.command, "release", str(child.pid)], capture_output=True, text=True, timeout=300, check=False)
        check(ran.returncode == 0 and "no longer paged" in ran.stderr, f"{how}: status {ran.returncode}: {ran.stderr} {child.last_words()}")
        check(stat(bench, child)["released"] == 1, "it is not released")
        if how == "alone":
            server.check_empty()
            bench.go_on()
        bench.good(child)
        server.check_empty()
    return ""


def flushed_and_filled(bench):
    """All keys of a copy are removed while the program sleeps: that is noticed, and mended."""
    servers = [bench.server(name=name) for name in ("one", "other")]
    child = bench.churn(mirror_of(servers), passes="1")
    bench.ready(child)
    # After its first sign of life.
    wait_for(lambda: "beat" in str(servers[0].call("HGETALL", registry_of(servers[0]))), "it shows that it lives")
    time.sleep(1)
    servers[0].call("FLUSHALL")
    before = stat(bench, child)["resynced_bytes"]
    wait_for(lambda: stat(bench, child)["resynced_bytes"] > before + (20 << 20), "it is filled")
    until_in_sync(bench, child)
    servers[1].stop()
    bench.go_on()
    bench.good(child)


def registry_of(server):
    """The key that describes the one program of a server."""
    return next(key for key in server.call("KEYS", "tp:{*") if "." not in key)


def killed_at_random(bench):
    """A hundred times one of two servers is killed, and comes back with nothing, while the program works."""
    number = int(os.environ.get("TERAPAGE_SEED", random.randrange(1 << 32)))
    rounds = int(os.environ.get("TERAPAGE_RUNS", "100"))
    chance = random.Random(number)
    servers = [bench.server(name=name) for name in ("one", "other")]
    child = bench.churn(mirror_of(servers), passes="100000")
    bench.ready(child)
    bench.go_on()
    begun = time.monotonic()
    for turn in range(rounds):
        time.sleep(chance.random())
        index = chance.randrange(2)
        servers[index].stop()
        # Before it is back: the program may be late to hear of it on a busy machine.
        until_in_sync(bench, child, False)
        time.sleep(chance.random() * 2)
        servers[index] = bench.server(port=servers[index].port, name=f"turn{turn}")
        check(child.process.poll() is None, f"TERAPAGE_SEED={number}, turn {turn}: {child.last_words()} {child.output()}")
        until_in_sync(bench, child)
    now = stat(bench, child)
    # It says so, and ends; its time begins now.
    child.began = time.monotonic()
    child.process.send_signal(signal.SIGUSR1)
    bench.good(child)
    for server in servers:
        server.check_empty()
    longest = re.search(r"longest (\d+) ms", child.output())[1]
    return (
        f"TERAPAGE_SEED={number}, {rounds} kills in {time.monotonic() - begun:.0f} s, longest wait {longest} ms, "
        f"{now['resynced_bytes'] >> 20} MiB copied, load {os.getloadavg()[0]:.1f}"
    )


CI = [upgraded, hung, degraded, one_server_twice, listed, new_password, new_certificates, repaired_by_spare, drained, server_list, odd_list, released]
SOAK = [flushed_and_filled, killed_at_random]
