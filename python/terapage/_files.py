"""Files: .npy and raw data as arrays that are read as they are touched; load and save."""

from __future__ import annotations

import atexit
import ctypes
import math
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _arrays, _library

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

_PAGE = 4096
_MAGIC = b"\x93NUMPY"
_PART = 32 << 20
"""Bytes that are read or written at once."""

_open: weakref.WeakSet[_Mapping] = weakref.WeakSet()
"""The mappings of this process."""


class _Mapping:
    """A mapped file. It is the base of arrays, and is unmapped when the last of them is freed."""

    def __init__(self, path: str, offset: int, nbytes: int, writable: bool) -> None:
        self.address = None
        self.path, self.writable, self.process = path, writable, os.getpid()
        status = os.stat(path)
        self.file = (status.st_dev, status.st_ino)
        for other in _open:
            if other.file == self.file and other.process == self.process and (writable or other.writable):
                raise ValueError(
                    f"{path}: it is mapped already, and a file that is written may be mapped once only "
                    "(delete the other array first)"
                )
        kind = _library.READ_WRITE if writable else _library.READ_ONLY
        self._lib = _library.lib()
        self.address = self._lib.tera_map_file(os.fsencode(path), offset, nbytes, kind, None)
        if not self.address:
            raise _library.fail(path)
        self.nbytes = nbytes
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (self.address, False),
        }
        _open.add(self)

    def flush(self) -> None:
        """Writes the changes to the file, durably."""
        if self.writable and self.process == os.getpid() and self._lib.tera_sync(self.address) != 0:
            raise _library.fail(self.path)

    def __del__(self) -> None:
        # The child of a fork has its own copy of the memory, and the file belongs to the parent.
        if self.address and self.process == os.getpid() and self._lib.tera_unmap(self.address) != 0:
            raise OSError(f"{self.path}: its last changes are lost: {_library.message()}")


@atexit.register
def _flush_all() -> None:
    """Arrays that live until the interpreter ends lose nothing."""
    for mapping in list(_open):
        try:
            mapping.flush()
        except Exception as error:  # noqa: BLE001: the others are still to be flushed
            print(f"terapage: {mapping.path}: its last changes are lost: {error}", file=sys.stderr)


def _read_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """The shape, whether the order is Fortran's, and the type; the file is then at the data."""
    version = np.lib.format.read_magic(file)
    read = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}.get(version[0])
    if read is None:
        raise ValueError(f"{file.name}: version {version[0]} of the .npy format cannot be mapped (numpy.load reads it)")
    try:
        header = read(file)
    except ValueError as error:
        raise ValueError(f"{file.name}: {str(error).splitlines()[0]}") from None
    if header[2].hasobject:
        raise ValueError(f"{file.name}: it has Python objects, which cannot be mapped (numpy.load reads them)")
    return header


class memmap(np.memmap):
    """A file as an array, read as it is touched, and kept within the budget; like ``numpy.memmap``.

    - filename: a path. A .npy file contains its type and shape, which ``dtype`` overrides.
    - dtype: of raw data; default ``uint8``.
    - mode: ``r`` reads; ``c`` allows changes, which are never written; ``r+`` writes changes to the
      file; ``w+`` creates the file, with ``shape`` elements, raw (zeros).
    - offset: bytes of the file before the data; raw data only.
    - shape: elements along each axis; default all that the file has.
    - order: ``C`` or ``F``; raw data only.

    Changes reach the file by ``flush()``, which returns when they are durable, with the array's
    end, and at the end of the interpreter: never before. Nobody else may change the file meanwhile.
    A block costs 32 bytes of memory at once, touched or not. About 250 files can be mapped.

    Raises OSError for the file, ValueError for arguments.
    """

    def __new__(
        cls,
        filename: str | os.PathLike[str],
        dtype: DTypeLike | None = None,
        mode: str = "r+",
        offset: int = 0,
        shape: int | tuple[int, ...] | None = None,
        order: str = "C",
    ) -> memmap:
        modes = {"readonly": "r", "copyonwrite": "c", "readwrite": "r+", "write": "w+"}
        mode = modes.get(mode, mode)
        if mode not in modes.values():
            raise ValueError(f"mode: {mode!r} is none of r, c, r+, w+")
        path = os.path.abspath(os.fspath(filename))
        if mode == "w+":
            if shape is None:
                raise ValueError("shape: a new file needs one")
        elif dtype is None:
            with open(path, "rb") as file:
                if file.read(len(_MAGIC)) == _MAGIC:
                    if offset or shape is not None:
                        raise ValueError(f"{path}: a .npy file says its shape itself (give dtype to read it raw)")
                    file.seek(0)
                    shape, fortran, dtype = _read_header(file)
                    offset, order = file.tell(), "F" if fortran else "C"
        kind = np.dtype(np.uint8 if dtype is None else dtype)
        if kind.hasobject:
            raise TypeError(f"{kind!r}: Python objects cannot be mapped")
        shape, nbytes = _extent(path, kind, mode, offset, shape)
        if mode == "w+":
            with open(path, "wb") as file:
                file.truncate(offset + nbytes)
        first = offset - offset % _PAGE
        mapping = _Mapping(path, first, offset - first + nbytes, mode in ("r+", "w+"))
        bytes_ = np.asarray(mapping)
        if mode == "r":
            bytes_.flags.writeable = False
        self = np.ndarray.__new__(cls, shape, kind, buffer=bytes_, offset=offset - first, order=order)
        # np.memmap's attributes; it flushes by its `_mmap`.
        self._mmap = mapping
        self.filename, self.offset, self.mode = path, offset, mode
        return self

    def flush(self) -> None:
        """Writes the changes to the file, and returns when they are durable.

        Changes by other threads meanwhile reach the file now or with the next flush. Raises OSError
        if the file cannot be written; the next flush tries again.
        """
        if self._mmap is not None:
            self._mmap.flush()


