"""The cell magic of IPython and Jupyter: ``%load_ext terapage``, then ``%%terapage --memory 4G``."""

from __future__ import annotations

import argparse
import difflib
import shlex
import sys
import threading
from typing import Any

from . import _library

_EVERY_S = 0.5
_WIDTH = 30


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:  # a cell has no process to end
        raise ValueError(message)


def _options(words: str) -> argparse.Namespace:
    """The options of a cell.

    Raises ValueError, with one line that names the option that was probably meant.
    """
    parser = _parser()
    options, unknown = parser.parse_known_args(shlex.split(words))
    if unknown:
        known = [name for action in parser._actions for name in action.option_strings]
        near = difflib.get_close_matches(unknown[0].split("=")[0], known, 1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise ValueError(f"there is no {unknown[0]} ({meant})")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%terapage", description="Runs the cell; each array that it makes is paged.", add_help=False)
    parser.add_argument("--memory", metavar="SIZE", help="the budget from now on; at most the first one")
    parser.add_argument("--store", metavar="PATH", help="where the rest lies")
    parser.add_argument("--quiet", action="store_true", help="no line at the end, and no bar")
    return parser


def human(count: int) -> str:
    """A number of bytes with a unit."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            break
        value /= 1024
    else:
        unit = "TiB"
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def line(stats: _library.Stats) -> str:
    """One line: the use of the budget, and the bytes in the store."""
    part = min(1.0, stats.resident_bytes / max(1, stats.budget_bytes))
    bar = "#" * round(_WIDTH * part)
    return (
        f"[{bar:<{_WIDTH}}] {human(stats.resident_bytes)} of {human(stats.budget_bytes)} in memory, "
        f"{human(stats.store_bytes)} in the store"
    )


def spent(before: _library.Stats, after: _library.Stats) -> str:
    """The cost of a cell."""
    names = ("major_faults", "page_in_bytes", "page_out_bytes")
    faults, read, written = (getattr(after, name) - getattr(before, name) for name in names)
    return f"{line(after)}; the cell: {faults} major faults, read {human(read)}, written {human(written)}"


class _Bar:
    """Shows the line while a cell runs, in place, if there is a terminal or a notebook."""

    def __init__(self, shell: Any) -> None:
        self._over = threading.Event()
        self._notebook = type(shell).__name__ == "ZMQInteractiveShell"
        self._thread = threading.Thread(target=self._show, name="terapage-bar", daemon=True)

    def __enter__(self) -> _Bar:
        self._handle = None
        if self._notebook:
            from IPython.display import display

            self._handle = display({"text/plain": line(_library.stats())}, raw=True, display_id=True)
        if self._notebook or sys.stderr.isatty():
            self._thread.start()
        return self

    def _show(self) -> None:
        while not self._over.wait(_EVERY_S):
            text = line(_library.stats())
            if self._handle is not None:
                self._handle.update({"text/plain": text}, raw=True)
            else:
                print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)

    def end(self, text: str) -> None:
        """The last line, which stays."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._handle is not None:
            self._handle.update({"text/plain": text}, raw=True)
        else:
            clear = "\r\033[K" if sys.stderr.isatty() else ""
            print(clear + text, file=sys.stderr)

    def __exit__(self, *_: object) -> None:
        self._over.set()


def _set(options: argparse.Namespace) -> None:
    """Sets what can be set while the pager runs."""
    try:
        if options.memory:
            _library.set_budget(options.memory)
    except (ValueError, RuntimeError) as why:
        print(f"terapage: the pager runs already: {why}", file=sys.stderr)
    if options.store:
        print("terapage: the pager runs already, and the store can be set only once", file=sys.stderr)


def register(shell: Any) -> None:
    """Registers the magic in a shell."""

    def terapage(words: str, cell: str) -> None:
        """%%terapage [--memory SIZE] [--store PATH] [--quiet]: the arrays that the cell makes are paged."""
        from . import _arrays

        from IPython.core.error import UsageError

        # IPython shows this error as one line, and others with all that led to them.
        try:
            options = _options(words)
            if options.memory or options.store:
                try:
                    _library.init(memory=options.memory, store=options.store)
                except RuntimeError:
                    _set(options)
            before = _library.stats()
        except (ValueError, RuntimeError, OSError) as why:
            raise UsageError(f"%%terapage: {why}") from None
        if options.quiet:
            with _arrays.arrays():
                shell.run_cell(cell)
            return
        with _Bar(shell) as bar:
            with _arrays.arrays():
                shell.run_cell(cell)
            bar.end(spent(before, _library.stats()))

    shell.register_magic_function(terapage, magic_kind="cell", magic_name="terapage")
