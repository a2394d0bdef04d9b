"""Iterables that know their state: another worker goes on from it with what came since, and not after their end."""

from __future__ import annotations

import functools
import itertools
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, default_collate

from holdfast import DataLoader
from holdfast.workers import streams
from holdfast.workers.messages import Unit
from holdfast.workers.worker import Worker
from records import Calls, stubborn

pytestmark = pytest.mark.timeout(120)

HOW: dict[str, dict[str, Any]] = {"fork": {"multiprocessing_context": "fork"}, "portable": {"backend": "portable"}}


class ResettingDataset(IterableDataset[int]):
    """As in torchdata's examples: after its end its state is that of a new start."""

    def __init__(self, length: int) -> None:
        self.length, self.at = length, 0

    def __iter__(self) -> Iterator[int]:
        while self.at < self.length:
            self.at += 1
            yield self.at - 1
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class ResettingIterator(IterableDataset[int]):
    """The same of the iterator."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        return _Resetting(self.length)


class _Resetting(ResettingDataset):
    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.at == self.length:
            self.at = 0
            raise StopIteration
        self.at += 1
        return self.at - 1


# -- the end -----------------------------------------------------------------------------------------------------------


def die_before(unit: int, mark: Path, worker_id: int) -> None:
    """A worker_init_fn: the worker is killed when it is ordered this unit and has not begun it; once."""
    load = Worker._load

    def dying(self: Worker, order: Unit) -> None:
        if order.unit == unit and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        load(self, order)

    Worker._load = dying  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("kind", "how"), [(ResettingDataset, "fork"), (ResettingIterator, "fork"), (ResettingIterator, "portable")]
)
@pytest.mark.parametrize("persistent", [False, True])
def test_a_worker_killed_after_its_short_last_batch_does_not_begin_anew(
    kind: Any, persistent: bool, how: str, tmp_path: Path
) -> None:
    """It had not yet said that there is no more. The next epoch is whole."""
    options: dict[str, Any] = {"batch_size": 2, "num_workers": 1, "persistent_workers": persistent, **HOW[how]}
    dies = functools.partial(die_before, 3, tmp_path / "struck")
    with DataLoader(kind(5), worker_init_fn=dies, **options) as loader:
        for _ in range(2):
            assert [batch.tolist() for batch in itertools.islice(loader, 9)] == [[0, 1], [2, 3], [4]]
        assert (tmp_path / "struck").exists()
        assert loader.stats().restarts == 1


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        (ResettingDataset, "fork"),
        (ResettingIterator, "fork"),
        pytest.param(ResettingIterator, "portable", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_stream_whose_worker_is_replaced_after_each_batch_ends(
    kind: Any, persistent: bool, drop_last: bool, how: str
) -> None:
    """With each element once, in each epoch."""
    options: dict[str, Any] = {"persistent_workers": persistent, "drop_last": drop_last, **HOW[how]}
    expected = [[0, 1], [2, 3], [4]][: 2 if drop_last else 3]
    with DataLoader(kind(5), 2, num_workers=1, recycle_after=1, **options) as loader:
        for _ in range(2):
            assert [batch.tolist() for batch in itertools.islice(loader, 9)] == expected
        assert list(loader.incidents) == []


@pytest.mark.parametrize("kind", [ResettingDataset, ResettingIterator])
def test_an_epoch_left_within_its_last_batches_does_not_disturb_the_next(kind: Any, tmp_path: Path) -> None:
    """The worker that is killed had ended its stream in the epoch that was left."""
    dies = functools.partial(die_before, 3, tmp_path / "struck")
    options: dict[str, Any] = {"num_workers": 1, "persistent_workers": True, "prefetch_factor": 4}
    with DataLoader(kind(5), 2, worker_init_fn=dies, **options) as loader:
        assert next(iter(loader)).tolist() == [0, 1]
        assert [batch.tolist() for batch in itertools.islice(loader, 9)] == [[0, 1], [2, 3], [4]]
        assert (tmp_path / "struck").exists()


# -- from a state to where it was --------------------------------------------------------------------------------------


def no_second_state(worker_id: int) -> None:
    """A worker_init_fn: by this clock the first state of a worker took so long that it takes no other."""
    ticks = itertools.count(streams.monotonic_ns())
    streams.monotonic_ns = lambda: next(ticks)


class Rough(IterableDataset[Any]):
    """Random numbers of all generators, and a walk made of them. The iterator goes on after elements that raise."""

    def __init__(self, calls: Calls, *, killing: int | None = None, length: int = 24) -> None:
        self.calls, self.killing, self.length = calls, killing, length

    def __iter__(self) -> Iterator[Any]:
        return _Rough(self)


class _Rough:
    def __init__(self, dataset: Rough) -> None:
        self.dataset, self.at = dataset, 0
        self.walk = random.random()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.at == self.dataset.length:
            self.at = 0
            raise StopIteration
        self.at += 1
        value = self.at - 1
        if self.dataset.calls.note(value) == 1 and value == self.dataset.killing:
            os.kill(os.getpid(), signal.SIGKILL)
        drawn = random.random(), float(np.random.standard_normal()), float(torch.rand(()))
        if value in (5, 9, 10, 17):
            raise LookupError(f"element {value} does not come")
        self.walk += sum(drawn)
        return torch.tensor([value, self.walk, *drawn], dtype=torch.float64)

    def state_dict(self) -> dict[str, Any]:
        self.dataset.calls.note("state")
        return {"at": self.at, "walk": self.walk}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at, self.walk = state["at"], state["walk"]


def draw_too(samples: Any) -> Any:
    """A collate function with random numbers of its own."""
    return default_collate([sample + random.random() for sample in samples])


def outcomes(loader: Any) -> list[str]:
    return [repr(outcome) for outcome in stubborn(iter(loader))]


@pytest.mark.parametrize("rng", ["worker", "sample"])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("killing", [2, 8, 11, 23])
def test_what_came_since_the_state_is_run_again_with_its_random_numbers(
    killing: int, on_error: str, rng: str, tmp_path: Path
) -> None:
    """Batches, exceptions and random numbers are those of a run without a death, in both epochs of the workers."""
    runs = []
    options: dict[str, Any] = {"persistent_workers": True, "on_error": on_error, "rng": rng}
    for name, at in (("calm", None), ("killed", killing)):
        calls = Calls(tmp_path / name)
        torch.manual_seed(3)
        loader = DataLoader(
            Rough(calls, killing=at), 3, num_workers=1, collate_fn=draw_too, worker_init_fn=no_second_state, **options
        )
        with loader:
            runs.append([outcomes(loader) for _ in range(2)])
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]
    assert calls.counts()["0"] == (3 if killing == 2 else 2), "what its state remembers is not made again"
    assert killing < 6 or calls.counts()["4"] == 3, "what came since is made again"


def test_the_state_is_not_taken_with_every_batch(tmp_path: Path) -> None:
    """By a clock that says that the first one took long: one for each epoch, whatever the number of batches."""
    calls = Calls(tmp_path / "calls")
    options: dict[str, Any] = {"persistent_workers": True, "on_error": "skip", "max_retries": 0}
    with DataLoader(Rough(calls), 1, num_workers=1, worker_init_fn=no_second_state, **options) as loader:
        for epoch in (1, 2):
            assert len(list(loader)) == 20
            assert calls.counts()["state"] == epoch


def test_a_worker_that_leaves_takes_the_state_before(tmp_path: Path) -> None:
    """Whether or not it is due: who comes after it runs nothing again."""
    calls = Calls(tmp_path / "calls")
    options: dict[str, Any] = {"on_error": "skip", "max_retries": 0, "worker_init_fn": no_second_state}
    with DataLoader(Rough(calls), 2, num_workers=1, recycle_after=3, **options) as loader:
        assert [int(row[0]) for batch in loader for row in batch] == [k for k in range(24) if k not in (5, 9, 10, 17)]
        assert {calls.counts()[str(k)] for k in range(24)} == {1}
