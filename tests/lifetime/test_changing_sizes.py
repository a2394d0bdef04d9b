"""Batches whose size changes from step to step: slots grow and shrink, and no byte of one batch shows in another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import Sampler

from helpers import Numbers, Waves, numbers
from holdfast import DataLoader

pytestmark = pytest.mark.timeout(60)

BATCH_SIZE = 8


@pytest.mark.parametrize(
    "widths",
    [(64, 64_000), (64_000, 64), (64, 640, 6_400, 64_000), (64,) * 20 + (64_000,)],
    ids=["small-large", "large-small", "growing", "rarely-large"],
)
def test_batches_that_change_by_a_factor_of_a_thousand_arrive_whole(widths: tuple[int, ...]) -> None:
    """4 kB and 4 MB batches in turn: every value of every batch is right, in two epochs of the same workers."""
    dataset = Waves(60, BATCH_SIZE, widths)
    with DataLoader(dataset, batch_size=BATCH_SIZE, num_workers=2, persistent_workers=True) as loader:
        for _ in range(2):
            count = 0
            for count, batch in enumerate(loader, start=1):
                assert torch.equal(batch, dataset.batch(count - 1))
            assert count == dataset.batches


class GrowingBatches(Sampler[list[int]]):
    """1, 1000, 2, 999, 3, 998... indices per batch."""

    def __iter__(self) -> Iterator[list[int]]:
        for small in range(1, 11):
            yield list(range(small))
            yield list(range(1001 - small))

    def __len__(self) -> int:
        return 20


def test_batches_of_one_sample_and_of_a_thousand_follow_each_other() -> None:
    """The number of samples changes by a factor of a thousand; every batch has its own number and values."""
    with DataLoader(Numbers(1000, width=256), batch_sampler=GrowingBatches(), num_workers=2) as loader:
        for indices, batch in zip(GrowingBatches(), loader, strict=True):
            assert torch.equal(batch, numbers(0, len(indices), 256))


def test_batches_of_changing_size_may_all_be_kept() -> None:
    """Small and large batches, all kept to the end, still hold their own values then."""
    dataset = Waves(100, BATCH_SIZE, (16, 16_000, 160))
    with DataLoader(dataset, batch_size=BATCH_SIZE, num_workers=2) as loader:
        kept = list(loader)
    assert len(kept) == dataset.batches
    for number, batch in enumerate(kept):
        assert torch.equal(batch, dataset.batch(number))


def as_ragged_list(samples: list[torch.Tensor]) -> dict[str, object]:
    """A custom collate whose tensors differ in number and size from batch to batch."""
    return {"rows": samples, "all": torch.cat(samples), "lengths": [len(sample) for sample in samples]}


def test_a_custom_collate_may_return_as_much_as_it_likes() -> None:
    """Tensors that `collate_fn` itself made, of a size nobody could foresee, arrive whole."""
    dataset = Waves(40, BATCH_SIZE, (16, 16_000))
    with DataLoader(dataset, batch_size=BATCH_SIZE, num_workers=2, collate_fn=as_ragged_list) as loader:
        for number, batch in enumerate(loader):
            expected = dataset.batch(number)
            assert torch.equal(torch.stack(batch["rows"]), expected)
            assert torch.equal(batch["all"], expected.flatten())
            assert batch["lengths"] == [dataset.width(number)] * BATCH_SIZE
