"""on_error="replace" keeps sizes and counts, and is the same in each run; "skip" never delivers an empty batch."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, SequentialSampler

from helpers import Numbers
from holdfast import DataLoader
from records import Asked, AskedStream, Calls, flat

pytestmark = pytest.mark.timeout(60)

LENGTH = 40
MANY = 65_536
BAD = frozenset({0, 1, 2, 3, 7, 18, 21, 39})


class Holes(Numbers):
    """The bad ones raise, or crash, after a while that differs from run to run."""

    def __init__(self, how: str = "raise", longest_s: float = 0.0) -> None:
        super().__init__(LENGTH, 1)
        self.how = how
        self.longest_s = longest_s

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(int.from_bytes(os.urandom(1), "big") / 255 * self.longest_s)
        if index in BAD:
            if self.how == "crash" and index % 3 == 0:
                os.kill(os.getpid(), signal.SIGSEGV)
            raise ValueError("a hole")
        return super().__getitem__(index)


def replaced(dataset: Any, num_workers: int = 2, epochs: int = 2, **options: Any) -> list[list[list[int]]]:
    """The batches of some epochs, with the first seed of all the same."""
    torch.manual_seed(5)
    options = {"batch_size": 4, "shuffle": True, **options}
    with DataLoader(dataset, num_workers=num_workers, on_error="replace", **options) as loader:
        found = [[batch.flatten().tolist() for batch in loader] for _ in range(epochs)]
        assert all(sample.replaced_by not in BAD for sample in loader.skipped_samples)
        assert {sample.index for sample in loader.skipped_samples} == BAD
        assert len(loader.skipped_samples) == epochs * len(BAD)
    return found


def test_replace_keeps_sizes_and_counts_and_never_picks_a_bad_one() -> None:
    """Ten batches of four in each epoch, the good samples once at least, the bad ones never."""
    for epoch in replaced(Holes()):
        assert [len(batch) for batch in epoch] == [4] * (LENGTH // 4)
        assert {index for batch in epoch for index in batch} == set(range(LENGTH)) - BAD


@pytest.mark.parametrize("num_workers", [0, pytest.param(1, marks=pytest.mark.long), 3])
def test_replace_is_the_same_in_each_run(num_workers: int) -> None:
    """Whatever the number of workers and their pace; when samples crash, too, where there are workers."""
    reference = replaced(Holes(), num_workers=2)
    assert replaced(Holes(longest_s=0.02), num_workers=num_workers) == reference
    if num_workers:
        assert replaced(Holes("crash", longest_s=0.01), num_workers=num_workers) == reference


def test_a_substitute_is_of_the_same_batch_if_there_is_one() -> None:
    """What stands in the place of a bad sample is another of its batch, as long as one of that is good."""
    in_order = replaced(Holes(), epochs=1, shuffle=False)[0]
    for number, batch in enumerate(in_order):
        own = set(range(4 * number, 4 * number + 4))
        if not own <= BAD:
            assert set(batch) <= own - BAD
    assert not set(in_order[0]) & BAD  # all of the first batch are bad


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_first_batch_without_a_good_sample_is_replaced_alike_in_each_run(num_workers: int, tmp_path: Path) -> None:
    """Nothing came before it: samples that come after it stand in it, also where it is known to be bad beforehand."""
    errors: dict[int, BaseException] = dict.fromkeys(range(2), ValueError("a hole"))
    firsts = []
    for workers in (1, num_workers):
        torch.manual_seed(5)
        dataset = Asked(12, Calls(tmp_path / "calls"), errors)
        with DataLoader(dataset, 2, num_workers=workers, on_error="replace") as loader:
            firsts += [next(iter(loader)).tolist() for _ in range(2)]
    assert not {0, 1} & {index for batch in firsts for index in batch}
    assert firsts[:2] == firsts[2:]


def test_a_dataset_without_a_good_sample_is_an_error(tmp_path: Path) -> None:
    """Nothing can stand in their place: never an endless search, never an empty epoch without a word."""
    dataset = Asked(6, Calls(tmp_path / "calls"), dict.fromkeys(range(6), ValueError("a hole")))
    with DataLoader(dataset, 2, num_workers=2, on_error="replace") as loader, pytest.raises((ValueError, RuntimeError)):
        list(loader)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("how", ["raise", "crash"])
@pytest.mark.parametrize("sizes", ["batch_size=1", "batch_size=None", "batch_size=4", "batch_sampler"])
def test_skip_never_delivers_an_empty_batch(sizes: str, how: str, num_workers: int) -> None:
    """A batch that loses all its samples is not delivered; the others come in order."""
    if how == "crash" and num_workers == 0:
        pytest.skip("a crash needs a worker to be survived")
    options: dict[str, Any] = {
        "batch_size=1": {"batch_size": 1},
        "batch_size=None": {"batch_size": None},
        "batch_size=4": {"batch_size": 4},
        "batch_sampler": {"batch_sampler": BatchSampler(SequentialSampler(range(LENGTH)), 4, drop_last=False)},
    }[sizes]
    with DataLoader(Holes(how), num_workers=num_workers, on_error="skip", **options) as loader:
        batches = [batch.flatten().tolist() for batch in loader]
        assert sorted(sample.index for sample in loader.skipped_samples) == sorted(BAD)
    assert all(batches)
    assert [index for batch in batches for index in batch] == [index for index in range(LENGTH) if index not in BAD]


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("batch_size", [1, 2, None])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_an_iterable_never_delivers_an_empty_batch(
    on_error: Any, batch_size: int | None, num_workers: int, tmp_path: Path
) -> None:
    """Its last batch may be only the bad element; there is no other that could stand for it."""
    dataset = _PassesOver(7, Calls(tmp_path / "calls"), {2: ValueError("a hole"), 6: ValueError("a hole")})
    with DataLoader(dataset, batch_size, num_workers=num_workers, on_error=on_error) as loader:
        batches = [batch.flatten().tolist() for batch in loader]
        assert [sample.index for sample in loader.skipped_samples] == [(0, 2), (0, 6)]
    fills = on_error == "replace" and batch_size == 2
    expected = [[0, 1], [3, 3] if fills else [3], [4, 5]] if batch_size == 2 else [[0], [1], [3], [4], [5]]
    assert batches == expected


class _PassesOver(AskedStream):
    def __iter__(self) -> Any:
        return _Passing(super().__iter__())


class _Passing:
    """Goes on with the next element after one that raised."""

    def __init__(self, asking: Any) -> None:
        self.asking = asking

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> torch.Tensor:
        try:
            sample: torch.Tensor = next(self.asking)
        except ValueError:
            self.asking.left.pop(0)
            raise
        return sample


@pytest.mark.parametrize("num_workers", [0, 2])
def test_in_any_order_skip_delivers_the_same_samples(num_workers: int) -> None:
    """in_order=False: nothing is lost or repeated."""
    with DataLoader(Holes(longest_s=0.01), 4, num_workers=num_workers, on_error="skip", in_order=False) as loader:
        assert sorted(flat(loader)) == sorted(set(range(LENGTH)) - BAD)


class OneCrash(Dataset[int]):
    """As many samples as in two large batches, one of which ends its process."""

    def __len__(self) -> int:
        return 2 * MANY

    def __getitem__(self, index: int) -> int:
        if index == MANY + 5:
            os.kill(os.getpid(), signal.SIGSEGV)
        return index


@pytest.mark.parametrize(("on_error", "size"), [("skip", MANY - 1), ("replace", MANY)])
def test_a_batch_of_very_many_samples_loses_one(on_error: Any, size: int) -> None:
    """What it asks for then is larger than a message: each sample has a place of its own in the epoch."""
    with DataLoader(OneCrash(), MANY, num_workers=2, on_error=on_error) as loader:
        assert [len(batch) for batch in loader] == [MANY, size]
        assert [sample.index for sample in loader.skipped_samples] == [MANY + 5]
