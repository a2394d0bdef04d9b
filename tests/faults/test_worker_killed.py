"""A worker that dies is replaced and its batches are loaded again: nothing lost, repeated or reordered. Or an error.

A death that a sample causes is told apart by its coming again: that batch is raised, naming the sample, and the
epoch goes on.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from helpers import PATIENCE_S, DiesAlways, DiesOnce, Numbers, Stream, die, numbers, wait_until, worker_pids
from holdfast import DataLoader
from holdfast.board_rows import Phase
from holdfast.errors import WorkerCrashed, WorkerInitError
from records import Calls

pytestmark = pytest.mark.timeout(60)

BATCH_SIZE = 4
BATCHES = 60
LENGTH = BATCH_SIZE * BATCHES


def check_batch(batch: torch.Tensor, number: int) -> None:
    assert torch.equal(batch, numbers(number * BATCH_SIZE, BATCH_SIZE, 4)), number


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("kept", [False, True], ids=["nothing-kept", "all-kept"])
def test_an_epoch_survives_the_killing_of_each_worker(method: str, kept: bool) -> None:
    """Both workers are killed once from outside, at different batches: every batch comes once, whole and in order."""
    held = []
    number = -1
    with DataLoader(Numbers(LENGTH), BATCH_SIZE, num_workers=2, multiprocessing_context=method) as loader:
        iterator = iter(loader)
        for number, batch in enumerate(iterator):
            check_batch(batch, number)
            held.append(batch if kept else None)
            if number in (10, 25):
                os.kill(worker_pids(iterator)[number % 2], signal.SIGKILL)
    assert number == BATCHES - 1
    if kept:
        for number, batch in enumerate(held):
            check_batch(batch, number)


def test_an_epoch_survives_the_killing_of_all_workers_at_once() -> None:
    """Every worker dies in the same moment; finished batches are kept, the others are loaded again."""
    number = -1
    with DataLoader(Numbers(LENGTH), BATCH_SIZE, num_workers=4, prefetch_factor=4) as loader:
        iterator = iter(loader)
        for number, batch in enumerate(iterator):
            check_batch(batch, number)
            if number == 20:
                for pid in worker_pids(iterator):
                    os.kill(pid, signal.SIGKILL)
    assert number == BATCHES - 1


@pytest.mark.parametrize(("method", "index"), [("fork", 0), ("fork", 101), ("fork", LENGTH - 1), ("spawn", 101)])
def test_a_sample_that_dies_once_is_loaded_again(method: str, index: int, tmp_path: Path) -> None:
    """A death in the middle of a sample, as by the kernel's memory killer: the epoch is whole."""
    dataset = DiesOnce(LENGTH, index, str(tmp_path / "died"))
    with DataLoader(dataset, BATCH_SIZE, num_workers=2, multiprocessing_context=method) as loader:
        assert torch.equal(torch.cat(list(loader)), numbers(0, LENGTH, 4))
    assert (tmp_path / "died").exists(), "nobody died: this proves nothing"


