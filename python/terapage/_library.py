"""The C library: its functions, the start, the counters."""

from __future__ import annotations

import ctypes
import errno as errors
import os
import re
import threading
from dataclasses import asdict, dataclass
from typing import Union

from . import _native

Size = Union[int, str]
"""Bytes: a number, or a text such as "4G" or "64K"."""

WILL_NEED, DONE_WITH, SEQUENTIAL, RANDOM = 1, 2, 3, 4
"""Advice of ``terapage.h``."""
READ_ONLY, READ_WRITE = 1, 2
"""Kinds of mapping of ``terapage.h``."""


class _Options(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("memory", ctypes.c_uint64),
        ("store", ctypes.c_char_p),
        ("block", ctypes.c_size_t),
        ("policy", ctypes.c_char_p),
        ("prefetch", ctypes.c_char_p),
        ("address_space", ctypes.c_size_t),
    )


_COUNTERS = (
    "budget_bytes",
    "block_bytes",
    "resident_bytes",
    "resident_peak_bytes",
    "store_bytes",
    "first_touches",
    "major_faults",
    "minor_faults",
    "page_in_bytes",
    "page_out_bytes",
)


class _Stats(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in _COUNTERS)


@dataclass(frozen=True)
class Stats:
    """The pager's counters. Under ``terapage run`` they are those of the whole process."""

    budget_bytes: int
    """The budget: the most memory that paged data may occupy."""
    block_bytes: int
    """The size of a block."""
    resident_bytes: int
    """Paged data in memory now."""
    resident_peak_bytes: int
    """The maximum of ``resident_bytes``."""
    store_bytes: int
    """Bytes in use in the store."""
    first_touches: int
    """Touches of blocks that were never touched before."""
    major_faults: int
    """Touches of blocks that had to be read."""
    minor_faults: int
    """Touches of blocks that had left the program, but were still in memory."""
    page_in_bytes: int
    """Bytes read from the store and from mapped files."""
    page_out_bytes: int
    """Bytes written to the store."""

    def as_dict(self) -> dict[str, int]:
        """The counters by name."""
        return asdict(self)


_lock = threading.Lock()
_loaded: ctypes.CDLL | None = None


def lib() -> ctypes.CDLL:
    """The library, loaded at the first call."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _load()
    return _loaded


def _load() -> ctypes.CDLL:
    path = _native.shared_library()
    try:
        library = ctypes.CDLL(path, use_errno=True)
    except OSError as error:
        raise ImportError(f"{path} cannot be loaded: {error}") from None
    address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    types = {
        "tera_init": (number, ctypes.POINTER(_Options)),
        "tera_set_budget": (number, ctypes.c_uint64),
        "tera_malloc": (address, size),
        "tera_free": (number, address),
        "tera_advise": (number, address, size, number),
        "tera_map_file": (address, ctypes.c_char_p, ctypes.c_uint64, size, number, ctypes.POINTER(size)),
        "tera_sync": (number, address),
        "tera_unmap": (number, address),
        "tera_stats": (number, ctypes.POINTER(_Stats)),
        "tera_error": (ctypes.c_char_p,),
        "tera_numpy_handler": (address,),
    }
    for name, (result, *arguments) in types.items():
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(f"{path} has no {name}: it is of another version than this package")
        function.restype, function.argtypes = result, arguments
    return library


def message() -> str:
    """The text of this thread's last failure, one line."""
    return (lib().tera_error() or b"").decode(errors="replace")


def failure(number: int, filename: object = None) -> Exception:
    """The exception for a failure of the library in this thread."""
    text = message() or os.strerror(number)
    if number == errors.ENOMEM:
        return MemoryError(text)
    if number == errors.EINVAL:
        return ValueError(text)
    if number == errors.EALREADY:
        return RuntimeError(text)
    if filename is not None:
        # The message contains the file and the system's error already; Python adds both itself.
        return OSError(number, os.strerror(number), os.fsdecode(filename))
    return OSError(number, text)


def fail(filename: object = None) -> Exception:
    """The exception for the failure of this thread's last call."""
    return failure(ctypes.get_errno(), filename)


_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)


def size_bytes(value: Size, name: str) -> int:
    """Bytes of a size."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match is None:
            raise ValueError(f"{name}: {value!r} is not a size (for example 4G, 512M, 65536)")
        bytes_ = int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))
    else:
        bytes_ = int(value)
    if bytes_ <= 0:
        raise ValueError(f"{name}: {value!r} must be more than 0 bytes")
    return bytes_


def init(
    memory: Size | None = None,
    store: str | os.PathLike[str] | None = None,
    block: Size | None = None,
    policy: str | None = None,
    prefetch: str | None = None,
    address_space: Size | None = None,
) -> None:
    """Starts the pager of this process. Without a call, the first use starts it.

    Options that are not given are taken from ``TERAPAGE_MEMORY``, ``TERAPAGE_STORE`` and so on, then
    from the defaults. Under ``terapage run`` the pager has been started already: the options are
    checked, but have no effect.

    - memory: the budget, the most memory that paged data may occupy; default half of the machine's.
    - store: a directory on a disk, an empty file there, or a block device, whose content is lost.
    - block: the size of a block, 4K to 2M, a power of two; default 16K.
    - policy: the replacement policy, a name from ``terapage run --policy``.
    - prefetch: auto, sequential, stride, trend, off.
    - address_space: the most that can be allocated and mapped at once; default 1T.

    Raises ValueError for a wrong option, RuntimeError if the pager was started before (by an
    earlier call, or the first use), OSError if the kernel gives no userfaultfd or io_uring
    (``python -m terapage doctor`` says what to do).
    """
    text = lambda value: None if value is None else value.encode()  # noqa: E731
    options = _Options(
        ctypes.sizeof(_Options),
        0 if memory is None else size_bytes(memory, "memory"),
        None if store is None else os.fsencode(store),
        0 if block is None else size_bytes(block, "block"),
        text(policy),
        text(prefetch),
        0 if address_space is None else size_bytes(address_space, "address_space"),
    )
    if lib().tera_init(ctypes.byref(options)) != 0:
        raise fail()


def start() -> None:
    """Starts the pager, if nothing has started it yet; raises if that is impossible."""
    if _counters() is None:
        # The first use starts it; an init by another thread may come first.
        at = lib().tera_malloc(1)
        if not at:
            raise fail()
        lib().tera_free(at)


def _counters() -> _Stats | None:
    counters = _Stats()
    return counters if lib().tera_stats(ctypes.byref(counters)) == 0 else None


def stats() -> Stats:
    """The present counters. Starts the pager if it has not been started yet."""
    counters = _counters()
    if counters is None:
        start()
        counters = _counters()
    if counters is None:
        raise fail()
    return Stats(*(getattr(counters, name) for name in _COUNTERS))


def budget() -> int:
    """The budget in bytes."""
    return stats().budget_bytes


def set_budget(memory: Size) -> None:
    """Sets the budget of this process. Starts the pager if it has not been started yet.

    memory: bytes, or a text such as "2G"; at least 8 blocks, and at most the budget with which the
    pager was started (``init(memory=...)``, or ``TERAPAGE_MEMORY``). With a smaller budget, blocks are
    paged out within the next moments; a larger one can be used at once.

    Raises ValueError for another size, and RuntimeError under ``terapage run``, whose budget all its
    processes share.
    """
    if lib().tera_set_budget(size_bytes(memory, "memory")) != 0:
        raise fail()
