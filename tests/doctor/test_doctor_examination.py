"""The checks together: one that fails or hangs is a note, and the others go on; and what they say of a real machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.doctor.examination import OF_LIBRARIES, OF_MACHINE, examine
from holdfast.doctor.finding import Finding, Level, ok, some_of, worst_first
from holdfast.doctor.scope import Scope
from holdfast.doctor.torch_probe import TorchProbe


def made_check(name: str, look: Any, limit_s: float = 60.0) -> Any:
    return SimpleNamespace(NAME=name, LIMIT_S=limit_s, look=look, judge=lambda facts: [ok(name, str(facts))])


def fail(scope: Scope) -> None:
    raise PermissionError(13, "no such luck\x1b[31m", "/proc/secret")


def test_a_check_that_fails_is_a_note_and_the_others_go_on() -> None:
    """With the exception as evidence, in one line that cannot move the cursor."""
    found = examine(Scope(), [made_check("bad", fail), made_check("good", lambda scope: "well")])
    assert [finding.level for finding in found] == [Level.NOTE, Level.OK]
    assert "PermissionError" in found[0].evidence[0]
    assert found[0].evidence[0].isprintable()
    assert found[0].consequence
    assert found[0].remedy


@pytest.fixture
def released() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_check_that_does_not_end_is_given_up(released: threading.Event) -> None:
    """After its own limit."""
    slow = made_check("slow", lambda scope: released.wait(60), limit_s=0.05)
    found = examine(Scope(), [slow, made_check("good", lambda scope: "well")])
    assert [finding.level for finding in found] == [Level.NOTE, Level.OK]
    assert found[0].evidence == ("it had not ended after 0.05 s",)


def test_who_asks_is_told_of_each_check_before_it_runs() -> None:
    told: list[str] = []
    examine(Scope(), [made_check("a", lambda scope: told.append("in a")), made_check("b", str)], told.append)
    assert told == ["a", "in a", "b"]


def test_findings_are_shown_the_worst_first_and_else_as_they_came() -> None:
    found = [
        ok("a", "x"),
        Finding("b", Level.NOTE, "x"),
        Finding("c", Level.PROBLEM, "x"),
        Finding("d", Level.PROBLEM, "x"),
    ]
    assert [finding.check for finding in worst_first(found)] == ["c", "d", "b", "a"]


def test_evidence_is_cut_and_says_so() -> None:
    assert some_of(map(str, range(7)), 3) == ("0", "1", "2", "and 4 more")
    assert some_of("ab", 3) == ("a", "b")


def test_all_checks_run_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them fails, whatever this machine is."""
    probe = TorchProbe("2.9.0", works=True)
    monkeypatch.setattr("holdfast.doctor.torch_probe.probe", lambda: probe)
    found = examine(Scope(), (*OF_LIBRARIES, *OF_MACHINE))
    assert {finding.check for finding in found} == {check.NAME for check in (*OF_LIBRARIES, *OF_MACHINE)}
    assert [finding for finding in found if finding.what == "this could not be checked"] == []
