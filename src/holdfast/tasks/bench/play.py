"""One loader in a process of its own: takes orders, a JSON object a line, and answers each with one.

    {"do": "compare", "workers": 2, "batches": 16, "seconds": 3.0}   the digests of the first batches
    {"do": "time", "workers": 2, "seconds": 2.5, "memory": false}    as many batches as come in that time

A batch that raises is counted and passed over, as a patient training loop would; torch's loader cannot go on after the
death of a worker, and would wait for ever if it were asked to. What the dataset prints is not heard: stdout is for the
answers alone.

Runs in: a child process of `holdfast bench`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import torch
import torch.utils.data

import holdfast
from holdfast.tasks.bench.digest import digest
from holdfast.tasks.bench.results import HOLDFAST, RAISED

SEED = 7
_STDOUT, _STDERR = 1, 2
_MOST_FAILURES_IN_A_ROW = 20
_FAILURES_TOLD = 3
_LONGEST = 300
_DEAD_WORKER = "DataLoader worker (pid"

Say = Callable[[dict[str, Any]], None]


def take_stdout() -> Say:
    """Keep stdout for the answers; what anybody else prints goes where stderr goes."""
    answers = os.fdopen(os.dup(_STDOUT), "w")
    os.dup2(_STDERR, _STDOUT)

    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    return say


def play(dataset: Any, collate: Any, name: str, arguments: dict[str, Any], say: Say) -> None:
    """Answer orders until there are no more. `arguments` are of both loaders, `name` says which this is."""
    warnings.simplefilter("ignore")
    table = _Table(dataset, collate, name, arguments)
    say({"ready": True, "dataset": type(dataset).__name__, "length": _length(dataset)})
    for line in sys.stdin:
        order = json.loads(line)
        gc.collect()  # torch's iterator may be in a cycle with what it raised, and its workers would die in this order
        say(table.compare(order) if order["do"] == "compare" else table.time(order))


class _Table:
    """Where one loader plays."""

    def __init__(self, dataset: Any, collate: Any, name: str, arguments: dict[str, Any]) -> None:
        self._dataset = dataset
        self._kind: Any = holdfast.DataLoader if name == HOLDFAST else torch.utils.data.DataLoader
        self._ours: dict[str, Any] = {"record": False, "max_skipped": None} if name == HOLDFAST else {}
        self._timeout_s = arguments.pop("sample_timeout") if name == HOLDFAST else None
        arguments.pop("sample_timeout", None)
        self._context = arguments.pop("start_method")
        self._arguments = {**arguments, "collate_fn": collate}

    def _loader(self, workers: int) -> Any:
        """The same shuffles and the same random numbers each time, in workers and here."""
        random.seed(SEED)
        np.random.seed(SEED)
        torch.manual_seed(SEED)
        how = {**self._arguments, **self._ours, "generator": torch.Generator().manual_seed(SEED)}
        if workers:
            how["multiprocessing_context"] = self._context
            how |= {"sample_timeout": self._timeout_s} if self._timeout_s is not None else {}
        return self._kind(self._dataset, num_workers=workers, **how)

    def compare(self, order: dict[str, Any]) -> dict[str, Any]:
        walk = _Walk(lambda: self._loader(order["workers"]))
        deadline: float | None = None  # from the first batch on: workers may take their time to start
        digests: list[str] = []
        with walk.to_the_end():
            for batch in walk.batches():
                deadline = deadline or time.perf_counter() + order["seconds"]
                digests.append(RAISED if batch is _RAISED else digest(batch))
                if len(digests) >= order["batches"] or time.perf_counter() > deadline:
                    break
        return {"digests": digests, **walk.told()}

    def time(self, order: dict[str, Any]) -> dict[str, Any]:
        walk = _Walk(lambda: self._loader(order["workers"]))
        clock = _Clock(order["seconds"])
        memory_bytes: int | None = None
        with walk.to_the_end():
            epoch = _run(walk, clock)
            if order["memory"] and order["workers"] > 0:
                if epoch is None:  # the time was over with the last batch of one, and its workers are gone
                    next(epoch := walk.batches(), None)
                memory_bytes = _memory_of_children()
            del epoch
        return {**clock.told(), **walk.told(), "memory_bytes": memory_bytes}


def _run(walk: _Walk, clock: _Clock) -> Iterator[Any] | None:
    """Epochs until the time is over. The last, if it was not at its end."""
    while not clock.is_over and not walk.ended:
        clock.start_epoch()
        epoch = walk.batches()
        for batch in epoch:
            if batch is not _RAISED:
                clock.tick()
            if clock.is_over:
                return epoch
        clock.end_epoch()
    return None


_RAISED = object()


class _Walk:
    """The batches of a loader, past those that raise."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._loader: Any = None  # one for all epochs, as a training loop has it
        self._failures = 0
        self._first: list[str] = []
        self.ended: str | None = None
        self.refused: str | None = None  # no such loader can be made

    def batches(self) -> Iterator[Any]:
        """One epoch. A batch that raised comes as `_RAISED`."""
        in_a_row = 0
        batches: Iterator[Any] | None = None
        while self.ended is None:
            try:
                if batches is None:
                    self._loader = self._make() if self._loader is None else self._loader
                    batches = iter(self._loader)
                batch = next(batches)
                in_a_row = 0
            except StopIteration:
                return
            except Exception as error:
                in_a_row += 1
                self._note(error)
                if self._loader is None:
                    self.refused = _line_of(error)
                if batches is None or _is_dead_worker_of_torch(error) or in_a_row > _MOST_FAILURES_IN_A_ROW:
                    self._end(error)
                    return
                batch = _RAISED
            yield batch

    @contextlib.contextmanager
    def to_the_end(self) -> Iterator[None]:
        """Torch tells of a dead worker in a signal handler: the error comes wherever this process is at that moment."""
        try:
            yield
        except RuntimeError as error:
            if not _is_dead_worker_of_torch(error):
                raise
            self._note(error)
            self._end(error)

    def _end(self, error: Exception) -> None:
        self.ended = f"could not go on after {_line_of(error)}"

    def _note(self, error: Exception) -> None:
        self._failures += 1
        if len(self._first) < _FAILURES_TOLD:
            self._first.append(_line_of(error))

    def told(self) -> dict[str, Any]:
        failures = {"failures": self._failures, "first_failures": self._first}
        return {**failures, "ended": self.ended, "refused": self.refused}


