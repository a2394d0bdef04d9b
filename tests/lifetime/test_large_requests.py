"""Requests of an unusual size: very many indices, huge samples, very deep prefetching, more workers than cores."""

from __future__ import annotations

import psutil
import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, RandomSampler, SequentialSampler

from helpers import Numbers, numbers
from holdfast import DataLoader

pytestmark = pytest.mark.timeout(60)


class Squares(Dataset[int]):
    """Sample i is i * i: cheap, so that the number of indices is what counts."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index * index


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_batch_sampler_may_give_65536_indices_at_once(method: str) -> None:
    """A request of 328 kB, over the size of a socket message: the batches are right and in order."""
    dataset = Squares(3 * 65_536 + 100)
    sampler = BatchSampler(SequentialSampler(dataset), batch_size=65_536, drop_last=False)
    with DataLoader(dataset, batch_sampler=sampler, num_workers=2, multiprocessing_context=method) as loader:
        batches = list(loader)
    assert [len(batch) for batch in batches] == [65_536] * 3 + [100]
    assert torch.equal(torch.cat(batches), torch.arange(len(dataset)) ** 2)


def test_many_requests_of_65536_indices_do_not_block_one_another() -> None:
    """Prefetching fills every buffer on the way with large requests: main process and workers still make progress."""
    dataset = Squares(65_536)
    generator = torch.Generator().manual_seed(5)
    orders = [torch.randperm(len(dataset), generator=generator).tolist() for _ in range(24)]
    with DataLoader(dataset, batch_sampler=orders, num_workers=2, prefetch_factor=8) as loader:
        for order, batch in zip(orders, loader, strict=True):
            assert torch.equal(batch, torch.tensor(order) ** 2)


class Words(Dataset[str]):
    """Indexed by long strings: requests are large with few indices."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: str) -> str:
        return index[-5:]


def test_indices_may_be_long_strings() -> None:
    """An index is whatever the sampler gives; 64 strings of 20 kB each make a request of over a megabyte."""
    keys = ["k" * 20_000 + f"{number:05}" for number in range(256)]
    batches = [keys[first : first + 64] for first in range(0, 256, 64)]
    with DataLoader(Words(), batch_sampler=batches, num_workers=2) as loader:
        assert [word for batch in loader for word in batch] == [f"{number:05}" for number in range(256)]


def test_a_prefetch_factor_of_64_keeps_the_order() -> None:
    """128 batches are under way at once; each arrives whole and in its place."""
    with DataLoader(Numbers(1200, width=2000), batch_size=4, num_workers=2, prefetch_factor=64) as loader:
        number = -1
        for number, batch in enumerate(loader):
            assert torch.equal(batch, numbers(number * 4, 4, 2000))
        assert number == 299


def test_eight_workers_on_two_cores_keep_the_order() -> None:
    """More workers than cores, a shuffled epoch: every index once, in the sampler's order."""
    sampler = RandomSampler(range(800), generator=torch.Generator().manual_seed(7))
    order = list(sampler)
    assert sampler.generator is not None
    sampler.generator.manual_seed(7)
    with DataLoader(Numbers(800, width=50), batch_size=4, sampler=sampler, num_workers=8) as loader:
        delivered = torch.cat(list(loader))
    assert torch.equal(delivered, torch.tensor(order).unsqueeze(1) + torch.arange(50))


def test_more_workers_than_batches_is_no_trouble() -> None:
    """Workers without work are started, stay idle and end."""
    with DataLoader(Numbers(6), batch_size=2, num_workers=8) as loader:
        assert torch.equal(torch.cat(list(loader)), numbers(0, 6, 4))


class Huge(Dataset[bytes | str]):
    """Over 2 GiB of bytes, then of text."""

    NBYTES = (1 << 31) + 5

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> bytes | str:
        data = bytes(self.NBYTES)
        return data if index == 0 else data.decode("ascii")


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_sample_may_have_more_than_two_gibibytes_of_bytes_or_text() -> None:
    """As with torch: marshal, which describes batches, takes less. Takes some 7 GB of memory."""
    if psutil.virtual_memory().available < 12 << 30:
        pytest.skip("needs 12 GiB of memory that is free")
    with DataLoader(Huge(), batch_size=None, num_workers=1, prefetch_factor=1) as loader:
        for value, kind in zip(loader, (bytes, str), strict=True):
            assert type(value) is kind
            assert len(value) == Huge.NBYTES
            assert len(set(value[:: 1 << 20]) | set(value[-9:])) == 1
            del value
