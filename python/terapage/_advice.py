"""Advice about arrays. No advice changes a byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import _library

if TYPE_CHECKING:
    from numpy.typing import NDArray


def bounds(array: NDArray[Any]) -> tuple[int, int]:
    """The address of the first byte of an array, and the bytes from there to its last."""
    low = high = array.__array_interface__["data"][0]
    if array.size == 0:
        return low, 0
    for extent, stride in zip(array.shape, array.strides):
        if stride < 0:
            low += (extent - 1) * stride
        else:
            high += (extent - 1) * stride
    return low, high + array.itemsize - low


def _advise(array: NDArray[Any], advice: int) -> None:
    if not isinstance(array, np.ndarray):
        raise TypeError(f"a numpy array is needed, not {type(array).__name__}")
    at, len_ = bounds(array)
    if len_ and _library.lib().tera_advise(at, len_, advice) != 0:
        raise _library.fail()


def prefetch(array: NDArray[Any]) -> None:
    """Reads an array, or a slice of one, now: up to a quarter of the budget.

    Everything from the first to the last byte of the slice is read, even between its elements.
    Raises ValueError if the array is not paged. (This holds for all advice.)
    """
    _advise(array, _library.WILL_NEED)


def done(array: NDArray[Any]) -> None:
    """Pages an array out now, since it will not be touched soon. Nothing is lost."""
    _advise(array, _library.DONE_WITH)


def random(array: NDArray[Any]) -> None:
    """Says that an array is touched in random order: nothing is read ahead in it. At most 64 ranges."""
    _advise(array, _library.RANDOM)


def sequential(array: NDArray[Any]) -> None:
    """Says that an array is touched in order, which is the default: undoes ``random``."""
    _advise(array, _library.SEQUENTIAL)
