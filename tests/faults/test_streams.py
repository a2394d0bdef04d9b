"""Iterable datasets after a fault: taken up where they were, passed over where they can, ended with an error if not."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset

from faulty import Fault
from helpers import worker_pids
from holdfast import DataLoader, WorkerCrashed, WorkerTimeout
from records import Calls, share_of, stubborn

pytestmark = pytest.mark.timeout(90)

LENGTH = 40
BAD = 21
"""Of worker 1 of two, its element number 10, the first of its batch of two."""


class Plain(IterableDataset[torch.Tensor]):
    """A generator that counts how often each element was made."""

    def __init__(self, calls: Calls, fault: Fault | None = None) -> None:
        self.calls = calls
        self.fault = fault

    def __iter__(self) -> Iterator[torch.Tensor]:
        for value in share_of(LENGTH):
            yield self.make(value)

    def make(self, value: int) -> torch.Tensor:
        self.calls.note(value)
        if value == BAD and self.fault is not None:
            self.fault.strike()
        return torch.tensor(value)


class StatefulDataset(Plain):
    """Knows where it is: `state_dict` of the dataset."""

    def __init__(self, calls: Calls, fault: Fault | None = None) -> None:
        super().__init__(calls, fault)
        self.done = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        for value in share_of(LENGTH)[self.done :]:
            sample = self.make(value)
            self.done += 1
            yield sample
        self.done = 0

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.done = state["done"]


class StatefulIterator(Plain):
    """Knows where it is: `state_dict` of its iterator."""

    def __iter__(self) -> Any:
        return _Stateful(self)


class _Stateful:
    def __init__(self, dataset: Plain) -> None:
        self.dataset = dataset
        self.done = 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> torch.Tensor:
        values = share_of(LENGTH)[self.done :]
        if not values:
            raise StopIteration
        sample = self.dataset.make(values[0])
        self.done += 1
        return sample

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.done = state["done"]


def new_loader(dataset: Any, **options: Any) -> DataLoader[torch.Tensor]:
    return DataLoader(dataset, **{"batch_size": 2, "num_workers": 2, **options})


def once(how: str, directory: Path) -> Fault:
    return Fault(how, True, directory / "struck", os.getpid())


def always(how: str, directory: Path) -> Fault:
    return Fault(how, False, directory / "struck", os.getpid())


WHOLE = [[4 * k + worker, 4 * k + worker + 2] for k in range(LENGTH // 4) for worker in (0, 1)]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(
    ("kind", "made_again"), [(Plain, True), (StatefulDataset, False), (StatefulIterator, False)], ids=lambda kind: kind
)
def test_a_stream_is_taken_up_where_it_was(kind: Any, made_again: bool, persistent: bool, tmp_path: Path) -> None:
    """Nothing lost, repeated or out of order; what its state_dict remembers is not made again, else it is run again."""
    dataset = kind(Calls(tmp_path / "calls"), once("SIGKILL", tmp_path))
    with new_loader(dataset, persistent_workers=persistent) as loader:
        assert [batch.tolist() for batch in loader] == WHOLE
        counts = dataset.calls.counts()
        assert counts[str(BAD)] == 2
        assert counts["1"] == (2 if made_again else 1)
        assert counts["0"] == 1, "the other worker has nothing to do with it"
        assert [batch.tolist() for batch in loader] == WHOLE


@pytest.mark.parametrize("kind", [Plain, StatefulDataset, StatefulIterator])
def test_a_stream_is_taken_up_again_and_again(kind: Any, tmp_path: Path) -> None:
    """Both workers are killed many times from outside, at different places."""
    with new_loader(kind(Calls(tmp_path / "calls")), max_restarts=100) as loader:
        iterator = iter(loader)
        delivered = []
        for number, batch in enumerate(iterator):
            delivered.append(batch.tolist())
            if number % 3 == 0:
                with contextlib.suppress(ProcessLookupError):  # its stream has come to its end
                    os.kill(worker_pids(iterator)[number % 2], signal.SIGKILL)
    assert delivered == WHOLE


def test_a_generator_that_raises_ends_its_stream_with_an_error_that_says_so(tmp_path: Path) -> None:
    """After all that came before it; the other worker goes on to its end."""
    for on_error in ("skip", "replace"):
        with new_loader(Plain(Calls(tmp_path / "calls"), always("exception", tmp_path)), on_error=on_error) as loader:
            *outcomes, error = [outcome for outcome in stubborn(iter(loader)) if not _is_of_the_other(outcome)]
        assert outcomes == [[1, 3], [5, 7], [9, 11], [13, 15], [17, 19]]
        assert type(error) is ValueError
        text = "\n".join(error.__notes__)
        assert "ends here, after 10 elements" in text
        assert "generator" in text


def _is_of_the_other(outcome: Any) -> bool:
    return isinstance(outcome, list) and outcome[0] % 2 == 0


@pytest.mark.parametrize("kind", [Plain, pytest.param(StatefulIterator, marks=pytest.mark.long)])
@pytest.mark.parametrize(("how", "error"), [("SIGSEGV", WorkerCrashed), ("endless loop", WorkerTimeout)])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_an_element_that_ends_every_worker_ends_the_stream(
    kind: Any, how: str, error: type[Exception], on_error: str, tmp_path: Path
) -> None:
    """The error says how many elements came, and why; the other worker's stream is whole."""
    dataset = kind(Calls(tmp_path / "calls"), always(how, tmp_path))
    with new_loader(dataset, on_error=on_error, sample_timeout=1.0) as loader:
        outcomes = stubborn(iter(loader))
    errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert [type(found) for found in errors] == [error]
    assert "after 10 elements" in str(errors[0])
    assert ("hung" if how == "endless loop" else how) in str(errors[0])
    assert [outcome for outcome in outcomes if _is_of_the_other(outcome)] == WHOLE[::2]
    assert [value for outcome in outcomes if isinstance(outcome, list) for value in outcome if value % 2] == [
        *range(1, BAD, 2)
    ]


