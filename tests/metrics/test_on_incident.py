"""`holdfast.on_incident` and the log, with real loaders, pools and ranks.

Runs in: the test process, and the workers.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from typing import NoReturn

import pytest
import torch

import holdfast
from helpers import Numbers
from holdfast import DataLoader, HoldfastWarning, Incident, ProcessPoolExecutor, on_incident
from waits import PATIENCE_S


class Bad(Numbers):
    """Every third sample kills its worker, or raises."""

    def __init__(self, length: int, *, kills: bool = False) -> None:
        super().__init__(length)
        self.kills = kills

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % 3 == 1:
            if self.kills:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError(f"sample {index} is bad")
        return super().__getitem__(index)


def die(rank: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def told() -> Iterator[list[Incident]]:
    """What `on_incident` is told during the test."""
    incidents: list[Incident] = []
    end = on_incident(incidents.append)
    yield incidents
    end()


def test_a_loader_tells_of_each_incident_when_it_has_it(told: list[Incident]) -> None:
    """In the thread that waits for a batch; by then it has its id, and is in `loader.incidents`."""
    seen: list[tuple[bool, bool, str]] = []
    with DataLoader(Bad(9, kills=True), batch_size=3, num_workers=1, on_error="skip") as loader:
        is_main = threading.main_thread
        end = on_incident(
            lambda incident: seen.append(
                (threading.current_thread() is is_main(), incident is loader.incidents[-1], incident.id)
            )
        )
        assert len(list(loader)) == 3
        end()
    assert told == list(loader.incidents)
    assert len(told) == 6  # each of three bad samples was tried twice
    assert seen == [(True, True, incident.id) for incident in told]
    assert all(incident.id for incident in told)
    assert {incident.cause for incident in told} == {"killed by another process"}


def test_an_alert_that_fails_costs_no_batch() -> None:
    """Exceptions in a callback are contained."""

    def fails(incident: Incident) -> NoReturn:
        raise ConnectionError("no such host")

    end = on_incident(fails)
    try:
        loader = DataLoader(Bad(12), batch_size=3, num_workers=2, on_error="skip")
        with pytest.warns(holdfast.HoldfastWarning, match="fails raised ConnectionError: no such host"):
            batches = [batch[:, 0].tolist() for batch in loader]
    finally:
        end()
    assert batches == [[0, 2], [3, 5], [6, 8], [9, 11]]


def test_a_callback_may_close_the_loader() -> None:
    """Stop at the first incident: nothing hangs, and nothing is left behind."""
    loader = DataLoader(Bad(30, kills=True), batch_size=3, num_workers=2, on_error="skip")
    end = on_incident(lambda incident: loader.close())
    try:
        assert len(list(loader)) < 10
    except RuntimeError:
        pass  # an iterator that was closed may say so
    finally:
        end()
    assert len(loader.incidents) >= 1


def test_a_pool_tells_in_its_own_thread(told: list[Incident]) -> None:
    threads: list[str] = []
    end = on_incident(lambda incident: threads.append(threading.current_thread().name))
    with ProcessPoolExecutor(1) as pool:
        assert isinstance(pool.submit(die, 0).exception(PATIENCE_S), holdfast.WorkerCrashed)
        assert pool.submit(abs, -1).result(PATIENCE_S) == 1
    end()
    assert told == list(pool.incidents)
    assert len(told) == 1
    assert threads == ["holdfast-pool"]


def test_a_map_and_ranks_tell_too(told: list[Incident]) -> None:
    (failed,) = holdfast.map(die, [0], num_workers=1, on_error="return")
    assert isinstance(failed, holdfast.FailedItem)
    with pytest.raises(Exception, match="killed by SIGKILL") as caught:
        holdfast.spawn(die, nprocs=1, start_method="fork")
    assert told == [failed.incident, caught.value.incident]


def test_the_log_of_a_loader_has_one_line_first_and_few_after(caplog: pytest.LogCaptureFixture) -> None:
    """As `logging.basicConfig()` shows it: level, event, and a sentence. The rest is counted."""
    with (
        caplog.at_level(logging.INFO),
        DataLoader(Bad(75), batch_size=5, num_workers=1, on_error="skip", max_skipped=None) as loader,
    ):
        assert len(list(loader)) == 15
    first, *sums = [record for record in caplog.records if record.name.startswith("holdfast")]
    assert first.levelno == logging.WARNING
    assert first.getMessage().startswith(
        "incident: DataLoader: worker 0 raised ValueError: sample 1 is bad while loading sample 1 (epoch 0, batch 0)"
    )
    assert [record.getMessage() for record in sums] == [
        "incidents so far: DataLoader: 10 (dataset exception: 10)",
        "incidents in all: DataLoader: 25 (dataset exception: 25)",
        "samples passed over: 25 samples were skipped in this loader: 1, 4, 7, 10, 13, 16, 19, 22, 25, 28, ...; "
        "see loader.skipped_samples",
    ]


def test_who_has_not_set_up_logging_is_warned_of_the_first_and_at_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    """And by no line of the log: Python would print warnings by itself where there is no handler at all."""
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    try:
        with (
            pytest.warns(HoldfastWarning) as caught,
            DataLoader(Bad(12), batch_size=3, num_workers=1, on_error="skip") as loader,
        ):
            assert len(list(loader)) == 4
    finally:
        root.handlers = handlers
    assert capfd.readouterr().err == ""
    first, last = [str(warning.message) for warning in caught]
    assert first.startswith("sample 1 was skipped: ValueError: sample 1 is bad\n")
    assert last == "4 samples were skipped in this loader: 1, 4, 7, 10; see loader.skipped_samples"
    assert {warning.filename for warning in caught} == {__file__}
