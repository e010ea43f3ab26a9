"""Runs of real programs, natively and paged, with their outputs compared: the common part of works-with and rivals."""

import hashlib
import os
import pathlib
import re
import resource
import shutil
import subprocess
import time
from dataclasses import dataclass

from harness import Child, Failed

KEPT = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "target", "works-with")
"""Where inputs and rows are kept."""
MIB = 1 << 20
BUSY = 0.1
"""A figure is rough if others used more than this part of the processors meanwhile."""


class Load:
    """The use of the processors from now on by others than this process's children."""

    def __init__(self):
        self.began, (self.all, self.own) = time.monotonic(), processor_seconds()

    def others(self):
        """The share of the processors that others have used since then."""
        (all_now, own_now), passed = processor_seconds(), time.monotonic() - self.began
        others = (all_now - self.all) - (own_now - self.own)
        return round(max(0.0, others / max(passed, 0.01) / os.cpu_count()), 3)


def processor_seconds():
    """Processor seconds of all processes, and those of this process's children that have ended."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq, *_ = map(int, file.readline().split()[1:])
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK"), spent.ru_utime + spent.ru_stime


class Missing(Exception):
    """A program that is not installed here."""


@dataclass(frozen=True)
class Run:
    """One run: seconds, processor seconds, peak memory of all processes, and that without what each may have
    beside the budget."""

    seconds: float
    worked: float
    peak: int
    shared_peak: int
    written: str


class Bench:
    """The directory and the options of one program's runs. The inputs are in a directory that is kept."""

    def __init__(self, program, place, options):
        self.program = program
        self.place = pathlib.Path(place)
        self.options = options
        self.inputs = pathlib.Path(KEPT, program.name.replace(" ", "-"))
        # A program may become another user.
        self.place.chmod(0o755)
        for name, text in program.files.items():
            (self.place / name).write_text(text, encoding="utf-8")
        if program.prepare:
            self.prepare()

    def prepare(self):
        """Creates the inputs, unless they exist since an earlier run of the same script."""
        prepare, *arguments = self.program.prepare
        mark, made_by = self.inputs / "made-by", repr((prepare.__name__, arguments, self.program.files))
        if not (mark.exists() and mark.read_text(encoding="utf-8") == made_by):
            shutil.rmtree(self.inputs, ignore_errors=True)
            self.inputs.mkdir(parents=True)
            for name, text in self.program.files.items():
                (self.inputs / name).write_text(text, encoding="utf-8")
            try:
                prepare(self.inputs, *arguments)
            except (OSError, subprocess.SubprocessError) as why:
                raise Failed(f"its input cannot be made: {why}") from None
            mark.write_text(made_by, encoding="utf-8")
        for file in self.inputs.iterdir():
            if not (self.place / file.name).exists():
                (self.place / file.name).symlink_to(file)

    def command(self, turn):
        """The words of the command, with a separate directory for its output."""
        out = self.place / turn
        out.mkdir()
        # Not format(): the words have braces of their own.
        words = [word.replace("{place}", str(self.place)).replace("{out}", str(out)) for word in self.program.command]
        return [self.options.python if words[0] == "python3" else words[0], *words[1:]], out

    def run(self, turn, prefix=()):
        """Runs the program, and returns the figures of the run and the hash of its output."""
        words, out = self.command(turn)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        env = {"LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "2", **self.program.env}
        with Child([*prefix, *words], str(out), env=env) as child:
            status = child.wait(self.options.timeout)
            if status != 0:
                raise Failed(f"status {status}: {child.last_words()}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        written = hashlib.sha256()
        for name in ("stdout", *self.program.outputs):
            written.update((out / name).read_bytes())
        for name in self.program.outputs:
            (out / name).unlink()
        worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Run(child.seconds, worked, child.sum_bytes, child.shared_peak_bytes, written.hexdigest())


def version_of(program, python):
    """The version of a program, or of its package. Missing if it is not installed."""
    for package in program.pip.split()[:1]:
        told = subprocess.run(
            [python, "-c", "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))", package],
            capture_output=True, text=True, timeout=120, check=False,
        )
        if told.returncode != 0:
            raise Missing(f"pip install {program.pip}")
        return told.stdout.strip()
    tool = program.tool or program.command[0]
    tool = shutil.which(python if tool == "python3" else tool)
    if tool is None:
        raise Missing(f"apt install {program.apt}")
    told = subprocess.run([tool, *program.version], capture_output=True, text=True, errors="replace", timeout=120, check=False)
    if "ModuleNotFoundError" in told.stderr:
        raise Missing(f"apt install {program.apt}")
    found = re.search(r"\d+(\.\d+)+|\d+ [A-Z][a-z]{2} 20\d\d", told.stdout + told.stderr) or re.search(r"\d+", told.stdout)
    return found.group(0) if found else ""
