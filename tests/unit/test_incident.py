"""What went wrong, in the words and numbers a user reads."""

from __future__ import annotations

import dataclasses
import pickle
import time

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
    assert repr(filled(4)) == "<4 incidents: {'cause 0': 2, 'cause 1': 1, 'cause 2': 1}>"