def _extent(
    path: str, dtype: np.dtype[Any], mode: str, offset: int, shape: int | tuple[int, ...] | None
) -> tuple[tuple[int, ...], int]:
    """The shape of a mapping, and its bytes."""
    if offset < 0:
        raise ValueError(f"offset: {offset} is before the file")
    size = None if mode == "w+" else os.stat(path).st_size
    if shape is None:
        rest = size - offset
        if rest <= 0 or rest % dtype.itemsize:
            raise ValueError(
                f"{path}: {rest} bytes from {offset} on are not an array of elements of {dtype.itemsize} bytes"
            )
        return (rest // dtype.itemsize,), rest
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (int(shape),)
    nbytes = math.prod(shape) * dtype.itemsize
    if any(extent < 0 for extent in shape) or nbytes == 0:
        raise ValueError(f"shape: {shape} has no elements, and nothing can be mapped")
    if size is not None and offset + nbytes > size:
        raise ValueError(f"{path}: it has {size} bytes, and {offset + nbytes} are needed (is it complete?)")
    return shape, nbytes


def load(file: str | os.PathLike[str]) -> NDArray[Any]:
    """A .npy file's array, copied into paged memory part by part, like ``numpy.load``.

    To only read a file, map it instead: ``memmap(file, mode="r")`` copies nothing.

    Raises ValueError for another format, for Python objects, and for a file that ends early.
    """
    with open(file, "rb", buffering=0) as opened:
        if opened.read(len(_MAGIC)) != _MAGIC:
            raise ValueError(f"{os.fspath(file)}: it is not a .npy file (within terapage.arrays() numpy.load reads .npz)")
        opened.seek(0)
        shape, fortran, dtype = _read_header(opened)
        array = _arrays.empty(shape, dtype, "F" if fortran else "C")
        done, bytes_ = 0, _bytes_of(array)
        while done < len(bytes_):
            got = opened.readinto(bytes_[done : done + _PART])
            if not got:
                raise ValueError(f"{os.fspath(file)}: it ends after {done} of {len(bytes_)} bytes of data")
            done += got
            # The file's pages in the kernel's cache are used once.
            os.posix_fadvise(opened.fileno(), 0, opened.tell(), os.POSIX_FADV_DONTNEED)
    return array


def save(file: str | os.PathLike[str], arr: ArrayLike) -> None:
    """Writes an array to a .npy file part by part, like ``numpy.save``. ``.npy`` is appended if missing.

    Returns when the file is written, but not yet durable. Raises ValueError for Python objects.
    """
    array = np.asanyarray(arr)
    if array.dtype.hasobject:
        raise ValueError("an array of Python objects cannot be saved part by part (numpy.save pickles them)")
    path = os.fspath(file)
    path = path if path.endswith(".npy") else path + ".npy"
    with open(path, "wb") as opened:
        # numpy gives the array's memory to the kernel, which takes it page by page.
        np.lib.format.write_array(opened, array, allow_pickle=False)


def _bytes_of(array: NDArray[Any]) -> memoryview:
    """The bytes of a contiguous array, in the order of memory."""
    if array.size == 0:
        return memoryview(b"")
    # Types without a buffer format (datetime64) have bytes all the same.
    raw = (ctypes.c_char * array.nbytes).from_address(array.__array_interface__["data"][0])
    return memoryview(raw).cast("B")
