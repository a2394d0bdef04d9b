"""Arrays in `.npy` files that are mapped, not read: graphs larger than memory.

A mapped array travels to another process as the name of its file, and is mapped again there. All processes read the
same pages of the page cache, which the kernel may drop at any time. Runs in: any process.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from holdfast.graph.arrays import Array


class MappedFile(NamedTuple):
    """A mapped array on its way to another process."""

    path: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def open(self) -> Array:
        array = map_file(self.path, self.path)
        if (array.dtype, array.shape) != (self.dtype, self.shape):
            was, now = f"{self.dtype}{list(self.shape)}", f"{array.dtype}{list(array.shape)}"
            raise ValueError(f"{self.path} has changed since the graph was made of it: it was {was}, and is {now}")
        return array


def map_file(name: str, path: str | os.PathLike[str]) -> Array:
    """Map a `.npy` file, for reading."""
    full = Path(path).absolute()
    try:
        array = np.load(full, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            error.add_note(
                f"{name}: {full} is larger than this process may map; `ulimit -v` says how much that is\n"
                "  try   ulimit -v unlimited"
            )
        raise
    except (ValueError, EOFError) as error:
        raise ValueError(
            f"{name}: {full} cannot be mapped as an array: {error}\n  try   numpy.save(path, array)"
        ) from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise ValueError(f"{name}: {full} has several arrays\n  try   numpy.save(path, array)   for each of them")
    if not array.dtype.isnative or not array.flags.c_contiguous:
        raise ValueError(
            f"{name}: {full} is {array.dtype.str}, {'' if array.flags.c_contiguous else 'not '}in C order; a mapped "
            "array must be in this machine's byte order, and in C order\n"
            "  try   numpy.save(path, numpy.ascontiguousarray(array, array.dtype.newbyteorder('=')))"
        )
    return array


def closed(value: Any) -> Any:
    """What travels in place of an array: itself, unless it is mapped."""
    if isinstance(value, np.memmap):
        return MappedFile(str(value.filename), value.dtype, value.shape)
    return value


def opened(value: Any) -> Any:
    return value.open() if isinstance(value, MappedFile) else value
