"""`on_incident`: who is told, in which process, and what becomes of what callbacks raise.

Runs in: the test process, and forks of it.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import signal
import sys
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

import pytest

import holdfast
from forked import holds_in_a_fork
from holdfast import counted, events
from holdfast.events import Teller, on_incident
from holdfast.incident import Incident

INCIDENT = Incident("hang", "retried")


@pytest.fixture(autouse=True)
def nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_subscriptions", [])
    monkeypatch.setattr(counted, "_register", counted._Register())


@pytest.fixture
def teller() -> Teller:
    return Teller("DataLoader")


@contextlib.contextmanager
def handler_of(number: int, handler: object) -> Iterator[None]:
    before = signal.signal(number, handler)  # type: ignore[arg-type]
    try:
        yield
    finally:
        signal.signal(number, before)


def test_every_callback_is_told_in_order(teller: Teller) -> None:
    told: list[object] = []
    on_incident(lambda incident: told.append(("first", incident)))
    on_incident(lambda incident: told.append(("second", incident)))
    teller.tell(INCIDENT)
    assert told == [("first", INCIDENT), ("second", INCIDENT)]


def test_it_is_told_until_it_is_ended(teller: Teller) -> None:
    """What `on_incident` returns ends it; to call that again does nothing."""
    told: list[Incident] = []
    end = on_incident(told.append)
    teller.tell(INCIDENT)
    end()
    end()
    teller.tell(INCIDENT)
    assert told == [INCIDENT]


def test_a_callback_that_is_there_twice_is_told_twice(teller: Teller) -> None:
    """And ended one by one, though both are equal."""
    told: list[Incident] = []
    end, _ = on_incident(told.append), on_incident(told.append)
    teller.tell(INCIDENT)
    end()
    end()
    teller.tell(INCIDENT)
    assert len(told) == 3


def test_a_callback_may_end_itself(teller: Teller) -> None:
    """The others are told all the same."""
    told: list[str] = []
    ends = [on_incident(lambda incident: (told.append("once"), ends[0]()))]
    on_incident(lambda incident: told.append("always"))
    teller.tell(INCIDENT)
    teller.tell(INCIDENT)
    assert told == ["once", "always", "always"]


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="on_incident: callback must be a function that takes an Incident, not 'alert'"):
        on_incident("alert")  # type: ignore[arg-type]


def fails(incident: Incident) -> NoReturn:
    raise ConnectionError("no such host")


def test_what_a_callback_raises_is_contained_and_said_once(teller: Teller, caplog: pytest.LogCaptureFixture) -> None:
    """The next callback is told, this one is called again, and the warning names it."""
    told: list[Incident] = []
    on_incident(fails)
    on_incident(told.append)
    with pytest.warns(holdfast.HoldfastWarning, match=r"^on_incident: fails raised ConnectionError: no such host"):
        teller.tell(INCIDENT)
    teller.tell(INCIDENT)
    assert len(told) == 2
    (error,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert error.getMessage().startswith("callback failed: fails\nTraceback (most recent call last)")


def test_another_callback_that_fails_is_said_too(teller: Teller) -> None:
    """Also if it lies where one that is gone had lain."""
    for number in range(20):

        def fails_too(incident: Incident, number: int = number) -> None:
            raise ValueError(f"number {number}")

        end = on_incident(fails_too)
        with pytest.warns(holdfast.HoldfastWarning, match=f"number {number};"):
            teller.tell(INCIDENT)
        end()
        del end, fails_too


def test_a_warning_that_is_an_error_is_contained_too(teller: Teller, capsys: pytest.CaptureFixture[str]) -> None:
    """Who turns warnings into errors sees the callback's own, and goes on."""
    on_incident(fails)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        teller.tell(INCIDENT)
    assert "ConnectionError: no such host" in capsys.readouterr().err


def test_a_callback_cannot_leave_the_program(teller: Teller) -> None:
    """In a thread of ours `sys.exit` would end that thread, and every call of the pool would wait for ever."""
    on_incident(lambda incident: sys.exit(3))
    with pytest.warns(holdfast.HoldfastWarning, match="raised SystemExit: 3"):
        teller.tell(INCIDENT)


def test_an_interrupt_gets_through(teller: Teller) -> None:
    """Ctrl-C, while an alert waits for its server."""
    on_incident(lambda incident: signal.raise_signal(signal.SIGINT))
    with handler_of(signal.SIGINT, signal.default_int_handler), pytest.raises(KeyboardInterrupt):
        teller.tell(INCIDENT)


def test_what_the_users_signal_handler_raises_gets_through(teller: Teller) -> None:
    """A scheduler's SIGTERM, for which many programs raise SystemExit: it is not the callback's."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(143)

    on_incident(lambda incident: signal.raise_signal(signal.SIGTERM))
    with handler_of(signal.SIGTERM, leave), pytest.raises(SystemExit):
        teller.tell(INCIDENT)


def test_a_forked_child_calls_its_own_callbacks_only(teller: Teller) -> None:
    """Its parent's belong to its parent: both would raise the same alarm."""
    told: list[str] = []
    on_incident(lambda incident: told.append("parent"))

    def tells_its_own() -> bool:
        on_incident(lambda incident: told.append("child"))
        teller.tell(INCIDENT)
        return told == ["child"]

    assert holds_in_a_fork(tells_its_own)
    teller.tell(INCIDENT)
    assert told == ["parent"]


def test_incidents_are_counted_under_their_front(teller: Teller) -> None:
    teller.tell(INCIDENT)
    pickle.loads(pickle.dumps(teller)).tell(INCIDENT)
    assert counted.read()["DataLoader"].incidents == {"hang": 2}
