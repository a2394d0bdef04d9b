"""Ranks that nobody joins, ranks that have started processes, and ranks whose supervisor is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from torch.multiprocessing import ProcessExitedException
from torch.multiprocessing.spawn import ProcessException

import holdfast
import ranks
from helpers import START_METHODS
from holdfast.launch.errors import RankError
from waits import PATIENCE_S, is_running, wait_until

METHODS = (*START_METHODS, "portable")


def how(method: str) -> dict[str, Any]:
    return {"backend": "portable"} if method == "portable" else {"start_method": method}


def children(directory: Path, count: int = 1) -> list[int]:
    """The processes that ranks have started, once there are so many."""

    def found() -> list[int]:
        texts = [path.read_text() for path in directory.glob("*.child")]
        return [int(text) for text in texts if text]

    wait_until(lambda: len(found()) >= count, PATIENCE_S, f"{count} children")
    return found()


def assert_ended(pids: list[int]) -> None:
    wait_until(lambda: not any(map(is_running, pids)), PATIENCE_S, f"the end of {pids}")


# --- nobody joins -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_timeout_is_kept_while_nobody_joins(method: str) -> None:
    """The rank is ended; who joins later is told."""
    group = holdfast.spawn(ranks.fail, (1, "hang", "done"), nprocs=2, join=False, timeout=1.0, **how(method))
    wait_until(lambda: not group.processes[1].is_alive(), PATIENCE_S, "the end of rank 1")
    with pytest.raises(holdfast.WorkerTimeout, match=r"^rank 1 \(pid"):
        group.join()


@pytest.mark.parametrize("method", METHODS)
def test_ranks_that_write_a_lot_do_not_wait_for_a_join(method: str, tmp_path: Path) -> None:
    """What they write to stderr is passed on all the time."""
    group = holdfast.spawn(ranks.flood, (str(tmp_path),), nprocs=2, join=False, **how(method))
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2, PATIENCE_S, "both ranks")
    assert group.join(timeout=PATIENCE_S)


@pytest.mark.parametrize("method", METHODS)
def test_a_group_can_be_closed_by_another_thread_than_the_one_that_joins(method: str, tmp_path: Path) -> None:
    """The join ends; nothing is left."""
    group = holdfast.spawn(ranks.wait_for, (str(tmp_path / "go"),), nprocs=2, join=False, **how(method))
    joined: list[bool] = []
    joining = threading.Thread(target=lambda: joined.append(group.join()))
    joining.start()
    pids = group.pids()
    group.close()
    joining.join(PATIENCE_S)
    assert not joining.is_alive()
    assert joined == [True]
    assert_ended(pids)


def test_a_join_gives_up_after_its_time_though_another_thread_joins(tmp_path: Path) -> None:
    """It says that not all have ended."""
    go = tmp_path / "go"
    group = holdfast.spawn(ranks.wait_for, (str(go),), nprocs=1, join=False, start_method="fork")
    joining, giving_up = threading.Thread(target=group.join), []
    joining.start()
    wait_until(lambda: is_held(group._lock), PATIENCE_S, "the other thread")
    asking = threading.Thread(target=lambda: giving_up.append(group.join(timeout=0.1)))
    asking.start()
    asking.join(PATIENCE_S)
    go.touch()
    joining.join()
    assert giving_up == [False]
    assert group.join(timeout=PATIENCE_S)


def is_held(lock: Any) -> bool:
    """By another thread."""
    if lock.acquire(blocking=False):
        lock.release()
        return False
    return True


# --- what ranks start ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("then", ["return", "raise", "stay"])
def test_what_ranks_have_started_ends_with_the_group(then: str, method: str, tmp_path: Path) -> None:
    """A process in a session of its own: whether the rank returned, raised, or was ended."""
    ends = pytest.raises(ProcessException) if then == "raise" else contextlib.nullcontext()
    group = holdfast.spawn(ranks.start_child, (str(tmp_path), then), nprocs=2, join=False, **how(method))
    with ends:
        found = children(tmp_path, 2 if then == "stay" else 1)
        if then == "stay":
            assert all(map(is_running, found))
            group.close()
        while not group.join():
            pass
    assert_ended(children(tmp_path))


def test_what_ranks_have_started_ends_with_a_rank_that_is_killed(tmp_path: Path) -> None:
    """Whose children the kernel gives to the supervisor."""
    with pytest.raises(ProcessExitedException):
        holdfast.spawn(ranks.start_child, (str(tmp_path), "kill"), nprocs=2, start_method="fork")
    assert_ended(children(tmp_path))


# --- the supervisor -----------------------------------------------------------------------------------------------


def supervisor_of(group: Any) -> int:
    return int(psutil.Process(group.pids()[0]).ppid())


@pytest.mark.parametrize("method", START_METHODS)
def test_a_supervisor_that_is_killed_takes_its_ranks_along_and_is_told(method: str, tmp_path: Path) -> None:
    """Not as the fault of a rank; what ranks had started is ended as well."""
    group = holdfast.spawn(ranks.start_child, (str(tmp_path), "stay"), nprocs=2, join=False, **how(method))
    started = children(tmp_path, 2)
    assert not group.join(timeout=1.5)  # so that they have been seen
    pids = group.pids()
    os.kill(supervisor_of(group), signal.SIGKILL)
    with pytest.raises(RankError) as caught:
        group.join()
    assert isinstance(caught.value, ProcessExitedException)
    assert str(caught.value).startswith("supervisor ")
    assert caught.value.incident is not None
    assert caught.value.incident.cause == "supervisor killed"
    assert {state.words for state in caught.value.ranks} == {"was lost with the supervisor of all ranks"}
    assert_ended([*pids, *started])


def test_a_group_is_started_again_after_its_supervisor_was_killed(tmp_path: Path) -> None:
    """As after the failure of a rank."""
    go = tmp_path / "go"
    group = holdfast.spawn(ranks.wait_for, (str(go),), nprocs=2, join=False, start_method="fork", max_restarts=1)
    before = group.pids()
    os.kill(supervisor_of(group), signal.SIGKILL)
    wait_until(lambda: group.join(timeout=0.1) or set(before).isdisjoint(group.pids()), PATIENCE_S, "other ranks")
    go.touch()
    assert group.join()
    assert [incident.cause for incident in group.incidents] == ["supervisor killed"]
    assert_ended(before)


def test_a_rank_that_dies_before_its_function_is_called_is_told_so() -> None:
    """Here while it unpickles what it was given."""
    with pytest.raises(holdfast.WorkerInitError) as caught:
        holdfast.spawn(ranks.note, ("", KillsItsProcess()), nprocs=1, start_method="spawn")
    assert isinstance(caught.value, ProcessExitedException)


class KillsItsProcess:
    """As soon as it is unpickled."""

    def __reduce__(self) -> Any:
        return _kill, ()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
