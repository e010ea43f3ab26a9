"""Options, variables and files of settings that are refused."""

import os
import pathlib

from harness import NOBODY, Child, check, need, need_root
from bench import for_everybody, refusals

SIZES = refusals(
    [
        (("--memory", size), "memory|size|budget")
        for size in ("0", "-5M", "abc", "", "4X", "1.2.3G", "nan", "99999999P", "0%", "101%", "64K", "5KK", "1e", "4Gix")
    ]
)

BLOCKS = refusals(
    [
        (("--memory", "64M", "--block", size), "block|size")
        for size in ("3K", "0", "-4K", "1K", "4M", "5000", "huge", "")
    ]
)

NAMES = refusals(
    [
        (("--memory", "64M", "--policy", "best"), "policy|best"),
        (("--memory", "64M", "--prefetch", "psychic"), "prefetch|psychic"),
        (("--memory", "64M", "--heap", "some"), "heap|some"),
        (("--memory", "64M", "--placement", "anywhere"), "placement|anywhere"),
        (("--memory", "64M", "--store", "far:host"), "valkey://"),
        (("--memory", "64M", "--store", "valkey://127.0.0.1:1"), "valkey://127.0.0.1:1 cannot be connected to"),
        (("--memory", "64M", "--store", "valkey://u:secret@h?no"), "no option"),
        (("--memory", "1M", "--block", "2M"), "fewer than 8 blocks"),
        (("--memory", "40M", "--compress", "lz4", "--block", "4K"), "block: .*write 8K or more"),
        (("--memory", "64M", "--stats", "/nowhere/stats"), "stats.*nowhere"),
        (("--memory", "64M", "--trace", "/nowhere/trace"), "trace.*nowhere"),
        (("--memory", "64M", "--stats", "/etc"), "stats: /etc .*regular file"),
        (("--memory", "64M", "--stats", "/"), "stats: / .*regular file"),
        (("--memory", "64M", "--trace", "/dev/stdout"), "trace: /dev/stdout .*regular file"),
    ]
)


def configuration(bench):
    """A configuration file that is missing, not TOML, or has an unknown key."""
    missing, broken, unknown = bench.path("missing.toml"), bench.path("broken.toml"), bench.path("unknown.toml")
    with open(broken, "w", encoding="utf-8") as file:
        file.write("memory = = 5\n")
    with open(unknown, "w", encoding="utf-8") as file:
        file.write('memry = "4G"\n')
    bench.refused("--config", missing, says="missing.toml")
    bench.refused("--config", broken, says="broken.toml")
    bench.refused("--config", unknown, says="unknown.toml.*memry|memry.*unknown.toml")
    return ""


def wrong_names(bench):
    """A budget in place of the program's name is told apart; a directory of PATH that may not be searched has no program; a process needs a number."""
    bench.refused("1G", says=r"1G: not found \(a budget is written --memory 1G\)", status=127, program=("true",))
    with Child([*bench.command, "stat", "abc"], bench.place) as child:
        bench.end(child)
        check("not the number of a process" in child.errors(), child.errors())
    need_root()
    need("setpriv")
    with open("/proc/mounts", encoding="utf-8") as file:
        mounted_now = [line.split()[0] for line in file if line.startswith("/dev/")]
    devices = [device for device in mounted_now if pathlib.Path(device).is_block_device()]
    if devices:
        bench.refused("--memory", "32M", store=devices[0], says="is in use: mounted|mounted at")
    os.mkdir(bench.path("closed"), 0o700)
    argv = [*NOBODY, "env", f"PATH={bench.path('closed')}", *for_everybody(bench), "run", "--", "nothing"]
    with Child(argv, bench.place) as child:
        status, errors = bench.end(child), child.errors()
        check(status == 127 and "nothing: not found" in errors, f"status {status}: {errors!r}")
    return ""
