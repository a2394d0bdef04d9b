"""What stays in memory is what the user keeps, and goes when the user drops it.

Measured, not assumed: the blocks of every memory-backed file that this process and its workers have open or mapped, and
this process's own anonymous memory. The bounds are generous: a quarter of what keeping whole batches takes.
"""

from __future__ import annotations

import gc
import io

import pytest
import torch

from helpers import PATIENCE_S, Records, private_memory_bytes, shared_memory_bytes, wait_until
from holdfast import DataLoader
from hungry import give_back_gaps

pytestmark = pytest.mark.timeout(60)

BATCH_SIZE = 8
IMAGE_BYTES = 1 << 18
BATCHES = 200
WHOLE_BYTES = BATCHES * BATCH_SIZE * IMAGE_BYTES  # 400 MiB
BOUND_BYTES = WHOLE_BYTES // 4


def loader_of(batches: int) -> DataLoader[dict[str, torch.Tensor]]:
    return DataLoader(Records(batches * BATCH_SIZE, IMAGE_BYTES), batch_size=BATCH_SIZE, num_workers=2)


def memory_bytes() -> int:
    gc.collect()
    give_back_gaps()  # of what earlier tests have freed: when malloc does that by itself is chance
    return shared_memory_bytes() + private_memory_bytes()


def image_of(batch: int) -> torch.Tensor:
    values = torch.arange(batch * BATCH_SIZE, (batch + 1) * BATCH_SIZE) % 251
    return values.to(torch.uint8).unsqueeze(1).expand(-1, IMAGE_BYTES)


def test_the_reading_sees_kept_batches() -> None:
    """The measure itself: whole batches that are kept show in it, so the bounds of the other tests can be broken."""
    before = memory_bytes()
    with loader_of(40) as loader:
        kept = [batch["image"] for batch in loader]
        assert memory_bytes() - before > sum(image.nbytes for image in kept) * 0.9


def test_a_small_tensor_kept_of_each_large_batch_does_not_keep_the_batch() -> None:
    """Labels of 200 batches of 2 MiB are kept: their values are right, and the images' memory is not held."""
    before = memory_bytes()
    with loader_of(BATCHES) as loader:
        labels = [batch["label"] for batch in loader]
        assert memory_bytes() - before < BOUND_BYTES
        for number, label in enumerate(labels):
            column = torch.arange(number * BATCH_SIZE, (number + 1) * BATCH_SIZE)
            assert torch.equal(label, torch.stack([column, -column], dim=1))
    assert memory_bytes() - before < BOUND_BYTES


def test_an_epoch_in_which_nothing_is_kept_uses_a_few_batches_of_memory() -> None:
    """Slots are used again: 200 batches of 2 MiB pass through a fraction of their total size."""
    before = memory_bytes()
    with loader_of(BATCHES) as loader:
        most = 0
        for number, batch in enumerate(loader):
            assert torch.equal(batch["image"], image_of(number))
            if number % 20 == 0:
                most = max(most, memory_bytes() - before)
    assert most < BOUND_BYTES


def test_memory_of_batches_that_outlive_the_loader_is_given_back_when_they_go() -> None:
    """After the loader's end the kept batches hold their memory, and give it back when the last of them is dropped."""
    before = memory_bytes()
    loader = loader_of(BATCHES)
    kept = [batch["image"] for batch in loader]
    loader.close()
    del loader
    assert memory_bytes() - before > WHOLE_BYTES * 0.9
    assert all(torch.equal(image, image_of(number)) for number, image in enumerate(kept))
    del kept
    wait_until(lambda: memory_bytes() - before < BOUND_BYTES // 4, PATIENCE_S, "the memory given back")


def test_half_of_the_batches_that_outlive_the_loader_hold_about_half_of_the_memory() -> None:
    """Memory is given back batch by batch, not only with the last one."""
    before = memory_bytes()
    loader = loader_of(BATCHES)
    kept = [batch["image"] for batch in loader]
    loader.close()
    del loader, kept[1::2]
    wait_until(lambda: memory_bytes() - before < WHOLE_BYTES * 0.7, PATIENCE_S, "half of the memory given back")
    assert all(torch.equal(image, image_of(2 * number)) for number, image in enumerate(kept))


def test_memory_of_a_burst_of_kept_batches_is_given_back_while_the_epoch_goes_on() -> None:
    """A user who keeps 200 batches, drops them and goes on does not hold their memory for the rest of the epoch."""
    before = memory_bytes()
    with loader_of(BATCHES + 100) as loader:
        iterator = iter(loader)
        kept = [next(iterator)["image"] for _ in range(BATCHES)]
        assert memory_bytes() - before > WHOLE_BYTES * 0.9
        del kept
        for _ in range(90):
            next(iterator)
        assert memory_bytes() - before < WHOLE_BYTES // 2


def saved(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def test_a_saved_tensor_takes_its_own_size_in_the_file() -> None:
    """`torch.save` of a delivered tensor writes that tensor, not the memory its whole batch came in."""
    overhead_bytes = 4096
    with loader_of(4) as loader:
        for batch in loader:
            label, image = batch["label"], batch["image"]
            assert len(saved(label)) < label.nbytes + overhead_bytes
            assert image.nbytes < len(saved(image)) < image.nbytes + overhead_bytes
            assert len(saved(batch)) < image.nbytes + label.nbytes + overhead_bytes
            assert torch.equal(torch.load(io.BytesIO(saved(batch)))["label"], label)
