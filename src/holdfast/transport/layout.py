"""How a batch lies in a slot: any Python structure on one side, bytes and a small header on the other.

    batch ──pickler──► structure (a pickle in which tensor k is just "tensor k")
                  └──► tensors ──► one range of the slot per distinct storage, and a row of facts per tensor
                  └──► buffers (numpy arrays and whatever else pickles out of band) ──► a range of the slot each

- Aliases stay aliases: tensors that shared a storage share one again, with their offsets and strides.
- A tensor that the collate function built in the slot (`collate.py`) is not copied again.
- Only the bytes a batch refers to are copied, not the rest of the storage they came from.
- What is not a plain dense CPU tensor (sparse, nested, quantized, a subclass) is taken apart by its own reduction; its
  parts come back here as storages or plain tensors.

Runs in: worker process (Encoder), main process (decode).
"""

from __future__ import annotations

import io
import marshal
import pickle
import threading
import weakref
from typing import Any, NamedTuple

import cloudpickle
import torch
from torch import Tensor

from holdfast.transport.slots import Slot, SlotPool
from holdfast.transport.writer import SlotWriter

_INLINE_LAYOUT = 16 * 1024  # a larger one goes into the slot itself: sockets carry small messages
_INLINE_BUFFER = 1024  # a smaller array stays in the pickle

_DTYPES: tuple[torch.dtype, ...] = tuple(
    dict.fromkeys(value for _, value in sorted(vars(torch).items()) if isinstance(value, torch.dtype))
)
_CODE_OF = {dtype: code for code, dtype in enumerate(_DTYPES)}

Range = tuple[int, int, int]  # area, offset, length


class TensorRow(NamedTuple):
    """One tensor: which storage, and how to look at it. `stride` is None where the tensor is contiguous."""

    storage: int
    dtype: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    requires_grad: bool


# -- encoding, in the worker -------------------------------------------------------------------------------------------


