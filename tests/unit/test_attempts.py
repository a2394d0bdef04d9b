"""Trying a sample again: which exceptions are worth it, how long is waited, and which are never passed over."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.board_rows import PHASE, Phase
from holdfast.workers import attempts
from holdfast.workers.attempts import Care, Retries, Tried
from holdfast.workers.board import private_row

FIRST_S, LONGEST_S = 0.1, 5.0


class Clock:
    """Stands for the module `time`: notes the waits, and what the board said meanwhile."""

    def __init__(self, row: memoryview) -> None:
        self.waits: list[float] = []
        self.phases: list[int] = []
        self._row = row

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.phases.append(self._row[PHASE])


@pytest.fixture
def row() -> memoryview:
    row = private_row()
    row[PHASE] = Phase.FETCH
    return row


@pytest.fixture
def clock(row: memoryview, monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(row)
    monkeypatch.setattr(attempts, "time", clock)
    return clock


def raising(*errors: Exception, then: Any = "loaded") -> Callable[[], Any]:
    """An attempt that raises these, one after the other, and then succeeds."""
    left = iter(errors)

    def attempt() -> Any:
        for error in left:
            raise error
        return then

    return attempt


# --- what is tried again --------------------------------------------------------------------------------------------


def test_what_is_not_listed_is_not_tried_again(clock: Clock, row: memoryview) -> None:
    """Without retry_on the first exception is the last, as in torch, and nobody waits."""
    error = OSError("once")
    assert Retries(Care(max_retries=5), row).after(error, raising()) == Tried(None, error, 1)
    assert Retries(Care(max_retries=5, retry_on=(KeyError,)), row).after(error, raising()) == Tried(None, error, 1)
    assert clock.waits == []


def test_what_is_listed_is_tried_again_until_it_loads(clock: Clock, row: memoryview) -> None:
    """Subclasses, too. The number of attempts counts the first."""
    retries = Retries(Care(max_retries=5, retry_on=(OSError,)), row)
    tried = retries.after(ConnectionResetError(), raising(FileNotFoundError(), OSError(), then=7))
    assert tried == Tried(7, None, 4)
    assert len(clock.waits) == 3


@pytest.mark.parametrize("max_retries", [0, 1, 3])
def test_there_are_no_more_attempts_than_allowed(clock: Clock, row: memoryview, max_retries: int) -> None:
    """The first, and max_retries more; the last exception is the one that is told."""
    errors = [OSError(k) for k in range(10)]
    tried = Retries(Care(max_retries=max_retries, retry_on=(OSError,)), row).after(OSError("first"), raising(*errors))
    assert tried.attempts == max_retries + 1
    assert tried.error is (errors[max_retries - 1] if max_retries else tried.error)
    assert len(clock.waits) == max_retries


def test_another_exception_on_the_way_ends_the_attempts(clock: Clock, row: memoryview) -> None:
    """It is not worth another one, whatever came before it."""
    other = ValueError("for good")
    tried = Retries(Care(max_retries=5, retry_on=(OSError,)), row).after(OSError(), raising(OSError(), other))
    assert tried == Tried(None, other, 3)


def test_none_is_a_value(clock: Clock, row: memoryview) -> None:
    """A sample may be None; that it loaded is told by the absence of an error."""
    tried = Retries(Care(retry_on=(OSError,)), row).after(OSError(), raising(then=None))
    assert tried == Tried(None, None, 2)


def test_an_interrupt_is_not_an_attempt(clock: Clock, row: memoryview) -> None:
    """It goes through."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Retries(Care(retry_on=(OSError,)), row).after(OSError(), interrupted)


# --- the waits ------------------------------------------------------------------------------------------------------


def test_waits_grow_and_are_bounded(clock: Clock, row: memoryview) -> None:
    """Each up to twice as long as the one before, and none longer than five seconds, however many there are."""
    Retries(Care(max_retries=40, retry_on=(OSError,)), row).after(OSError(), raising(*map(OSError, range(40))))
    assert len(clock.waits) == 40
    for k, wait in enumerate(clock.waits):
        longest = min(FIRST_S * 2**k, LONGEST_S)
        assert longest / 2 <= wait <= longest
    assert all(one <= other for one, other in itertools.pairwise(clock.waits[:6]))


def test_waits_are_not_the_same_in_all_workers(clock: Clock, row: memoryview) -> None:
    """Or else all would come back to a server that is down at the same moment."""
    for _ in range(20):
        Retries(Care(retry_on=(OSError,)), row).after(OSError(), raising())
    assert len(set(clock.waits)) == 20


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(), draws=st.integers(0, 5))
def test_the_users_random_numbers_are_not_touched(clock: Clock, row: memoryview, seed: int, draws: int) -> None:
    """The waits have a generator of their own."""
    random.seed(seed)
    for _ in range(draws):
        random.gauss(0, 1)
    before = random.getstate()
    Retries(Care(max_retries=3, retry_on=(OSError,)), row).after(OSError(), raising(OSError(), OSError()))
    assert random.getstate() == before


@pytest.mark.parametrize("phase", [Phase.FETCH, Phase.REPLAY])
def test_while_it_waits_no_sample_is_in_hand(clock: Clock, row: memoryview, phase: Phase) -> None:
    """No deadline runs, and a death is nobody's; afterwards the board says what it said before."""
    row[PHASE] = phase
    seen: list[int] = []
    Retries(Care(max_retries=2, retry_on=(OSError,)), row).after(OSError(), lambda: seen.append(row[PHASE]))
    assert clock.phases == [Phase.BACKOFF]
    assert seen == [phase]
    assert row[PHASE] == phase


# --- what may be passed over ----------------------------------------------------------------------------------------

NOBODYS = [MemoryError(), ImportError(), ModuleNotFoundError(), SyntaxError(), NameError(), NotImplementedError()]


@pytest.mark.parametrize("error", [ValueError(), OSError(), RuntimeError(), KeyError(), *NOBODYS], ids=repr)
def test_with_raise_nothing_is_passed_over(error: Exception) -> None:
    """Listed or not."""
    assert not Care("raise").passes_over
    assert not Care("raise", retry_on=(type(error),)).may_pass_over(error)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize(
    "error", [ValueError(), OSError(), RuntimeError(), StopIteration(), AttributeError()], ids=repr
)
def test_what_a_sample_raises_is_passed_over(on_error: str, error: Exception) -> None:
    """Any exception but those that are never about a sample."""
    assert Care(on_error).passes_over
    assert Care(on_error).may_pass_over(error)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("error", NOBODYS, ids=repr)
def test_errors_of_the_machine_or_the_program_are_not_passed_over_unless_listed(
    on_error: str, error: Exception
) -> None:
    """A forgotten import would skip the whole dataset without a word."""
    assert not Care(on_error).may_pass_over(error)
    assert not Care(on_error, retry_on=(KeyError,)).may_pass_over(error)
    assert Care(on_error, retry_on=(type(error),)).may_pass_over(error)
