"""One call of a pool: the call itself, the future that waits for it, and what is allowed to it.

Runs in: main process.
"""

from __future__ import annotations

import reprlib
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from holdfast.diagnosis.wording import one_line
from holdfast.memory import sizes
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

    def limit_ms(self, calls: int) -> int:
        """For so many calls, one after the other. Below a millisecond is nothing that can be watched."""
        return NO_LIMIT if self.timeout is None else max(1, round(min(self.timeout * 1000 * calls, _LONGEST_MS)))


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
        given = [_told(value) for value in self.args] + [f"{k}={_told(v)}" for k, v in self.kwargs.items()]
        return one_line(f"{_name(self.fn)}({', '.join(given)})", _LONGEST_NAME)


def _told(value: Any) -> str:
    try:
        return _short.repr(value)
    except Exception:
        return f"<{type(value).__qualname__}>"


def _name(fn: Any) -> str:
    name = getattr(fn, "__qualname__", None)
    return name if isinstance(name, str) else type(fn).__qualname__
