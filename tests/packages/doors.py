"""Ways in for users without rights: the wheel's Jupyter kernel, and the GitHub Action."""

import json
import os
import platform
import re
import shutil
import subprocess

from harness import ROOT, Skipped, check, need, need_root
from oci import NOBODY

TIMEOUT_S = 300
USER = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
TOUCHES = "a = bytearray(200 << 20); a[::4096] = b'x' * (200 << 8); print(sum(a[::4096]))"
"""This program touches three times its budget."""
SAYS = str(ord("x") * (200 << 8)) + "\n"
FAKE_KERNEL = """
import sys
with open(sys.argv[sys.argv.index("-f") + 1], encoding="utf-8") as file:
    exec(file.read())
"""


def need_user():
    """Raises Skipped where no other user can be had, or may not page without rights."""
    need_root()
    need("setpriv")
    if platform.machine() != "x86_64":
        raise Skipped("only on x86-64 a user pages without rights")


def as_user(words, place, env):
    """Runs a command as a user without rights, who owns the place: its output and what it says."""
    subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", place], check=True)
    clean = {"HOME": place, "PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": os.devnull, **env}
    ended = subprocess.run([*USER, *words], cwd=place, env=clean, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    check(ended.returncode == 0, f"{' '.join(words)}: status {ended.returncode}: {ended.stderr[-300:]}")
    return ended.stdout, ended.stderr


def page_outs(path):
    """What was paged out, by the counters of a process."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)["page_out_bytes"]


def jupyter(venv, place):
    """The wheel's kernel, started as Jupyter does, is paged for a user without rights."""
    need_user()
    with open(f"{venv}/share/jupyter/kernels/terapage/kernel.json", encoding="utf-8") as file:
        spec = json.load(file)
    check(set(spec) == {"argv", "display_name", "language"} and spec["language"] == "python", f"the kernel: {spec}")
    for name, text in (("ipykernel_launcher.py", FAKE_KERNEL), ("connection.json", TOUCHES)):
        with open(f"{place}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    names = {"prefix": venv, "connection_file": f"{place}/connection.json"}
    words = [word.format(**names) for word in spec["argv"]]
    check(words[0] == "python", f"Jupyter puts its own interpreter there: {words}")
    settings = {"TERAPAGE_MEMORY": "64M", "TERAPAGE_STORE": place, "TERAPAGE_STATS": f"{place}/stats"}
    output, _ = as_user([f"{venv}/bin/python", *words[1:]], place, {"PYTHONPATH": place, **settings})
    check(output == SAYS, f"a wrong sum: {output}")
    check(page_outs(f"{place}/stats") > 0, "nothing was paged")


def github(wheel, place):
    """The Action's file is valid, and its script installs the wheel and pages what it runs, for a user without rights."""
    need_user()
    try:
        import yaml
    except ImportError:
        raise Skipped("not installed: python3-yaml") from None
    with open(os.path.join(ROOT, "contrib", "github", "action.yml"), encoding="utf-8") as file:
        action = yaml.safe_load(file)
    (step,) = action["runs"]["steps"]
    inputs = {name: says.get("default", "") for name, says in action["inputs"].items()}
    inputs |= {"memory": "64M", "package": shutil.copy(wheel, place), "run": f'python3 -c "{TOUCHES}" | cat\necho done'}
    env = {}
    for name, text in step["env"].items():
        words = text.removeprefix("${{ inputs.").removesuffix(" }}")
        check(words in inputs, f"{name}: {text}")
        env[name] = inputs[words]
    env |= {"RUNNER_TEMP": place, "PIP_NO_INDEX": "1", "TERAPAGE_STATS": f"{place}/stats"}
    output, says = as_user(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], place, env)
    check(output == f"{SAYS}done\n", f"other output: {output}")
    check(re.search(r"[1-9] paged without rights; .*page-out [1-9]", says) is not None, f"nothing was paged: {says[-300:]}")
