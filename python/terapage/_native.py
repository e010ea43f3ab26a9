"""Where the program and the libraries are.

In a wheel they lie in the package. ``TERAPAGE_NATIVE`` names another directory, for example
``target/release`` of a source tree. Otherwise an installation of the system is used.
"""

from __future__ import annotations

import ctypes.util
import os
import shutil

PROGRAM = "terapage"
_NAMES = ("libterapage.so.0", "libterapage.so")
_INSIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_native_files")


def _directories() -> list[str]:
    named = os.environ.get("TERAPAGE_NATIVE")
    return [named] if named else [_INSIDE]


def shared_library() -> str:
    """The path of libterapage.so, or the name by which the loader finds it."""
    for directory in _directories():
        for name in _NAMES:
            path = os.path.join(directory, name)
            if os.path.isfile(path):
                return path
    found = None if os.environ.get("TERAPAGE_NATIVE") else ctypes.util.find_library("terapage")
    if found is None and os.path.isfile(os.path.join(_directories()[0], PROGRAM)):
        raise ImportError(
            "terapage pages whole programs alone with musl (Alpine), and this package has no library "
            "for arrays (terapage run --memory 4G -- python3 ...)"
        )
    if found is None:
        raise ImportError(
            f"libterapage.so was not found in {_directories()[0]} "
            "(install the wheel for this machine, or name the directory in TERAPAGE_NATIVE)"
        )
    return found


def program() -> str:
    """The path of the program ``terapage``."""
    for directory in _directories():
        path = os.path.join(directory, PROGRAM)
        if os.access(path, os.X_OK):
            return path
        if os.path.isfile(path):
            raise ImportError(f"{path} is not executable (chmod +x it, or install the wheel again)")
    found = None if os.environ.get("TERAPAGE_NATIVE") else _on_path()
    if found is None:
        raise ImportError(
            f"the program {PROGRAM} was not found in {_directories()[0]} "
            "(install the wheel for this machine, or name the directory in TERAPAGE_NATIVE)"
        )
    return found


def _on_path() -> str | None:
    """The program on PATH, unless it is a script: the script of this package would start itself forever."""
    found = shutil.which(PROGRAM)
    if found is None:
        return None
    with open(found, "rb") as file:
        return None if file.read(2) == b"#!" else found
