"""`workers/calls.py`, which a pool and a launcher are built on: what is sent to which worker, and what comes back."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import calls
from calls import METHODS
from holdfast.workers.calls import Call, Calls, Happening, Lost, Raised, Returned, TakenBack
from holdfast.workers.job import Calling, job_of_calls
from holdfast.workers.messages import Reason
from waits import PATIENCE_S, wait_until

pytestmark = pytest.mark.timeout(150)


@contextmanager
def workers(method: str, number: int = 2, **calling: Any) -> Iterator[Calls]:
    job = job_of_calls(Calling("rank", **calling), number)
    context = None if method == "portable" else multiprocessing.get_context(method)
    started = Calls(job, context, "portable" if method == "portable" else None)
    started.start()
    try:
        yield started
    finally:
        started.stop(3.0)


def what_happens(these: Calls, number: int = 1) -> list[Happening]:
    """So many things, in any order."""
    happened: list[Happening] = []
    wait_until(lambda: happened.extend(these.wait(0.1)) or len(happened) >= number, PATIENCE_S, "what happens")
    return happened


def ask(these: Calls, fn: Callable[..., Any], *args: Any, worker_id: int = 0) -> Any:
    these.send(Call(fn=fn, args=args), worker_id)
    (happened,) = what_happens(these)
    assert isinstance(happened, Returned), happened
    return happened.value


@pytest.mark.parametrize("method", METHODS)
def test_a_call_goes_to_the_worker_it_is_sent_to(method: str) -> None:
    """And stays there: each has its own process."""
    with workers(method) as these:
        pids = [ask(these, calls.pid_of_worker, worker_id=k % 2) for k in range(6)]
    assert pids[:2] * 3 == pids
    assert len(set(pids)) == 2


@pytest.mark.parametrize("method", METHODS)
def test_a_lost_worker_says_what_it_had_begun_and_what_not(method: str) -> None:
    """Its replacement can be given what is to be done again."""
    with workers(method) as these:
        dies, waits = Call(fn=calls.die, args=("os._exit",)), Call(fn=calls.square, args=(3,))
        these.send(dies, 1)
        these.send(waits, 1)
        (lost,) = what_happens(these)
        assert isinstance(lost, Lost)
        assert (lost.running, lost.waiting) == ((dies,), (waits,))
        assert lost.loss.diagnosis.cause == "exit by user code"
        these.send(waits, 1)
        (happened,) = what_happens(these)
        assert isinstance(happened, Returned)
        assert happened.value == 9


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_is_no_daemon_and_keeps_its_threads_where_the_job_says_so(method: str) -> None:
    """A rank of a launcher may start processes of its own, and uses torch as it would without us."""
    with workers(method, 1, threads=None, is_seeded=False) as these:
        assert ask(these, is_daemon) is False
        assert ask(these, torch.get_num_threads) == torch.get_num_threads()
    with workers(method, 1) as these:
        assert ask(these, torch.get_num_threads) == 1


def is_daemon() -> bool:
    return multiprocessing.current_process().daemon


def test_workers_have_seeds_of_their_own_where_the_job_says_so() -> None:
    """Forks without have torch's numbers of the process they came from."""
    with workers("fork", is_seeded=True) as these:
        assert ask(these, draw, worker_id=0) != ask(these, draw, worker_id=1)
    with workers("fork", is_seeded=False) as these:
        drawn = [ask(these, draw, worker_id=worker_id) for worker_id in (0, 1)]
    assert drawn == [draw()] * 2


def draw() -> float:
    return float(torch.rand(1))


def test_a_call_with_a_limit_of_its_own_is_ended() -> None:
    """Though the job has none."""
    with workers("fork", 1) as these:
        these.send(Call(fn=calls.die, args=("hang",), limit_ms=300), 0)
        (lost,) = what_happens(these)
        assert isinstance(lost, Lost)
        assert lost.loss.reason is Reason.HUNG  # type: ignore[union-attr]


def test_what_waits_behind_a_call_can_be_taken_back(tmp_path: Path) -> None:
    """It is run once, by whoever gets it then; what has begun stays where it is."""
    gate = tmp_path / "gate"
    with workers("fork") as these:
        slow = Call(fn=calls.wait_for, args=(gate,))
        first, second = (Call(fn=calls.square, args=(5,)) for _ in range(2))
        for call in (slow, first, second):
            these.send(call, 0)
        wait_until(lambda: these.wait(0.01) == [] and calls.has_begun(gate), PATIENCE_S)
        assert these.take_back(0) == [first, second]
        for call in (first, second):
            these.send(call, 1)
        assert what_happens(these, 2) == [Returned(first, 25), Returned(second, 25)]
        assert these.under_way() == [slow]
        gate.touch()
        assert what_happens(these) == [Returned(slow, "done")]


def test_a_worker_that_has_not_begun_says_what_it_leaves_alone(tmp_path: Path) -> None:
    """Everything up to the last that is taken back, though main could not be sure of it."""
    with workers("fork", 1) as these:
        many = [Call(fn=calls.square, args=(number,)) for number in range(20)]
        for call in many:
            these.send(call, 0)
        taken = these.take_back(0)
        happened = what_happens(these, len(many) - len(taken))
        left_alone = [what.call for what in happened if isinstance(what, TakenBack)]
        done = [what.call for what in happened if isinstance(what, Returned)]
        assert [*done, *left_alone, *taken] == many


def test_the_bell_wakes_who_waits() -> None:
    """Also when it was rung before."""
    with workers("fork", 1) as these:
        these.bell.ring()
        these.bell.ring()
        assert these.wait(PATIENCE_S) == []
        these.send(Call(fn=calls.fail, args=(ValueError("bad"),)), 0)
        (happened,) = what_happens(these)
        assert isinstance(happened, Raised)
