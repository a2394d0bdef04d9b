"""`holdfast.spawn` when a rank fails: what is raised, what it says, and what becomes of the others."""

from __future__ import annotations

import os
import pickle
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch.multiprocessing
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException
from torch.multiprocessing.spawn import ProcessException

import holdfast
import ranks
from helpers import START_METHODS
from holdfast.launch.errors import RankError
from waits import is_running

METHODS = (*START_METHODS, "portable")


def how(method: str) -> dict[str, Any]:
    return {"backend": "portable"} if method == "portable" else {"start_method": method}


def failure_of(*args: Any, nprocs: int = 3, **options: Any) -> RankError:
    """What spawn raises for `ranks.fail`."""
    options = {**({} if "backend" in options else {"start_method": "fork"}), **options}
    with pytest.raises(RankError) as caught:
        holdfast.spawn(ranks.fail, args, nprocs=nprocs, **options)
    return caught.value


# --- torch's contract ---------------------------------------------------------------------------------------------


def outcome(run: Any, how_it_fails: str) -> tuple[Any, ...]:
    """What a handler of torch's exceptions sees."""
    try:
        run(ranks.fail, (1, how_it_fails, "done"), nprocs=2)
    except ProcessRaisedException as error:
        last = str(error).strip().splitlines()
        return (
            "raised",
            error.error_index,
            "-- Process 1 terminated with the following error:" in last,
            "bad" in str(error),
        )
    except ProcessExitedException as error:
        return ("exited", error.error_index, error.exit_code, error.signal_name)
    return ()


@pytest.mark.parametrize("how_it_fails", [name for name in ranks.FAILURES if name not in ("hang", "allocate")])
def test_handlers_of_torchs_exceptions_see_the_same(how_it_fails: str) -> None:
    """Type, rank, status and signal, however a rank ends."""

    def theirs(fn: Any, args: Any, nprocs: int) -> None:
        torch.multiprocessing.start_processes(fn, args, nprocs=nprocs, start_method="fork")

    def ours(fn: Any, args: Any, nprocs: int) -> None:
        holdfast.spawn(fn, args, nprocs=nprocs, start_method="fork")

    assert outcome(ours, how_it_fails) == outcome(theirs, how_it_fails)


@pytest.mark.parametrize("method", METHODS)
def test_an_exception_of_a_rank_is_raised_with_its_cause(method: str) -> None:
    """Which rank, what it raised with its traceback, and the exception itself; a handler of ours catches it too."""
    error = failure_of(1, "raise", **how(method))
    assert isinstance(error, ProcessRaisedException)
    assert isinstance(error, holdfast.WorkerError)
    assert str(error).startswith(f"rank 1 (pid {error.error_pid}) raised ValueError: bad header\n")
    assert 'ranks.py", line' in str(error)
    assert (type(error.__cause__), str(error.__cause__)) == (ValueError, "bad header")
    assert error.incident is not None
    assert (error.incident.worker_id, error.incident.cause) == (1, "exception")


@pytest.mark.parametrize("method", METHODS)
def test_a_death_is_told_by_its_cause(method: str) -> None:
    """SIGSEGV: which signal, where, and in the words of spawn."""
    error = failure_of(1, "crash", **how(method))
    assert isinstance(error, ProcessExitedException)
    assert isinstance(error, holdfast.WorkerCrashed)
    assert (error.error_index, error.exit_code, error.signal_name) == (1, -signal.SIGSEGV, "SIGSEGV")
    assert str(error).startswith("rank 1 (pid ")
    assert "segmentation fault" in error.incident.cause  # type: ignore[union-attr]
    assert "sample" not in str(error)
    assert "DataLoader" not in str(error)


def test_a_hang_is_ended_past_its_timeout_and_its_stack_told() -> None:
    """One rank hangs, the others have finished."""
    error = failure_of(1, "hang", "done", timeout=1.0)
    assert isinstance(error, holdfast.WorkerTimeout)
    assert isinstance(error, ProcessExitedException)
    assert "time.sleep" in str(error) or "ranks.py" in str(error)
    assert [state.words for state in error.ranks if state.rank != 1] == ["finished", "finished"]


