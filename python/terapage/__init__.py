"""numpy arrays far larger than memory.

Data that does not fit into the budget is kept in a store on a local disk, and read when touched::

    import terapage as tp                     # starts nothing

    tp.init(memory="4G", store="/nvme/tmp")   # once; else from TERAPAGE_*
    a = tp.empty((10**6, 10**5), "f4")        # 400 GB, a numpy.ndarray
    m = tp.memmap("big.npy", mode="r+")       # a file; m.flush() saves
    with tp.arrays():                         # numpy's own arrays too
        y = np.sort(x @ w)                    # and temporaries

Sizes are bytes: a number, or a text such as ``"4G"`` (K, M, G and T are powers of 1024). A process
has one pager and one budget; under ``terapage run`` it uses the pager of that run. The child of a
fork gets its own pager, with memory as it was at the fork. A new process (spawn) starts a pager at
its first use.

Importing the package starts no pager, and imports neither numpy nor any library.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from . import torch
    from ._advice import done, prefetch, random, sequential
    from ._arrays import array, arrays, empty, empty_like, full, zeros
    from ._files import load, memmap, save
    from ._library import Stats, budget, init, set_budget, stats

_PLACES = {
    "_advice": ("done", "prefetch", "random", "sequential"),
    "_arrays": ("array", "arrays", "empty", "empty_like", "full", "zeros"),
    "_files": ("load", "memmap", "save"),
    "_library": ("Stats", "budget", "init", "set_budget", "stats"),
}
_HOMES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [  # noqa: PLE0604: the same names as in _PLACES, for readers and tools
    "Stats",
    "__version__",
    "array",
    "arrays",
    "budget",
    "done",
    "empty",
    "empty_like",
    "full",
    "init",
    "load",
    "memmap",
    "prefetch",
    "random",
    "save",
    "sequential",
    "set_budget",
    "stats",
    "torch",
    "zeros",
]


def __getattr__(name: str) -> Any:
    if name == "torch":
        return _import_module(".torch", __name__)
    if name in _HOMES:
        try:
            value = getattr(_import_module("." + _HOMES[name], __name__), name)
        except ModuleNotFoundError as why:
            if why.name != "numpy":
                raise
            text = f"terapage.{name} needs numpy (pip install numpy)"
            raise ModuleNotFoundError(text, name="numpy") from None
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: Any) -> None:
    """Registers the cell magic ``%%terapage``: ``%load_ext terapage``."""
    _import_module("._magic", __name__).register(shell)
