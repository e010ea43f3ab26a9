"""The kernel's swap beside Terapage: a memory cgroup with a limit, and a swap file for what it lacks."""

import contextlib
import os
import subprocess

from harness import Failed, Skipped, need, wait_for

GROUP = "/sys/fs/cgroup"


@contextlib.contextmanager
def swap_group(place, limit, file_bytes=None):
    """A memory cgroup with a limit in bytes, and swap to a file in `place` for what it lacks: the words that start a
    program in it. Skipped where that cannot be had."""
    if os.geteuid():
        raise Skipped("only root can make a cgroup and swap")
    need("mkswap", "swapon", "swapoff")
    group = make_group(limit)
    file = os.path.join(place, "swap-file")
    try:
        with open(file, "wb") as swap:
            os.fchmod(swap.fileno(), 0o600)
            os.posix_fallocate(swap.fileno(), 0, file_bytes or limit * 6)
        subprocess.run(["mkswap", file], check=True, capture_output=True)
        done = subprocess.run(["swapon", file], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Skipped(f"swapon: {done.stderr.strip()}")
        yield ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh"]
    finally:
        subprocess.run(["swapoff", file], capture_output=True, check=False)
        with contextlib.suppress(OSError):
            os.remove(file)
        with contextlib.suppress(Failed, OSError):
            wait_for(lambda: not procs_of(group), "the cgroup to be empty", timeout_s=30)
            os.rmdir(group)


def make_group(limit):
    """Makes a memory cgroup with a limit, of either version: its directory."""
    for base, limit_name in ((f"{GROUP}/memory", "memory.limit_in_bytes"), (GROUP, "memory.max")):
        if not os.path.exists(f"{base}/cgroup.procs"):
            continue
        group = f"{base}/terapage-swap-{os.getpid()}"
        os.mkdir(group)
        try:
            with open(f"{group}/{limit_name}", "r+", encoding="ascii") as limit_file:
                limit_file.write(str(limit))
            return group
        except OSError:
            os.rmdir(group)
    raise Skipped("there is no memory cgroup")


def procs_of(group):
    """The processes of a cgroup."""
    with open(f"{group}/cgroup.procs", encoding="ascii") as file:
        return file.read().split()
