"""What a worker sees of itself, and what other code sees of the workers and the iterator."""

from __future__ import annotations

import multiprocessing
import re
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import get_worker_info

from holdfast import DataLoader as HoldfastLoader

from .datasets import as_list
from .scenarios import Scenario, assert_parity
from .streams import Uneven
from .workers import Informed, Marked, Nested, Surroundings, set_marker

LOADERS = [pytest.param(TorchLoader, id="torch"), pytest.param(HoldfastLoader, id="holdfast")]
JOIN_DEADLINE_S = 30

INSIDE = [
    Scenario("worker info", Informed, {"num_workers": 2, "batch_size": 3, "collate_fn": as_list}),
    Scenario("worker info, three workers", Informed, {"num_workers": 3, "collate_fn": as_list}, takes=(None, None)),
    Scenario("worker info, no workers", Informed, {"num_workers": 0, "collate_fn": as_list}),
    Scenario(
        "worker info, persistent",
        Informed,
        {"num_workers": 2, "collate_fn": as_list, "persistent_workers": True},
        takes=(3, None, None),
    ),
    Scenario(
        "worker info, generator",
        Informed,
        lambda: {"num_workers": 2, "collate_fn": as_list, "generator": torch.Generator().manual_seed(4)},
        takes=(None, None),
    ),
    Scenario("worker_init_fn changes the dataset", Marked, {"num_workers": 2, "worker_init_fn": set_marker}),
    Scenario(
        "worker_init_fn changes the dataset, persistent",
        Marked,
        {"num_workers": 2, "worker_init_fn": set_marker, "persistent_workers": True},
        takes=(2, None),
    ),
    Scenario("surroundings", Surroundings, {"num_workers": 2, "collate_fn": as_list}),
    Scenario("surroundings, three workers", Surroundings, {"num_workers": 3, "collate_fn": as_list}),
]


@pytest.mark.parametrize("scenario", INSIDE, ids=lambda scenario: scenario.id)
def test_a_worker_sees_the_same(scenario: Scenario) -> None:
    """get_worker_info(), one thread, a daemonic process of multiprocessing, signals, environment, working directory."""
    assert_parity(scenario)


def test_a_forked_worker_inherits_what_the_main_thread_had_set() -> None:
    """Gradient mode and default dtype at the moment of iter()."""
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            arguments = {"num_workers": 2, "collate_fn": as_list, "multiprocessing_context": "fork"}
            assert_parity(Scenario("inherited", Surroundings, arguments))
            sample = next(iter(HoldfastLoader(Surroundings(), **arguments)))[0]
    finally:
        torch.set_default_dtype(torch.float32)
    assert (sample["grad mode"], sample["default dtype"], sample["threads"]) == (False, torch.float64, 1)


def test_the_main_process_is_no_worker() -> None:
    """During and after iteration."""
    for _ in HoldfastLoader(range(4), num_workers=2):
        assert get_worker_info() is None
    assert get_worker_info() is None


def test_num_threads_of_the_main_process_stay() -> None:
    before = torch.get_num_threads()
    assert len(list(HoldfastLoader(range(4), num_workers=2))) == 4
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("loader_class", LOADERS)
def test_a_loader_with_workers_inside_a_worker_is_torchs_error(loader_class: type[Any]) -> None:
    """AssertionError: daemonic processes are not allowed to have children."""
    assert_parity(Scenario("nested", lambda: Nested(loader_class), {"num_workers": 1, "collate_fn": as_list}))


def test_the_error_of_a_nested_loader_is_really_there() -> None:
    with pytest.raises(AssertionError, match="daemonic processes are not allowed to have children"):
        next(iter(HoldfastLoader(Nested(HoldfastLoader), num_workers=1)))


# --- from outside -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loader_class", LOADERS)
def test_workers_can_be_inspected(loader_class: type[Any]) -> None:
    """`_workers`, in the order of worker ids: pid, name, daemon, is_alive(), exitcode, join()."""
    iterator = iter(loader_class(Informed(8), num_workers=2, collate_fn=as_list))
    batches = [next(iterator) for _ in range(2)]
    workers = iterator._workers
    assert iterator._num_workers == len(workers) == 2
    assert [batch[0][1][0] for batch in batches] == [0, 1]
    assert all(isinstance(worker.pid, int) and psutil.pid_exists(worker.pid) for worker in workers)
    assert len({worker.pid for worker in workers}) == 2
    assert [worker.is_alive() for worker in workers] == [True, True]
    assert [worker.exitcode for worker in workers] == [None, None]
    assert [worker.daemon for worker in workers] == [True, True]
    assert len({worker.name for worker in workers}) == 2
    assert all(re.fullmatch(r"Process-\d+", worker.name) for worker in workers)

    iterator._shutdown_workers()
    for worker in workers:
        worker.join(JOIN_DEADLINE_S)
    assert [worker.is_alive() for worker in workers] == [False, False]
    assert [worker.exitcode for worker in workers] == [0, 0]


