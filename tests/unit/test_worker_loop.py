"""The loop of a worker, run in this process: what it answers to what it is told."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils import collate as torch_collate
from torch.utils.data._utils import worker as torch_worker

from holdfast.board_rows import Phase
from holdfast.transport import layout
from holdfast.transport.slots import Slot, SlotPool
from holdfast.workers import channel, messages
from holdfast.workers import worker as worker_module
from holdfast.workers.attempts import Care
from holdfast.workers.board import Board
from holdfast.workers.channel import Channel
from holdfast.workers.failures import Failure, rebuild
from holdfast.workers.job import CarriedJob, Job
from holdfast.workers.messages import Epoch, Kind, Result, Unit
from holdfast.workers.worker import Worker

_sessions: list[Session] = []


@pytest.fixture(autouse=True)
def _process_restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A worker sets up its process: seeds, threads, torch's tables."""
    monkeypatch.setattr(worker_module, "_name_thread", lambda: None)
    states = random.getstate(), np.random.get_state(), torch.get_rng_state(), torch.get_num_threads()
    table = dict(torch_collate.default_collate_fn_map)
    yield
    while _sessions:
        _sessions.pop().close()
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    torch.set_num_threads(states[3])
    torch_worker._worker_info = None
    torch_collate.default_collate_fn_map.clear()
    torch_collate.default_collate_fn_map.update(table)


class Session:
    """A worker, and the main process's end of its socket."""

    def __init__(self, dataset: Any, collate_fn: Callable[[Any], Any] = default_collate, **changes: Any) -> None:
        facts = {
            "worker_init_fn": None,
            "is_iterable": False,
            "auto_collation": True,
            "drop_last": False,
            "base_seed": 1,
            "num_workers": 1,
            "epoch": Epoch(None, None),
            "care": Care(),
            "sample_timeout_s": None,
            "max_restarts": 3,
            "has_been_ready": False,
        }
        self.job = Job(dataset=dataset, collate_fn=collate_fn, **{**facts, **changes})
        ours, theirs = channel.pair()
        self.ours = Channel(ours, blocking=False)
        self._theirs = Channel(theirs, blocking=True)
        self.board = Board.create(1)
        self.pool = SlotPool(warm_slots=4)
        self.slots: dict[int, Slot] = {}
        _sessions.append(self)

    def order(self, unit: int, indices: Any, slot: Slot | None = None) -> Slot:
        slot = self.slots[unit] = slot or self.pool.acquire()
        self.ours.send(messages.pack_segment(slot.segment.number, slot.segment.nbytes), [slot.segment.fd])
        self.ours.send(messages.pack_unit(Unit(unit, 1, slot.ref, pickle.dumps(indices))))
        return slot

    def run(self) -> list[Result]:
        """Let the worker do what it was told, and end. Its results; what it spilled is closed."""
        self.ours.end_sending()
        worker = Worker(0, self.board, self._theirs)
        worker.start(CarriedJob(self.job))
        worker.run()
        self._theirs.shutdown()
        results = []
        while (received := self.ours.receive()) is not None:
            results.append(messages.unpack_result(received[0]))
            for fd in received[1]:
                os.close(fd)
        return results

    def value(self, result: Result) -> Any:
        """What the main process makes of a result that was not spilled."""
        slot = self.slots[result.unit]
        value = layout.decode(result.layout, [slot], self.pool)
        self.pool.delivered(slot)
        return rebuild(Failure(*value)) if result.kind == Kind.FAILURE else value

    def close(self) -> None:
        self.ours.close()
        self._theirs.close()
        self.board.close()
        self.pool.close()


class Squares:
    """Sample i is i * i; sample 13 cannot be loaded."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 13:
            raise LookupError("no luck")
        return torch.tensor([index * index])


def test_units_are_answered_in_their_order() -> None:
    """Each with its number, its attempt and its batch, built in the slot it was given."""
    session = Session(Squares())
    for unit in range(3):
        session.order(unit, [unit, unit + 1])
    results = session.run()
    assert [(result.kind, result.unit, result.attempt) for result in results] == [(Kind.BATCH, k, 1) for k in range(3)]
    assert [session.value(result).tolist() for result in results] == [[[k * k], [(k + 1) ** 2]] for k in range(3)]
    assert not any(result.kept for result in results)


def test_an_exception_answers_its_unit_and_the_worker_goes_on() -> None:
    """Type, and the sample, batch and worker it came from."""
    session = Session(Squares())
    session.order(0, [12, 13])
    session.order(1, [1, 2])
    failed, good = session.run()
    error = session.value(failed)
    assert type(error) is LookupError
    assert error.__notes__[0] == f"raised in DataLoader worker process 0 (pid {os.getpid()}), batch 0, dataset[13]"
    assert session.value(good).tolist() == [[1], [4]]


@pytest.mark.parametrize("kind", [set, dict.fromkeys, tuple, iter], ids=["set", "dict", "tuple", "iterator"])
def test_an_exception_is_told_whatever_the_batch_sampler_gives(kind: Callable[[list[int]], Any]) -> None:
    """A batch need only be something that can be iterated; the sample is named where it can be."""
    session = Session(Squares())
    session.order(0, kind([12, 13]))
    got = session.value(session.run()[0])
    assert type(got) is LookupError
    assert ("sample 1 of the batch" if kind is iter else "dataset[13]") in got.__notes__[0]


def test_the_board_says_what_was_in_hand() -> None:
    """After the last unit the worker is idle, with that unit's number and the position of its last sample."""
    session = Session(Squares())
    session.order(7, [1, 2, 3])
    session.run()
    assert session.board.doing(0)[:3] == (Phase.IDLE, 7, 2)


