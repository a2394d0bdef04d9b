"""What went wrong, in the words and numbers a user reads."""

from __future__ import annotations

import dataclasses
import json
import pickle
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.incident import Incident, Incidents

KEPT = 1000


def filled(number: int) -> Incidents:
    incidents = Incidents()
    for k in range(number):
        incidents.add(Incident(f"cause {k % 3}", "restarted", batch=k))
    return incidents


def test_an_incident_reads_as_a_sentence() -> None:
    """Who, what, where, and what was done."""
    incident = Incident("hung", "skipped", worker_id=1, phase="loading", sample_index="a.png", epoch=2, batch=7)
    assert str(incident) == "worker 1 hung while loading sample 'a.png' (epoch 2, batch 7): skipped"


def test_an_incident_says_only_what_it_knows() -> None:
    """One without a worker names who it is about by itself; what is None is left out."""
    assert str(Incident("supervisor (pid 3) died", "restarted")) == "supervisor (pid 3) died: restarted"


class NotShown:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


def test_an_index_that_cannot_be_shown_is_named_by_its_class() -> None:
    assert "sample <NotShown>" in str(Incident("hung", "retried", phase="loading", sample_index=NotShown()))
    assert len(str(Incident("hung", "retried", phase="loading", sample_index="x" * 10_000))) < 300


def test_sample_zero_of_batch_zero_is_named() -> None:
    """Nothing is taken for missing because it is 0."""
    incident = Incident("hung", "retried", worker_id=0, phase="loading", sample_index=0, epoch=0, batch=0)
    assert str(incident) == "worker 0 hung while loading sample 0 (epoch 0, batch 0): retried"


def test_an_incident_knows_when_it_was() -> None:
    """Each its own moment, and not that of the import."""
    before = time.time()
    assert before <= Incident("hung", "raised").time <= time.time()


def test_an_incident_is_frozen_and_pickles() -> None:
    """It is handed to callbacks, logs and other processes."""
    incident = Incident("hung", "raised", worker_id=3, sample_index=(1, "x"), evidence="File")
    assert pickle.loads(pickle.dumps(incident)) == incident
    with pytest.raises(dataclasses.FrozenInstanceError):
        incident.cause = "other"  # type: ignore[misc]


def test_there_are_none_at_first() -> None:
    """Empty, falsy, and still countable by cause."""
    incidents = Incidents()
    assert not incidents
    assert list(incidents) == []
    assert incidents.counts["hung"] == 0
    assert repr(incidents) == "<0 incidents: {}>"


@pytest.mark.parametrize("number", [1, KEPT - 1, KEPT, KEPT + 1, 2 * KEPT, 2 * KEPT + 1, 5 * KEPT])
def test_of_many_the_first_and_the_last_thousand_are_kept(number: int) -> None:
    """In order, whatever the number; the counts know all of them."""
    incidents = filled(number)
    everything = range(number)
    kept = [*everything] if number <= 2 * KEPT else [*everything[:KEPT], *everything[-KEPT:]]
    assert [incident.batch for incident in incidents] == kept
    assert len(incidents) == len(kept)
    assert incidents.total == number
    assert sum(incidents.counts.values()) == number
    assert incidents.counts["cause 0"] == len(everything[::3])


@given(number=st.integers(0, 12), key=st.integers(-15, 15) | st.slices(12))
def test_they_are_read_as_a_list_is(number: int, key: int | slice) -> None:
    """By index from either end, by slice, and with the same IndexError."""
    incidents, expected = filled(number), list(range(number))
    try:
        wanted = expected[key]
    except IndexError:
        with pytest.raises(IndexError):
            incidents[key]
        return
    got = incidents[key]
    if isinstance(got, Incident):
        assert got.batch == wanted
    else:
        assert [incident.batch for incident in got] == wanted


def test_the_summary_counts_by_cause() -> None:
    """What a notebook shows of a thousand incidents is one line."""
    assert repr(filled(1)) == "<1 incident: {'cause 0': 1}>"
    assert repr(filled(4)) == "<4 incidents: {'cause 0': 2, 'cause 1': 1, 'cause 2': 1}>"


def test_a_summary_is_what_is_said_and_the_cause_what_is_counted() -> None:
    """The name of a cause is stable; its summary reads on from the worker."""
    incident = Incident("hang", "retried", 1, summary="hung for more than 3 s", confidence="certain", phase="loading")
    assert str(incident) == "worker 1 hung for more than 3 s while loading: retried"
    incidents = Incidents()
    incidents.add(incident)
    assert incidents.counts == {"hang": 1}


def test_an_incident_is_one_line() -> None:
    """Also where what it tells is not."""
    assert "\n" not in str(Incident("dataset exception", "raised", summary="raised ValueError: a\nb"))


@pytest.mark.parametrize("index", [None, 0, 17, "a.png", True])
def test_an_incident_goes_through_json_and_back(index: object) -> None:
    """Whole, for a number or a text as index."""
    incident = Incident("hang", "raised", 3, 7, "loading", index, 0, 1, 2, "certain", "hung", "b", "w", "e", ("a", "b"))
    assert Incident.from_json(json.loads(json.dumps(incident.to_json()))) == incident


class _Odd:
    def __repr__(self) -> str:
        raise ValueError("no repr")


@pytest.mark.parametrize(
    ("index", "kept"), [((1, "x"), "(1, 'x')"), (np.int64(3), 3), ("x" * 999, "x" * 999), (_Odd(), "<_Odd>")]
)
def test_an_index_of_another_kind_is_kept_as_far_as_json_can(index: object, kept: object) -> None:
    """A record must not fail because of what a sampler gives."""
    assert json.loads(json.dumps(Incident("hang", "raised", sample_index=index).to_json()))["sample_index"] == kept


def test_a_record_of_another_version_is_read() -> None:
    """With fields that are not known here, and without some that are."""
    incident = Incident.from_json({"cause": "hang", "done": "raised", "time": 1.0, "of_the_future": 3})
    assert incident == Incident("hang", "raised", time=1.0)
    assert Incident.from_json({}).cause == "unknown"


def test_an_incident_gets_its_id_when_it_is_written_down() -> None:
    """Whoever holds it sees it; it is the same incident as before."""
    incident = Incident("hang", "restarted", time=1.0)
    held = [incident]
    incident.identify("7f3a.2")
    assert held[0].id == "7f3a.2"
    assert incident == Incident("hang", "restarted", time=1.0)
    assert Incident.from_json(incident.to_json()).id == pickle.loads(pickle.dumps(incident)).id == "7f3a.2"
