"""A sample at which its worker is stopped by a signal, and not continued: once is nobody's fault, twice its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from faulty import BAD, BATCH_SIZE, LENGTH, NUM_WORKERS, Collate, Fault, Generated, Map, MapOfMany
from holdfast import DataLoader, HoldfastWarning, WorkerCrashed
from records import flat, stubborn

pytestmark = pytest.mark.timeout(90)

MATE = BAD - 1
REST = [index for index in range(LENGTH) if index != BAD]


@pytest.fixture(autouse=True)
def _stops_count_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is stopped by a signal is lost after about a second."""
    monkeypatch.setattr("holdfast.workers.watching.STOPPED_GRACE_S", 1.0, raising=False)


@pytest.fixture
def stops(tmp_path: Path) -> Fault:
    return Fault("SIGSTOP", False, tmp_path / "struck", os.getpid())


def new_loader(dataset: Any, **options: Any) -> DataLoader[torch.Tensor]:
    how = {"multiprocessing_context": "fork"} if "backend" not in options else {}
    return DataLoader(dataset, BATCH_SIZE, num_workers=NUM_WORKERS, **how, **options)


def causes(loader: DataLoader[Any]) -> list[tuple[str, str]]:
    return [(incident.cause, incident.done) for incident in loader.incidents]


@pytest.mark.parametrize(
    "options",
    [{}, {"sample_timeout": 0.8}, {"max_retries": 3}, {"max_restarts": 1, "max_retries": 0}],
    ids=["plain", "timeout", "retries", "restart"],
)
def test_a_sample_that_stops_its_worker_twice_is_skipped(options: dict[str, Any], stops: Fault) -> None:
    """With a limit on its time or without, and however many retries there are; the epoch is whole but for it."""
    with new_loader(Map(stops, "getitem"), on_error="skip", **options) as loader:
        assert flat(loader) == REST
        assert causes(loader) == [("stopped", "restarted"), ("stopped", "skipped")]
        assert [sample.index for sample in loader.skipped_samples] == [BAD]
        assert "stopped by a signal" in loader.skipped_samples[0].reason


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"sample_timeout": 0.8}], ids=["plain", "timeout"])
def test_the_portable_backend_does_the_same(options: dict[str, Any], stops: Fault) -> None:
    """Where the main process itself watches the workers."""
    with new_loader(Map(stops, "getitem"), on_error="skip", backend="portable", **options) as loader:
        assert flat(loader) == REST
        assert causes(loader) == [("stopped", "restarted"), ("stopped", "skipped")]


def test_a_sample_that_stops_its_worker_twice_is_raised(stops: Fault) -> None:
    """By default: WorkerCrashed names it, and the epoch goes on with the next batch."""
    with new_loader(Map(stops, "getitem")) as loader:
        outcomes = stubborn(iter(loader))
        assert causes(loader) == [("stopped", "restarted"), ("stopped", "raised")]
    error = outcomes.pop(BAD // BATCH_SIZE)
    assert isinstance(error, WorkerCrashed)
    assert error.sample_index == BAD
    assert "was stopped by a signal and not continued" in str(error).splitlines()[0]
    assert 'on_error="skip"' in str(error)
    assert [index for batch in outcomes for index in batch] == [index for index in REST if index != MATE]


@pytest.mark.long
def test_a_sample_that_stops_its_worker_twice_is_replaced(stops: Fault) -> None:
    """By the other sample of its batch, which has stops of its own to be counted."""
    with new_loader(Map(stops, "getitem"), on_error="replace") as loader:
        assert flat(loader) == [MATE if index == BAD else index for index in range(LENGTH)]
        assert causes(loader) == [("stopped", "restarted"), ("stopped", "replaced")]


def test_a_skipped_file_remembers_it(stops: Fault, tmp_path: Path) -> None:
    """As one that crashed each time: the next run does not try it."""
    file = tmp_path / "skipped"
    with new_loader(Map(stops, "getitem"), on_error="skip", skipped_file=file) as loader:
        assert flat(loader) == REST
    known = pytest.warns(HoldfastWarning, match="1 sample listed in skipped_file")
    with known, new_loader(Map(stops, "getitem"), on_error="skip", skipped_file=file) as loader:
        assert flat(loader) == REST
    assert causes(loader) == []


@pytest.mark.long
def test_of_samples_that_one_call_loads_the_one_that_stops_is_found(stops: Fault) -> None:
    """They are loaded one by one after the second stop; the third is that sample's."""
    with new_loader(MapOfMany(stops, "getitem"), on_error="skip") as loader:
        assert flat(loader) == REST
        assert causes(loader) == [("stopped", "restarted"), ("stopped", "retried"), ("stopped", "skipped")]
        assert [sample.index for sample in loader.skipped_samples] == [BAD]


def test_a_batch_that_stops_its_worker_twice_is_skipped(stops: Fault) -> None:
    """In collate_fn it is no single sample's doing."""
    with new_loader(Map(stops, ""), collate_fn=Collate(stops, "collate"), on_error="skip") as loader:
        assert flat(loader) == [index for index in REST if index != MATE]
        assert causes(loader) == [("stopped", "restarted"), ("stopped", "skipped")]


def test_an_element_that_stops_its_worker_twice_ends_its_stream(stops: Fault) -> None:
    """As one that crashes it: what came before is delivered, the other worker goes on, and the error says where."""
    with new_loader(Generated(stops, "getitem"), on_error="skip") as loader:
        outcomes = stubborn(iter(loader))
        assert causes(loader) == [("stopped", "restarted"), ("stopped", "raised")]
    (error,) = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert isinstance(error, WorkerCrashed)
    assert f"after {BAD // NUM_WORKERS} elements" in str(error)
    delivered = sorted(index for batch in outcomes if isinstance(batch, list) for index in batch)
    assert delivered == [0, 1, 2, 3, 4, 6, 8, 10]


class StopsOnceEach(Map):
    """Two samples of one batch, each of which stops its worker once."""

    def __init__(self, first: Fault, second: Fault) -> None:
        super().__init__(first, "getitem")
        self.second = second

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == MATE:
            self.second.strike()
        return super().__getitem__(index)


def test_stops_at_different_samples_are_nobodys(tmp_path: Path) -> None:
    """Both are loaded: once is somebody else's doing."""
    faults = [Fault("SIGSTOP", True, tmp_path / name, os.getpid()) for name in ("one", "two")]
    with new_loader(StopsOnceEach(*faults), on_error="skip", max_retries=0) as loader:
        assert flat(loader) == list(range(LENGTH))
        assert causes(loader) == [("stopped", "restarted")] * 2
