"""PostgreSQL's server and its backends, adopted and released while queries run."""

import glob
import os
import shutil
import subprocess
import threading
import time

import adopt
import release
from harness import Child, Late, Skipped, check, need, need_root, wait_for

USER = ["runuser", "-u", "postgres", "--"]
SETTINGS = {
    "listen_addresses": "", "work_mem": "192MB", "shared_buffers": "16MB", "fsync": "off",
    "max_parallel_workers_per_gather": "0", "jit": "off", "enable_mergejoin": "off",
}
QUERIES = """
CREATE TEMP TABLE a AS SELECT i, i::bigint * 7919 %% 10007 AS k, md5((i * %(factor)s)::text) AS t FROM generate_series(1, %(rows)s) i;
SELECT count(*), sum(a.i) FROM a JOIN a b ON a.k = b.k AND a.i < b.i;
SELECT md5(string_agg(t, '' ORDER BY t)) FROM a;
SELECT count(*), max(c), md5(string_agg(m, '' ORDER BY k)) FROM (SELECT k, count(*) c, max(t) m FROM a GROUP BY k) g;
SELECT i, t FROM (SELECT i, t, row_number() OVER (ORDER BY t DESC) n FROM a) s WHERE n %% 10000 = 0;
CREATE INDEX by_text ON a (t);
SELECT count(*), min(t), max(t) FROM a WHERE t BETWEEN '4' AND '8';
"""
ROWS = 100_000


class Client(threading.Thread):
    """Runs the queries in a backend of its own, and keeps the answers."""

    def __init__(self, place, factor):
        super().__init__(daemon=True)
        self.place, self.factor, self.answers, self.backend, self.errors = place, factor, None, 0, ""
        self.start()

    def run(self):
        words = [*USER, "psql", "-h", self.place, "-d", "postgres", "-AtqX", "-v", "ON_ERROR_STOP=1"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.place) as psql:
            psql.stdin.write("SELECT pg_backend_pid();\n")
            psql.stdin.flush()
            self.backend = int(psql.stdout.readline() or 0)
            self.answers, self.errors = psql.communicate(QUERIES % {"factor": self.factor, "rows": ROWS})

    def answer(self):
        """The answers, once there are all of them."""
        self.join(300)
        if self.is_alive() or self.answers is None:
            raise Late(f"backend {self.backend} gives no answer")
        return self.answers + self.errors


def begun(server, factors):
    """Clients whose backends have begun."""
    clients = [Client(server.place, factor) for factor in factors]
    for client in clients:
        wait_for(lambda: client.backend or client.answers is not None, "the backend has begun")
    return clients


def need_server():
    need_root()
    need("psql", "runuser", "setpriv")
    if not glob.glob("/usr/lib/postgresql/*/bin/postgres") or subprocess.run(["id", "postgres"], capture_output=True, check=False).returncode:
        raise Skipped("not installed: PostgreSQL's server, with a user postgres")


class Server:
    """A server, as PostgreSQL's user, in a cgroup if one is named."""

    def __init__(self, bench, group=None):
        self.place = bench.place
        self.programs = os.path.dirname(sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))[-1])
        self.data = bench.path("data")
        for place in (bench.place, bench.store):
            os.chmod(place, 0o777)
        os.mkdir(self.data)
        shutil.chown(self.data, "postgres")
        self.administer("initdb", "-D", self.data, "--auth=trust", "--no-sync", "--locale=C")
        words = [word for name, value in {**SETTINGS, "unix_socket_directories": self.place}.items() for word in ("-c", f"{name}={value}")]
        argv = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", f"{self.programs}/postgres", "-D", self.data, *words]
        self.child = Child(adopt.in_group(group, *argv) if group else argv, bench.place, stdout="server")

    def __enter__(self):
        self.child.__enter__()
        ask = [*USER, "psql", "-h", self.place, "-d", "postgres", "-AtX", "-c", "SELECT 1"]
        wait_for(lambda: subprocess.run(ask, capture_output=True, timeout=300, check=False, cwd=self.place).returncode == 0, "the server answers")
        return self

    def __exit__(self, *why):
        self.child.__exit__(*why)

    def administer(self, program, *words):
        done = subprocess.run([*USER, f"{self.programs}/{program}", *words], capture_output=True, text=True, timeout=300, check=False, cwd=self.place)
        check(done.returncode == 0, f"{program}: {done.stderr.strip()[-300:]}")


def takes_turns(bench, server, moments, wanted, seconds):
    """Two backends are adopted and released at random moments; returns how often that was done, and the bytes that left."""
    clients, counts = begun(server, wanted), [0, 0, 0]
    for client in clients:
        time.sleep(moments.uniform(0, 0.2 * seconds))
        said, status = adopt.adopt(bench, client.backend, "24M")
        check(status == 0 or has_ended(said), said)
        counts[0] += status == 0
    for client in clients:
        time.sleep(moments.uniform(0, 0.4 * seconds))
        now = release.counters(bench, client.backend) if client.answers is None else None
        if now:
            said, status = release.release(bench, client.backend)
            check(status == 0 or has_ended(said), said)
            counts[1] += status == 0
            counts[2] += now["page_out_bytes"]
    check_answers(clients, wanted, "adopted by number")
    return counts


def has_ended(said):
    """Whether a backend had answered, and ended, perhaps before its client knows that."""
    return any(text in said for text in ("ended", "no process", "no such process", "is not paged"))


def check_answers(clients, wanted, how):
    for client in clients:
        answer = client.answer()
        check(answer == wanted[client.factor], f"{how}: the answer differs: {answer[:300]}")


def backends(bench):
    """Backends are adopted and released while they answer; then the whole server is, by its cgroup, with backends that it forks later: the answers are the same."""
    need_server()
    moments = release.start_of(bench)
    group = os.path.dirname(adopt.cgroup(f"terapage-postgres-{os.getpid()}"))
    try:
        with Server(bench, group) as server:
            began = time.monotonic()
            wanted = {client.factor: client.answer() for client in begun(server, (1, 3))}
            seconds = time.monotonic() - began
            check(all(answer.count("\n") == 14 for answer in wanted.values()), f"natively: {wanted}")
            counts = [0, 0, 0]
            for _ in range(release.RUNS):
                counts = [a + b for a, b in zip(counts, takes_turns(bench, server, moments, wanted, seconds))]
            clients = begun(server, wanted)
            time.sleep(moments.uniform(0, 0.5 * seconds))
            said, status = adopt.adopt(bench, f"--cgroup={group}", "64M")
            check(status == 0, said)
            check_answers(clients, wanted, "adopted by the cgroup")
            clients = begun(server, wanted)
            # One that was just forked has its table soon.
            later = lambda: all(adopt.is_paged(client.backend) for client in clients) or any(client.answers is not None for client in clients)  # noqa: E731
            wait_for(later, "backends that began later are paged")
            check_answers(clients, wanted, "forked by an adopted server")
            server.administer("pg_ctl", "stop", "-D", server.data, "-m", "fast")
            check(bench.end(server.child) == 0, server.child.last_words())
    finally:
        wait_for(lambda: not adopt.members(group), "the cgroup is empty")
        os.rmdir(group)
    return f"{counts[0]} backends adopted and {counts[1]} released by number, {counts[2] >> 20} MiB paged out; {said.rpartition('; ')[2]}"


BODIES = {"adopt-postgres": backends}
