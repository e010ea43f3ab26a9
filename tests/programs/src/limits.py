"""Python that limits its own addresses, and those of its children, as test harnesses do: argument 1 is the limit in MiB."""

import resource
import subprocess
import sys

MIB = 1 << 20
LIMIT = int(sys.argv[1]) * MIB


def fill_up():
    """Takes memory until there is none, and returns how much it was."""
    pieces = []
    try:
        while len(pieces) * MIB < 2 * LIMIT:
            pieces.append(bytearray(MIB))
    except MemoryError:
        pass
    return len(pieces) * MIB


def limit_child():
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT // 2, LIMIT // 2))


before = resource.getrlimit(resource.RLIMIT_AS)
CHILD = "import resource; print(resource.getrlimit(resource.RLIMIT_AS))\ntry:\n  bytearray(%d)\nexcept MemoryError:\n  print('refused')"
child = [sys.executable, "-c", CHILD % (LIMIT // 2)]
said = subprocess.run(child, preexec_fn=limit_child, capture_output=True, text=True, check=True).stdout
assert said == f"({LIMIT // 2}, {LIMIT // 2})\nrefused\n", said
# A shell's own limit is in KiB.
shell = ["sh", "-c", f'ulimit -v {LIMIT >> 11}; "$@"', "sh", *child]
said = subprocess.run(shell, capture_output=True, text=True, check=True).stdout
assert said == f"({LIMIT // 2}, {LIMIT // 2})\nrefused\n", said
assert resource.getrlimit(resource.RLIMIT_AS) == before

resource.setrlimit(resource.RLIMIT_AS, (LIMIT, before[1]))
assert resource.getrlimit(resource.RLIMIT_AS) == (LIMIT, before[1])
taken = fill_up()
assert LIMIT * 3 // 4 < taken < LIMIT, f"{taken >> 20} MiB"
resource.setrlimit(resource.RLIMIT_AS, before)
assert fill_up() >= 2 * LIMIT
print("limits: ok")
