"""What the workers see of a dataset that the user changes: as torch, it depends on when they were started."""

from __future__ import annotations

import pytest
import torch

from helpers import Numbers
from holdfast import DataLoader

pytestmark = pytest.mark.timeout(60)


class Shifted(Numbers):
    """Sample i is i plus `offset`, which the user changes."""

    offset = 0

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(index + self.offset)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_workers_of_the_next_epoch_see_a_changed_dataset(method: str) -> None:
    """Workers are started per epoch: each epoch serves the dataset as it is then."""
    dataset = Shifted(8)
    with DataLoader(dataset, batch_size=2, num_workers=2, multiprocessing_context=method) as loader:
        for offset in (0, 100, 200):
            dataset.offset = offset
            assert torch.cat(list(loader)).tolist() == [offset + index for index in range(8)]


def test_a_change_in_mid_epoch_is_seen_in_the_next_epoch_only() -> None:
    """The workers of a running epoch serve the dataset they were started with, to its end."""
    dataset = Shifted(64)
    with DataLoader(dataset, batch_size=2, num_workers=2) as loader:
        seen = []
        for batch in loader:
            dataset.offset = 1000
            seen.extend(batch.tolist())
        assert seen == list(range(64))
        assert torch.cat(list(loader)).tolist() == list(range(1000, 1064))


def test_persistent_workers_do_not_see_a_changed_dataset() -> None:
    """They keep the dataset they were started with, as torch's do."""
    for loader_class in (DataLoader, torch.utils.data.DataLoader):
        dataset = Shifted(8)
        loader = loader_class(dataset, batch_size=2, num_workers=2, persistent_workers=True)
        for offset in (0, 100):
            dataset.offset = offset
            assert torch.cat(list(loader)).tolist() == list(range(8)), loader_class
        del loader


def test_a_dataset_that_grows_between_epochs_is_served_whole() -> None:
    """The sampler and the workers agree on the new length."""
    dataset = Numbers(8, width=1)
    with DataLoader(dataset, batch_size=3, num_workers=2) as loader:
        for length in (8, 20, 5):
            dataset.length = length
            assert torch.cat(list(loader)).flatten().tolist() == list(range(length))
