"""torch tensors in paged memory, without a copy. torch is imported with this module.

A tensor shares its memory with a paged array, which lives as long as the tensor. Operations make
their results in torch's own memory; ``out=`` keeps them here. Memory must not be pinned
(``pin_memory``, ``cudaHostRegister``): copies to a device go through pageable memory.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from . import _arrays


def _tensor(array: np.ndarray[Any, Any], size: tuple[Any, ...], dtype: torch.dtype) -> torch.Tensor:
    if array.size == 0:
        return torch.empty(size, dtype=dtype)
    return torch.frombuffer(array, dtype=dtype).reshape(size)


def _size(size: tuple[Any, ...]) -> tuple[int, ...]:
    whole = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    return tuple(int(extent) for extent in whole)


def _nbytes(size: tuple[int, ...], dtype: torch.dtype) -> int:
    return math.prod(size) * torch.empty((), dtype=dtype).element_size()


def empty(*size: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A paged tensor like ``torch.empty(*size)``. size: elements along each dimension."""
    dtype, size = dtype or torch.get_default_dtype(), _size(size)
    return _tensor(_arrays.empty(_nbytes(size, dtype), np.uint8), size, dtype)


def zeros(*size: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A paged tensor of zeros, like ``torch.zeros(*size)``."""
    dtype, size = dtype or torch.get_default_dtype(), _size(size)
    return _tensor(_arrays.zeros(_nbytes(size, dtype), np.uint8), size, dtype)


def full(size: tuple[int, ...], fill_value: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A paged tensor filled with a value, like ``torch.full``."""
    dtype = dtype or torch.tensor(fill_value).dtype
    return empty(*size, dtype=dtype).fill_(fill_value)


def tensor(source: torch.Tensor) -> torch.Tensor:
    """A paged copy of a tensor of the processor's memory."""
    return empty(*source.shape, dtype=source.dtype).copy_(source)
