"""Sums over loaders and pools: of those that are there, and those that are gone.

Runs in: the test process, and forks of it.
"""

from __future__ import annotations

import copy
import gc
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from forked import holds_in_a_fork
from holdfast import counted
from holdfast.counted import LOADER, MAP, POOL
from holdfast.incident import Incident
from waits import PATIENCE_S


@dataclass
class Counters:
    """As a loader has them."""

    batches: int = 0
    samples: int = 0
    waited_s: float = 0.0
    fetch_s: float = 0.0

    def stages(self) -> SimpleNamespace:
        return SimpleNamespace(fetch_s=self.fetch_s, collate_s=0.0, send_s=0.0)


class Owner:
    """Whoever counts."""


class Worker:
    """A handle of a worker."""

    def __init__(self, pid: int | None) -> None:
        self.pid = pid

    def living_pid(self) -> int | None:
        return self.pid


@pytest.fixture(autouse=True)
def nothing_counted_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted, "_register", counted._Register())


def batches(front: str = LOADER) -> float:
    return counted.read()[front].counts["batches"]


def test_what_is_counted_is_looked_at_when_somebody_reads() -> None:
    """Nobody has to report anything."""
    owner, counters = Owner(), Counters()
    counted.count(owner, LOADER, counters)
    counters.batches, counters.waited_s, counters.fetch_s = 3, 0.5, 2.0
    counts = counted.read()[LOADER].counts
    assert (counts["batches"], counts["waited_s"], counts["fetch_s"], counts["collate_s"]) == (3, 0.5, 2.0, 0)


def test_every_front_is_there_from_the_start() -> None:
    """A series that begins at its first increase hides that one from `increase()`."""
    assert set(counted.read()) == set(counted.FRONTS)
    assert all(set(totals.counts.values()) == {0} for totals in counted.read().values())


def test_totals_never_go_back() -> None:
    """What an owner had counted stays when he is gone, and is counted once."""
    for number in range(1, 4):
        owner, counters = Owner(), Counters()
        counted.count(owner, LOADER, counters)
        counters.batches = 10
        assert batches() == 10 * number
        del owner
        gc.collect()
        assert batches() == 10 * number
    assert counted._register.accounts == []


def test_what_is_less_for_a_moment_is_not_shown() -> None:
    """A loader takes the times of an iterator from one place to another while somebody reads."""
    owner, counters = Owner(), Counters()
    counted.count(owner, LOADER, counters)
    for shown, expected in ((2.0, 2.0), (0.5, 2.0), (2.5, 2.5)):
        counters.fetch_s = shown
        assert counted.read()[LOADER].counts["fetch_s"] == expected


def test_to_count_again_changes_nothing() -> None:
    """A loader says so with each iterator."""
    owner, counters = Owner(), Counters()
    for _ in range(3):
        counted.count(owner, LOADER, counters)
        counters.batches += 1
    assert batches() == 3


def test_what_was_counted_elsewhere_is_not_counted_here() -> None:
    """A copy of a loader has the numbers of the first."""
    first, counters = Owner(), Counters()
    counted.count(first, LOADER, counters)
    counters.batches = 5
    second, copied = Owner(), copy.copy(counters)
    counted.count(second, LOADER, copied)
    copied.batches += 1
    assert batches() == 6


def test_fronts_are_summed_up_apart() -> None:
    owners = [Owner() for _ in range(3)]
    for owner, front, number in zip(owners, (LOADER, POOL, POOL), (1, 2, 4), strict=True):
        counters = Counters()
        counted.count(owner, front, counters)
        counters.batches = number
    assert (batches(LOADER), batches(POOL), batches(MAP)) == (1, 6, 0)


def test_incidents_are_counted_by_their_cause_without_its_words() -> None:
    """The words of an exception may all differ: each would be another series."""
    for number in range(3):
        counted.note(LOADER, Incident(f"dataset exception: file {number}", "skipped", time=100.0 + number))
    counted.note(LOADER, Incident("hang", "retried", time=200.0))
    totals = counted.read()[LOADER]
    assert totals.incidents == {"dataset exception": 3, "hang": 1}
    assert totals.last_incident == 200.0


def test_the_number_of_causes_is_bounded() -> None:
    """Whatever is called a cause: the number of series has an end, and nothing is lost from their sum."""
    for number in range(1000):
        counted.note(LOADER, Incident(f"cause {number}", "skipped"))
    incidents = counted.read()[LOADER].incidents
    assert len(incidents) == 101
    assert sum(incidents.values()) == 1000


def test_workers_are_those_that_live() -> None:
    """One that has ended has no pid, and one that nobody knows any more is forgotten."""
    workers = [Worker(11), Worker(None), Worker(12)]
    counted.employ(POOL, workers)
    assert counted.read()[POOL].worker_pids == [11, 12]
    workers[0].pid = None
    assert counted.read()[POOL].worker_pids == [12]
    workers.clear()
    gc.collect()
    assert counted.read()[POOL].worker_pids == []
    assert counted._register.workers == []


def test_a_reading_is_the_readers_own() -> None:
    counted.note(LOADER, Incident("hang", "retried"))
    said = counted.read()[LOADER]
    said.incidents["hang"] = 99
    said.counts["batches"] = 99
    assert counted.read()[LOADER].incidents == {"hang": 1}
    assert batches() == 0


def test_a_forked_child_begins_with_nothing() -> None:
    """Also if another thread of its parent is reading, and has the lock, when it is forked."""
    owner, counters = Owner(), Counters()
    counted.count(owner, LOADER, counters)
    counters.batches = 7
    has_lock, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with counted._register.lock:
            has_lock.set()
            may_go.wait(PATIENCE_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert has_lock.wait(PATIENCE_S)
    begins_with_nothing = holds_in_a_fork(lambda: batches() == 0)
    may_go.set()
    thread.join()
    assert begins_with_nothing
    assert batches() == 7


def test_threads_may_count_and_read_at_once() -> None:
    """Nothing is lost or counted twice while owners come and go."""
    errors: list[BaseException] = []
    seen: list[float] = []

    def come_and_go() -> None:
        try:
            for _ in range(200):
                owner, counters = Owner(), Counters()
                counted.count(owner, LOADER, counters)
                counters.batches = 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen.append(batches())
    gc.collect()
    assert errors == []
    assert seen == sorted(seen)
    assert batches() == 800
