"""Items of any kind: a pickle each, one behind the other, and a run of the places where they begin.

A pickle knows its own end. What pickles out of band (arrays, tensors, and whatever else knows how) lies between them
and is not copied when an item is asked for: an array is a read-only view, a tensor a private one. With such parts there
are two runs more: place and length of every part, and the first part of every item.

    runs: starts of pickles [, parts, first parts]

Classes and functions travel as with everything that goes to a worker (`transport/pickling.py`): by value where a new
interpreter would not find them. Runs in: the process that shares (pack), any process (getter).
"""

from __future__ import annotations

import io
import pickle
import sys
from array import array
from collections.abc import Callable
from typing import Any, ClassVar

import cloudpickle
import numpy as np

from holdfast.errors import NotPicklable, SharedMemoryError
from holdfast.sharing.arrays import is_dense, pack_tensor, tensor_on
from holdfast.sharing.builder import Builder
from holdfast.sharing.runs import ItemsForm, Kind, write_integers, write_run
from holdfast.sharing.segment import Array, SharedSegment
from holdfast.transport import pickling

_FLUSH_BYTES = 1024 * 1024
_INLINE_BYTES = 256  # a smaller array stays in the pickle


class _ItemPickler(pickling.JobPickler):
    """Pickles items one after the other, by value in all their parts: no descriptors, nothing of this process."""

    dispatch_table: ClassVar[Any] = cloudpickle.Pickler.dispatch_table

    def __init__(self, file: io.BytesIO, builder: Builder) -> None:
        super().__init__(file, self._keep_buffer)
        self._builder = builder
        self.parts = array("Q")

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is np.ndarray:
            return _reduce_array(obj)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(obj, torch.Tensor) and is_dense(obj) and obj.nbytes and not obj.grad_fn:
            return _reduce_tensor(obj)
        return super().reducer_override(obj)

    def _keep_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """True keeps the bytes in the pickle, False puts them beside it."""
        raw = buffer.raw()
        if raw.nbytes < _INLINE_BYTES:
            return True
        self.parts.extend((self._builder.write(raw), raw.nbytes))
        return False


def _reduce_array(source: Array) -> Any:
    """What is read-only when it is pickled is read-only when it comes back."""
    view = (source if source.flags.forc else source.copy()).view()
    view.flags.writeable = False
    return view.__reduce_ex__(5)


def _reduce_tensor(tensor: Any) -> Any:
    packed, strides = pack_tensor(tensor)
    shape = tuple(tensor.shape)
    return tensor_on, (pickle.PickleBuffer(packed.data), tensor.dtype, shape, strides, tensor.requires_grad)


def pack(items: list[Any], builder: Builder, name_of: Callable[[int], str]) -> ItemsForm:
    """Pickle items into a segment, a megabyte at a time."""
    file = io.BytesIO()
    pickler = _ItemPickler(file, builder)
    starts, first_parts = array("Q"), array("Q", [0])
    unplaced = 0  # the first item whose pickle is not in the segment yet
    for number, item in enumerate(items):
        starts.append(file.tell())
        _dump(pickler, item, name_of, number)
        first_parts.append(len(pickler.parts) // 2)
        if file.tell() > _FLUSH_BYTES:
            _place(file, starts, unplaced, builder)
            unplaced = number + 1
    _place(file, starts, unplaced, builder)
    runs = [write_integers(np.asarray(starts), builder)]
    if pickler.parts:
        runs.append(write_run(pickler.parts, "Q", builder))
        runs.append(write_integers(np.asarray(first_parts), builder))
    return ItemsForm(Kind.PICKLES, len(items), tuple(runs))


def _dump(pickler: _ItemPickler, item: Any, name_of: Callable[[int], str], number: int) -> None:
    try:
        pickler.dump(item)
    except SharedMemoryError:
        raise
    except Exception as error:
        path, culprit = pickling.find_culprit(item, name_of(number))
        raise NotPicklable(
            f"{path} cannot be shared: {pickling.describe(culprit)} cannot be pickled "
            f"({type(error).__name__}: {error})\n"
            f"  try   share the data without it, and make it in the worker (in worker_init_fn, or on first use in "
            f"__getitem__)",
            path=path,
        ) from error
    pickler.clear_memo()


def _place(file: io.BytesIO, starts: array[int], first: int, builder: Builder) -> None:
    """Move the pickles to the segment; from then on `starts` says where they are there."""
    with file.getbuffer() as pickled:
        at = builder.append(pickled)
    np.asarray(starts)[first:] += np.uint64(at)
    file.seek(0)
    file.truncate()


def getter(segment: SharedSegment, runs: list[memoryview]) -> Callable[[int], Any]:
    """What loads an item by its number."""
    if len(runs) == 1:
        return _plain_getter(segment.view, runs[0])
    return _parts_getter(segment, *runs)


def _plain_getter(view: memoryview, starts: memoryview) -> Callable[[int], Any]:
    def get(row: int) -> Any:
        return pickle.loads(view[starts[row] :])

    return get


def _parts_getter(
    segment: SharedSegment, starts: memoryview, parts: memoryview, first_parts: memoryview
) -> Callable[[int], Any]:
    view, writable = segment.view, segment.writable

    def get(row: int) -> Any:
        spans = range(2 * first_parts[row], 2 * first_parts[row + 1], 2)
        buffers = [writable[parts[at] : parts[at] + parts[at + 1]] for at in spans]
        return pickle.loads(view[starts[row] :], buffers=buffers)

    return get
