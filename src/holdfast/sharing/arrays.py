"""Arrays and tensors: how their bytes lie in a segment, and how they are seen there again.

An array is seen read-only. A tensor cannot be: it is seen in the private mapping, so that a write to it is this
process's alone. Strides are kept as a copy by numpy or torch would have them (channels_last stays), and dtypes as they
are. Views of what is shared, slices for example, are known by their address: they travel as handles too.

torch is not imported here, unless there is a tensor. Runs in: any process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from holdfast.sharing.builder import Builder
from holdfast.sharing.segment import Array, Place, SharedSegment, address_of, is_in_a_segment, locate

if TYPE_CHECKING:
    import torch


class ArrayForm(NamedTuple):
    """An array in a segment."""

    start: int  # of its first element
    dtype: str | np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None  # in bytes; None: contiguous


class TensorForm(NamedTuple):
    """A tensor in a segment."""

    start: int  # of its first element
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    requires_grad: bool
    is_conj: bool = False  # torch's lazy views: the memory is that of the conjugate, or of the negative
    is_neg: bool = False


# -- arrays ------------------------------------------------------------------------------------------------------------


def write_array(array: Array, builder: Builder) -> ArrayForm:
    """Copy an array into a segment, its axes in the order they have in memory."""
    order = _axes_in_memory(array.strides)
    packed = np.ascontiguousarray(array.transpose(order))
    start = builder.write(packed.reshape(-1).view(np.uint8))
    strides = None if array.flags.c_contiguous else _strides(array.shape, order, array.itemsize)
    return ArrayForm(start, _short(array.dtype), array.shape, strides)


def read_array(segment: SharedSegment, form: ArrayForm) -> Array:
    return np.ndarray(form.shape, form.dtype, segment.bytes, form.start, form.strides)


def find_array(array: Array) -> tuple[Place, ArrayForm] | None:
    """The segment that an array is a view of, if it is one, and where in it."""
    if not array.nbytes:
        return None
    low, high = _bounds(array)
    place = locate(low, high - low)
    if place is None:
        return None
    start = place.start + address_of(array) - low
    strides = None if array.flags.c_contiguous else array.strides
    return place, ArrayForm(start, _short(array.dtype), array.shape, strides)


def _short(dtype: np.dtype[Any]) -> str | np.dtype[Any]:
    """Its short name, where that says everything: not of a dtype of another library, bfloat16 for example."""
    return dtype.str if dtype.metadata is None and np.dtype(dtype.str) == dtype else dtype


def _bounds(array: Array) -> tuple[int, int]:
    """The first byte of an array's elements, and the one after the last."""
    low = high = address_of(array)
    for count, stride in zip(array.shape, array.strides, strict=True):
        low += min(0, (count - 1) * stride)
        high += max(0, (count - 1) * stride)
    return low, high + array.itemsize


# -- tensors -----------------------------------------------------------------------------------------------------------


def write_tensor(tensor: torch.Tensor, builder: Builder) -> TensorForm:
    """Copy a dense tensor into a segment."""
    packed, strides = pack_tensor(tensor)
    return TensorForm(builder.write(packed), tensor.dtype, tuple(tensor.shape), strides, tensor.requires_grad)


def read_tensor(segment: SharedSegment, form: TensorForm) -> torch.Tensor:
    """The tensor, with a storage that is just its part of the segment."""
    import torch

    nbytes = _span(form.shape, form.strides) * form.dtype.itemsize
    buffer = segment.writable[form.start : form.start + nbytes]
    tensor = tensor_on(buffer, form.dtype, form.shape, form.strides, requires_grad=False)
    tensor = tensor.conj() if form.is_conj else tensor
    tensor = torch._neg_view(tensor) if form.is_neg else tensor
    return tensor.requires_grad_(form.requires_grad)


def pack_tensor(tensor: torch.Tensor) -> tuple[Array, tuple[int, ...]]:
    """The bytes of a dense tensor, its dimensions in the order they have in memory, and its strides then."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    order = _axes_in_memory(plain.stride())
    return _bytes_of(plain.permute(order).contiguous()), _strides(plain.shape, order, 1)


def tensor_on(
    buffer: Any, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...], requires_grad: bool
) -> torch.Tensor:
    """A tensor whose memory is this buffer, which must be writable."""
    import torch

    tensor = torch.empty(0, dtype=dtype, device="cpu").set_(storage_on(buffer), 0, shape, strides)
    return tensor.requires_grad_() if requires_grad else tensor


def find_tensor(tensor: torch.Tensor) -> tuple[Place, TensorForm] | None:
    """The segment that a tensor is a view of, if it is one, and where in it."""
    nbytes = _span_bytes(tensor)
    place = locate(tensor.data_ptr(), nbytes) if nbytes else None
    if place is None:
        return None
    bits = tensor.requires_grad, tensor.is_conj(), tensor.is_neg()
    return place, TensorForm(place.start, tensor.dtype, tuple(tensor.shape), tensor.stride(), *bits)


def is_shared_tensor(tensor: torch.Tensor) -> bool:
    return is_in_a_segment(tensor.data_ptr(), _span_bytes(tensor))


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether it is nothing but memory on the CPU."""
    import torch

    is_plain = type(tensor) is torch.Tensor and tensor.is_cpu and tensor.layout is torch.strided
    return is_plain and not (tensor.is_nested or tensor.is_quantized)


def _span_bytes(tensor: torch.Tensor) -> int:
    """From the first byte that it looks at to the last: of an expanded one, fewer than its elements would take."""
    return _span(tensor.shape, tensor.stride()) * tensor.element_size()


def _bytes_of(tensor: torch.Tensor) -> Array:
    """The memory of a contiguous tensor, whatever its dtype."""
    start = int(tensor.storage_offset()) * tensor.element_size()
    return bytes_of_storage(tensor.untyped_storage())[start : start + tensor.nbytes]


# -- storages: what tensors of other types are made of -----------------------------------------------------------------


def storage_on(buffer: Any) -> torch.UntypedStorage:
    """A storage whose memory is this buffer, which must be writable."""
    import torch

    return torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()


def find_storage(storage: torch.UntypedStorage) -> Place | None:
    """The segment that a storage is a part of, if it is one, and where in it."""
    return locate(storage.data_ptr(), storage.nbytes())


def is_shared_storage(storage: torch.UntypedStorage) -> bool:
    return storage.device.type == "cpu" and is_in_a_segment(storage.data_ptr(), storage.nbytes())


def bytes_of_storage(storage: torch.UntypedStorage) -> Array:
    import torch

    tensor = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage, 0, (storage.nbytes(),), (1,))
    array: Array = tensor.numpy()
    return array


# -- layout ------------------------------------------------------------------------------------------------------------


def _axes_in_memory(strides: Sequence[int]) -> list[int]:
    """The axes, the one with the longest steps first: so ordered, a dense array lies in one piece."""
    return sorted(range(len(strides)), key=lambda axis: -abs(strides[axis]))


def _strides(shape: Sequence[int], order: Sequence[int], step: int) -> tuple[int, ...]:
    """The strides of what was written with its axes in this order, where one element is a `step`."""
    strides = [0] * len(shape)
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def _span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements there are from the first to the last that a tensor looks at."""
    if 0 in shape:
        return 0
    return 1 + sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True))