def kill_and_wait_for_the_next_life(iterator: object, worker_id: int) -> None:
    """Kill a worker and let its supervisor replace it, while the main process is busy with something else."""
    supervisor = psutil.Process(psutil.Process(worker_pids(iterator)[worker_id]).ppid())
    before = {worker.pid for worker in supervisor.children()}
    os.kill(worker_pids(iterator)[worker_id], signal.SIGKILL)
    wait_until(
        lambda: any(child.pid not in before and child.num_threads() for child in supervisor.children()),
        PATIENCE_S,
        "a new worker",
    )
    wait_until(lambda: len(supervisor.children()) == len(before), PATIENCE_S, "as many workers as before")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_that_was_replaced_during_a_long_training_step_is_heard(method: str) -> None:
    """Its death, its last batches and its next life are all there when the main process looks again: nothing hangs."""
    number = -1
    with DataLoader(Numbers(LENGTH), BATCH_SIZE, num_workers=2, multiprocessing_context=method) as loader:
        iterator = iter(loader)
        for number, batch in enumerate(iterator):
            check_batch(batch, number)
            if number in (10, 20, 30):
                kill_and_wait_for_the_next_life(iterator, worker_id=number // 10 % 2)
    assert number == BATCHES - 1


class Noted(Numbers):
    """Each sample leaves a line when it is asked for, and comes when the gate is open."""

    def __init__(self, calls: Calls, gate: Path) -> None:
        super().__init__(LENGTH)
        self.calls = calls
        self.gate = gate

    def __getitem__(self, index: int) -> torch.Tensor:
        self.calls.note(index)
        while not self.gate.exists():
            time.sleep(0.005)
        return super().__getitem__(index)


def test_a_worker_that_was_lost_twice_during_a_long_training_step_loads_its_batches_once(tmp_path: Path) -> None:
    """Both losses are heard of at once: only the last life is told what to do, and only once. Told twice, it would load
    its batches twice, the first time into slots that are no longer its own.
    """
    dataset = Noted(Calls(tmp_path / "calls"), tmp_path / "gate")
    with DataLoader(dataset, BATCH_SIZE, num_workers=1) as loader:
        iterator = iter(loader)
        supervisor = psutil.Process(psutil.Process(worker_pids(iterator)[0]).ppid())
        wait_until(lambda: dataset.calls.counts()["0"] == 1, PATIENCE_S, "the first sample")
        for _ in range(2):
            (worker,) = supervisor.children()
            wait_until(lambda: iterator._backend._board.doing(0).phase is not Phase.STARTING, PATIENCE_S, "a worker")
            worker.kill()
            wait_until(lambda old=worker: _is_replaced(supervisor, old), PATIENCE_S, "the next life")
        dataset.gate.touch()
        assert torch.equal(torch.cat(list(iterator)), numbers(0, LENGTH, 4))
    assert dataset.calls.counts() == {**{str(index): 1 for index in range(LENGTH)}, "0": 2}


def _is_replaced(supervisor: psutil.Process, old: psutil.Process) -> bool:
    return [child for child in supervisor.children() if child != old] == supervisor.children() != []


def test_persistent_workers_survive_a_kill_between_epochs() -> None:
    """A worker that dies while it is idle is replaced for the next epoch."""
    with DataLoader(Numbers(LENGTH), BATCH_SIZE, num_workers=2, persistent_workers=True) as loader:
        for epoch in range(4):
            assert torch.equal(torch.cat(list(loader)), numbers(0, LENGTH, 4))
            if epoch % 2:
                kill_and_wait_for_the_next_life(loader._iterator, worker_id=1)
            else:
                os.kill(worker_pids(loader._iterator)[0], signal.SIGKILL)


def outcomes(iterator: Iterator[torch.Tensor]) -> Iterator[torch.Tensor | RuntimeError]:
    """Go on after every RuntimeError, as a stubborn user does, to the end of the epoch."""
    for _ in range(10 * BATCHES):
        try:
            yield next(iterator)
        except StopIteration:
            return
        except RuntimeError as error:
            yield error
    raise AssertionError("the epoch does not end")


@pytest.mark.parametrize("how", ["exit", "SIGSEGV"])
def test_a_sample_that_always_kills_its_worker_is_named_and_the_epoch_goes_on(how: str) -> None:
    """`os._exit` or a segmentation fault at sample 101: one WorkerCrashed names it, all other batches come."""
    with DataLoader(DiesAlways(LENGTH, 101, how), BATCH_SIZE, num_workers=2) as loader:
        results = list(outcomes(iter(loader)))
    assert len(results) == BATCHES
    for number, result in enumerate(results):
        if number == 101 // BATCH_SIZE:
            assert isinstance(result, WorkerCrashed)
            assert isinstance(result, RuntimeError)
            assert "101" in str(result).splitlines()[0]
            assert result.sample_index == 101
        else:
            assert isinstance(result, torch.Tensor), result
            check_batch(result, number)


def test_a_sample_that_always_kills_its_worker_under_spawn_is_named() -> None:
    """The same where workers are not forked from the main process."""
    with DataLoader(DiesAlways(20, 9, "exit"), BATCH_SIZE, num_workers=2, multiprocessing_context="spawn") as loader:
        results = list(outcomes(iter(loader)))
    crashed = [position for position, result in enumerate(results) if not isinstance(result, torch.Tensor)]
    assert (crashed, len(results)) == ([2], 5)
    assert isinstance(results[2], WorkerCrashed)
    assert results[2].sample_index == 9


def die_in_init(worker_id: int) -> None:
    die("exit")


def die_in_init_of_worker_one(worker_id: int) -> None:
    if worker_id == 1:
        die("SIGSEGV")


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("init", [die_in_init, die_in_init_of_worker_one], ids=["all", "one"])
def test_a_death_in_worker_init_fn_is_an_init_error_at_once(method: str, init: object) -> None:
    """No sample is to blame and no other try will help: WorkerInitError, a RuntimeError, instead of an epoch."""
    loader = DataLoader(Numbers(LENGTH), BATCH_SIZE, num_workers=2, worker_init_fn=init, multiprocessing_context=method)
    with loader, pytest.raises(WorkerInitError) as caught:
        list(loader)
    assert isinstance(caught.value, RuntimeError)
    del caught


def test_a_killed_worker_of_an_iterable_dataset_is_taken_up_where_it_was() -> None:
    """No element is lost, repeated or out of order."""
    with DataLoader(Stream(4000), BATCH_SIZE, num_workers=2) as loader:
        expected = [batch.flatten().tolist() for batch in loader]
        iterator = iter(loader)
        delivered = [next(iterator).flatten().tolist()]
        os.kill(worker_pids(iterator)[0], signal.SIGKILL)
        delivered.extend(batch.flatten().tolist() for batch in iterator)
    assert delivered == expected
    assert len(loader.incidents) == 1


@pytest.mark.parametrize("method", ["fork", "portable"])
def test_an_interrupt_of_one_worker_is_told_as_such(method: str) -> None:
    """Not as an end that the user's code had made: it has gone through its exit hooks all the same."""
    how = {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}
    with DataLoader(Numbers(LENGTH), BATCH_SIZE, num_workers=1, **how) as loader:  # type: ignore[arg-type]
        iterator = iter(loader)
        for number, batch in enumerate(iterator):
            check_batch(batch, number)
            if number == 10:
                os.kill(worker_pids(iterator)[0], signal.SIGINT)
        assert number == BATCHES - 1
        assert [incident.cause for incident in loader.incidents] == ["killed by another process"]
        assert "SIGINT" in loader.incidents[0].summary
