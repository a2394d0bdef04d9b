"""Real loaders, pools and ranks, with workers that die, as a scrape shows them.

Runs in: the test process, and the workers.
"""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import psutil
import pytest
import torch

import holdfast
from helpers import Numbers
from holdfast import DataLoader, ProcessPoolExecutor, counted
from holdfast.metrics import MetricsServer
from scraping import Scraped, scrape
from waits import PATIENCE_S, wait_until

KILLED = "killed by another process"
BAD = 5


class Trouble(Numbers):
    """One sample kills its worker the first time it is asked for, another raises each time."""

    def __init__(self, length: int, mark: Path) -> None:
        super().__init__(length)
        self.mark = mark

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == BAD:
            raise ValueError(f"sample {index} is bad")
        if index == 21:
            kill_once(self.mark)
        return super().__getitem__(index)


def kill_once(mark: Path) -> None:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def work(item: int, mark: Path) -> int:
    if item == 3:
        kill_once(mark)
    return 10 // item


def run_rank(rank: int, mark: Path) -> None:
    if rank == 1:
        kill_once(mark)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> MetricsServer:
    """Of a process that has counted nothing yet."""
    monkeypatch.setattr(counted, "_register", counted._Register())
    with holdfast.metrics.start(0) as server:
        yield server


def pick(scraped: Scraped, *names: str) -> list[float]:
    return [scraped[name,] for name in names]


def test_a_loader_whose_worker_was_killed_is_counted_as_its_stats_say(server: MetricsServer, tmp_path: Path) -> None:
    """Batches, samples, waits, restarts, skipped samples and incidents by their cause; workers and their memory."""
    with DataLoader(Trouble(64, tmp_path / "mark"), batch_size=4, num_workers=2, on_error="skip") as loader:
        batches = iter(loader)
        for _ in range(15):
            next(batches)
        during = scrape(server)
        assert len(list(batches)) == 1
        after, stats = scrape(server), loader.stats()
    assert during["holdfast_workers", "DataLoader"] == 2
    assert during["holdfast_workers_resident_bytes", "DataLoader"] > 1_000_000
    assert (
        0
        < during["holdfast_largest_worker_anonymous_bytes", "DataLoader"]
        < during["holdfast_workers_anonymous_bytes", "DataLoader"]
        < during["holdfast_workers_resident_bytes", "DataLoader"]
    )
    names = ("holdfast_batches_total", "holdfast_samples_total", "holdfast_skipped_samples_total")
    assert pick(after, *names) == [stats.batches, stats.samples, stats.skipped] == [16, 63, 1]
    assert after["holdfast_wait_seconds_total",] == pytest.approx(stats.waited_s)
    assert after["holdfast_restarts_total", "DataLoader"] == stats.restarts == 1
    incidents = {key[1:]: value for key, value in after.items() if key[0] == "holdfast_incidents_total"}
    assert incidents == {("dataset exception", "DataLoader"): 1, (KILLED, "DataLoader"): 1}  # cause, front
    last = max(incident.time for incident in loader.incidents)
    assert after["holdfast_last_incident_timestamp_seconds", "DataLoader"] == pytest.approx(last)
    assert scrape(server)["holdfast_workers", "DataLoader"] == 0


def test_totals_are_over_all_loaders_and_never_go_back(server: MetricsServer) -> None:
    """Of those that are gone, too, and of those whose iterator outlives them."""
    seen = []
    for _ in range(3):
        for _ in DataLoader(Numbers(8), batch_size=2, num_workers=1):
            seen.append(scrape(server)["holdfast_batches_total",])
        gc.collect()
        seen.append(scrape(server)["holdfast_batches_total",])
    assert seen == [1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 10, 11, 12, 12]


def test_a_loader_without_workers_is_counted_if_it_is_ours(server: MetricsServer, tmp_path: Path) -> None:
    """What torch's own iterator loads nobody counts, as `stats()` says."""
    (tmp_path / "mark").touch()
    assert len(list(DataLoader(Numbers(8), batch_size=2))) == 4
    assert scrape(server)["holdfast_batches_total",] == 0
    assert len(list(DataLoader(Trouble(8, tmp_path / "mark"), batch_size=2, on_error="skip"))) == 4
    scraped = scrape(server)
    assert pick(scraped, "holdfast_batches_total", "holdfast_skipped_samples_total") == [4, 1]


def test_the_time_of_each_stage_is_that_of_the_stats(server: MetricsServer) -> None:
    """Of an iterator that runs, and after its end: never less than before."""
    with DataLoader(Numbers(64), batch_size=4, num_workers=2) as loader:
        if not hasattr(loader.stats(), "stages"):
            pytest.skip("this loader does not say how long its stages take")
        batches = iter(loader)
        next(batches)
        during = stage_seconds(scrape(server))
        list(batches)
    after, stages = stage_seconds(scrape(server)), loader.stats().stages
    assert after == pytest.approx([stages.fetch_s, stages.collate_s, stages.send_s])
    assert all(0 < early <= late for early, late in zip(during, after, strict=True))


