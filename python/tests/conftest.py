"""The tests run small programs in separate processes, since a process can have only one pager."""

import os
import shutil
import subprocess
import sys
import textwrap

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(HERE)
TIMEOUT_S = 120

if "TERAPAGE_INSTALLED" not in os.environ:
    os.environ.setdefault("TERAPAGE_NATIVE", os.path.join(os.path.dirname(PACKAGE), "target", "release"))


@pytest.fixture
def place(tmp_path_factory):
    """A directory on a disk, which is removed afterwards."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="terapage-test-", dir=os.environ.get("TMPDIR", "/var/tmp")) as path:
        yield path


class Python:
    """Runs a program with `terapage as tp`, `numpy as np` and a budget of 16 MiB."""

    def __init__(self, place):
        self.place = place

    def __call__(self, program, *words, before=(), budget="16M", code=0, **variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TERAPAGE_")}
        for name in ("TERAPAGE_NATIVE", "TERAPAGE_MECHANISM"):
            if os.environ.get(name):
                environment[name] = os.environ[name]
        if "TERAPAGE_INSTALLED" not in os.environ:
            environment["PYTHONPATH"] = PACKAGE
        environment["TERAPAGE_STORE"] = self.place
        if budget:
            environment["TERAPAGE_MEMORY"] = budget
        environment.update(variables)
        path = os.path.join(self.place, "program.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write("import os, sys\nimport numpy as np\nimport terapage as tp\n\n" + textwrap.dedent(program))
        done = subprocess.run(
            [*before, sys.executable, path, *map(str, words)],
            cwd=self.place,
            env=environment,
            timeout=TIMEOUT_S,
            capture_output=True,
            text=True,
            check=False,
        )
        if "userfaultfd" in done.stderr and "Operation not permitted" in done.stderr:
            pytest.skip("SKIPPED: " + done.stderr.splitlines()[-1])
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done


@pytest.fixture
def python(place):
    """Runs programs in a separate directory."""
    return Python(place)


def native():
    """The program under test."""
    named = os.environ.get("TERAPAGE_NATIVE")
    return os.path.join(named, "terapage") if named else shutil.which("terapage")
