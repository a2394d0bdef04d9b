"""The worker's part of a call: take it apart, run it, and remember whether anybody keeps its arguments.

Runs in: worker process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.transport.arguments import Borrower, LentSlot
from holdfast.transport.segments import Segment
from holdfast.workers import messages
from holdfast.workers.board import LIMIT_MS, POSITION, SPAN


class Caller:
    """Runs the calls of one worker, one after the other."""

    def __init__(self, row: memoryview, segments: Mapping[int, Segment]) -> None:
        self._row = row
        self._segments = segments
        self._borrower = Borrower()

    def run(self, request: bytes | memoryview) -> Any:
        """What the call returns; what it raises, `SystemExit` and its like too, is for the caller to catch."""
        call = messages.unpack_call(request)
        row = self._row
        row[POSITION], row[SPAN], row[LIMIT_MS] = 0, 1, call.limit_ms
        slots = [self._lent(*ref) for ref in call.slots]
        fn, args, kwargs = self._borrower.unpack(call.layout, slots)
        return fn(*args, **kwargs)

    def aside(self) -> bytes:
        """Said with the result, once that is let go: nothing, if nobody keeps an argument."""
        return messages.ARGUMENTS_KEPT if self._borrower.are_kept() else b""

    def _lent(self, segment: int, offset: int, nbytes: int) -> LentSlot:
        return LentSlot(self._segments[segment].view[offset : offset + nbytes])


class Initializer:
    """The user's initializer, as a `worker_init_fn`."""

    def __init__(self, initializer: Callable[..., object], initargs: tuple[Any, ...]) -> None:
        self.initializer = initializer
        self.initargs = initargs

    def __call__(self, worker_id: int) -> None:
        self.initializer(*self.initargs)
