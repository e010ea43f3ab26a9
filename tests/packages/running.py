"""A program that runs already, and a package's command, which pages it."""

import os
import platform
import shutil
import subprocess

from harness import Child, check, wait_for

PROGRAM = """
import os, sys, time
data = bytearray(200 << 20)
data[::4096] = b"x" * (200 << 8)
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
print(sum(data[::4096]))
"""
SAYS = f"ready\n{ord('x') * (200 << 8)}\n"


def adopted(command, python, place, env):
    """The command adopts a program, with the static host of its package."""
    if platform.machine() != "x86_64" or not shutil.which("musl-gcc"):
        print("SKIPPED: adopt: the package has no static host", flush=True)
        return
    goes_on = os.path.join(place, "goes-on")
    with Child([python, "-c", PROGRAM, goes_on], place, stdout="running") as child:
        wait_for(lambda: child.output() == "ready\n", "the program has begun")
        words = [command, "adopt", "--memory", "64M", str(child.pid)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **env})
        check(done.returncode == 0, f"adopt: status {done.returncode}: {done.stderr}")
        with open(goes_on, "w", encoding="ascii"):
            pass
        status = child.wait(300)
        check((status, child.output()) == (0, SAYS), f"adopted: status {status}: {child.output()} {child.last_words()}")
