"""A call on its way to a worker: function and arguments, laid out as a batch is on its way back.

    main: pack(fn, args, kwargs) ──► message, and slots where there are arrays ──► worker: unpack ──► the call

Arrays and tensors lie in slots of the main process. The worker gets views of them, not copies: if the user's code
keeps one beyond the call, the main process is told, does not use that slot again, and this worker gets copies from then
on. What is sent again is packed again: a worker may have changed what it had. What `share()` has made travels as a
handle.

Runs in: main process (pack), worker process (unpack).
"""

from __future__ import annotations

import copyreg
import functools
import io
import pickle
from collections import ChainMap
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from holdfast.errors import NotPicklable
from holdfast.transport import layout, pickling
from holdfast.transport.layout import Encoding, Range
from holdfast.transport.main_module import SentByName
from holdfast.transport.slots import Slot, SlotPool, ViewRef
from holdfast.transport.writer import SlotWriter, area_of

_REDUCERS: dict[type, Any] = ForkingPickler._extra_reducers  # type: ignore[attr-defined]


class Packed(NamedTuple):
    """A call, ready to be sent. The slots are the caller's to release."""

    layout: bytes | Range
    slots: tuple[Slot, ...]


# -- in the main process -----------------------------------------------------------------------------------------------


class ArgumentWriter(SlotWriter):
    """Takes slots from the pool as it needs them: for most calls none at all."""

    def __init__(self, pool: SlotPool) -> None:
        super().__init__()
        self._pool = pool
        self._slots: list[Slot] = []

    def reserve(self, nbytes: int) -> tuple[int, int]:
        if not self.areas:
            self._spill(nbytes)
        return super().reserve(nbytes)

    def _spill(self, nbytes: int) -> None:
        slot = self._pool.acquire(nbytes)
        self._slots.append(slot)
        self.areas.append(area_of(slot.peek(0, slot.nbytes)))

    def take_slots(self) -> tuple[Slot, ...]:
        """What was written to, for the caller to keep and release."""
        for slot, area in zip(self._slots, self.areas, strict=True):
            slot.touched = max(slot.touched, area.used)
        slots, self._slots, self.areas = tuple(self._slots), [], []
        return slots


class Packer:
    """Packs calls for the workers of one pool."""

    def __init__(self, pool: SlotPool, by_name: SentByName) -> None:
        self._pool = pool
        self._writer = ArgumentWriter(pool)
        self._plainly = functools.partial(_PlainPickler, by_name)
        self._by_value = functools.partial(_ByValuePickler, by_name)

    def pack(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Packed:
        """Raises NotPicklable, which names the argument."""
        try:
            packed = layout.encode((fn, args, kwargs), self._writer, self._plainly, self._by_value)
        except Exception as error:
            self._discard()
            raise _refusal(fn, args, kwargs, error) from error
        except BaseException:
            self._discard()
            raise
        return Packed(packed, self._writer.take_slots())

    def _discard(self) -> None:
        for slot in self._writer.take_slots():
            self._pool.release(slot)


class _NotByName(pickle.PicklingError):
    """Workers do not have this under its name."""


class _PlainPickler(pickle.Pickler):
    """By reference, as fast as can be. Refuses what workers would look for in vain."""

    dispatch_table: Any = ChainMap(_REDUCERS, copyreg.dispatch_table)  # noqa: RUF012  (the C pickler reads it)

    def __init__(self, by_name: SentByName, file: io.BytesIO, encoding: Encoding) -> None:
        super().__init__(file, protocol=5, buffer_callback=encoding.keep_buffer)
        self._by_name = by_name
        self._encoding = encoding

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | FunctionType):
            if obj.__module__ == "__main__" and obj not in self._by_name:
                raise _NotByName
            return NotImplemented
        return _handle(obj) or self._encoding.reduce(obj)


class _ByValuePickler(pickling.JobPickler):
    """For what has no name that a worker knows: lambdas, local classes, notebook cells."""

    def __init__(self, by_name: SentByName, file: io.BytesIO, encoding: Encoding) -> None:
        super().__init__(file, encoding.keep_buffer, by_name)
        self._encoding = encoding

    def reducer_override(self, obj: Any) -> Any:
        reduced = _handle(obj) or self._encoding.reduce(obj)
        return super().reducer_override(obj) if reduced is NotImplemented else reduced


def _handle(obj: Any) -> Any:
    """Of what is shared: it is not copied. None of anything else."""
    make = pickling.handle_makers.get(type(obj))
    return None if make is None else make(obj)


def _refusal(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> NotPicklable:
    for number, value in enumerate(args):
        if not pickling.pickles(value):
            return _explain(*pickling.find_culprit(value, f"argument {number}"), error)
    for name, value in kwargs.items():
        if not pickling.pickles(value):
            return _explain(*pickling.find_culprit(value, f"argument {name!r}"), error)
    return _explain(*pickling.find_culprit(fn, getattr(fn, "__qualname__", "the function")), error)


def _explain(path: str, culprit: object, error: Exception) -> NotPicklable:
    message = (
        f"{path} cannot be sent to a worker: {pickling.describe(culprit)} cannot be pickled "
        f"({type(error).__name__}: {error})\n"
        f"  try   open or create it in the worker: in the initializer, or in the function itself"
    )
    return NotPicklable(message, path=path)


# -- in a worker -------------------------------------------------------------------------------------------------------


class LentSlot:
    """A range that belongs to the main process."""

    __slots__ = ("view",)

    def __init__(self, view: memoryview) -> None:
        self.view = view

    def peek(self, start: int, nbytes: int) -> memoryview:
        return self.view[start : start + nbytes]


class Borrower:
    """Gives views of what was sent, for as long as nobody keeps one beyond his call; then copies."""

    def __init__(self) -> None:
        self._lent: list[ViewRef] = []
        self._copies = False

    def unpack(self, packed: bytes | Range, slots: Sequence[LentSlot]) -> tuple[Callable[..., Any], Any, Any]:
        fn, args, kwargs = layout.decode(packed, slots, self)
        return fn, args, kwargs

    def are_kept(self) -> bool:
        """Whether the user's code still holds something of the call that has just ended."""
        kept = any(not ref.is_gone() for ref in self._lent)
        self._lent = []
        self._copies |= kept
        return kept

    def hand_out(self, slot: LentSlot, start: int, nbytes: int) -> tuple[memoryview, ViewRef]:
        view = slot.peek(start, nbytes)
        buffer = memoryview(bytearray(view)) if self._copies else view
        return buffer, self._track(buffer)

    def hand_out_array(self, slot: LentSlot, start: int, nbytes: int) -> np.ndarray[Any, Any]:
        array = np.frombuffer(slot.peek(start, nbytes), dtype=np.uint8)
        if self._copies:
            return array.copy()
        self._track(array)
        return array

    def _track(self, buffer: Any) -> ViewRef:
        ref = ViewRef(buffer)
        ref.storage = None
        if not self._copies:
            self._lent.append(ref)
        return ref