@pytest.mark.parametrize("backend", [None, pytest.param("portable", marks=pytest.mark.long)])
def test_workers_are_numbered_from_epoch_to_epoch_as_torchs(backend: str | None) -> None:
    """What else is started for them takes no number."""
    names = []
    for _ in range(2):
        iterator = iter(HoldfastLoader(range(4), num_workers=2, backend=backend))
        names += [worker.name for worker in iterator._workers]
        next(iterator)
    numbers = [int(name.rpartition("-")[2]) for name in names]
    assert numbers == list(range(numbers[0], numbers[0] + 4))


class Pids(Informed):
    """The pid of the worker that loads the sample."""

    def __getitem__(self, index: int) -> tuple[int, int]:
        info = get_worker_info()
        assert info is not None
        pid = multiprocessing.current_process().pid
        assert pid is not None
        return info.id, pid


@pytest.mark.parametrize("loader_class", LOADERS)
@pytest.mark.parametrize("persistent", [False, True], ids=["", "persistent"])
def test_the_pids_of_workers_are_those_that_load(loader_class: type[Any], persistent: bool) -> None:
    """Batch k comes from worker k mod n, whose pid is `_workers[k mod n].pid`."""
    loader = loader_class(Pids(9), num_workers=3, collate_fn=as_list, persistent_workers=persistent)
    for _ in range(2):
        iterator = iter(loader)
        pids = [worker.pid for worker in iterator._workers]
        assert [batch[0] for batch in iterator] == [(number % 3, pids[number % 3]) for number in range(9)]


@pytest.mark.parametrize("loader_class", LOADERS)
def test_workers_end_with_the_epoch_unless_they_are_persistent(loader_class: type[Any]) -> None:
    """Persistent workers stay, and stay the same, until the loader is gone."""
    iterator = iter(loader_class(range(6), num_workers=2))
    workers = iterator._workers
    assert len(list(iterator)) == 6
    for worker in workers:
        worker.join(JOIN_DEADLINE_S)
    assert not any(worker.is_alive() for worker in workers)

    loader = loader_class(range(6), num_workers=2, persistent_workers=True)
    assert loader._iterator is None
    iterator = iter(loader)
    assert loader._iterator is iterator
    pids = [worker.pid for worker in iterator._workers]
    assert len(list(iterator)) == 6
    assert all(worker.is_alive() for worker in iterator._workers)
    assert iter(loader) is iterator
    assert [worker.pid for worker in iterator._workers] == pids
    workers = iterator._workers
    del iterator, loader
    for worker in workers:
        worker.join(JOIN_DEADLINE_S)
    assert not any(worker.is_alive() for worker in workers)


@pytest.mark.parametrize("loader_class", LOADERS)
def test_an_iterator_is_its_own_iterator_and_has_a_length(loader_class: type[Any]) -> None:
    loader = loader_class(range(7), batch_size=2, num_workers=2)
    iterator = iter(loader)
    assert iter(iterator) is iterator
    assert (len(iterator), len(loader)) == (4, 4)
    assert iter(loader) is not iterator


@pytest.mark.parametrize("loader_class", LOADERS)
def test_two_iterators_of_one_loader_run_side_by_side(loader_class: type[Any]) -> None:
    loader = loader_class(range(6), num_workers=1)
    assert [(int(one), int(other)) for one, other in zip(loader, loader, strict=True)] == [(n, n) for n in range(6)]


@pytest.mark.parametrize("loader_class", LOADERS)
def test_a_profile_shows_the_time_in_next(loader_class: type[Any]) -> None:
    """Under the name that torch's own tools look for."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        assert len(list(loader_class(range(3), num_workers=1))) == 3
    names = [event.key for event in profile.key_averages()]
    assert [name for name in names if re.fullmatch(r"enumerate\(DataLoader\)#\w*Iter\w*\.__next__", name)] != []


def test_worker_ids_of_streams_are_in_order() -> None:
    """The first batches come from worker 0, then worker 1, then worker 2."""
    arguments = {"num_workers": 3, "batch_size": 1}
    assert_parity(Scenario("ids", lambda: Uneven(2, 2, 2), arguments, asks_length=False))
