"""What the user wants done when a sample cannot be loaded: our own arguments, checked.

Runs in: main process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from holdfast.memory import sizes
from holdfast.workers.arguments import check_choice, check_count, check_flag, check_seconds
from holdfast.workers.attempts import Care

ON_ERROR = ("raise", "skip", "replace")
AUTO: Final = "auto"
_AUTO_LEAST, _AUTO_SHARE = 10, 0.1
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
    max_skipped: int | float | Literal["auto"] | None = AUTO
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

    def count_samples(self, source: Any, index_sampler: Any = None) -> int | None:
        """How many samples an epoch has, where `max_skipped` depends on it and it is known.

        `source`: as below. `index_sampler`: what gives the batches of a map-style dataset, or its samples where there
        are none. Beside a batch sampler of the user's, torch's `sampler` is of the whole dataset, and not of the epoch.
        """
        if isinstance(self.max_skipped, float):
            return len(source)
        if self.max_skipped != AUTO or self.on_error == "raise":
            return None
        if index_sampler is not None and index_sampler is not source:
            source = getattr(index_sampler, "sampler", None)
        try:
            return len(source)
        except Exception:  # of the user's __len__; a share of the samples so far is used instead
            return None

    def most_skipped(self, epoch_samples: int) -> int | float | None:
        """How many samples of an epoch may be passed over; None: any number."""
        if self.max_skipped == AUTO:
            return max(_AUTO_LEAST, _AUTO_SHARE * epoch_samples)
        limit: int | float | None = self.max_skipped
        return limit * epoch_samples if isinstance(limit, float) else limit

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
    if value is None or value == AUTO or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return
    if not isinstance(value, float) or not 0.0 <= value <= 1.0:
        raise ValueError(
            f"max_skipped={value!r} must be a whole number of samples, a share of the epoch from 0.0 to 1.0, "
            f'"auto", or None'
        )


def _exception_types(value: Any) -> tuple[type[BaseException], ...]:
    types = tuple(value) if isinstance(value, Iterable) else (value,)
    for kind in types:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise ValueError(f"retry_on={value!r} must be exception types, such as (OSError, TimeoutError)")
    return types
