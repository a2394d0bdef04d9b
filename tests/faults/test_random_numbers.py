"""Random numbers after a fault: torch's own with rng="worker", and of nothing but the sample with rng="sample"."""

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
import torch.utils.data
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info

from faulty import Fault
from helpers import worker_pids
from holdfast import DataLoader
from waits import PATIENCE_S, wait_until

pytestmark = pytest.mark.timeout(90)

LENGTH = 24
BAD = 9


def draw() -> list[float]:
    """Of each generator an odd number of normal ones, too: those come in pairs, and the second is kept."""
    numpy, normal = np.random.random(), np.random.standard_normal()
    return [random.random(), random.gauss(0, 1), numpy, normal, float(torch.rand(())), float(torch.randn(3).sum())]


class Drawing(Dataset[torch.Tensor]):
    """A sample is its index and random numbers, drawn before its fault strikes and after."""

    def __init__(self, fault: Fault | None = None) -> None:
        self.fault = fault

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        first = draw()
        if index == BAD and self.fault is not None:
            self.fault.strike()
        return torch.tensor([index, *first, *draw()], dtype=torch.float64)


def collate_and_draw(samples: list[torch.Tensor]) -> torch.Tensor:
    batch: torch.Tensor = default_collate(samples)
    return torch.cat([batch, torch.tensor([draw()] * len(samples), dtype=torch.float64)], dim=1)


def run(loader: Any, epochs: int = 2) -> list[list[list[float]]]:
    """The rows of some epochs, in order. The seed of the program is always the same."""
    torch.manual_seed(11)
    return [torch.cat(list(loader)).tolist() for _ in range(epochs)]


def once(how: str, directory: Path) -> Fault:
    (directory / "struck").unlink(missing_ok=True)
    return Fault(how, True, directory / "struck", os.getpid())


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("how", ["SIGKILL", "os._exit", "supervisor killed", "endless loop"])
def test_after_a_lost_worker_random_numbers_are_torchs(how: str, persistent: bool, tmp_path: Path) -> None:
    """Of the sample that is loaded again and of all that follow, also in the next epoch."""
    options: dict[str, Any] = {"batch_size": 2, "num_workers": 2, "persistent_workers": persistent}
    options["collate_fn"] = collate_and_draw
    expected = run(torch.utils.data.DataLoader(Drawing(), **options))
    fault = once(how, tmp_path)
    with DataLoader(Drawing(fault), **options, sample_timeout=1.0) as loader:
        assert run(loader) == expected
    assert fault.has_struck()


def test_after_kills_from_outside_random_numbers_are_torchs() -> None:
    """Whenever they come."""
    options: dict[str, Any] = {"batch_size": 2, "num_workers": 2, "shuffle": True}
    torch.manual_seed(11)
    expected = [batch.tolist() for batch in torch.utils.data.DataLoader(Drawing(), **options)]
    torch.manual_seed(11)
    with DataLoader(Drawing(), **options, max_restarts=100) as loader:
        iterator = iter(loader)
        delivered = []
        for number, batch in enumerate(iterator):
            delivered.append(batch.tolist())
            with contextlib.suppress(
                ProcessLookupError
            ):  # the last kill's victim, of whose replacement we know not yet
                os.kill(worker_pids(iterator)[number % 2], signal.SIGKILL)
    assert delivered == expected


# -- rng="sample" ------------------------------------------------------------------------------------------------------


def assert_same_numbers(found: list[list[list[float]]], expected: list[list[list[float]]]) -> None:
    """At each place. Which samples are there is torch's: it shuffles otherwise with workers, after the first epoch."""
    assert found[0] == expected[0]
    assert [[row[1:] for row in epoch] for epoch in found] == [[row[1:] for row in epoch] for epoch in expected]


@pytest.mark.parametrize("shuffle", [False, True])
def test_with_rng_sample_random_numbers_depend_on_no_worker(shuffle: bool, tmp_path: Path) -> None:
    """The same for any number of workers, after a crash, and in another run; another epoch has others."""
    options: dict[str, Any] = {"batch_size": 3, "shuffle": shuffle, "rng": "sample", "collate_fn": collate_and_draw}
    reference = run(DataLoader(Drawing(), **options))
    assert sorted(row[0] for row in reference[0]) == sorted(row[0] for row in reference[1]) == [*range(LENGTH)]
    by_index = [{row[0]: row[1:] for row in epoch} for epoch in reference]
    assert all(by_index[0][index] != by_index[1][index] for index in range(LENGTH))
    for num_workers in (1, 3):
        with DataLoader(Drawing(), num_workers=num_workers, **options) as loader:
            assert_same_numbers(run(loader), reference)
    for how in ("SIGKILL", "SIGSEGV"):
        with DataLoader(Drawing(once(how, tmp_path)), num_workers=2, **options, persistent_workers=True) as loader:
            assert_same_numbers(run(loader), reference)


