"""How a batch lies in a slot: any Python structure on one side, bytes and a small header on the other.

    batch ──pickler──► structure (a pickle in which tensor k is just "tensor k")
                  └──► tensors ──► one range of the slot per distinct storage, and a row of facts per tensor
                  └──► buffers (numpy arrays and whatever else pickles out of band) ──► a range of the slot each

- Aliases stay aliases: tensors that shared a storage share one again, with their offsets and strides.
- A tensor that the collate function built in the slot (`collate.py`) is not copied again.
- Only the bytes a batch refers to are copied, not the rest of the storage they came from.
- What is not a plain dense CPU tensor (sparse, nested, quantized, a subclass) is taken apart by its own reduction; its
  parts come back here as storages or plain tensors.

Runs in: worker process (encode), main process (decode); of the arguments of a call, the other way round.
"""

from __future__ import annotations

import contextlib
import io
import marshal
import pickle
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol, TypeVar

import cloudpickle
import numpy as np
import torch
from torch import Tensor

from holdfast.transport.slots import ViewRef
from holdfast.transport.writer import SlotWriter

_INLINE_LAYOUT = 16 * 1024  # a larger one goes into the slot itself: sockets carry small messages
_INLINE_BUFFER = 1024  # a smaller array stays in the pickle
_ONE_TENSOR = b""  # the structure of a batch that is a tensor and nothing else
_LARGEST_ITEM = 16  # bytes of a complex128

_DTYPES: tuple[torch.dtype, ...] = tuple(
    dict.fromkeys(value for _, value in sorted(vars(torch).items()) if isinstance(value, torch.dtype))
)
_CODE_OF = {dtype: code for code, dtype in enumerate(_DTYPES)}

Range = tuple[int, int, int]  # area, offset, length


# Storage number (-1: no bytes), dtype code, offset in items, shape, stride (None: contiguous), requires_grad.
TensorRow = tuple[int, int, int, tuple[int, ...], tuple[int, ...] | None, bool]

# -- encoding, in the worker -------------------------------------------------------------------------------------------


