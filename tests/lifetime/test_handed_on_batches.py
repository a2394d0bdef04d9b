"""Batches that user code hands to other processes, through torch's own sharing.

`share_memory_()`, and so `mp.Queue.put`, move a tensor's storage to other memory. A numpy view taken before still
points at the old memory: it must keep its values while the loader goes on.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from multiprocessing import resource_sharer
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing

from helpers import PATIENCE_S, Numbers, numbers
from holdfast import DataLoader

pytestmark = pytest.mark.timeout(60)

BATCH_SIZE = 8
WIDTH = 4_000
BATCHES = 120


@pytest.fixture(autouse=True)
def no_resource_sharer_left() -> Iterator[None]:
    """Passing a tensor between processes starts a thread of the standard library: end it with the test."""
    yield
    resource_sharer.stop(PATIENCE_S)


def new_loader() -> DataLoader[torch.Tensor]:
    return DataLoader(Numbers(BATCHES * BATCH_SIZE, WIDTH), batch_size=BATCH_SIZE, num_workers=2)


def expected(batch: int) -> torch.Tensor:
    return numbers(batch * BATCH_SIZE, BATCH_SIZE, WIDTH)


@pytest.mark.parametrize("tensor_kept", [False, True], ids=["tensor-dropped", "tensor-kept"])
def test_a_numpy_view_survives_share_memory(tensor_kept: bool) -> None:
    """Views taken before `share_memory_()` hold their values to the end of the epoch, and so do the shared tensors."""
    views: list[np.ndarray] = []
    shared: list[torch.Tensor] = []
    with new_loader() as loader:
        for number, batch in enumerate(loader):
            if number % 2 == 0:
                views.append(batch.numpy())
                batch.share_memory_()
                assert batch.is_shared()
                if tensor_kept:
                    shared.append(batch)
            else:
                assert torch.equal(batch, expected(number))
            del batch
            gc.collect(0)
    for position, view in enumerate(views):
        assert np.array_equal(view, expected(2 * position).numpy())
    for position, batch in enumerate(shared):
        assert torch.equal(batch, expected(2 * position))


def test_a_view_of_a_shared_batch_survives() -> None:
    """A second tensor over the storage follows it into shared memory; a numpy view of a slice stays behind, right."""
    with new_loader() as loader:
        iterator = iter(loader)
        batch = next(iterator)
        row, array = batch[3], batch[1:3].numpy()
        batch.share_memory_()
        del batch
        for number in range(1, BATCHES):
            assert torch.equal(next(iterator), expected(number))
        assert torch.equal(row, expected(0)[3])
        assert np.array_equal(array, expected(0)[1:3].numpy())


def sum_batches(inbox: Any, outbox: Any) -> None:
    while (batch := inbox.get()) is not None:
        outbox.put((batch.sum().item(), batch.flatten()[::999].tolist()))
        del batch


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_batch_sent_through_a_queue_arrives_and_its_numpy_view_survives(method: str) -> None:
    """Another process reads each batch out of an `mp.Queue`; the sender's views taken before keep their values."""
    context = torch.multiprocessing.get_context(method)
    inbox, outbox = context.Queue(), context.Queue()
    consumer = context.Process(target=sum_batches, args=(inbox, outbox))
    consumer.start()
    views: list[np.ndarray] = []
    try:
        with new_loader() as loader:
            for number, batch in enumerate(loader):
                if number % 4 == 0:
                    views.append(batch.numpy())
                    inbox.put(batch)
                    del batch
                    answer = outbox.get(timeout=PATIENCE_S)
                    assert answer == (expected(number).sum().item(), expected(number).flatten()[::999].tolist())
                else:
                    assert torch.equal(batch, expected(number))
        inbox.put(None)
        consumer.join(PATIENCE_S)
        assert consumer.exitcode == 0
    finally:
        consumer.kill()
        consumer.join(PATIENCE_S)
        consumer.close()
        for queue in (inbox, outbox):
            queue.close()
            queue.join_thread()
    for position, view in enumerate(views):
        assert np.array_equal(view, expected(4 * position).numpy())


def test_a_queue_in_the_same_process_gives_the_batch_back() -> None:
    """`mp.Queue` as a plain buffer between two parts of one program."""
    queue = torch.multiprocessing.get_context("fork").Queue()
    with new_loader() as loader:
        for number, batch in enumerate(loader):
            queue.put(batch)
            del batch
            assert torch.equal(queue.get(timeout=PATIENCE_S), expected(number))
            if number == 40:
                break
    queue.close()
    queue.join_thread()
