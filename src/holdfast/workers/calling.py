"""The worker's part of a call: take it apart, run it, and remember whether anybody keeps its arguments.

A process that the function forks, and that returns from it too, is not the worker: it ends here, and says nothing.

Runs in: worker process.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from holdfast.board_rows import LIMIT_BYTES, LIMIT_MS, POSITION, SPAN, START_BYTES, TAKEN_BACK
from holdfast.memory import readings
from holdfast.transport.arguments import Borrower, LentSlot
from holdfast.transport.segments import Segment
from holdfast.workers import limits, messages


class Caller:
    """Runs the calls of one worker, one after the other."""

    def __init__(self, row: memoryview, segments: Mapping[int, Segment]) -> None:
        self._row = row
        self._segments = segments
        self._borrower = Borrower()
        self._put_back: Callable[[], None] | None = None  # the memory limit that was there before a call's own
        self._pid = os.getpid()

    def run(self, request: bytes | memoryview) -> Any:
        """What the call returns; what it raises, `SystemExit` and its like too, is for the caller to catch."""
        call = messages.unpack_call(request)
        row = self._row
        row[POSITION], row[SPAN], row[LIMIT_MS] = 0, 1, call.limit_ms
        if call.limit_bytes:
            self._limit_memory(call.limit_bytes)
        slots = [self._lent(*ref) for ref in call.slots]
        fn, args, kwargs = self._borrower.unpack(call.layout, slots)
        try:
            returned = fn(*args, **kwargs)
        except BaseException as error:
            if os.getpid() != self._pid:
                _end_fork(error)
            raise
        if os.getpid() != self._pid:
            _end_fork(None)
        return returned

    def is_taken_back(self, unit: int) -> bool:
        """Whether the main process wants somebody else to run it. Asked when the board says that it is begun here."""
        return bool(unit <= self._row[TAKEN_BACK])

    def aside(self) -> bytes:
        """Said with the result, once that is let go: nothing, if nobody keeps an argument. The call is over."""
        if self._put_back is not None:
            self._put_back()
            self._put_back = None
        return messages.ARGUMENTS_KEPT if self._borrower.are_kept() else b""

    def _limit_memory(self, limit_bytes: int) -> None:
        """From here on to the end of the call: what the process has by now does not count."""
        row, start_bytes = self._row, self._row[START_BYTES]
        put_limit_back = limits.limit_memory_for_now(limit_bytes)
        row[START_BYTES], row[LIMIT_BYTES] = readings.anonymous_bytes("self") or 0, limit_bytes

        def put_back() -> None:
            row[LIMIT_BYTES], row[START_BYTES] = 0, start_bytes
            put_limit_back()

        self._put_back = put_back

    def _lent(self, segment: int, offset: int, nbytes: int) -> LentSlot:
        return LentSlot(self._segments[segment].view[offset : offset + nbytes])


def _end_fork(error: BaseException | None) -> NoReturn:
    """As a fork of a program that ran nothing but the function would end."""
    code: object = 0 if error is None else 1
    try:
        if isinstance(error, SystemExit):
            code = error.code or 0
        elif error is not None:
            traceback.print_exception(error)
        if not isinstance(code, int):
            print(code, file=sys.stderr)
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with contextlib.suppress(Exception):
                stream.flush()
    finally:
        os._exit(code & 0xFF if isinstance(code, int) else 1)


class Initializer:
    """The user's initializer, as a `worker_init_fn`."""

    def __init__(self, initializer: Callable[..., object], initargs: tuple[Any, ...]) -> None:
        self.initializer = initializer
        self.initargs = initargs

    def __call__(self, worker_id: int) -> None:
        self.initializer(*self.initargs)
