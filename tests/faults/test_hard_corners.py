"""Corners that review found: epochs begun twice, lists used twice, exceptions that mean something else to `next()`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from helpers import DiesOnce, Numbers, numbers, worker_pids
from holdfast import DataLoader, WorkerCrashed

LENGTH = 40


class Halves(IterableDataset[int]):
    """Each of two workers counts through its own half."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        return iter(range(info.id, LENGTH, info.num_workers))


class Leaves(Dataset[int]):
    """Sample 5 raises what ends a process."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise self.error
        return index


class SameList:
    """A batch sampler that fills one list again and again."""

    def __iter__(self) -> Iterator[list[int]]:
        batch = [0, 0, 0, 0]
        for start in range(0, LENGTH, 4):
            batch[:] = range(start, start + 4)
            yield batch

    def __len__(self) -> int:
        return LENGTH // 4


def test_an_epoch_begun_before_the_workers_are_up_loses_nothing() -> None:
    """Units of the epoch that was left do not eat the stream of the next one."""
    with DataLoader(Halves(), batch_size=2, num_workers=2, persistent_workers=True) as loader:
        iter(loader)
        assert sorted(torch.cat(list(loader)).tolist()) == list(range(LENGTH))


def test_a_worker_killed_between_epochs_costs_an_iterable_nothing() -> None:
    """Its stream had not begun: the replacement delivers all of it."""
    with DataLoader(Halves(), batch_size=2, num_workers=2, persistent_workers=True) as loader:
        list(loader)
        os.kill(worker_pids(loader._iterator)[0], signal.SIGKILL)
        assert sorted(torch.cat(list(loader)).tolist()) == list(range(LENGTH))


def test_stop_iteration_out_of_collate_fn_does_not_end_the_epoch() -> None:
    """Raised from `next()` it would end the epoch without a word; it is a RuntimeError, and the rest is delivered."""
    with DataLoader(Numbers(12, 1), 2, num_workers=2, collate_fn=_stops_at_four) as loader:
        iterator = iter(loader)
        outcomes = [_outcome(iterator) for _ in range(6)]
    assert outcomes == [0, 2, RuntimeError, 6, 8, 10]


def _stops_at_four(samples: list[torch.Tensor]) -> int:
    first = int(samples[0])
    return next(iter(())) if first == 4 else first


def _outcome(iterator: Any) -> object:
    try:
        return next(iterator)
    except RuntimeError as error:
        return type(error)


def test_a_list_that_the_sampler_uses_again_is_re_issued_as_it_was(tmp_path: Any) -> None:
    """What a lost worker had in hand is loaded again by the indices it was sent, not by what the list holds now."""
    dataset = DiesOnce(LENGTH, 9, str(tmp_path / "died"))
    with DataLoader(dataset, batch_sampler=SameList(), num_workers=2) as loader:
        assert torch.equal(torch.cat(list(loader)), numbers(0, LENGTH, 4))
    assert (tmp_path / "died").exists()


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit()], ids=["SystemExit", "GeneratorExit"])
def test_what_ends_a_process_is_a_crash_of_its_sample(error: BaseException) -> None:
    """The sample is named, and the epoch goes on with the next batch."""
    with DataLoader(Leaves(error), batch_size=2, num_workers=2) as loader:
        iterator = iter(loader)
        assert [next(iterator).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
        with pytest.raises(WorkerCrashed, match="sample 5") as raised:
            next(iterator)
        assert raised.value.sample_index == 5
        assert [batch.tolist() for batch in iterator] == [[6, 7], [8, 9], [10, 11]]
