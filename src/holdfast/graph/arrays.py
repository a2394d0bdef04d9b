"""What the user gives as arrays, made into arrays of ours: of one kind, in one piece, and checked.

Every refusal says which argument it is about, what is wrong with it, where it can, which element, and what to do.
Runs in: the process that makes a graph or a loader.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, np.dtype[Any]]
_CHUNK = 1 << 22  # elements looked at in one piece: what is checked may be larger than memory
INT32_MAX = 2**31 - 1


def as_array(name: str, values: Any) -> Array:
    """An array, list or tensor (dense, on any device) as a numpy array; not copied if it need not be."""
    if isinstance(values, torch.Tensor):
        if values.layout is not torch.strided or values.is_nested:
            raise TypeError(f"{name} must be a dense tensor, not {values.layout}\n  try   {name}.to_dense()")
        return values.detach().cpu().numpy()
    try:
        return np.asarray(values)
    except ValueError as error:  # lists of lists of different lengths
        raise ValueError(f"{name} cannot be made an array: {error}") from None


def as_ids(name: str, values: Any, *, ndim: int = 1) -> Array:
    """Whole numbers that name nodes or edges, as int32 or int64. Whether they are in range is another question."""
    array = as_array(name, values)
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension{'s' * (ndim > 1)}, not the shape {array.shape}")
    if array.dtype.kind not in "iu":
        if array.size == 0 and not isinstance(values, np.ndarray | torch.Tensor):
            return array.astype(np.int64)  # of an empty list numpy makes floats
        remedy = "numpy.flatnonzero(mask)" if array.dtype.kind == "b" else f"{name}.astype('int64')"
        raise TypeError(f"{name} must be whole numbers, not {array.dtype}\n  try   {remedy}")
    if array.dtype.kind == "u" and array.dtype.itemsize == 8 and array.size and int(array.max()) > 2**63 - 1:
        raise IndexError(f"{name} has {int(array.max())}, which is no index")
    if array.dtype.isnative and array.dtype in (np.int32, np.int64):
        return array
    return array.astype(np.int64)


def check_range(name: str, array: Array, bound: int, what: str = "nodes") -> None:
    """Raise unless every element is one of `bound` things."""
    for start, part in _parts(array):
        if int(part.min()) < 0 or int(part.max()) >= bound:
            at = int(np.flatnonzero((part < 0) | (part >= bound))[0])
            problem = "negative" if part[at] < 0 else f"out of range: there are {bound} {what}"
            raise IndexError(f"{name}[{start + at}] is {int(part[at])}, which is {problem}")


def check_indptr(name: str, indptr: Array, num_edges: int) -> None:
    """Raise unless it says, for each node, which of so many edges are its own."""
    if len(indptr) < 1:
        raise ValueError(f"{name} is empty: it must have one element more than there are nodes")
    if int(indptr[0]) != 0 or int(indptr[-1]) != num_edges:
        ends = f"{int(indptr[0])} and {int(indptr[-1])}"
        raise ValueError(f"{name} must start with 0 and end with the number of edges, {num_edges}, not {ends}")
    for start, part in _parts(indptr, overlap=1):
        falls = part[1:] < part[:-1]  # (a difference may be more than an integer can hold)
        if falls.any():
            at = start + int(np.flatnonzero(falls)[0])
            raise ValueError(f"{name} must not decrease, but {name}[{at + 1}] is less than {name}[{at}]")


def as_weights(name: str, values: Any, num_edges: int) -> Array:
    """Weights of edges as float32 or float64: finite, none negative."""
    if isinstance(values, torch.Tensor) and values.is_floating_point() and values.dtype.itemsize < 4:
        values = values.float()  # numpy does not have all of these types
    array = as_array(name, values)
    if array.shape != (num_edges,):
        raise ValueError(f"{name} must have one number for each of {num_edges} edges, not the shape {array.shape}")
    if array.dtype.kind not in "iufb":
        raise TypeError(f"{name} must be numbers, not {array.dtype}")
    if array.dtype not in (np.float32, np.float64) or not array.dtype.isnative:
        array = array.astype(np.float32 if array.dtype.kind == "f" and array.dtype.itemsize < 4 else np.float64)
    check_weights(name, array)
    return array


def check_weights(name: str, array: Array) -> None:
    for start, part in _parts(array):
        good = np.isfinite(part) & (part >= 0)
        if not good.all():
            at = int(np.flatnonzero(~good)[0])
            raise ValueError(f"{name}[{start + at}] is {part[at]}: weights must be finite, and not negative")


def as_features(name: str, values: Any, count: int, what: str) -> torch.Tensor:
    """A tensor with one row for each node or edge."""
    if isinstance(values, torch.Tensor):
        tensor = values.detach().cpu()
        if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
            raise TypeError(f"{name} must be a plain dense tensor\n  try   {name}.to_dense()")
    else:
        array = as_array(name, values)
        if not is_of_torch(array.dtype):
            raise TypeError(f"{name} must be numbers, of a type that torch has, not {array.dtype}")
        native = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)
        tensor = torch.from_numpy(native if native.flags.writeable else native.copy())
    if tensor.ndim < 1 or tensor.shape[0] != count:
        raise ValueError(f"{name} must have one row for each of {count} {what}, not the shape {tuple(tensor.shape)}")
    return tensor


def is_of_torch(dtype: np.dtype[Any]) -> bool:
    """Whether tensors can have this type, in this machine's byte order."""
    try:
        torch.from_numpy(np.empty(0, dtype.newbyteorder("=")))
    except TypeError:
        return False
    return True


def narrow(array: Array, bound: int) -> Array:
    """As int32 where all that is below `bound` fits, else as int64; in one piece."""
    return np.ascontiguousarray(array, np.int32 if bound <= INT32_MAX else np.int64)


def _parts(array: Array, overlap: int = 0) -> Iterator[tuple[int, Array]]:
    for start in range(0, len(array), _CHUNK):
        yield start, array[start : start + _CHUNK + overlap]