def test_memory_past_its_limit_is_refused() -> None:
    """8 GiB where 256 MiB are allowed: a MemoryError in the rank, and what it means."""
    error = failure_of(1, "allocate", "done", memory_limit="256MiB")
    assert isinstance(error, ProcessRaisedException | holdfast.WorkerOutOfMemory)
    assert "memory_limit" in str(error)


def test_an_exit_is_told_with_the_place_it_was_called_from() -> None:
    """`sys.exit(4)` deep in a library: the traceback shows it."""
    error = failure_of(1, "sys.exit")
    assert isinstance(error, ProcessExitedException)
    assert error.exit_code == 4
    assert "sys.exit(4)" in str(error)
    assert "exited with status 4" in str(error)


# --- the others ---------------------------------------------------------------------------------------------------


def test_the_others_are_ended_and_their_states_told(tmp_path: Path) -> None:
    """Those that run, those that are deaf to SIGTERM; and what each wrote last."""
    began = time.monotonic()
    error = failure_of(1, "raise", "stay", str(tmp_path), 3)
    words = {state.rank: state.words for state in error.ranks}
    assert words[1] == "raised ValueError: bad header"
    assert words[0] == words[2] == "was running, and was ended with the group"
    assert "  ranks      rank 0 was running, and was ended with the group" in str(error)
    for rank in range(3):
        assert f"rank {rank}, last on its stderr:\n    rank {rank} was here" in str(error)
    assert not any(is_running(state.pid) for state in error.ranks if state.pid)
    assert time.monotonic() - began < 60


def test_a_rank_that_is_deaf_to_sigterm_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    error = failure_of(1, "raise", "deaf", str(tmp_path), 2, nprocs=2, grace_period=0.3)
    assert [state.words for state in error.ranks] == [
        "was running, and did not end when it was told to: it was killed",
        "raised ValueError: bad header",
    ]


@pytest.mark.parametrize("how_it_fails", ["kill", "raise", "os._exit"])
def test_the_first_to_fail_is_the_headline_in_a_real_process_group(how_it_fails: str, tmp_path: Path) -> None:
    """The others notice by their connections, at the same moment or before we do: they are told below."""
    args = (3, str(tmp_path / "store"), 1, how_it_fails)
    with pytest.raises(ProcessException) as caught:
        holdfast.spawn(ranks.all_reduce, args, nprocs=3, start_method="fork")
    assert caught.value.error_index == 1
    assert "  ranks      rank 0 " in str(caught.value)


# --- restarts -----------------------------------------------------------------------------------------------------


def test_the_whole_group_is_started_again(tmp_path: Path) -> None:
    """As often as `max_restarts` says; every rank runs anew, and the incident is kept."""
    directory = tmp_path / "notes"
    directory.mkdir()
    args = (str(tmp_path / "marker"), str(directory))
    group = holdfast.spawn(ranks.fail_once, args, nprocs=2, join=False, start_method="fork", max_restarts=1)
    before = group.pids()
    while not group.join():
        pass
    assert ranks.notes(directory)[1] == ["began", "began", "finished"]
    assert ranks.notes(directory)[0][-1] == "finished"
    assert set(before).isdisjoint(group.pids())
    assert [(incident.worker_id, incident.done) for incident in group.incidents] == [
        (1, "the other ranks were ended; the group was started again")
    ]


def test_restarts_have_an_end() -> None:
    """Then the failure is raised, and says how often it was tried."""
    error = failure_of(1, "kill", "done", nprocs=2, max_restarts=2)
    assert "the group had been restarted 2 times, as often as max_restarts allows" in " ".join(str(error).split())


# --- the errors themselves ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how_it_fails", ["raise", "kill", "sys.exit"])
def test_an_error_pickles_whole(how_it_fails: str) -> None:
    """It may have to travel itself: a launcher inside a worker."""
    error = failure_of(0, how_it_fails, "done", nprocs=1)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.error_index, again.error_pid) == (str(error), 0, error.error_pid)
    assert (again.incident, again.ranks) == (error.incident, error.ranks)
    assert getattr(again, "exit_code", None) == getattr(error, "exit_code", None)


def test_the_message_is_not_wider_than_others() -> None:
    """120 columns, but for what ranks wrote and tracebacks."""
    head = str(failure_of(1, "kill")).partition("\n\nrank ")[0]
    assert all(len(line) <= 120 for line in head.splitlines())
    assert os.linesep not in head.splitlines()[0]
