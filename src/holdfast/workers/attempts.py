"""Trying a sample again: which exceptions are worth it, how long to wait, and which may be passed over.

Runs in: worker process; main process, without workers.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.board_rows import ATTEMPT, PHASE, Phase

_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 5.0

# Of the machine or of the program, not of a sample: passing over them would hide that nothing works.
_NOBODYS_SAMPLE = (ImportError, SyntaxError, NameError, NotImplementedError)


@dataclass(frozen=True, slots=True)
class Care:
    """How samples that cannot be loaded are treated. The fields are the loader's arguments of the same names."""

    on_error: str = "raise"
    max_retries: int = 1
    retry_on: tuple[type[BaseException], ...] = ()
    memory_limit: int | None = None  # in bytes

    @property
    def passes_over(self) -> bool:
        return self.on_error != "raise"

    def may_pass_over(self, error: Exception) -> bool:
        """Whether the epoch may go on without the sample that raised this."""
        return self.passes_over and (isinstance(error, self.retry_on) or not self._is_nobodys_sample(error))

    def _is_nobodys_sample(self, error: Exception) -> bool:
        if isinstance(error, MemoryError):
            return self.memory_limit is None  # with one, it is the sample that asked for too much
        return isinstance(error, _NOBODYS_SAMPLE)


class Tried(NamedTuple):
    """What came of it: a value, or the last exception."""

    value: Any
    error: Exception | None
    attempts: int


class Retries:
    """Further attempts, with waits between that grow and are not the same in all workers."""

    def __init__(self, care: Care, row: memoryview) -> None:
        self._care = care
        self._row = row
        self._jitter = random.Random()  # its own: the global one belongs to the user's samples

    def after(self, error: Exception, attempt: Callable[[], Any]) -> Tried:
        """A first attempt has raised `error`. Try again, if that is worth it."""
        attempts = 1
        while attempts <= self._care.max_retries and isinstance(error, self._care.retry_on):
            self._wait(attempts)
            attempts += 1
            try:
                return Tried(attempt(), None, attempts)
            except Exception as raised:
                error = raised
        return Tried(None, error, attempts)

    def _wait(self, attempts: int) -> None:
        phase = self._row[PHASE]
        self._row[PHASE] = Phase.BACKOFF  # no sample is in hand, and no deadline runs
        longest_s = min(_FIRST_WAIT_S * 2 ** (attempts - 1), _LONGEST_WAIT_S)
        time.sleep(longest_s * self._jitter.uniform(0.5, 1.0))
        self._row[ATTEMPT] += 1
        self._row[PHASE] = phase
