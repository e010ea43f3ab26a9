"""What a case is, and how its program is built."""

import os
import subprocess
from dataclasses import dataclass
from typing import Callable

from harness import check, need

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "src")
STRICT = ("-O2", "-Wall", "-Wextra", "-Werror")


@dataclass(frozen=True)
class Scale:
    """The budget in MiB, and the amount of a program's work, in a unit of the case."""

    memory_mib: int
    amount: int


@dataclass(frozen=True)
class Case:
    """One program."""

    name: str
    ci: Scale
    soak: Scale
    prepare: Callable
    body: Callable
    outputs: tuple = ("stdout",)
    pages: bool = True
    only_soak: bool = False
    # Whether all processes together keep the budget, even right after a fork.
    shares: bool = False
    # Whether each process has a budget of its own: many processes within one would take minutes.
    per_process: bool = False


def build(runner, command, name):
    """Runs a compiler; both runs use the program. The compiler's output says why it failed."""
    need(command[0])
    built = subprocess.run(
        [*command, "-o", runner.shared(name)], capture_output=True, text=True, timeout=300, check=False
    )
    check(built.returncode == 0, f"{command[0]}: {built.stderr.strip()[-300:]}")


def compiled(compiler, source, *flags, arguments=lambda scale: [str(scale.amount)]):
    """Preparation and body of a case that compiles one source file and runs it."""
    name = source.split(".")[0]

    def prepare(runner, scale):
        options = [flag.format(amount=scale.amount) for flag in flags]
        build(runner, [compiler, *options, os.path.join(SOURCES, source)], name)

    def body(runner, scale):
        runner.run([runner.shared(name), *arguments(scale)], env={"OMP_NUM_THREADS": "2"})

    return {"prepare": prepare, "body": body}


def c_program(source, *flags, **more):
    """A case in C."""
    return compiled("gcc", source, *STRICT, "-pthread", *flags, **more)


def seeded(*words):
    """Arguments of a case: the amount of work, words, and the seed, which TERAPAGE_SEED names."""
    return lambda scale: [str(scale.amount), *words, os.environ.get("TERAPAGE_SEED", "1")]