def test_with_rng_sample_no_two_samples_have_the_same_random_numbers() -> None:
    """Neighbours have nothing in common, nor have a batch's samples and its collate function."""
    rows = run(DataLoader(Drawing(), 4, rng="sample"), epochs=3)
    firsts = [row[1] for epoch in rows for row in epoch]
    assert len(set(firsts)) == 3 * LENGTH


def test_with_rng_sample_the_programs_own_random_numbers_are_left_alone() -> None:
    """Without workers samples are loaded in this process: what the training draws is what it would have drawn."""
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    loader = DataLoader(Drawing(), 2, rng="sample")
    iterator = iter(loader)
    state = (random.getstate(), torch.get_rng_state().tolist(), repr(np.random.get_state()))
    list(iterator)
    assert (random.getstate(), torch.get_rng_state().tolist(), repr(np.random.get_state())) == state


@pytest.mark.parametrize("num_workers", [0, 2])
def test_with_rng_sample_a_retried_sample_draws_the_same_again(num_workers: int, tmp_path: Path) -> None:
    """A file server that was away must not change the augmentation."""
    options: dict[str, Any] = {"batch_size": 2, "rng": "sample"}
    expected = run(DataLoader(Drawing(), **options))
    fault = Fault("exception", True, tmp_path / "struck", 0 if num_workers == 0 else os.getpid())
    with DataLoader(Drawing(fault), num_workers=num_workers, **options, retry_on=(ValueError,)) as loader:
        assert run(loader) == expected
    assert fault.has_struck()


def test_with_rng_sample_a_skipped_sample_changes_no_other(tmp_path: Path) -> None:
    """The others of its batch keep their places, and so their random numbers."""
    options: dict[str, Any] = {"batch_size": 4, "rng": "sample", "num_workers": 2}
    with DataLoader(Drawing(), **options) as loader:
        expected = [[row for row in epoch if row[0] != BAD] for epoch in run(loader)]
    for how in ("exception", "SIGSEGV"):
        fault = Fault(how, False, tmp_path / "struck", os.getpid())
        with DataLoader(Drawing(fault), **options, on_error="skip") as loader:
            assert run(loader) == expected


class DrawingStream(IterableDataset[torch.Tensor]):
    """Of two workers the first waits until it may begin."""

    def __init__(self) -> None:
        self.may_begin = torch.zeros(1, dtype=torch.uint8).share_memory_()

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        assert info is not None
        wait_until(lambda: info.id or self.may_begin.item(), PATIENCE_S, "leave to begin")
        yield from (torch.tensor([100 * info.id + k], dtype=torch.float64) for k in range(12))


def test_with_rng_sample_a_batch_of_an_iterable_draws_the_same_whenever_it_comes() -> None:
    """In collate_fn: which of all batches it is, is chance without order."""

    def rows(*, in_order: bool) -> list[list[float]]:
        torch.manual_seed(11)
        stream = DrawingStream()
        loader = DataLoader(stream, 3, num_workers=2, rng="sample", in_order=in_order, collate_fn=collate_and_draw)
        found: list[list[float]] = []
        stream.may_begin.fill_(in_order)
        for batch in loader:
            found += batch.tolist()
            stream.may_begin.fill_(in_order or len(found) >= 9)
        return found

    in_order, as_they_come = rows(in_order=True), rows(in_order=False)
    assert [row[0] for row in as_they_come[:9]] == list(range(100, 109))  # the other one did not wait
    assert sorted(as_they_come) == sorted(in_order)


def test_without_workers_a_sampler_goes_on_with_its_own_random_numbers() -> None:
    """One that draws as it goes, from the generators that the samples are kept away from, does not draw the same over
    and over again.
    """

    class Drawing(list[int]):
        def __iter__(self) -> Any:
            return (random.randrange(10_000) for _ in range(20))

    random.seed(3)
    expected = [random.randrange(10_000) for _ in range(20)]
    random.seed(3)
    loader = DataLoader(range(10_000), 2, sampler=Drawing(), rng="sample")  # type: ignore[arg-type]
    assert [int(value) for batch in loader for value in batch] == expected
