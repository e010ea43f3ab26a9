"""Programs of many kinds, in turns, each adopted and released at random moments."""

import contextlib
import os
import re
import statistics
import subprocess
import time

import adopt
import postgres
import release
from harness import Child, Failed, Late, Skipped, check, need, need_root

COUNTED = ("adopted", "released", "ended before", "refused", "wrong", "hung")
SHORT = ("sort", "go", "Serial", "32-bit")
"""The kinds of a single round: the others have cases of their own."""
NOT_THERE = ("ended", "no process", "no such process", "is not paged")

SHORT_WORDS = """
.globl _start
_start:
    mov $162, %eax
    mov $time, %ebx
    xor %ecx, %ecx
    int $0x80
    mov $4, %eax
    mov $1, %ebx
    mov $text, %ecx
    mov $10, %edx
    int $0x80
    mov $1, %eax
    xor %ebx, %ebx
    int $0x80
.data
time: .long 1, 0
text: .ascii "all right\\n"
"""
"""A 32-bit program that sleeps for a second (nanosleep), and writes."""


class Tally:
    """What became of the programs of one kind."""

    def __init__(self):
        self.counts, self.pauses, self.said = dict.fromkeys(COUNTED, 0), [], []

    def _note(self, done, said, status):
        self.said.append(said)
        ended = any(text in said for text in NOT_THERE)
        self.counts[done if status == 0 else "ended before" if ended else "refused"] += 1
        check(status in (0, 125) and said.count("\n") == 0, f"status {status}: {said}")
        return status == 0

    def adopts(self, bench, pid, memory):
        """Adopts a process, and returns whether it was adopted."""
        said, status = adopt.adopt(bench, pid, memory)
        said = said.rpartition("(no_new_privs)\n")[2]
        self.pauses += [int(number) for number in re.findall(r"stopped for (\d+) ms", said)]
        return self._note("adopted", said, status)

    def releases(self, bench, pid):
        """Releases an adopted process, which is only refused if it has ended."""
        refused = self.counts["refused"]
        self._note("released", *release.release(bench, pid))
        check(self.counts["refused"] == refused, f"it is not released: {self.said[-1]}")

    def line(self):
        """The counts, and the pauses."""
        pauses = f"median {statistics.median(self.pauses):.0f}, worst {max(self.pauses)} ms" if self.pauses else "none"
        return "".join(f"  {self.counts[what]:3} {what}" for what in COUNTED) + f"  stopped: {pauses}"


def of_a_program(bench, kind, argv, memory):
    """A program that prints what it has computed."""
    native, seconds = adopt.natively(bench, kind, argv)

    def once(tally, moments):
        with Child(argv, bench.place) as child:
            time.sleep(moments.uniform(0, 0.6 * seconds))
            if tally.adopts(bench, child.pid, memory):
                time.sleep(moments.uniform(0, 0.4 * seconds))
                tally.releases(bench, child.pid)
            status = bench.end(child)
            check((status, child.output()) == (0, native), f"status {status}: {child.output()[:300]} {child.last_words()}")

    return once


def of_threads(bench):
    """64 threads that check each word, allocate, map, fork and wait."""
    program = adopt.victim(bench)

    def once(tally, moments):
        with Child([program, adopt.LONG_S, "2", "64"], bench.place) as child:
            time.sleep(moments.uniform(0, 2))
            if tally.adopts(bench, child.pid, "64M"):
                time.sleep(moments.uniform(0, 1))
                tally.releases(bench, child.pid)
            status = adopt.ended_early(bench, child, moments.uniform(0, 1))
            check((status, child.output()) == (0, "0 wrong\n"), f"status {status}: {child.output()} {child.last_words()}")

    return once


def of_redis(bench):
    """Redis under load, which saves by fork."""
    need("redis-server")

    def once(tally, moments):
        def act(child):
            time.sleep(moments.uniform(0, 1))
            if tally.adopts(bench, child.pid, "48M"):
                time.sleep(moments.uniform(0, 3))
                tally.releases(bench, child.pid)
            time.sleep(moments.uniform(0, 1))

        release.redis_under_load(bench, "server", act)

    return once


def of_postgres(bench, stack):
    """A backend of PostgreSQL, while it answers queries."""
    postgres.need_server()
    server = stack.enter_context(postgres.Server(bench))
    began = time.monotonic()
    (client,) = postgres.begun(server, [3])
    native = client.answer()
    seconds = time.monotonic() - began

    def once(tally, moments):
        (client,) = postgres.begun(server, [3])
        time.sleep(moments.uniform(0, 0.5 * seconds))
        if tally.adopts(bench, client.backend, "24M"):
            time.sleep(moments.uniform(0, 0.4 * seconds))
            tally.releases(bench, client.backend)
        answer = client.answer()
        check(answer == native, f"the answer differs: {answer[:300]}")

    return once


