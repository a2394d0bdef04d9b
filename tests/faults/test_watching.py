"""Workers that hang, stop or block every signal: told apart, replaced, and never waited for without end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import IterableDataset

from faulty import Fault
from helpers import CLOSE_DEADLINE_S, PATIENCE_S, Numbers, wait_until, wait_until_ended, worker_pids
from holdfast import DataLoader, WorkerTimeout
from holdfast.board_rows import Phase
from holdfast.diagnosis.native import hang
from records import flat, stubborn

pytestmark = pytest.mark.timeout(90)

LENGTH = 12
BAD = 5
REST = [index for index in range(LENGTH) if index != BAD]


class Struck(Numbers):
    """Sample 5 is struck, after every signal that can be blocked has been, if so asked."""

    def __init__(self, fault: Fault, *, deaf: bool = False) -> None:
        super().__init__(LENGTH, 1)
        self.fault = fault
        self.deaf = deaf

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == BAD:
            if self.deaf:
                signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            self.fault.strike()
        return super().__getitem__(index)


class Gate(Numbers):
    """Sample 5 comes when the file is there, each time it is asked for."""

    def __init__(self, gate: Path) -> None:
        super().__init__(LENGTH, 1)
        self.gate = gate

    def __getitem__(self, index: int) -> torch.Tensor:
        while index == BAD and not self.gate.exists():
            self.gate.with_name("waiting").touch()
            time.sleep(0.005)
        return super().__getitem__(index)


def always(how: str, directory: Path) -> Fault:
    return Fault(how, False, directory / "struck", os.getpid())


@pytest.mark.parametrize("deaf", [False, True], ids=["hearing", "deaf"])
def test_a_sample_that_hangs_is_skipped(deaf: bool, tmp_path: Path) -> None:
    """Also where it has blocked every signal that can be: the worker is replaced all the same."""
    dataset = Struck(always("endless loop", tmp_path), deaf=deaf)
    with DataLoader(dataset, 2, num_workers=2, on_error="skip", sample_timeout=1.0) as loader:
        assert flat(loader) == REST
        assert [(incident.cause, incident.done) for incident in loader.incidents] == [
            ("hang", "retried"),
            ("hang", "skipped"),
        ]
        assert deaf or all("faulty.py" in incident.evidence for incident in loader.incidents)


class AllDeaf(Numbers):
    """Four samples hang, each in a worker that blocks all signals."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index < 4:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            time.sleep(3600)
        return super().__getitem__(index)


@pytest.mark.long
def test_workers_that_all_hang_at_once_are_looked_at_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """None answers, and py-spy neither. The supervisor shows all the while that it is well, and is not replaced."""
    tool = tmp_path / "py-spy"
    tool.write_text("#!/bin/sh\nexec sleep 600\n")
    tool.chmod(0o755)
    monkeypatch.setattr(hang, "_find_tool", lambda: str(tool))  # a forked supervisor has it too
    dataset = AllDeaf(LENGTH, 1)
    with DataLoader(
        dataset, 1, num_workers=4, multiprocessing_context="fork", sample_timeout=0.5, on_error="skip", max_retries=0
    ) as loader:
        assert flat(loader) == [*range(4, LENGTH)]
        assert [incident.cause for incident in loader.incidents] == ["hang"] * 4


