"""A loader at work, looked at from another process: what its workers do is seen while they do it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import Program
from holdfast.records import live, reader
from holdfast.records.live import LiveRun, LiveWorker
from waits import PATIENCE_S, wait_until

pytestmark = pytest.mark.timeout(180)

SAMPLE = 21  # the second of batch 5


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of records for each test."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def seen() -> LiveRun | None:
    """The one run that is alive, as it is now."""
    runs = live.running()
    return live.look(runs[0]) if runs else None


def stuck(pid_is_not: int | None = None) -> LiveWorker | None:
    """The worker that has the sample in hand, if one has."""
    now = seen()
    workers = now.workers if now is not None else ()
    return next((one for one in workers if one.sample == SAMPLE and one.pid not in (None, pid_is_not)), None)


@pytest.mark.parametrize("backend", ["linux", "portable"])
def test_a_worker_that_hangs_is_seen_with_its_sample(backend: str, tmp_path: Path) -> None:
    """Which sample, of which batch, since when; that it was restarted, once it was; and the end, once it is there."""
    (tmp_path / "hang").touch()
    with Program("hang_at_sample.py", backend, str(SAMPLE), str(tmp_path / "hang")) as program:
        wait_until(stuck, PATIENCE_S, "a worker that has the sample in hand")
        worker = stuck()
        assert worker is not None
        assert (worker.worker_id, worker.doing, worker.batch, worker.restarts) == (1, "loading", 5, 0)
        assert worker.pid in program.processes()
        assert worker.memory_bytes is not None
        assert worker.limit_bytes is not None
        assert 1 << 20 < worker.memory_bytes < worker.limit_bytes
        before_s = worker.since_s
        assert before_s is not None
        wait_until(lambda: (one := stuck()) is not None and (one.since_s or 0) > before_s + 0.2, PATIENCE_S, "its time")
        wait_until(lambda: (one := seen()) is not None and one.batches == 5, PATIENCE_S, "all batches before it")
        now = seen()
        assert now is not None
        assert (now.is_fresh, now.batches, now.samples, now.restarts, now.skipped) == (True, 5, 20, 0, 0)
        waited_s = now.waited_s
        wait_until(lambda: (one := seen()) is not None and one.waited_s > waited_s, PATIENCE_S, "the loop's waiting")

        os.kill(worker.pid or 0, signal.SIGKILL)
        wait_until(lambda: stuck(pid_is_not=worker.pid), PATIENCE_S, "another worker that has the sample in hand")
        again = stuck()
        assert again is not None
        assert (again.worker_id, again.doing, again.batch, again.restarts) == (1, "loading", 5, 1)
        wait_until(lambda: (one := seen()) is not None and one.restarts == 1, PATIENCE_S, "the count of restarts")

        (tmp_path / "hang").unlink()
        program.wait_for_lines("done")
        assert program.wait() == 0
    assert live.running() == []
    [run] = reader.all_runs()
    lives = [(one["event"], one["why"]) for one in run.workers if one["worker_id"] == 1]
    assert lives == [("started", "first"), ("ended", "died"), ("started", "restart"), ("ended", "done")]
    assert run.end is not None
    over = live.look(run)
    assert (over.is_fresh, over.batches, over.samples, over.restarts) == (False, 16, 64, 1)
    assert run.end["stages"]["fetch_s"] > 0


def test_a_run_that_ends_while_it_is_looked_at_is_told_from_its_record(tmp_path: Path) -> None:
    """By kill -9: nobody says goodbye. What was read before is looked at afterwards."""
    (tmp_path / "hang").touch()
    with Program("hang_at_sample.py", "linux", str(SAMPLE), str(tmp_path / "hang")) as program:
        wait_until(stuck, PATIENCE_S, "a worker that has the sample in hand")
        [run] = live.running()
        program.process.kill()
        program.wait()
        assert not live.look(run).is_fresh
        assert live.running() == []
        program.wait_until_nothing_is_left()


def test_without_workers_there_are_none_to_be_seen(tmp_path: Path) -> None:
    """The run is listed all the same."""
    (tmp_path / "hang").touch()
    with Program("hang_at_sample.py", "linux", str(SAMPLE), str(tmp_path / "hang"), "0") as program:
        # alive from the moment that its record is there, before anything stands in it
        wait_until(lambda: (one := seen()) is not None and one.run.start, PATIENCE_S, "the run")
        now = seen()
        assert now is not None
        assert (now.is_fresh, now.workers) == (False, ())
        assert now.run.start["pid"] == program.process.pid


def test_to_look_needs_no_torch() -> None:
    """Whoever looks may be there because torch itself is what crashes."""
    code = "import sys; from holdfast.records import live; live.running(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=PATIENCE_S).returncode == 0