def test_a_batch_that_collate_keeps_is_reported_as_kept() -> None:
    """The main process must not use that slot again; from then on nothing is built in place."""
    cache: list[torch.Tensor] = []

    def collate(samples: list[torch.Tensor]) -> torch.Tensor:
        cache.append(default_collate(samples))
        return cache[-1]

    session = Session(Squares(), collate)
    session.order(0, [1, 2])
    session.order(1, [3, 4])
    first, second = session.run()
    assert (first.kept, second.kept) == (True, False)
    assert [tensor.tolist() for tensor in cache] == [[[1], [4]], [[9], [16]]]


@pytest.mark.parametrize("how", ["raises", "returns what cannot be sent"])
def test_a_batch_that_collate_keeps_before_it_fails_is_reported_as_kept(how: str) -> None:
    """Or else the next batch in that slot is written over the user's tensor."""
    cache: list[torch.Tensor] = []

    def collate(samples: list[torch.Tensor]) -> Any:
        if cache:
            return default_collate(samples)
        cache.append(default_collate(samples))
        if how == "raises":
            raise ValueError("too late")
        return torch.ones(1, requires_grad=True) * 2

    session = Session(Squares(), collate)
    slot = session.order(0, [1, 2])
    session.order(1, [3, 4], slot)
    first, second = session.run()
    assert first.kind == Kind.FAILURE
    assert first.kept
    assert second.kind == Kind.BATCH


def test_what_an_unfinished_collate_wrote_is_counted() -> None:
    """The main process gives back as much of the slot as it was told of: what is not counted stays in memory."""

    def collate(samples: list[torch.Tensor]) -> Any:
        raise ValueError(default_collate(samples * 10_000).shape)

    session = Session(Squares(), collate)
    session.order(0, [1, 2])
    (result,) = session.run()
    assert result.kind == Kind.FAILURE
    assert result.used[0] >= 20_000 * 8


def test_what_cannot_be_sent_is_an_error_of_its_unit() -> None:
    """A batch that no pickler takes: the next unit is answered all the same."""

    def collate(samples: list[torch.Tensor]) -> Any:
        return (value for value in samples) if len(samples) == 1 else len(samples)

    session = Session(Squares(), collate)
    session.order(0, [1])
    session.order(1, [1, 2])
    failed, good = session.run()
    assert isinstance(session.value(failed), TypeError)
    assert "sending the batch" in rebuild_notes(session, failed)
    assert session.value(good) == 2


def rebuild_notes(session: Session, failed: Result) -> str:
    value = layout.decode(failed.layout, [session.slots[failed.unit]], session.pool)
    return "\n".join(rebuild(Failure(*value)).__notes__)


def test_an_iterable_ends_once_and_later_units_are_not_answered() -> None:
    """The main process knows that they are void."""
    session = Session(iter([torch.tensor(1), torch.tensor(2), torch.tensor(3)]), is_iterable=True)
    for unit in range(5):
        session.order(unit, [None, None])
    results = session.run()
    assert [result.kind for result in results] == [Kind.BATCH, Kind.BATCH, Kind.END]
    assert [session.value(result).tolist() for result in results[:2]] == [[1, 2], [3]]


def test_an_exception_at_the_start_answers_every_unit() -> None:
    """worker_init_fn raised: each batch says so, and the worker lives."""

    def fail(worker_id: int) -> None:
        raise PermissionError(13, "not today")

    session = Session(Squares(), worker_init_fn=fail)
    session.order(0, [1])
    session.order(1, [2])
    errors = [session.value(result) for result in session.run()]
    assert [type(error) for error in errors] == [PermissionError, PermissionError]
    assert "was starting" in errors[0].__notes__[0]


def test_segments_that_are_forgotten_are_unmapped() -> None:
    """A worker does not hold the memory of segments that the main process has dropped."""
    session = Session(Squares())
    slot = session.order(0, [1])
    session.ours.send(messages.pack_forget([slot.segment.number]))
    session.ours.end_sending()
    worker = Worker(0, session.board, session._theirs)
    worker.start(CarriedJob(session.job))
    worker.run()
    assert worker._segments == {}
    assert worker._areas == {}