def test_a_sample_that_hangs_is_raised_with_its_stack(tmp_path: Path) -> None:
    """By default: WorkerTimeout names the sample and shows where it was; the epoch goes on with the next batch."""
    with DataLoader(Struck(always("endless loop", tmp_path)), 2, num_workers=2, sample_timeout=1.0) as loader:
        outcomes = stubborn(iter(loader))
    error = outcomes.pop(BAD // 2)
    assert isinstance(error, WorkerTimeout)
    assert error.sample_index == BAD
    assert "faulty.py" in str(error)
    assert [index for batch in outcomes for index in batch] == [[index] for index in REST if index != BAD - 1]


def test_slow_samples_within_their_time_are_no_hang(tmp_path: Path) -> None:
    """Many of them in one batch: the limit is for each, not for all together."""
    dataset = Slow(LENGTH, 0.25)
    with DataLoader(dataset, 6, num_workers=2, sample_timeout=1.0) as loader:
        assert flat(loader) == list(range(LENGTH))
        assert list(loader.incidents) == []


class Slow(Numbers):
    def __init__(self, length: int, seconds: float) -> None:
        super().__init__(length, 1)
        self.seconds = seconds

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return super().__getitem__(index)


def test_a_stop_that_is_continued_within_the_grace_is_no_loss(tmp_path: Path) -> None:
    """The same worker goes on, and nothing is noted."""
    with DataLoader(Gate(tmp_path / "gate"), 2, num_workers=2) as loader:
        iterator = iter(loader)
        delivered = [int(value) for _ in range(2) for value in next(iterator)]
        wait_until((tmp_path / "waiting").exists, PATIENCE_S, "sample 5")
        pids = worker_pids(iterator)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: all(is_stopped(pid) for pid in pids), PATIENCE_S, "stopped workers")
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        (tmp_path / "gate").touch()
        assert delivered + [int(value) for batch in iterator for value in batch] == list(range(LENGTH))
        assert list(loader.incidents) == []


def is_stopped(pid: int) -> bool:
    return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)


def test_a_stop_of_seconds_is_no_loss(tmp_path: Path) -> None:
    """As a debugger makes it, or a job that is suspended: what is continued within ten seconds was nothing."""
    with DataLoader(Gate(tmp_path / "gate"), 2, num_workers=2) as loader:
        iterator = iter(loader)
        delivered = [int(value) for _ in range(2) for value in next(iterator)]
        wait_until((tmp_path / "waiting").exists, PATIENCE_S, "sample 5")
        stopped, watch = worker_pids(iterator), iterator._backend.board.ticks
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        start, ticks = time.monotonic(), watch()
        wait_until(lambda: time.monotonic() - start > 4 and watch() - ticks > 6, PATIENCE_S, "seconds of the watch")
        assert all(is_stopped(pid) for pid in stopped)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        (tmp_path / "gate").touch()
        assert delivered + [int(value) for batch in iterator for value in batch] == list(range(LENGTH))
        assert list(loader.incidents) == []


