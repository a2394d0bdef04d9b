"""Every exception that a loop over a loader meets is an incident, wherever it was raised, and carries it."""

from __future__ import annotations

import errno
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Dataset

from holdfast import DataLoader
from holdfast.incident import Incident
from holdfast.loader.units import Units
from holdfast.workers.backend import UnitDone
from holdfast.workers.in_flight import DescriptorsRanOut
from waits import PATIENCE_S


class Numbers(Dataset[int]):
    """Of which one may take for ever."""

    def __init__(self, endless: int = -1) -> None:
        self.endless = endless

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == self.endless:
            time.sleep(10 * PATIENCE_S)
        return index


class Broken:
    """A sampler that raises after so many batches."""

    def __init__(self, good: int) -> None:
        self.good = good

    def __iter__(self) -> Iterator[list[int]]:
        for k in range(self.good):
            yield [k]
        raise LookupError("no such index")


def refuse(samples: list[int]) -> Any:
    raise ValueError("these do not go together")


def raised_by(loader: DataLoader[Any], kind: type[Exception]) -> Incident:
    """The one incident of an epoch, which its exception carries."""
    with pytest.raises(kind) as info:
        list(loader)
    (incident,) = loader.incidents
    assert info.value.incident is incident
    assert incident.done == "raised"
    return incident


@pytest.mark.parametrize("num_workers", [0, 2])
def test_collate_fn(num_workers: int) -> None:
    """Without workers as with them."""
    with DataLoader(
        Numbers(),
        8,
        num_workers=num_workers,
        retry_on=(OSError,),
        collate_fn=refuse,
        multiprocessing_context=fork(num_workers),
    ) as loader:
        incident = raised_by(loader, ValueError)
    assert (incident.cause, incident.phase, incident.batch) == ("dataset exception", "collating", 0)


@pytest.mark.parametrize("good", [0, 3])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_sampler(num_workers: int, good: int) -> None:
    """It is asked in the main process, also before there is a first batch."""
    with DataLoader(
        Numbers(),
        batch_sampler=Broken(good),  # type: ignore[arg-type]
        num_workers=num_workers,
        retry_on=(OSError,),
        multiprocessing_context=fork(num_workers),
    ) as loader:
        incident = raised_by(loader, LookupError)
    assert (incident.cause, incident.phase) == ("dataset exception", "asking the sampler")
    assert "no such index" in incident.because


def test_the_timeout() -> None:
    """torch's own: nobody knows which worker is slow, or why."""
    with DataLoader(Numbers(endless=0), num_workers=1, timeout=0.5, multiprocessing_context="fork") as loader:
        incident = raised_by(loader, RuntimeError)
    assert (incident.cause, incident.confidence, incident.phase) == ("hang", "possible", "waiting for a batch")


def test_a_batch_that_cannot_be_received(monkeypatch: pytest.MonkeyPatch) -> None:
    """For want of descriptors in the main process, which holds as many as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def fail(self: Units, done: UnitDone) -> None:
        held = len([*Path("/proc/self/fd").iterdir()]) - 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (held, hard))
        raise DescriptorsRanOut

    monkeypatch.setattr(Units, "take", fail)
    with DataLoader(Numbers(), 8, num_workers=1, multiprocessing_context="fork") as loader:
        try:
            incident = raised_by(loader, OSError)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (incident.cause, incident.confidence, incident.phase) == (
        "too many open files",
        "certain",
        "receiving a batch",
    )
    assert str(errno.EMFILE) in incident.summary


def fork(num_workers: int) -> str | None:
    return "fork" if num_workers else None
