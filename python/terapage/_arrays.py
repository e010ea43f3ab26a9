"""Arrays in paged memory: numpy's memory handler (NEP 49) over the library's functions.

numpy receives a handler's functions as addresses, so no Python code runs when an array is created,
and a thread may create and free arrays without the interpreter's lock. Each array remembers its
handler, so it can be freed after the block, in other threads, and at the end of the interpreter.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _library

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

# Places in numpy's table of C functions (numpy/core/code_generators/numpy_api.py).
_FEATURE_VERSION = 211  # PyArray_GetNDArrayCFeatureVersion
_SET_HANDLER = 304  # PyDataMem_SetHandler
_FEATURES_OF_1_22 = 0x0F

_handler: Any = None
_set: Any = None


def _numpy_functions() -> Any:
    """numpy's table of C functions."""
    try:
        from numpy._core import _multiarray_umath
    except ImportError:
        from numpy.core import _multiarray_umath
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return ctypes.cast(get(_multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))


def _prepare() -> None:
    """Finds numpy's function, and wraps the library's handler in numpy's form."""
    global _handler, _set
    functions = _numpy_functions()
    features = ctypes.CFUNCTYPE(ctypes.c_uint)(functions[_FEATURE_VERSION])()
    if features < _FEATURES_OF_1_22:
        raise ImportError(f"numpy {np.__version__} has no memory handlers (install numpy 1.22 or later)")
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    # The capsule keeps the address of its name, so the name lives as long as the process.
    handler = new(_library.lib().tera_numpy_handler(), _NAME, None)
    _set = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(functions[_SET_HANDLER])
    _handler = handler


_NAME = b"mem_handler"
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_NAME))


@contextlib.contextmanager
def arrays() -> Iterator[None]:
    """Within the block, each array that numpy creates in this thread (or task) is paged.

    Temporaries are paged, too. Earlier arrays, and those of other threads, are not affected, nor is
    memory that other libraries allocate themselves (pandas' strings, torch, workspaces of BLAS).
    Blocks can be nested. The arrays may be used and freed anywhere.

    Starts the pager if it has not been started yet, and raises the exceptions of ``init``.
    """
    _library.start()
    if _handler is None:
        _prepare()
    before = _set(_handler)
    try:
        yield
    finally:
        _set(before)


def _no_objects(dtype: DTypeLike) -> np.dtype[Any]:
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        raise TypeError(f"{dtype!r}: arrays of Python objects are not paged: their objects are elsewhere")
    return dtype


def empty(shape: int | tuple[int, ...], dtype: DTypeLike = float, order: Any = "C") -> NDArray[Any]:
    """A paged array of a shape, like ``numpy.empty``.

    shape: elements along each axis. dtype: any type but objects. Memory that was never used reads as
    zeros, but memory of a freed array may be reused with its old bytes.

    Raises MemoryError if the address space is used up.
    """
    dtype = _no_objects(dtype)
    with arrays():
        return np.empty(shape, dtype, order)


def zeros(shape: int | tuple[int, ...], dtype: DTypeLike = float, order: Any = "C") -> NDArray[Any]:
    """A paged array of zeros, like ``numpy.zeros``. Large ones use no memory until they are touched."""
    dtype = _no_objects(dtype)
    with arrays():
        return np.zeros(shape, dtype, order)


def full(
    shape: int | tuple[int, ...], fill_value: ArrayLike, dtype: DTypeLike | None = None, order: Any = "C"
) -> NDArray[Any]:
    """A paged array filled with a value, like ``numpy.full``."""
    dtype = _no_objects(np.asarray(fill_value).dtype if dtype is None else dtype)
    with arrays():
        return np.full(shape, fill_value, dtype, order)


def array(object: ArrayLike, dtype: DTypeLike | None = None, order: Any = "K") -> NDArray[Any]:
    """A paged copy of an array or a sequence, like ``numpy.array``; always a copy."""
    if dtype is not None:
        _no_objects(dtype)
    with arrays():
        made = np.array(object, dtype=dtype, order=order, copy=True)
    _no_objects(made.dtype)
    return made


def empty_like(prototype: ArrayLike, dtype: DTypeLike | None = None, order: Any = "K") -> NDArray[Any]:
    """A paged array with the shape and type of another, like ``numpy.empty_like``, never a subclass."""
    _no_objects(np.asanyarray(prototype).dtype if dtype is None else dtype)
    with arrays():
        return np.empty_like(prototype, dtype=dtype, order=order, subok=False)