class _Encoding:
    """State of one batch being taken apart; shared by the two picklers below."""

    def __init__(self, writer: SlotWriter) -> None:
        self.writer = writer
        self.tensors: list[Tensor] = []
        self.storages: list[torch.UntypedStorage] = []
        self.buffers: list[Range] = []

    def reduce(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is Tensor:
            return self._reduce_tensor(obj)
        if kind is torch.UntypedStorage and obj.device.type == "cpu":
            self.storages.append(obj)
            return _storage, (len(self.storages) - 1,)
        if kind is torch.TypedStorage and obj.device.type == "cpu":
            return _typed_storage, (obj._untyped_storage, obj.dtype)
        return NotImplemented

    def _reduce_tensor(self, tensor: Tensor) -> Any:
        if _is_plain(tensor):
            self.tensors.append(tensor)
            return _tensor, (len(self.tensors) - 1,)
        if tensor.is_cuda:
            from torch.multiprocessing.reductions import reduce_tensor  # noqa: PLC0415  (rare)

            return reduce_tensor(tensor)
        if tensor.requires_grad and not tensor.is_leaf:
            _refuse_non_leaf()
        return NotImplemented

    def keep_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """True keeps the bytes in the pickle, False puts them into the slot."""
        raw = buffer.raw()
        if raw.nbytes < _INLINE_BUFFER:
            return True
        self.buffers.append(self.writer.write(raw))
        return False


class _BatchPickler(pickle.Pickler):
    """The plain pickler: classes by reference, so that what arrives is of the very class the user knows."""

    reducer_override: Any

    def __init__(self, file: io.BytesIO, encoding: _Encoding) -> None:
        super().__init__(file, protocol=5, buffer_callback=encoding.keep_buffer)
        self.reducer_override = encoding.reduce


class _ByValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """For what the main process cannot look up by name: lambdas, local classes, notebook classes under spawn."""

    def __init__(self, file: io.BytesIO, encoding: _Encoding) -> None:
        super().__init__(file, protocol=5, buffer_callback=encoding.keep_buffer)
        self._encoding = encoding

    def reducer_override(self, obj: Any) -> Any:
        reduced = self._encoding.reduce(obj)
        return super().reducer_override(obj) if reduced is NotImplemented else reduced


def encode(batch: object, writer: SlotWriter) -> bytes | Range:
    """Lay `batch` out in the areas of `writer`. Returns the marshalled layout, or its place in the slot."""
    try:
        structure, encoding = _pickle_with(_BatchPickler, batch, writer)
    except (pickle.PicklingError, AttributeError, TypeError):
        structure, encoding = _pickle_with(_ByValuePickler, batch, writer)
    storages, tensors = _place(encoding)
    packed = marshal.dumps((structure, storages, tensors, tuple(encoding.buffers)))
    return packed if len(packed) <= _INLINE_LAYOUT else writer.write(packed)


def _pickle_with(pickler: Any, batch: object, writer: SlotWriter) -> tuple[bytes, _Encoding]:
    file = io.BytesIO()
    encoding = _Encoding(writer)
    pickler(file, encoding).dump(batch)
    return file.getvalue(), encoding


def _is_plain(tensor: Tensor) -> bool:
    """Dense memory on the CPU and nothing else to it."""
    if not tensor.is_cpu or tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        return False
    if tensor.requires_grad and not tensor.is_leaf:
        _refuse_non_leaf()
    return not (tensor.is_conj() or tensor.is_neg() or tensor.__dict__)


def _refuse_non_leaf() -> None:
    raise RuntimeError(
        "Cowardly refusing to serialize non-leaf tensor which requires_grad, "
        "since autograd does not support crossing process boundaries.  "
        "If you just want to transfer the data, call detach() on the tensor "
        "before serializing (e.g., putting it on the queue)."
    )


class _Group:
    """The bytes [low, high) of one source storage that the batch refers to."""

    __slots__ = ("high", "low", "number", "storage")

    def __init__(self, number: int, storage: torch.UntypedStorage) -> None:
        self.number = number
        self.storage = storage
        self.low: int = storage.nbytes()
        self.high = 0


def _place(encoding: _Encoding) -> tuple[tuple[Range, ...], tuple[tuple[Any, ...], ...]]:
    """Give each distinct storage its range, copy what is not there yet, and describe the tensors."""
    groups: dict[int, _Group] = {}
    # Whole storages come first: `_storage(k)` counts on their numbers. Two names of one storage get two numbers.
    whole = [_Group(k, storage) for k, storage in enumerate(encoding.storages)]
    for group in whole:
        group.low, group.high = 0, group.storage.nbytes()
        groups.setdefault(group.storage.data_ptr(), group)
    placed = list(whole)
    rows = [_describe(tensor, groups, placed) for tensor in encoding.tensors]
    ranges = tuple(_place_storage(group, encoding.writer) for group in placed)
    return ranges, tuple(_relative(row, placed) for row in rows)


def _describe(tensor: Tensor, groups: dict[int, _Group], placed: list[_Group]) -> TensorRow:
    shape = tuple(tensor.shape)
    code = _CODE_OF[tensor.dtype]
    stride = None if tensor.is_contiguous() else tensor.stride()
    if tensor.numel() == 0:
        return TensorRow(-1, code, 0, shape, stride, tensor.requires_grad)
    storage = tensor.untyped_storage()
    key = storage.data_ptr()
    group = groups.get(key)
    if group is None:
        groups[key] = group = _Group(len(placed), storage)
        placed.append(group)
    itemsize = tensor.element_size()
    start = tensor.storage_offset() * itemsize
    items = tensor.numel() if stride is None else 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    group.low = min(group.low, start // 16 * 16)  # 16: the largest item, so that every view stays aligned
    group.high = max(group.high, start + items * itemsize)
    return TensorRow(group.number, code, start, shape, stride, tensor.requires_grad)


def _relative(row: TensorRow, placed: list[_Group]) -> tuple[Any, ...]:
    """The offset as items from the start of the range, now that the range is known."""
    if row.storage < 0:
        return tuple(row)
    itemsize = _DTYPES[row.dtype].itemsize
    return tuple(row._replace(offset=(row.offset - placed[row.storage].low) // itemsize))


def _place_storage(group: _Group, writer: SlotWriter) -> Range:
    nbytes = group.high - group.low
    if nbytes <= 0:
        return 0, 0, 0
    there = writer.locate(group.storage.data_ptr() + group.low)
    if there is not None:
        return *there, nbytes
    area, start = writer.reserve(nbytes)
    source = torch.empty(0, dtype=torch.uint8).set_(group.storage, group.low, (nbytes,))
    torch.frombuffer(writer.areas[area].view[start : start + nbytes], dtype=torch.uint8).copy_(source)
    return area, start, nbytes


# -- decoding, in the main process -------------------------------------------------------------------------------------


class _Decoding(threading.local):
    """What the functions named in a structure pickle refer to while it is being loaded."""

    tensors: list[Tensor]
    storages: list[torch.UntypedStorage]


_decoding = _Decoding()


def _tensor(number: int) -> Tensor:
    return _decoding.tensors[number]


def _storage(number: int) -> torch.UntypedStorage:
    return _decoding.storages[number]


def _typed_storage(untyped: torch.UntypedStorage, dtype: torch.dtype) -> torch.TypedStorage:
    return torch.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)


def decode(packed: bytes | Range, areas: list[Slot], pool: SlotPool) -> Any:
    """Rebuild a batch as views of its slots. The slots are the pool's business again when the views are gone."""
    structure, storages, rows, buffer_ranges = marshal.loads(
        packed if isinstance(packed, bytes) else areas[packed[0]].peek(packed[1], packed[2])
    )
    if not rows and not storages and not buffer_ranges:
        return pickle.loads(structure)
    tensors, untyped = _build_tensors(rows, storages, areas, pool)
    buffers = [pool.hand_out(areas[area], start, nbytes)[0] for area, start, nbytes in buffer_ranges]
    before = vars(_decoding).copy()
    _decoding.tensors, _decoding.storages = tensors, untyped
    try:
        return pickle.loads(structure, buffers=buffers)
    finally:
        vars(_decoding).clear()
        vars(_decoding).update(before)


def _build_tensors(
    rows: tuple[tuple[Any, ...], ...], ranges: tuple[Range, ...], areas: list[Slot], pool: SlotPool
) -> tuple[list[Tensor], list[torch.UntypedStorage]]:
    if len(ranges) == len(rows) and all(row[0] == k and row[4] is None for k, row in enumerate(rows)):
        return [_build_alone(row, ranges[k], areas, pool) for k, row in enumerate(rows)], []
    storages = [_build_storage(rng, areas, pool) for rng in ranges]
    return [_build_on(row, storages) for row in rows], storages


def _build_alone(row: tuple[Any, ...], rng: Range, areas: list[Slot], pool: SlotPool) -> Tensor:
    """The common case: a contiguous tensor with a storage of its own."""
    _, code, offset, shape, _, requires_grad = row
    area, start, nbytes = rng
    buffer, ref = pool.hand_out(areas[area], start, nbytes)
    tensor = torch.frombuffer(buffer, dtype=_DTYPES[code], offset=offset * _DTYPES[code].itemsize).resize_(shape)
    ref.storage = weakref.ref(tensor.untyped_storage())
    return tensor.requires_grad_() if requires_grad else tensor


def _build_storage(rng: Range, areas: list[Slot], pool: SlotPool) -> torch.UntypedStorage:
    area, start, nbytes = rng
    if nbytes == 0:
        return torch.UntypedStorage(0)
    buffer, ref = pool.hand_out(areas[area], start, nbytes)
    storage = torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()
    ref.storage = weakref.ref(storage)
    return storage


def _build_on(row: tuple[Any, ...], storages: list[torch.UntypedStorage]) -> Tensor:
    number, code, offset, shape, stride, requires_grad = row
    tensor = torch.empty(0, dtype=_DTYPES[code])
    if number < 0:
        tensor = torch.empty_strided(shape, stride or _contiguous(shape), dtype=_DTYPES[code])
    else:
        tensor.set_(storages[number], offset, shape, stride or _contiguous(shape))
    return tensor.requires_grad_() if requires_grad else tensor


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    stride, strides = 1, []
    for n in reversed(shape):
        strides.append(stride)
        stride *= max(n, 1)
    return tuple(reversed(strides))