def test_the_stack_of_an_element_that_hangs_is_in_its_error(tmp_path: Path) -> None:
    """Where it hung is what the user wants to know."""
    dataset = Plain(Calls(tmp_path / "calls"), always("endless loop", tmp_path))
    with new_loader(dataset, sample_timeout=1.0) as loader, pytest.raises(WorkerTimeout) as caught:
        list(loader)
    assert "faulty.py" in str(caught.value)
    del caught


# -- random numbers ----------------------------------------------------------------------------------------------------


class DrawingStream(Plain):
    """Elements with random numbers of all three generators."""

    def __iter__(self) -> Iterator[Any]:
        for value in super().__iter__():
            yield value, *draw()


def draw() -> tuple[float, ...]:
    return random.random(), float(np.random.standard_normal()), float(torch.rand(())), random.gauss(0, 1)


def test_a_stream_that_is_run_again_draws_the_same_random_numbers(tmp_path: Path) -> None:
    """As without the fault, before and after it, in both epochs of persistent workers."""
    runs = []
    for fault in (None, once("SIGKILL", tmp_path)):
        torch.manual_seed(3)
        with new_loader(DrawingStream(Calls(tmp_path / "calls"), fault), persistent_workers=True) as loader:
            runs.append([[torch.stack(tuple(map(torch.as_tensor, b))).tolist() for b in loader] for _ in range(2)])
    assert (tmp_path / "struck").exists()
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]


class FlakyWhenRunAgain(IterableDataset[int]):
    """The second to run it gets an exception from an element that the first has given."""

    def __init__(self, fault: Fault, directory: Path) -> None:
        self.fault, self.marker = fault, directory / "begun"

    def __iter__(self) -> Iterator[int]:
        is_again = self.marker.exists()
        self.marker.touch()
        for element in range(10):
            if element == 2 and is_again:
                raise ConnectionResetError("the server is gone")
            if element == 7:
                self.fault.strike()
            yield element


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_what_only_comes_when_a_stream_is_run_again_ends_it_with_an_error(on_error: str, tmp_path: Path) -> None:
    """What had been delivered is good; the rest is not lost without a word."""
    dataset = FlakyWhenRunAgain(once("SIGKILL", tmp_path), tmp_path)
    with new_loader(dataset, num_workers=1, on_error=on_error) as loader:
        iterator = iter(loader)
        assert [next(iterator).tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
        with pytest.raises(ConnectionResetError, match="the server is gone") as caught:
            next(iterator)
        assert "ran the iterable dataset again, up to element 6" in "".join(caught.value.__notes__)
        assert loader.incidents[-1].done == "raised"
        assert list(iterator) == []


# -- collate_fn --------------------------------------------------------------------------------------------------------


def _dies_of_the_first(samples: list[int]) -> list[int]:
    if samples[0] < 12:
        os.kill(os.getpid(), signal.SIGSEGV)
    return samples


@pytest.mark.parametrize("kind", [Plain, StatefulDataset, StatefulIterator])
def test_batches_in_a_row_that_kill_in_collate_fn_are_listed_each_at_its_place(kind: Any, tmp_path: Path) -> None:
    """No element is listed twice, and none is left out."""
    options: dict[str, Any] = {"num_workers": 1, "collate_fn": _dies_of_the_first, "on_error": "skip"}
    with DataLoader(kind(Calls(tmp_path / "calls")), 4, max_skipped=None, **options) as loader:
        assert next(iter(loader)) == [12, 13, 14, 15]
        assert [sample.index for sample in loader.skipped_samples] == [(0, place) for place in range(12)]
