"""The sample in one guarded worker, under the limits of the run: whatever it does, this process lives to tell.

    Order ──► DataLoader(..., num_workers=1, sampler=[index]) ──► Outcome

Of an iterable dataset there are as many workers as the run had, so that it is split among them as it was; one loads.
No attempt is made twice, nothing is recorded: a replay is no run of the user's.

Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import IterableDataset

import holdfast
from holdfast.tasks.replay import case as cases
from holdfast.tasks.replay.case import NO_LIMITS, CannotReplayError, Case, Limits, Part
from holdfast.tasks.replay.watched import Loaded, WatchedElements, WatchedSamples


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be loaded, and how. `part` is of an iterable dataset, `index` of any other."""

    index: Any = None
    part: Part | None = None
    limits: Limits = NO_LIMITS
    start_method: str | None = None
    in_batches: bool = True
    seed: int = 0
    repeat: int = 1
    memray_file: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of it. `error` is what a training loop would have seen, None: all was loaded."""

    loaded: tuple[Loaded, ...]
    """Each time that it was, or each element."""
    error: BaseException | None

    @property
    def incident(self) -> holdfast.Incident | None:
        found = getattr(self.error, "incident", None)
        return found if isinstance(found, holdfast.Incident) else None


def order_of(case: Case, dataset: Any, chosen: tuple[Any, ...], *, repeat: int, seed: int) -> Order:
    """For this dataset: the sample of the incident, or the one that was chosen instead."""
    how: dict[str, Any] = {"limits": case.limits, "start_method": case.start_method, "seed": seed, "repeat": repeat}
    if isinstance(dataset, IterableDataset):
        if chosen or repeat > 1:
            raise CannotReplayError("--index and --repeat are for datasets with an index: this one is iterable.")
        return Order(part=cases.part(case), **how)
    if not hasattr(type(dataset), "__getitem__"):
        raise CannotReplayError(f"{type(dataset).__name__} has no __getitem__, and is no torch IterableDataset either.")
    [index] = chosen or (cases.sample(case),)
    cases.check_within(index, _length(dataset), case)
    return Order(index=index, in_batches=case.batch_size is not None, **how)


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:  # it is the user's, and may have none
        return None


def load(dataset: Any, order: Order, passed: Callable[[int], None]) -> Outcome:
    """Load it. `passed` is told how many elements of an iterable came before it, as they come."""
    loaded: list[Loaded] = []
    with _loader(dataset, order) as loader:
        try:
            for number, result in enumerate(loader):
                if result is None:
                    passed(number + 1)
                else:
                    loaded.append(result)
        except Exception as error:
            return Outcome(tuple(loaded), error)
    if order.part is not None and not loaded:
        raise CannotReplayError(f"There is no {order.part} any more: the iterable dataset ended before.")
    return Outcome(tuple(loaded), None)


def _loader(dataset: Any, order: Order) -> holdfast.DataLoader[Any]:
    how: dict[str, Any] = {
        "multiprocessing_context": order.start_method,
        "max_retries": 0,
        "max_skipped": None,
        "memory_limit": order.limits.memory_limit_bytes,
        "sample_timeout": order.limits.sample_timeout_s,
        "record": False,
    }
    if order.part is not None:
        elements = WatchedElements(dataset, order.part, order.seed, order.memray_file)
        workers = max(1, order.part.num_workers)
        return holdfast.DataLoader(elements, None, num_workers=workers, collate_fn=_as_is, **how)._for_command()
    samples = WatchedSamples(dataset, order.seed, in_batches=order.in_batches, memray_file=order.memray_file)
    indices = [order.index] * order.repeat
    return holdfast.DataLoader(samples, None, sampler=indices, num_workers=1, collate_fn=_as_is, **how)._for_command()


def _as_is(loaded: Any) -> Any:
    return loaded
