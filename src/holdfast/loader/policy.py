"""What the user wants done when a sample cannot be loaded: our own arguments, checked.

Runs in: main process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.memory import sizes
from holdfast.workers.arguments import check_choice, check_count, check_flag, check_seconds
from holdfast.workers.attempts import Care

ON_ERROR = ("raise", "skip", "replace")
RNG = ("worker", "sample")
_NEED_WORKERS = {
    "sample_timeout": "nothing can end a sample that hangs",
    "memory_limit": "samples are loaded in your own process, whose memory would be limited with them",
    "memory_budget": "nothing is loaded ahead, and there is no worker to do without",
    "recycle_after": "there is no worker to be replaced",
}


@dataclass(frozen=True, slots=True)
class Policy:
    """The fields are the loader's arguments of the same names."""

    on_error: str = "raise"
    max_retries: int = 1
    retry_on: tuple[type[BaseException], ...] = ()
    max_skipped: int | float | None = None
    max_restarts: int = 3
    sample_timeout: float | None = None
    memory_limit: int | str | None = None
    memory_budget: int | str | None = None
    recycle_after: int | None = None
    skipped_file: str | os.PathLike[str] | None = None
    rng: str = "worker"
    record: bool = True

    def __post_init__(self) -> None:
        check_choice("on_error", self.on_error, ON_ERROR)
        check_choice("rng", self.rng, RNG)
        check_count("max_retries", self.max_retries)
        check_count("max_restarts", self.max_restarts)
        object.__setattr__(self, "retry_on", _exception_types(self.retry_on))
        _check_max_skipped(self.max_skipped)
        check_seconds("sample_timeout", self.sample_timeout)
        check_flag("record", self.record)
        if self.memory_limit is not None:
            sizes.parse_bytes("memory_limit", self.memory_limit)
        self.resolve_budget(lambda budget: 0)
        _check_batches("recycle_after", self.recycle_after)
        if self.skipped_file is not None and self.on_error == "raise":
            raise ValueError(
                'skipped_file needs on_error="skip" or "replace": with "raise" no sample is ever passed over'
            )

    @property
    def care(self) -> Care:
        limit = None if self.memory_limit is None else sizes.parse_bytes("memory_limit", self.memory_limit)
        return Care(self.on_error, self.max_retries, self.retry_on, limit)

    def resolve_budget(self, resolve: Callable[[int | float], int]) -> int | None:
        """memory_budget in bytes; `resolve` knows what a share of all there is comes to."""
        return None if self.memory_budget is None else resolve(sizes.parse_budget("memory_budget", self.memory_budget))

    @property
    def changes_loading(self) -> bool:
        """Whether anything is asked for that torch's own loading without workers does not do."""
        return self.on_error != "raise" or bool(self.retry_on) or self.rng != "worker"

    def check_without_workers(self) -> None:
        """With num_workers=0 there is nobody to watch, and nothing that could be ended."""
        for name, why in _NEED_WORKERS.items():
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} needs workers: with num_workers=0 {why}. Use num_workers=1 or more, or leave it None"
                )

    def check_length(self, source: Any) -> None:
        """`source`: what says how many samples an epoch has, the sampler, or an iterable dataset itself."""
        if isinstance(self.max_skipped, float) and not hasattr(source, "__len__"):
            raise ValueError(
                f"max_skipped={self.max_skipped} is a share of the epoch, but {type(source).__name__} has no len(): "
                f"use a number"
            )


def _check_batches(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r} must be a whole number of batches, 1 or more, or None for never")


def _check_max_skipped(value: object) -> None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return
    if not isinstance(value, float) or not 0.0 <= value <= 1.0:
        raise ValueError(
            f"max_skipped={value!r} must be a whole number of samples, a share of the epoch from 0.0 to 1.0, or None"
        )


def _exception_types(value: Any) -> tuple[type[BaseException], ...]:
    types = tuple(value) if isinstance(value, Iterable) else (value,)
    for kind in types:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise ValueError(f"retry_on={value!r} must be exception types, such as (OSError, TimeoutError)")
    return types
