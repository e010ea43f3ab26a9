"""The program: ``python -m terapage run --memory 4G -- python train.py``, or just ``terapage run ...``."""

from __future__ import annotations

import os
import sys

from . import _native


def main() -> int:
    """Becomes the program, with the arguments of this one."""
    try:
        program = _native.program()
    except ImportError as error:
        print(f"terapage: {error}", file=sys.stderr)
        return 127
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        print(f"terapage: {program} cannot be run: {error.strerror}", file=sys.stderr)
    return 126


if __name__ == "__main__":
    sys.exit(main())
