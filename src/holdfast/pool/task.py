"""One call of a pool: the call itself, the future that waits for it, and what is allowed to it.

Runs in: main process; worker process (`Chunk`).
"""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from holdfast.diagnosis.wording import one_line
from holdfast.memory import sizes
from holdfast.words import plural
from holdfast.workers.arguments import check_count, check_seconds
from holdfast.workers.calls import Call
from holdfast.workers.messages import NO_LIMIT

RAISED = "raised"
_LONGEST_NAME = 160
_LONGEST_MS = 1e15  # thirty thousand years: the status board has numbers of 64 bits
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 40


@dataclass(frozen=True, slots=True)
class Limits:
    """What one call may take. The fields are arguments of the same names."""

    timeout: float | None = None
    max_retries: int = 0
    memory_limit: int | str | None = None

    def __post_init__(self) -> None:
        check_seconds("timeout", self.timeout)
        check_count("max_retries", self.max_retries)
        if self.memory_limit is not None:
            sizes.parse_bytes("memory_limit", self.memory_limit)

    @property
    def limit_bytes(self) -> int:
        """0: there is none."""
        return 0 if self.memory_limit is None else sizes.parse_bytes("memory_limit", self.memory_limit)

    def limit_bytes_beside(self, pools: Limits) -> int:
        """For one call of a pool that has those; 0: it has no limit of its own."""
        if self.memory_limit == pools.memory_limit:
            return 0
        return NO_LIMIT if self.memory_limit is None else self.limit_bytes

    def limit_ms(self, calls: int) -> int:
        """For so many calls, one after the other. Below a millisecond is nothing that can be watched."""
        return NO_LIMIT if self.timeout is None else max(1, round(min(self.timeout * 1000 * calls, _LONGEST_MS)))


class Chunk:
    """Many calls as one."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn

    def __call__(self, chunk: list[tuple[Any, ...]]) -> list[Any]:
        return [self.fn(*args) for args in chunk]


@dataclass(slots=True, eq=False, kw_only=True)
class Task(Call):
    """A call, and who waits for it."""

    future: Future[Any]
    max_retries: int = 0
    on_failure: str = RAISED  # what is done then, as its incident says: that, "returned" or "skipped"
    has_begun: bool = False  # the future is running, and cannot be cancelled any more

    @property
    def is_explained(self) -> bool:
        """Whether an exception of the function's own has an incident: one that nobody raises would be told nowhere."""
        return self.on_failure != RAISED

    @property
    def attempts(self) -> int:
        return self.max_retries + 1

    @property
    def words(self) -> str:
        """The call as the user wrote it, or nearly: "process(5, mode='fast')"."""
        if not isinstance(self.fn, Chunk):
            return _words(self.fn, self.args, self.kwargs)
        (chunk,) = self.args
        ends = " to ".join(_words(self.fn.fn, args, {}) for args in (chunk[0], *chunk[1:][-1:]))
        return f"{plural(len(chunk), 'call')} as one, {ends}"


def _words(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    while isinstance(fn, functools.partial):
        fn, args, kwargs = fn.func, fn.args + args, {**fn.keywords, **kwargs}
    given = [_told(value) for value in args] + [f"{name}={_told(value)}" for name, value in kwargs.items()]
    return one_line(f"{_name(fn)}({', '.join(given)})", _LONGEST_NAME)


def _told(value: Any) -> str:
    try:
        return _short.repr(value)
    except Exception:
        return f"<{type(value).__qualname__}>"


def _name(fn: Any) -> str:
    name = getattr(fn, "__qualname__", None)
    return name if isinstance(name, str) else type(fn).__qualname__