def stage_seconds(scraped: Scraped) -> list[float]:
    return [scraped["holdfast_stage_seconds_total", stage] for stage in ("fetch", "collate", "send")]


def test_a_lost_supervisor_is_counted(server: MetricsServer) -> None:
    others = psutil.Process().children()  # such as multiprocessing's resource tracker, after an earlier test
    with DataLoader(Numbers(400), batch_size=2, num_workers=1) as loader:
        batches = iter(loader)
        next(batches)
        (supervisor,) = (child for child in psutil.Process().children() if child not in others)
        supervisor.kill()
        assert len(list(batches)) == 199
        assert loader.stats().supervisor_restarts == 1
    assert scrape(server)["holdfast_supervisor_restarts_total",] == 1


def test_a_pool_whose_worker_was_killed_is_counted(server: MetricsServer, tmp_path: Path) -> None:
    """Its calls, those that failed, its restarts and its incidents, under its own name."""
    with ProcessPoolExecutor(1) as pool:
        futures = [pool.submit(work, item, tmp_path / "mark") for item in (1, 2, 3, 0)]
        errors = [type(future.exception(PATIENCE_S)) for future in futures]
        assert scrape(server)["holdfast_workers", "ProcessPoolExecutor"] == 1
    assert errors == [type(None), type(None), holdfast.WorkerCrashed, ZeroDivisionError]
    scraped = scrape(server)
    assert scraped["holdfast_calls_total", "ProcessPoolExecutor"] == 4
    assert scraped["holdfast_failed_calls_total", "ProcessPoolExecutor"] == 2
    assert scraped["holdfast_restarts_total", "ProcessPoolExecutor"] == 1
    assert scraped["holdfast_incidents_total", KILLED, "ProcessPoolExecutor"] == 1
    assert scraped["holdfast_batches_total",] == 0


def test_a_map_is_counted_as_a_map(server: MetricsServer, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    results = list(holdfast.map(lambda item: work(item, mark), [1, 2, 3, 0], num_workers=1, on_error="return"))
    assert [isinstance(result, holdfast.FailedItem) for result in results] == [False, False, True, True]
    scraped = scrape(server)
    assert scraped["holdfast_calls_total", "holdfast.map"] == 4
    assert scraped["holdfast_failed_calls_total", "holdfast.map"] == 2
    assert scraped["holdfast_restarts_total", "holdfast.map"] == 1
    assert scraped["holdfast_incidents_total", KILLED, "holdfast.map"] == 1
    assert scraped["holdfast_incidents_total", "exception", "holdfast.map"] == 1
    assert scraped["holdfast_calls_total", "ProcessPoolExecutor"] == 0


def test_ranks_are_counted_and_restarts_of_their_group(server: MetricsServer, tmp_path: Path) -> None:
    """A rank is a call: of two lives of a group of two, one has failed."""
    holdfast.spawn(run_rank, (tmp_path / "mark",), nprocs=2, start_method="fork", max_restarts=1)
    scraped = scrape(server)
    assert scraped["holdfast_calls_total", "holdfast.spawn"] == 4
    assert scraped["holdfast_failed_calls_total", "holdfast.spawn"] == 1
    assert scraped["holdfast_restarts_total", "holdfast.spawn"] == 1
    assert scraped["holdfast_incidents_total", KILLED, "holdfast.spawn"] == 1
    assert scraped["holdfast_workers", "holdfast.spawn"] == 0


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver", "portable"])
def test_no_worker_keeps_the_port(server: MetricsServer, method: str) -> None:
    """Neither supervisor nor worker has the listening socket: the port is free when the main process is gone."""
    listening = f"socket:[{os.fstat(server._http.socket.fileno()).st_ino}]"
    how = {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}
    with DataLoader(Numbers(64), batch_size=2, num_workers=2, **how) as loader:  # type: ignore[arg-type]
        batches = iter(loader)
        next(batches)
        next(batches)
        assert scrape(server)["holdfast_workers", "DataLoader"] == 2
        family = psutil.Process().children(recursive=True)
        assert len(family) >= 2
        for process in family:
            assert listening not in {str(link.readlink()) for link in Path(f"/proc/{process.pid}/fd").iterdir()}
        assert len(list(batches)) == 30


def test_scrapes_while_workers_come_and_go_disturb_nobody(server: MetricsServer) -> None:
    """The thread of the server only looks: batches are the same, and no scrape fails."""
    expected = [batch.tolist() for batch in torch.utils.data.DataLoader(Numbers(64), batch_size=4)]
    for _ in range(3):
        with DataLoader(Numbers(64), batch_size=4, num_workers=2, recycle_after=3) as loader:
            seen = []
            for batch in loader:
                seen.append(batch.tolist())
                scrape(server)
            assert seen == expected
    wait_until(lambda: scrape(server)["holdfast_workers", "DataLoader"] == 0, PATIENCE_S, "the end of the workers")
    assert scrape(server)["holdfast_recycled_workers_total",] > 0