def _is_dead_worker_of_torch(error: Exception) -> bool:
    """After which torch's loader gives no more. Ours quotes the same sentence, and goes on."""
    return _DEAD_WORKER in str(error) and not isinstance(error, holdfast.HoldfastError)


@dataclass(slots=True)
class _Clock:
    """Counts batches, and the seconds that they took."""

    seconds: float
    _epoch: float = 0.0
    _over: float = 0.0
    _last: float | None = None
    _first_batch_s: float | None = None
    _batches: int = 0
    _spent_s: float = 0.0
    _later_batches: int = 0
    _later_s: float = 0.0
    _in_epoch: int = 0
    _epoch_batches: int | None = None

    def start_epoch(self) -> None:
        self._epoch = time.perf_counter()
        self._over = self._over or self._epoch + self.seconds
        self._last, self._in_epoch = None, 0

    def tick(self) -> None:
        now = time.perf_counter()
        since = self._epoch if self._last is None else self._last
        if self._last is not None:
            self._later_batches, self._later_s = self._later_batches + 1, self._later_s + now - since
        elif self._first_batch_s is None:
            self._first_batch_s = now - since
        self._batches, self._spent_s = self._batches + 1, self._spent_s + now - since
        self._last, self._in_epoch = now, self._in_epoch + 1

    def end_epoch(self) -> None:
        self._epoch_batches = self._in_epoch
        if self._in_epoch == 0:
            self._over = time.perf_counter()  # an epoch without a batch: the next would be one as well

    @property
    def is_over(self) -> bool:
        return bool(self._over) and time.perf_counter() >= self._over

    def told(self) -> dict[str, Any]:
        return {
            "first_batch_s": self._first_batch_s,
            "batches": self._batches,
            "seconds": self._spent_s,
            "later_batches": self._later_batches,
            "later_s": self._later_s,
            "epoch_batches": self._epoch_batches,
        }


def _memory_of_children() -> int | None:
    """What the processes below this one have to themselves."""
    found = 0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error, OSError):  # it has just ended
            found += child.memory_full_info().uss
    return found or None


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:  # it is the user's, and may have none
        return None


def _line_of(error: BaseException) -> str:
    """Its first line; of torch's, which holds a traceback of the worker, the last, which says what was raised."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [""]
    said = lines[-1] if lines[0].startswith("Caught ") else lines[0]
    sample = getattr(getattr(error, "incident", None), "sample_index", None)
    where = "" if sample is None or f"sample {sample}" in said else f" (sample {sample})"
    named = said if said.startswith(type(error).__name__) else f"{type(error).__name__}: {said}"
    return f"{named[:_LONGEST]}{where}"
