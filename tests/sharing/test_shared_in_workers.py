"""Everything that can be shared, through a real loader, under every start method and the portable backend."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import holdfast
from helpers import shared_memory_bytes, worker_pids
from holdfast import HoldfastWarning
from holdfast.transport import pickling
from shared_datasets import (
    KINDS,
    LENGTH,
    METHODS,
    Calling,
    Looking,
    descriptors_and_mappings,
    load,
    look_at_all,
    refusals,
    write_and_read,
)
from waits import wait_until

NEEDS = {"sparse matrix": "scipy", "table": "pyarrow"}
MB = 1_000_000


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_workers_read_what_was_shared(kind: str, method: str) -> None:
    """Every kind of data arrives whole, in every sample."""
    if kind in NEEDS:
        pytest.importorskip(NEEDS[kind])
    assert list(load(Looking(kind), method)) == list(range(LENGTH))


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_maps_a_segment_once_and_keeps_one_descriptor(method: str) -> None:
    """Whatever is in it, and whatever travels beside it."""
    data = holdfast.share([np.arange(10), torch.arange(10)]), holdfast.share({"a": np.arange(5), "b": b"x" * 2000})
    assert list(load(Calling((*data, data), descriptors_and_mappings), method)) == [[2, 2]] * 8


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["array", "strings"])
def test_shared_data_is_not_in_the_memory_of_a_worker(kind: str, method: str) -> None:
    """Each worker looks at all of it; none has it for itself. Under fork nothing is copied on reading either."""
    data: Any = np.ones(100 * MB // 8) if kind == "array" else [f"{index:020}" for index in range(1 * MB)]
    shared, nothing = holdfast.share(data), np.ones(1)
    used = [max(load(Calling(one, look_at_all, length=4), method)) for one in (shared, nothing)]
    assert used[0] - used[1] < 5 * MB


@pytest.mark.parametrize("method", ["fork"])
def test_without_sharing_a_list_is_in_the_memory_of_every_worker(method: str) -> None:
    """What the test above would see: reading an object of Python's writes its reference count, and copies the page."""
    plain, nothing = [f"{index:020}" for index in range(1 * MB)], np.ones(1)
    used = [min(load(Calling(one, look_at_all, length=4), method)) for one in (plain, nothing)]
    assert used[0] - used[1] > 50 * MB


@pytest.mark.parametrize("method", METHODS)
def test_a_write_by_a_worker_is_an_error_that_says_so(method: str) -> None:
    """To an array, a list or a dict; and the worker goes on."""
    data = holdfast.share((np.arange(5), list(range(20)), dict.fromkeys(range(20))))
    assert (
        list(load(Calling(data, refusals, length=2), method))
        == [
            [
                "assignment destination is read-only",
                "a shared list cannot be changed: other processes read the same memory",
                "a shared dict cannot be changed: other processes read the same memory",
            ]
        ]
        * 2
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_write_to_a_tensor_stays_in_the_process_that_made_it(method: str) -> None:
    """Each of two workers counts for itself; the main process does not see it, nor do they see what it writes."""
    data = holdfast.share(torch.zeros(1000))
    loader = load(Calling(data, write_and_read), method, prefetch_factor=1)
    seen = []
    for pair in loader:
        seen.append(pair)
        data[0] = 100
    assert seen == [[number // 2, number // 2 + 1] for number in range(8)]
    assert data[0] == 100


@pytest.mark.parametrize("method", METHODS)
def test_what_was_written_before_the_workers_started_reaches_them(method: str) -> None:
    """As with any tensor, and as in loading without workers: they start with what the process held. As a copy, where
    it is sent: a warning says so, and that it can be shared again.
    """
    data = holdfast.share(torch.zeros(1000))
    data[0] = 5
    expected = (
        contextlib.nullcontext() if method == "fork" else pytest.warns(HoldfastWarning, match=r"a copy of it \(4 kB")
    )
    with expected:
        assert list(load(Calling(data, write_and_read, length=2), method)) == [[5, 6], [5, 6]]
    assert data[0] == 5
    assert list(load(Calling(holdfast.share(data), write_and_read, length=2), method)) == [[5, 6], [5, 6]]


@pytest.mark.parametrize("method", METHODS)
def test_what_was_written_to_a_tensor_in_an_item_does_not_travel_with_the_list(method: str) -> None:
    """Who is sent the list has it as it was shared; only a forked process inherits what its parent wrote. A small
    tensor is a new one each time. (As docs/sharing.md says.)
    """
    data = holdfast.share([torch.zeros(1000), torch.zeros(10)])
    for item in data:
        item.add_(7)
    assert [float(item[0]) for item in data] == [7, 0]
    expected = [7, 0] if method == "fork" else [0, 0]
    assert list(load(Calling(data, _firsts, length=2), method)) == [expected] * 2


def _firsts(data: Any, index: int) -> list[float]:
    return [float(item[0]) for item in data]


def test_the_memory_is_freed_with_its_last_user() -> None:
    """Here with the workers, although the main process has dropped it long ago."""
    before = shared_memory_bytes()
    dataset = Calling(holdfast.share(np.ones(50 * MB // 8)), look_at_all, length=100)
    iterator = iter(load(dataset, "fork"))
    next(iterator)
    assert shared_memory_bytes() - before >= 50 * MB
    pids = worker_pids(iterator)
    assert pids
    del dataset
    iterator._shutdown_workers()
    del iterator
    gc.collect()
    wait_until(lambda: shared_memory_bytes() - before < 5 * MB, 20, "the memory given back")


@pytest.mark.parametrize("method", METHODS)
def test_a_restarted_worker_has_it_too(method: str, tmp_path: Path) -> None:
    """The descriptor is kept by the supervisor, or by the main process."""
    marker = tmp_path / "died"
    data = holdfast.share(list(range(100)))
    loader = load(Calling((data, str(marker)), _die_once, length=20), method)
    assert list(loader) == list(range(20))
    assert marker.exists()


def _die_once(data: tuple[Any, str], index: int) -> int:
    numbers, marker = data
    if index == 7 and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return int(numbers[index])


@pytest.mark.usefixtures("sharer_stopped")
def test_a_job_with_shared_data_is_small() -> None:
    """It is pickled with our own pickler: a handle there too."""
    data, _ = pickling.dumps(Looking("dict of arrays"), "dataset")
    assert len(data) < 1000
    pickle.loads(data)  # (the descriptor on its way is fetched)
