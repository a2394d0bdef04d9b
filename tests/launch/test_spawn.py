"""`holdfast.spawn` where nothing goes wrong: what torch's does, and what it does not."""

from __future__ import annotations

import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing
from torch.multiprocessing.spawn import ProcessContext

import holdfast
import ranks
from helpers import START_METHODS
from waits import is_running

METHODS = (*START_METHODS, "portable")


def how(method: str) -> dict[str, Any]:
    return {"backend": "portable"} if method == "portable" else {"start_method": method}


@pytest.mark.parametrize("method", METHODS)
def test_every_rank_runs_once_with_its_number(method: str, tmp_path: Path) -> None:
    """`fn(rank, *args)` in processes of their own; nothing is returned."""
    assert holdfast.spawn(ranks.note, (str(tmp_path), "a", 1), nprocs=3, **how(method)) is None
    assert ranks.notes(tmp_path) == {rank: ["a 1"] for rank in range(3)}
    pids = {path.read_text().split()[0] for path in tmp_path.iterdir()}
    assert len(pids) == 3
    assert str(os.getpid()) not in pids


@pytest.mark.parametrize("method", METHODS)
def test_queues_locks_and_shared_tensors_can_be_arguments(method: str) -> None:
    """What multiprocessing lets through only inside the start of a process."""
    context = multiprocessing.get_context("spawn" if method == "portable" else method)
    queue, lock, tensor = context.SimpleQueue(), context.Lock(), torch.zeros(2).share_memory_()
    holdfast.spawn(ranks.put, (queue, lock, tensor), nprocs=2, **how(method))
    assert {queue.get()[0], queue.get()[0]} == {0, 1}
    assert tensor.tolist() == [1, 2]
    queue.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_lambda_or_a_closure_can_be_run(method: str, tmp_path: Path) -> None:
    """torch's cannot pickle it."""
    word = "closed over"
    holdfast.spawn(lambda rank, path: ranks.note(rank, path, word), (str(tmp_path),), nprocs=2, **how(method))
    assert ranks.notes(tmp_path) == {0: ["closed over"], 1: ["closed over"]}


def test_what_cannot_be_sent_is_named() -> None:
    """By its place among the arguments."""
    with pytest.raises(holdfast.NotPicklable, match=r"^args\[1\]\['lock'\] cannot be sent to the workers") as caught:
        holdfast.spawn(ranks.note, ("", {"lock": threading.Lock()}), nprocs=2)
    assert caught.value.path == "args[1]['lock']"
    assert "worker_init_fn" not in str(caught.value)


@pytest.mark.parametrize("method", METHODS)
def test_without_join_there_is_a_context(method: str, tmp_path: Path) -> None:
    """torch's own class, with its attributes; `join(timeout)` says whether all have ended."""
    path = tmp_path / "go"
    context = holdfast.spawn(ranks.wait_for, (str(path),), nprocs=2, join=False, **how(method))
    assert isinstance(context, ProcessContext)
    assert context.join(timeout=0.1) is False
    assert [process.is_alive() for process in context.processes] == [True, True]
    assert [process.daemon for process in context.processes] == [False, False]
    assert context.pids() == [process.pid for process in context.processes]
    assert sorted(context.sentinels.values()) == [0, 1]
    path.touch()
    while not context.join():
        pass
    assert context.join() is True
    assert [process.exitcode for process in context.processes] == [0, 0]
    assert not context.sentinels


def test_a_context_can_be_closed_early(tmp_path: Path) -> None:
    """All ranks are ended."""
    context = holdfast.spawn(ranks.wait_for, (str(tmp_path / "go"),), nprocs=2, join=False, start_method="fork")
    pids = context.pids()
    context.close()
    context.close()
    assert not any(map(is_running, pids))
    assert context.join() is True


@pytest.mark.parametrize("method", METHODS)
def test_a_rank_may_have_a_loader_with_workers(method: str, tmp_path: Path) -> None:
    """It is no daemon."""
    holdfast.spawn(ranks.load, (str(tmp_path),), nprocs=2, **how(method))
    assert ranks.notes(tmp_path) == {0: ["[0, 4]"], 1: ["[0, 4]"]}


@pytest.mark.parametrize(("how_it_ends", "status"), [("returns", 0), ("raises", 1), ("exits", 5)])
@pytest.mark.parametrize("method", ["fork", "portable"])
def test_what_a_rank_has_forked_is_no_rank(method: str, how_it_ends: str, status: int, tmp_path: Path) -> None:
    """As with torch: how it ends is the rank's business, and of nobody else."""
    holdfast.spawn(ranks.fork_and_come_back, (str(tmp_path), how_it_ends), nprocs=2, **how(method))
    assert ranks.notes(tmp_path) == {0: [str(status)], 1: [str(status)]}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_rank_is_no_worker_of_a_loader(method: str, tmp_path: Path) -> None:
    """It keeps torch's threads and the scheduling of its parent, and is a worker to nobody."""
    holdfast.spawn(ranks.describe, (str(tmp_path),), nprocs=1, **how(method))
    assert ranks.notes(tmp_path) == {0: [f"{torch.get_num_threads()} {os.sched_getscheduler(0)} False None"]}


def test_a_daemon_may_have_no_children(tmp_path: Path) -> None:
    """As with torch."""
    with pytest.raises(torch.multiprocessing.ProcessRaisedException, match="daemonic processes are not allowed"):
        holdfast.spawn(ranks.load, (str(tmp_path),), nprocs=1, daemon=True, start_method="fork")


@pytest.mark.long
def test_threads_of_a_rank_are_waited_for(tmp_path: Path) -> None:
    """A rank ends as a process of its own would, in its own time."""
    holdfast.spawn(ranks.leave_thread, (str(tmp_path),), nprocs=1, start_method="fork")
    assert ranks.notes(tmp_path) == {0: ["thread finished"]}


@pytest.mark.parametrize("how_it_ends", ["os._exit(0)", "sys.exit(0)", "interrupt"])
def test_a_rank_that_ends_itself_with_status_0_has_finished(how_it_ends: str) -> None:
    """As with torch, for which an interrupt too is no failure."""
    assert holdfast.spawn(ranks.fail, (1, how_it_ends, "done"), nprocs=2, start_method="fork") is None


def test_no_processes_at_all_are_a_warning() -> None:
    """`nprocs=torch.cuda.device_count()` where there is none: torch runs nothing, and says nothing."""
    with pytest.warns(holdfast.HoldfastWarning, match="runs nothing"):
        assert holdfast.spawn(ranks.note, ("",), nprocs=0) is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"nprocs": -1}, "nprocs=-1 must be a whole number, 0 or more"),
        ({"start_method": "thread"}, "start_method='thread' is not one of 'spawn', 'fork', 'forkserver'"),
        ({"timeout": 0}, "timeout=0 must be a number of seconds above 0"),
        ({"memory_limit": "much"}, "memory_limit='much' must be"),
        ({"max_restarts": -1}, "max_restarts=-1 must be a whole number"),
        ({"grace_period": -1.0}, "grace_period=-1.0 must be a number of seconds above 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], said: str) -> None:
    """Before anything is started."""
    with pytest.raises(ValueError, match=said):
        holdfast.spawn(ranks.note, ("",), **arguments)