@pytest.mark.usefixtures("stops_count_soon")
def test_a_stop_that_is_not_continued_is_a_loss_of_nobodys_sample(tmp_path: Path) -> None:
    """The worker is replaced, the sample in hand is loaded again, and not blamed."""
    with DataLoader(Gate(tmp_path / "gate"), 2, num_workers=2, on_error="skip", max_retries=0) as loader:
        iterator = iter(loader)
        delivered = [int(value) for _ in range(2) for value in next(iterator)]
        wait_until((tmp_path / "waiting").exists, PATIENCE_S, "sample 5")
        stopped = worker_pids(iterator)[BAD // 2 % 2]
        os.kill(stopped, signal.SIGSTOP)
        wait_until(lambda: is_stopped(stopped), PATIENCE_S, "a stopped worker")
        (tmp_path / "gate").touch()
        assert delivered + [int(value) for batch in iterator for value in batch] == list(range(LENGTH))
        assert [incident.done for incident in loader.incidents] == ["restarted"]
        assert loader.incidents[0].cause == "stopped"
        wait_until_ended([stopped])


@pytest.mark.long
@pytest.mark.parametrize("deaf", [False, True], ids=["hearing", "deaf"])
@pytest.mark.parametrize("how", ["endless loop", "SIGSTOP"])
def test_close_is_bounded_whatever_a_worker_does(how: str, deaf: bool, tmp_path: Path) -> None:
    """Hanging with all signals blocked, or stopped: close ends it, and returns."""
    fault = always(how, tmp_path)
    loader = DataLoader(Struck(fault, deaf=deaf), 1, num_workers=2)
    iterator = iter(loader)
    for index in range(BAD):
        assert int(next(iterator)) == index
    wait_until(fault.has_struck, PATIENCE_S, "sample 5")
    pids = worker_pids(iterator)
    start = time.monotonic()
    loader.close()
    assert time.monotonic() - start < CLOSE_DEADLINE_S
    wait_until_ended(pids)


def test_after_torchs_timeout_the_iterator_goes_on(tmp_path: Path) -> None:
    """`timeout` raises what torch raises; the batch is still under way, and comes; the next epoch is whole as well."""
    dataset = Gate(tmp_path / "gate")
    options: dict[str, Any] = {"num_workers": 2, "timeout": PATIENCE_S, "persistent_workers": True}
    with DataLoader(dataset, 2, **options) as loader:
        iterator = iter(loader)
        delivered = [int(value) for _ in range(2) for value in next(iterator)]
        iterator._timeout = 0.5  # for this batch: the others come, and a busy machine may take its time over them
        with pytest.raises(RuntimeError) as caught:
            next(iterator)
        assert str(caught.value) == "DataLoader timed out after 0.5 seconds"  # torch's words; ours are notes
        iterator._timeout = PATIENCE_S
        (tmp_path / "gate").touch()
        delivered += [int(value) for batch in iterator for value in batch]
        assert delivered == list(range(LENGTH))
        assert flat(loader) == list(range(LENGTH))


def test_after_torchs_timeout_a_new_epoch_is_whole(tmp_path: Path) -> None:
    """The epoch is left where it was; its workers do not hold up the next one."""
    with DataLoader(Gate(tmp_path / "gate"), 2, num_workers=2, timeout=0.5) as loader:
        with pytest.raises(RuntimeError, match="timed out"):
            list(loader)
        loader.timeout = PATIENCE_S  # of the new epoch, which is whole, however busy the machine is
        (tmp_path / "gate").touch()
        assert flat(loader) == list(range(LENGTH))


@pytest.mark.usefixtures("stops_count_soon")
@pytest.mark.parametrize("backend", [None, "portable"])
def test_a_stop_is_no_hang_though_the_time_for_a_sample_is_shorter_than_the_grace(
    backend: str | None, tmp_path: Path
) -> None:
    """Nobody's sample is to blame: it is loaded again, and skipped by no one."""
    dataset = Struck(Fault("SIGSTOP", True, tmp_path / "struck", os.getpid()))
    options: dict[str, Any] = {"max_retries": 0, "sample_timeout": 0.8, "backend": backend}
    with DataLoader(dataset, 2, num_workers=2, on_error="skip", **options) as loader:
        assert flat(loader) == list(range(LENGTH))
        assert ["stopped" in incident.cause for incident in loader.incidents] == [True]


class Talkative(IterableDataset[tuple[int, bytes]]):
    """Its batches are as large as a message allows."""

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        for number in range(400):
            yield number, os.urandom(15_000)


def test_a_worker_that_waits_for_the_main_process_is_no_hang(tmp_path: Path) -> None:
    """During a long training step nobody reads what it sends, and there is room for so much only."""
    options: dict[str, Any] = {"num_workers": 1, "prefetch_factor": 400, "sample_timeout": 2.0, "max_retries": 0}
    with DataLoader(Talkative(), None, **options) as loader:
        iterator = iter(loader)
        first, _ = next(iterator)
        board = iterator._backend._board
        wait_until(lambda: board.doing(0).phase is Phase.HAND_OVER, PATIENCE_S, "a worker that has to wait")
        ticks = board.ticks()
        wait_until(lambda: board.ticks() > ticks + 8, PATIENCE_S, "a while")  # five are the time for a sample
        assert [first, *(number for number, _ in iterator)] == list(range(400))
        assert list(loader.incidents) == []
