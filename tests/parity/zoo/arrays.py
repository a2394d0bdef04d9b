"""The payload zoo: numpy arrays and scalars of every dtype and layout.

Runs in: the test process and the workers.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

from .maker import Maker
from .tensors import ramp

STRUCTURE = np.dtype([("id", "i4"), ("name", "U4"), ("at", [("x", "f8"), ("y", "f8")]), ("window", "u1", (2, 2))])


def structured(variant: int) -> np.ndarray[Any, Any]:
    rows = [(variant + n, f"n{n}", (0.5 * n, variant), [[n, 1], [2, 3]]) for n in range(3)]
    return np.array(rows, dtype=STRUCTURE)


def read_only(variant: int) -> np.ndarray[Any, Any]:
    found = np.arange(variant, variant + 4)
    found.flags.writeable = False
    return found


class Measured(np.ndarray[Any, Any]):
    """An array subclass."""


def objects(variant: int) -> np.ndarray[Any, Any]:
    found = np.empty(3, dtype=object)
    found[:] = [variant, "text", [1, None]]
    return found


def memory_mapped(variant: int) -> np.memmap[Any, Any]:
    with tempfile.TemporaryFile() as file:
        found = np.memmap(file, dtype=np.int32, shape=(4,))
        found[:] = variant
        return found


NUMPY_DTYPES = (
    *(
        "bool",
        "i1",
        "i2",
        "i4",
        "i8",
        "u1",
        "u2",
        "u4",
        "u8",
        "f2",
        "f4",
        "f8",
        "longdouble",
        "c8",
        "c16",
        "clongdouble",
    ),
    *("clongdouble", ">i4", ">f8", "U5", "S5", "V4", "datetime64[D]", "datetime64[ns]", "timedelta64[s]"),
)


def numpy_of(dtype: str) -> Maker:
    return lambda k: np.array([[0, 1, k], [1, 0, k % 2]]).astype(np.dtype(dtype)) if dtype != "V4" else _void(k)


def _void(variant: int) -> np.ndarray[Any, Any]:
    return np.frombuffer(bytes([variant, 1, 2, 3] * 2), dtype="V4").copy()


ARRAYS: dict[str, Maker] = {dtype: numpy_of(dtype) for dtype in NUMPY_DTYPES}

ARRAY_LAYOUTS: dict[str, Maker] = {
    "zero-dimensional": lambda k: np.array(k + 0.5),
    "zero-size": lambda k: np.empty((0, 3), dtype=np.float32),
    "large": lambda k: np.arange(k, k + 50_000, dtype=np.float64),
    "Fortran order": lambda k: np.asfortranarray(np.arange(k, k + 6).reshape(2, 3)),
    "transposed": lambda k: np.arange(k, k + 24).reshape(2, 3, 4).transpose(2, 0, 1),
    "negative strides": lambda k: np.arange(k, k + 6)[::-1],
    "negative strides, two dimensions": lambda k: np.arange(k, k + 6).reshape(2, 3)[::-1, ::-1],
    "every second": lambda k: np.arange(k, k + 12)[::2],
    "broadcast": lambda k: np.broadcast_to(np.array([k, 1.5]), (3, 2)),
    "read-only": read_only,
    "from bytes": lambda k: np.frombuffer(bytes([k, 1, 2]), dtype=np.uint8),
    "objects": objects,
    "objects, zero-dimensional": lambda k: np.array({"k": k}, dtype=object),
    "structured": structured,
    "structured, big endian, large": lambda k: np.full(300, k, dtype=[("a", ">i4"), ("b", "<f8")]),
    "structured, Fortran order": lambda k: np.asfortranarray(np.full((30, 20), k, dtype=[("a", ">i4"), ("b", "U3")])),
    "big endian, large": lambda k: np.full(300, k, dtype=">f8"),
    "record array": lambda k: structured(k).view(np.recarray),
    "one field": lambda k: structured(k)["id"],
    "masked": lambda k: np.ma.masked_array([k, 2, 3], mask=[False, True, False], fill_value=9),
    "matrix": lambda k: np.asmatrix([[k, 1], [2, 3]]),
    "subclass": lambda k: np.arange(k, k + 3).view(Measured),
    "memmap": memory_mapped,
    "from torch": lambda k: ramp(k, 3).numpy(),
}


def scalar_of(name: str, offset: float) -> Maker:
    return lambda k: getattr(np, name)(k % 2 + offset)


SCALARS: dict[str, Maker] = {
    **{
        name: (lambda k, name=name: getattr(np, name)(k % 2)) for name in ("bool_", "int8", "int64", "uint16", "uint64")
    },
    **{
        name: (lambda k, name=name: getattr(np, name)(k + 0.5))
        for name in ("float16", "float32", "float64", "complex64")
    },
    "longdouble": lambda k: np.longdouble(k) / 3,
    "str_": lambda k: np.str_(f"text {k}"),
    "bytes_": lambda k: np.bytes_(b"bytes"),
    "datetime64": lambda k: np.datetime64("2020-01-01") + k,
    "timedelta64": lambda k: np.timedelta64(k, "D"),
    "structured scalar": lambda k: structured(k)[1],
    "numpy dtype": lambda k: np.dtype("f4"),
}
