"""Items of any kind: a pickle each, one behind the other, and a run of the places where they begin.

A pickle knows its own end. What pickles out of band (arrays, tensors, and whatever else knows how) lies between them
and is not copied when an item is asked for: an array is a read-only view, a tensor a private one. A class that a new
interpreter would not find (of a notebook, of a function) travels by value, once for all items.

    runs: where each pickle begins; place and length of each part; the first part of each item; a pickle of the classes

Runs in: the process that shares (pack), any process (getter).
"""

from __future__ import annotations

import io
import os
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
        self._names = f"{os.urandom(6).hex()}-"
        self._reduced: dict[type, Any] = {}  # every class that was met, and what became of it
        self.parts = array("Q")
        self.classes: dict[str, type] = {}  # that travel by value

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type):
            if obj not in self._reduced:
                self._reduced[obj] = self._reduce_class(obj)
            return self._reduced[obj]
        if type(obj) is np.ndarray:
            return _reduce_array(obj)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(obj, torch.Tensor) and is_dense(obj) and obj.nbytes and not obj.grad_fn:
            return _reduce_tensor(obj)
        return super().reducer_override(obj)

    def _reduce_class(self, cls: type) -> Any:
        reduced = super().reducer_override(cls)
        if reduced is NotImplemented:
            return reduced  # by name
        name = f"{self._names}{len(self.classes)}"
        self.classes[name] = _classes[name] = cls
        return class_named, (name,)

    def _keep_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """True keeps the bytes in the pickle, False puts them beside it."""
        raw = buffer.raw()
        if raw.nbytes < _INLINE_BYTES:
            return True
        self.parts.extend((self._builder.write(raw), raw.nbytes))
        return False


# Those that travelled by value, by the names that pickles of items have for them.
_classes: dict[str, type] = {}


def class_named(name: str) -> type:
    return _classes[name]


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
    runs = (
        write_integers(np.asarray(starts), builder),
        write_run(pickler.parts, "Q", builder),
        write_integers(np.asarray(first_parts if pickler.parts else []), builder),
        write_run(pickling.dumps(pickler.classes, "obj")[0] if pickler.classes else b"", "B", builder),
    )
    return ItemsForm(Kind.PICKLES, len(items), runs)


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
    starts, parts, first_parts, classes = runs
    if classes:
        _learn(classes)
    return _parts_getter(segment, starts, parts, first_parts) if parts else _plain_getter(segment.view, starts)


def _learn(pickled: memoryview) -> None:
    """Make the classes of the items known here, unless this is the process that they come from."""
    for name, cls in pickle.loads(pickled).items():
        _classes.setdefault(name, cls)


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