def of_32_bits(bench):
    """A 32-bit program, which is refused in one line."""
    need("as", "ld")
    place = bench.path("short")
    with open(f"{place}.s", "w", encoding="ascii") as file:
        file.write(SHORT_WORDS)
    for words in (["as", "--32", f"{place}.s", "-o", f"{place}.o"], ["ld", "-m", "elf_i386", f"{place}.o", "-o", place]):
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise Skipped(f"{words[0]}: {done.stderr.strip()}")
    try:
        native = subprocess.run([place], capture_output=True, timeout=300, check=True).stdout
    except OSError as why:
        raise Skipped(f"the kernel runs no 32-bit programs: {why}") from None

    def once(tally, moments):
        with Child([place], bench.place) as child:
            time.sleep(moments.uniform(0, 0.6))
            refused = not tally.adopts(bench, child.pid, "64M")
            said = tally.said[-1]
            check(refused and ("32-bit" in said or any(text in said for text in NOT_THERE)), said)
            status = bench.end(child)
            check((status, child.output().encode()) == (0, native), f"status {status}: {child.output()}")

    return once


def kinds(bench, stack, wanted):
    """The kinds of which this machine has the programs: for each a function that runs one."""
    programs = {kind: words for kind, words in adopt.kinds(bench).items() if kind not in ("dynamic", "static", "threads")}
    makers = {kind: lambda kind=kind: of_a_program(bench, kind, *programs[kind]) for kind in programs}
    makers |= {"threads": lambda: of_threads(bench), "redis": lambda: of_redis(bench), "postgres": lambda: of_postgres(bench, stack), "32-bit": lambda: of_32_bits(bench)}
    for kind in ("python", "go", "Serial", "G1", "node", *(kind for kind in wanted if kind != "all")):
        if kind not in makers and (kind in wanted or "all" in wanted):
            print(f"SKIPPED: {kind}: it is not installed", flush=True)
    found = {}
    for kind, make in makers.items():
        if kind not in wanted and "all" not in wanted:
            continue
        try:
            found[kind] = make()
        except Skipped as why:
            print(f"SKIPPED: {kind}: {why}", flush=True)
    return found


def one(once, tally, moments):
    """Runs one program, and returns why that went wrong, if it did."""
    tally.said.clear()
    try:
        once(tally, moments)
    except (Late, subprocess.TimeoutExpired) as why:
        tally.counts["hung"] += 1
        return f"; hung: {why}"
    except Failed as why:
        tally.counts["wrong"] += 1
        return f"; wrong: {why}"
    return ""


def in_turns(bench):
    """Programs of many kinds are adopted and released at random moments, TERAPAGE_RUNS rounds of one of each: nothing differs from undisturbed runs. TERAPAGE_KINDS names the kinds; without it, several rounds have all."""
    need_root()
    rounds, moments, bad = release.RUNS, release.start_of(bench), []
    wanted = os.environ.get("TERAPAGE_KINDS", "all" if rounds > 1 else " ".join(SHORT)).split()
    with contextlib.ExitStack() as stack:
        found = kinds(bench, stack, wanted)
        check(found, f"none of the kinds is known: {wanted}")
        tallies = {kind: Tally() for kind in found}
        # Also if the loop is stopped.
        stack.callback(print_table, tallies)
        for number in range(rounds):
            for kind, once in found.items():
                why = one(once, tallies[kind], moments)
                said = "; ".join(text.partition(": ")[2] for text in tallies[kind].said)
                line = f"round {number + 1} of {rounds}, {kind}: {said}{why}"
                print(line, flush=True)
                bad += [line] if why else []
    adopted, released = (sum(tally.counts[what] for tally in tallies.values()) for what in ("adopted", "released"))
    check(not bad, "; ".join(bad))
    check(adopted or found.keys() <= {"32-bit"}, "no program was adopted")
    return f"{adopted} adopted, {released} released"


def guarded(bench):
    """The same in guarded mode, as for users without rights."""
    os.environ["TERAPAGE_GUARD"] = "force"
    try:
        return in_turns(bench)
    finally:
        del os.environ["TERAPAGE_GUARD"]


def print_table(tallies):
    """Prints what became of each kind, and of all."""
    every = Tally()
    for tally in tallies.values():
        every.pauses += tally.pauses
        every.counts = {what: every.counts[what] + tally.counts[what] for what in COUNTED}
    for kind, tally in [*tallies.items(), ("all", every)]:
        print(f"{kind:8}{tally.line()}", flush=True)


BODIES = {"adopt-loop": in_turns, "adopt-guarded-loop": guarded}
