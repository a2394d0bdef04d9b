"""A batch belongs to the user for as long as any part of it lives, whatever the loader does meanwhile."""

from __future__ import annotations

import gc
import queue
import threading

import numpy as np
import pytest
import torch

from helpers import Numbers, Records, numbers, wait_until_ended, worker_pids
from holdfast import DataLoader

pytestmark = pytest.mark.timeout(60)

BATCH_SIZE = 8
WIDTH = 4_000


def loader_of(batches: int, width: int = WIDTH, **options: object) -> DataLoader[torch.Tensor]:
    return DataLoader(Numbers(batches * BATCH_SIZE, width), batch_size=BATCH_SIZE, num_workers=2, **options)


def expected(batch: int, width: int = WIDTH) -> torch.Tensor:
    return numbers(batch * BATCH_SIZE, BATCH_SIZE, width)


def test_a_user_who_keeps_every_batch_has_every_value_at_the_end() -> None:
    """Hundreds of kept batches: the pool of slots grows, nothing blocks, nothing is overwritten."""
    with loader_of(400) as loader:
        kept = list(loader)
    assert len(kept) == 400
    for number, batch in enumerate(kept):
        assert torch.equal(batch, expected(number))


def test_a_user_who_keeps_every_batch_of_many_epochs_has_every_value_at_the_end() -> None:
    """Batches kept from earlier epochs are not overwritten by later ones, with the same workers or with new ones."""
    for persistent in (False, True):
        with loader_of(30, persistent_workers=persistent) as loader:
            epochs = [list(loader) for _ in range(4)]
        for epoch in epochs:
            for number, batch in enumerate(epoch):
                assert torch.equal(batch, expected(number))


def test_one_small_tensor_of_each_large_batch_may_be_kept() -> None:
    """The labels kept from each batch are right at the end, the images gone long since."""
    dataset = Records(300 * BATCH_SIZE, image_bytes=30_000)
    with DataLoader(dataset, batch_size=BATCH_SIZE, num_workers=2) as loader:
        labels = torch.cat([batch["label"] for batch in loader])
    column = torch.arange(len(dataset))
    assert torch.equal(labels, torch.stack([column, -column], dim=1))


def test_small_tensors_kept_uncopied_keep_their_values() -> None:
    """As above, but the delivered tensors themselves are kept until the epoch's end."""
    dataset = Records(300 * BATCH_SIZE, image_bytes=30_000)
    with DataLoader(dataset, batch_size=BATCH_SIZE, num_workers=2) as loader:
        labels = [batch["label"] for batch in loader]
    for number, label in enumerate(labels):
        column = torch.arange(number * BATCH_SIZE, (number + 1) * BATCH_SIZE)
        assert torch.equal(label, torch.stack([column, -column], dim=1))


def test_a_numpy_view_of_a_slice_keeps_its_values_when_every_tensor_is_gone() -> None:
    """`batch[2:4].numpy()` is all that is kept of a batch: its memory is not used again."""
    with loader_of(200) as loader:
        kept: list[np.ndarray] = []
        for batch in loader:
            kept.append(batch[2:4, 100:200].numpy())
            del batch
        gc.collect()
    for number, view in enumerate(kept):
        assert np.array_equal(view, expected(number)[2:4, 100:200].numpy())


def test_every_kind_of_view_keeps_the_batch_alive() -> None:
    """Transposed, reshaped, narrowed, detached, split, re-typed and aliased views each hold the values alone."""
    views = {
        "transposed": lambda batch: batch.t(),
        "reshaped": lambda batch: batch.view(-1)[5:500],
        "narrowed": lambda batch: batch.narrow(1, 7, 9),
        "detached": lambda batch: batch.detach(),
        "split": lambda batch: batch.split(3)[1],
        "bytes": lambda batch: batch.view(torch.uint8),
        "row": lambda batch: batch[3],
        "dlpack": torch.from_dlpack,
        "numpy and back": lambda batch: torch.from_numpy(batch.numpy()[1:]),
        "memoryview": lambda batch: torch.frombuffer(memoryview(batch.numpy()).cast("B"), dtype=torch.int64),
    }
    kept: list[tuple[str, int, torch.Tensor]] = []
    with loader_of(150) as loader:
        for number, batch in enumerate(loader):
            name = list(views)[number % len(views)]
            kept.append((name, number, views[name](batch)))
    for name, number, view in kept:
        assert torch.equal(view, views[name](expected(number))), name


def test_batches_may_be_used_in_another_thread() -> None:
    """A thread that works some batches behind the loader finds each batch as it was delivered."""
    handed: queue.Queue[tuple[int, torch.Tensor] | None] = queue.Queue()
    right: list[bool] = []

    def consume() -> None:
        held: list[tuple[int, torch.Tensor]] = []
        while (item := handed.get()) is not None:
            held.append(item)
            del item
            if len(held) > 5:
                number, batch = held.pop(0)
                right.append(torch.equal(batch, expected(number)))
                del batch  # the last reference goes in this thread
        right.extend(torch.equal(batch, expected(number)) for number, batch in held)

    consumer = threading.Thread(target=consume)
    consumer.start()
    try:
        with loader_of(300) as loader:
            for number, batch in enumerate(loader):
                handed.put((number, batch))
                del batch
    finally:
        handed.put(None)
        consumer.join(60)
    assert right == [True] * 300


def test_batches_may_be_dropped_in_a_thread_while_the_loader_closes() -> None:
    """The last references go in one thread while another closes the loader: neither disturbs the other."""
    for _ in range(20):
        with loader_of(12, width=10_000) as loader:
            kept = list(loader)
            dropper = threading.Thread(target=kept.clear)
            dropper.start()
        dropper.join(60)
        assert not kept


@pytest.mark.parametrize("persistent", [False, True], ids=["workers-per-epoch", "persistent-workers"])
def test_batches_outlive_the_loader(persistent: bool) -> None:
    """After close, after the loader is collected and its workers are gone, kept batches hold their values."""
    loader = loader_of(50, persistent_workers=persistent)
    iterator = iter(loader)
    kept = [next(iterator) for _ in range(20)]
    pids = worker_pids(iterator)
    loader.close()
    wait_until_ended(pids)
    for number, batch in enumerate(kept):
        assert torch.equal(batch, expected(number))
    del iterator, loader
    gc.collect()
    for number, batch in enumerate(kept):
        assert torch.equal(batch, expected(number))
        batch.add_(1)
        assert torch.equal(batch, expected(number) + 1)


def test_batches_outlive_a_loader_that_was_never_closed() -> None:
    """Only dropped, never closed: the same."""
    loader = loader_of(50)
    kept = list(loader)
    del loader
    gc.collect()
    assert all(torch.equal(batch, expected(number)) for number, batch in enumerate(kept))


def test_a_user_may_write_into_every_batch() -> None:
    """In-place work on a batch, kept or not, is seen in that batch and in no other one."""
    with loader_of(60, persistent_workers=True) as loader:
        for _ in range(3):
            kept = []
            for number, batch in enumerate(loader):
                assert torch.equal(batch, expected(number))
                batch.mul_(2).add_(number)
                if number % 3 == 0:
                    kept.append((number, batch))
                else:
                    batch.fill_(-1)
            for number, batch in kept:
                assert torch.equal(batch, expected(number) * 2 + number)


def test_a_user_may_write_through_numpy() -> None:
    """The arrays of delivered tensors are writable and share their memory with the tensor."""
    with loader_of(20) as loader:
        for number, batch in enumerate(loader):
            array = batch.numpy()
            assert array.flags.writeable
            array += 5
            assert torch.equal(batch, expected(number) + 5)