class Encoding:
    """State of one batch being taken apart; shared by the picklers."""

    def __init__(self, writer: SlotWriter) -> None:
        self.writer = writer
        self.tensors: list[Tensor] = []
        self.storages: list[torch.UntypedStorage] = []
        self.buffers: list[Range] = []  # of numpy arrays
        self.out_of_band: list[Range] = []  # of what pickles its own buffers out of band

    def reduce(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is Tensor:
            return self._reduce_tensor(obj)
        if isinstance(obj, Tensor):
            return _own_reduction(obj)
        if kind is np.ndarray:
            return self._reduce_array(obj)
        if kind is torch.UntypedStorage and obj.device.type == "cpu":
            self.storages.append(obj)
            return _storage, (len(self.storages) - 1,)
        if kind is torch.TypedStorage and obj._untyped_storage.device.type == "cpu":
            return _typed_storage, (obj._untyped_storage, obj.dtype)
        return NotImplemented

    def _reduce_tensor(self, tensor: Tensor) -> Any:
        if _is_plain(tensor):
            self.tensors.append(tensor)
            return _tensor, (len(self.tensors) - 1,)
        if tensor.is_cuda:
            from torch.multiprocessing.reductions import reduce_tensor

            return reduce_tensor(tensor)  # type: ignore[no-untyped-call]
        if tensor.requires_grad and not tensor.is_leaf:
            _refuse_non_leaf()
        if tensor.layout is not torch.strided and not tensor.is_nested:
            return _sparse, (_sparse_parts(tensor),)
        return _own_reduction(tensor)

    def _reduce_array(self, array: np.ndarray[Any, Any]) -> Any:
        """As numpy's own pickling leaves an array: writable, in C order (or Fortran's, where it has that), and native.

        The fields of a structured array stay as they are.
        """
        if array.dtype.hasobject or array.nbytes < _INLINE_BUFFER:
            return array.__reduce__()
        order: Literal["F", "C"] = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        dtype = array.dtype if array.dtype.names is not None else array.dtype.newbyteorder("=")
        native = array.astype(dtype, order=order, copy=False)
        flat = native.ravel(order="K" if native.flags.forc else "C").view(np.uint8)
        self.buffers.append(self.writer.write(flat.data))
        return _array, (len(self.buffers) - 1, native.dtype, native.shape, order)

    def keep_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """True keeps the bytes in the pickle, False puts them into the slot."""
        raw = buffer.raw()
        if raw.nbytes < _INLINE_BUFFER:
            return True
        self.out_of_band.append(self.writer.write(raw))
        return False


def _own_reduction(tensor: Tensor) -> Any:
    """torch's, or the subclass's, way to take a tensor apart."""
    if tensor.is_cuda:
        return NotImplemented
    reduced: Any = tensor.__reduce_ex__(5)  # type: ignore[no-untyped-call]
    if len(reduced) == 2 and reduced[0] is torch._tensor._rebuild_from_type_v2:
        func, kind, args, state = reduced[1]
        return reduced[0], (func, kind, _typed(func, args), state)
    return reduced[0], _typed(reduced[0], reduced[1]), *reduced[2:]


def _typed(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """torch hands out an untyped storage for newer dtypes, and expects a typed one back: `torch.load` makes one."""
    if func is torch._utils._rebuild_tensor_v3 and isinstance(args[0], torch.UntypedStorage):
        return _typed_storage(args[0], torch.uint8), *args[1:]
    return args


def _sparse_parts(tensor: Tensor) -> tuple[Any, ...]:
    """What a sparse tensor is made of. (torch's own pickling would keep every one it rebuilds in a list, for ever.)"""
    layout, shape, grad = tensor.layout, tuple(tensor.shape), tensor.requires_grad
    plain = tensor.detach()
    if layout is torch.sparse_coo:
        return layout, shape, grad, plain._values(), plain._indices(), None, plain.is_coalesced()
    if layout in (torch.sparse_csr, torch.sparse_bsr):
        return layout, shape, grad, plain.values(), plain.crow_indices(), plain.col_indices(), None
    return layout, shape, grad, plain.values(), plain.ccol_indices(), plain.row_indices(), None


class _BatchPickler(pickle.Pickler):
    """The plain pickler: classes by reference, so that what arrives is of the very class the user knows."""

    reducer_override: Any

    def __init__(self, file: io.BytesIO, encoding: Encoding) -> None:
        super().__init__(file, protocol=5, buffer_callback=encoding.keep_buffer)
        self.reducer_override = encoding.reduce


class _ByValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """For what the main process cannot look up by name: lambdas, local classes, notebook classes under spawn."""

    def __init__(self, file: io.BytesIO, encoding: Encoding) -> None:
        super().__init__(file, protocol=5, buffer_callback=encoding.keep_buffer)
        self._encoding = encoding

    def reducer_override(self, obj: Any) -> Any:
        reduced = self._encoding.reduce(obj)
        return super().reducer_override(obj) if reduced is NotImplemented else reduced


MakePickler = Callable[[io.BytesIO, Encoding], Any]


def encode(
    batch: object, writer: SlotWriter, plainly: MakePickler = _BatchPickler, by_value: MakePickler = _ByValuePickler
) -> bytes | Range:
    """Lay `batch` out in the areas of `writer`. Returns the marshalled layout, or its place in the slot.

    What `plainly` cannot pickle is left to `by_value`.
    """
    try:
        if type(batch) is Tensor and _is_plain(batch):
            structure, encoding = _ONE_TENSOR, Encoding(writer)
            encoding.tensors.append(batch)
        else:
            structure, encoding = _pickle_with(plainly, batch, writer)
    except (pickle.PicklingError, AttributeError, TypeError):
        structure, encoding = _pickle_with(by_value, batch, writer)
    storages, tensors = _place(encoding) if encoding.tensors or encoding.storages else ((), ())
    whole, buffers, out_of_band = len(encoding.storages), tuple(encoding.buffers), tuple(encoding.out_of_band)
    # marshal refuses 2 GiB or more. A large structure, which may hold any amount of bytes, is stored separately.
    placed = structure if len(structure) <= _INLINE_LAYOUT else writer.write(structure)
    packed = marshal.dumps((placed, storages, whole, tensors, buffers, out_of_band))
    return packed if len(packed) <= _INLINE_LAYOUT else writer.write(packed)


def _pickle_with(pickler: MakePickler, batch: object, writer: SlotWriter) -> tuple[bytes, Encoding]:
    file = io.BytesIO()
    encoding = Encoding(writer)
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


class _Part:
    """The bytes [low, high) of one source storage that the batch refers to."""

    __slots__ = ("high", "low", "number", "storage")

    def __init__(self, number: int, storage: torch.UntypedStorage, low: int, high: int) -> None:
        self.number = number
        self.storage = storage
        self.low = low
        self.high = high


def _place(encoding: Encoding) -> tuple[tuple[Range, ...], tuple[TensorRow, ...]]:
    """Give each distinct storage its range, copy what is not there yet, and describe the tensors."""
    # Whole storages come first: `_storage(k)` counts on their numbers.
    parts = [_Part(k, storage, 0, storage.nbytes()) for k, storage in enumerate(encoding.storages)]
    # By identity, not address: two storages over one piece of memory arrive as two, as with torch.
    by_identity: dict[int, _Part] = {part.storage._cdata: part for part in parts}
    views = [_view_of(tensor, parts, by_identity) for tensor in encoding.tensors]
    ranges = tuple([_place_part(part, encoding.writer) for part in parts])
    return ranges, tuple([_row(tensor, *view, parts) for tensor, view in zip(encoding.tensors, views, strict=True)])


def _view_of(
    tensor: Tensor, parts: list[_Part], by_identity: dict[int, _Part]
) -> tuple[int, int, tuple[int, ...] | None]:
    """(storage, first byte in it, stride or None), widening the part of the storage that is needed."""
    stride: tuple[int, ...] | None = None
    if not tensor.is_contiguous() or 1 in tensor.shape:  # (the stride of a dimension of one may be anything)
        stride = tensor.stride()
        stride = None if stride == _contiguous(tensor.shape) else stride
    nbytes = tensor.nbytes if stride is None else _span_bytes(tensor)
    if nbytes == 0:
        return -1, 0, tensor.stride()
    storage = tensor.untyped_storage()
    start = int(tensor.storage_offset()) * tensor.element_size()
    part = by_identity.get(storage._cdata)
    low = start // _LARGEST_ITEM * _LARGEST_ITEM  # so that every view of the range stays aligned
    if part is None:
        part = by_identity[storage._cdata] = _Part(len(parts), storage, low, start + nbytes)
        parts.append(part)
    else:
        part.low = min(part.low, low)
        part.high = max(part.high, start + nbytes)
    return part.number, start, stride


def _span_bytes(tensor: Tensor) -> int:
    """From the first to the last byte that a strided tensor looks at."""
    if tensor.numel() == 0:
        return 0
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def _row(tensor: Tensor, storage: int, start: int, stride: tuple[int, ...] | None, parts: list[_Part]) -> TensorRow:
    offset = start and (start - parts[storage].low) // tensor.element_size()
    return storage, _CODE_OF[tensor.dtype], offset, tuple(tensor.shape), stride, tensor.requires_grad


def _place_part(part: _Part, writer: SlotWriter) -> Range:
    nbytes = part.high - part.low
    if nbytes <= 0:
        return 0, 0, 0
    there = writer.locate(part.storage.data_ptr() + part.low)
    if there is not None:
        return *there, nbytes
    area, start = writer.reserve(nbytes)
    source = torch.empty(0, dtype=torch.uint8, device="cpu").set_(part.storage, part.low, (nbytes,), (1,))
    torch.frombuffer(writer.areas[area].view[start : start + nbytes], dtype=torch.uint8).copy_(source)
    return area, start, nbytes


# -- decoding, in the main process; of arguments, in a worker ----------------------------------------------------------


class Readable(Protocol):
    """An area, as who decodes sees it."""

    def peek(self, start: int, nbytes: int) -> memoryview:
        """Bytes to be read at once and not kept."""


Area = TypeVar("Area", bound=Readable)
Area_contra = TypeVar("Area_contra", contravariant=True)


class Lender(Protocol[Area_contra]):
    """Gives out parts of an area, and knows when the last view of one is gone."""

    def hand_out(self, slot: Area_contra, start: int, nbytes: int) -> tuple[memoryview, ViewRef]: ...

    def hand_out_array(self, slot: Area_contra, start: int, nbytes: int) -> np.ndarray[Any, Any]: ...


class _Decoding(threading.local):
    """What the functions named in a structure pickle refer to while it is being loaded."""

    tensors: list[Tensor]
    storages: list[torch.UntypedStorage]
    buffers: list[Any]


_decoding = _Decoding()


def _tensor(number: int) -> Tensor:
    return _decoding.tensors[number]


def _array(number: int, dtype: Any, shape: tuple[int, ...], order: Any) -> np.ndarray[Any, Any]:
    return np.ndarray(shape, dtype, _decoding.buffers[number], order=order)


def _sparse(parts: tuple[Any, ...]) -> Tensor:
    layout, shape, requires_grad, values, indices, plain_indices, is_coalesced = parts
    checks: Any = torch.sparse.check_sparse_tensor_invariants
    with checks(enable=checks.is_enabled()):  # as the user has it; but torch warns where nobody has said so
        if plain_indices is None:
            tensor = torch.sparse_coo_tensor(indices, values, shape, is_coalesced=is_coalesced)
        else:
            tensor = torch.sparse_compressed_tensor(indices, plain_indices, values, shape, layout=layout)
    return tensor.requires_grad_() if requires_grad else tensor


def _storage(number: int) -> torch.UntypedStorage:
    return _decoding.storages[number]


def _typed_storage(untyped: torch.UntypedStorage, dtype: torch.dtype) -> torch.TypedStorage:
    return torch.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)  # type: ignore[no-untyped-call]


def decode(packed: bytes | Range, areas: Sequence[Area], pool: Lender[Area]) -> Any:
    """Rebuild a batch as views of its slots. The slots are the pool's business again when the views are gone."""
    placed, ranges, whole, rows, buffers, out_of_band = marshal.loads(_bytes_at(packed, areas))
    structure = _bytes_at(placed, areas)
    if not (ranges or buffers or out_of_band or rows):
        return pickle.loads(structure)
    if not whole and all(row[0] == k and row[4] is None for k, row in enumerate(rows)):
        storages: list[torch.UntypedStorage] = []
        tensors = [_build_alone(row, rng, areas, pool) for row, rng in zip(rows, ranges, strict=True)]
    else:
        storages = [_build_storage(rng, areas, pool) for rng in ranges]
        tensors = [_build_on(row, storages) for row in rows]
    if structure == _ONE_TENSOR:
        return tensors[0]
    arrays = [_build_buffer(rng, areas, pool) for rng in buffers]
    return _load(structure, tensors, storages, arrays, [_build_buffer(rng, areas, pool) for rng in out_of_band])


def _bytes_at(place: bytes | Range, areas: Sequence[Readable]) -> bytes | memoryview:
    return place if isinstance(place, bytes) else areas[place[0]].peek(place[1], place[2])


def _load(
    structure: bytes | memoryview,
    tensors: list[Tensor],
    storages: list[torch.UntypedStorage],
    buffers: list[Any],
    out_of_band: list[Any],
) -> Any:
    before = vars(_decoding).copy()  # loading may run the user's code, and that may load a batch of its own
    _decoding.tensors, _decoding.storages, _decoding.buffers = tensors, storages, buffers
    try:
        with _no_word_of_typed_storages() if storages else contextlib.nullcontext():
            return pickle.loads(structure, buffers=out_of_band)
    finally:
        vars(_decoding).clear()
        vars(_decoding).update(before)


@contextlib.contextmanager
def _no_word_of_typed_storages() -> Iterator[None]:
    """torch rebuilds some tensors by a way that it warns of itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
        yield


def _build_buffer(rng: Range, areas: Sequence[Area], pool: Lender[Area]) -> np.ndarray[Any, Any]:
    area, start, nbytes = rng
    return pool.hand_out_array(areas[area], start, nbytes)


def _build_alone(row: TensorRow, rng: Range, areas: Sequence[Area], pool: Lender[Area]) -> Tensor:
    """The common case: a contiguous tensor with a storage of its own."""
    _, code, offset, shape, _, requires_grad = row
    dtype = _DTYPES[code]
    buffer, ref = pool.hand_out(areas[rng[0]], rng[1], rng[2])
    tensor = torch.frombuffer(buffer, dtype=dtype, offset=offset * dtype.itemsize).resize_(shape)
    ref.storage = weakref.ref(tensor.untyped_storage())
    return tensor.requires_grad_() if requires_grad else tensor


def _build_storage(rng: Range, areas: Sequence[Area], pool: Lender[Area]) -> torch.UntypedStorage:
    area, start, nbytes = rng
    if nbytes == 0:
        return torch.UntypedStorage(0)  # type: ignore[no-untyped-call]
    buffer, ref = pool.hand_out(areas[area], start, nbytes)
    storage = torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()
    ref.storage = weakref.ref(storage)
    return storage


def _build_on(row: TensorRow, storages: list[torch.UntypedStorage]) -> Tensor:
    number, code, offset, shape, stride, requires_grad = row
    stride = stride or _contiguous(shape)
    if number < 0:
        tensor = torch.empty_strided(shape, stride, dtype=_DTYPES[code], device="cpu")
    else:
        tensor = torch.empty(0, dtype=_DTYPES[code], device="cpu").set_(storages[number], offset, shape, stride)
    return tensor.requires_grad_() if requires_grad else tensor


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    stride, strides = 1, []
    for n in reversed(shape):
        strides.append(stride)
        stride *= max(n, 1)
    return tuple(reversed(strides))
