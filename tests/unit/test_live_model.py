"""What the live view shows of a run, worked out from looks at it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.report.live_model import Looks, make_picture
from holdfast.report.live_pictures import DIED, ENDED, RUNNING, to_json
from holdfast.report.waiting import LOADER, SOMETIMES, TRAINING, UNKNOWN
from unit.live_looks import START, STARTED, a_look, a_run, a_worker, an_incident

NOW = STARTED + 60.0
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "top.json").read_text())


def test_rates_are_those_between_two_looks() -> None:
    """Not of the whole run: what it did an hour ago says nothing about now."""
    older, newer = a_look(), a_look(at_s=4.0, batches=110, samples=880)
    picture = make_picture([older, newer], NOW)
    assert (picture.batches_per_s, picture.samples_per_s) == (2.5, 20.0)
    assert (picture.batches, picture.samples, picture.age_s) == (110, 880, 60.0)


def test_a_worker_has_its_own_rate() -> None:
    """From the batches in hand, of which it gets every second; of this epoch only. One that hangs has a rate of 0."""
    hands = [(40, 41), (46, 41), (None, 41), (2, 41), (6, 41)]
    looks = [
        a_look(at_s=float(second), workers=(a_worker(0, batch=first), a_worker(1, batch=second_hand)))
        for second, (first, second_hand) in enumerate(hands)
    ]
    assert [worker.batches_per_s for worker in make_picture(looks[:3], NOW).workers] == [1.5, 0.0]
    assert [worker.batches_per_s for worker in make_picture(looks, NOW).workers] == [2.0, 0.0]
    assert [worker.batches_per_s for worker in make_picture(looks[:1], NOW).workers] == [None, None]


def test_one_look_has_no_rate() -> None:
    """And says that it is not known yet who waits for whom."""
    picture = make_picture([a_look(), a_look()], NOW)
    assert (picture.batches_per_s, picture.waiting.share, picture.waiting.bottleneck) == (None, None, UNKNOWN)
    assert "not known yet" in picture.waiting.words


def test_looks_are_kept_for_the_last_seconds_only() -> None:
    """The oldest of them is as old as the window, or a little older."""
    looks = Looks(window_s=10.0)
    for second in range(100):
        looks.add(a_look(at_s=float(second), batches=second * second))
    assert looks.picture(NOW).batches_per_s == (99**2 - 89**2) / 10


def test_a_clock_that_is_set_back_begins_anew() -> None:
    """No rate is of a time that ran backwards."""
    looks = Looks()
    looks.add(a_look(at_s=50.0))
    looks.add(a_look(at_s=20.0))
    assert looks.picture(NOW).batches_per_s is None


@pytest.mark.parametrize(
    ("waited_s", "share", "bottleneck", "words"),
    [
        (0.2, 0.02, TRAINING, "the loader keeps up"),
        (3.0, 0.3, SOMETIMES, "the loader is too slow at times"),
        (8.0, 0.8, LOADER, "the loader is the bottleneck"),
        (14.0, 1.0, LOADER, "the loader is the bottleneck"),
    ],
)
def test_who_waits_for_whom_is_said_in_words(waited_s: float, share: float, bottleneck: str, words: str) -> None:
    """From the share of the last seconds that training waited; more than all of them is all of them."""
    waiting = make_picture([a_look(), a_look(at_s=10.0, waited_s=3.0 + waited_s, batches=120)], NOW).waiting
    assert waiting.share == pytest.approx(share)
    assert (waiting.window_s, waiting.bottleneck, waiting.words) == (10.0, bottleneck, words)


def test_where_no_batch_comes_it_is_said_who_is_the_reason() -> None:
    """Training that waits for one, or training that asks for none."""
    waits = make_picture([a_look(), a_look(at_s=10.0, waited_s=13.0)], NOW).waiting
    asks_for_none = make_picture([a_look(), a_look(at_s=10.0)], NOW).waiting
    assert (waits.bottleneck, waits.words) == (LOADER, "no batch came")
    assert (asks_for_none.bottleneck, asks_for_none.words) == (TRAINING, "no batch was asked for")


def test_of_calls_nobody_waits_for_batches() -> None:
    run = a_run(start={**START, "front": "ProcessPoolExecutor", "dataset": None, "function": "convert"})
    picture = make_picture([a_look(run), a_look(run, at_s=1.0, waited_s=9.0)], NOW)
    assert (picture.dataset, picture.loads, picture.waiting.bottleneck) == ("convert", False, UNKNOWN)
    assert {worker.doing for worker in picture.workers} == {"running"}


def test_of_a_scan_nobody_waits_either() -> None:
    """It has nothing else to do."""
    run = a_run(start={**START, "command": "scan"})
    picture = make_picture([a_look(run), a_look(run, at_s=1.0, waited_s=9.0)], NOW)
    assert (picture.loads, picture.waiting.bottleneck, picture.waiting.words) == (True, UNKNOWN, "")


def test_what_only_the_record_says_is_told_as_that() -> None:
    """Between two epochs there are no workers to look at."""
    picture = make_picture([a_look(), a_look(at_s=5.0, is_fresh=False)], NOW)
    assert (picture.is_fresh, picture.workers) == (False, ())
    assert "what the record said last" in picture.waiting.words


def test_a_loader_without_workers_says_so() -> None:
    """There is nothing to look at, and never will be."""
    run = a_run(start={**START, "num_workers": 0})
    look = a_look(run, workers=(), is_fresh=False)
    assert "num_workers=0" in make_picture([look, look], NOW).waiting.words


def test_a_run_that_has_ended_shows_its_last_words() -> None:
    """Its counts, how long it took, and the share of that time that training waited; no rate and no worker."""
    end = {"kind": "end", "time": STARTED + 20, "batches": 400, "samples": 3200, "waited_s": 5.0, "restarts": 2}
    run = a_run(is_alive=False, end=end)
    picture = make_picture([a_look(run), a_look(run, at_s=9.0)], NOW)
    assert (picture.state, picture.is_over, picture.age_s) == (ENDED, True, 20.0)
    assert (picture.batches, picture.samples, picture.restarts) == (400, 3200, 2)
    assert (picture.batches_per_s, picture.workers, picture.waiting.share) == (None, (), 0.25)


@pytest.mark.parametrize("waited_s", [math.nan, 10**400, "long", True])
def test_last_words_that_are_no_number_are_not_told(waited_s: Any) -> None:
    """JSON that was made by hand has such, too, and what is told of it has none."""
    run = a_run(is_alive=False, end={"kind": "end", "time": STARTED + 50.0, "waited_s": waited_s})
    picture = make_picture([a_look(run)], NOW)
    assert (picture.waiting.share, picture.waiting.bottleneck) == (None, UNKNOWN)
    json.dumps(to_json(picture), allow_nan=False)


def test_a_run_without_last_words_has_died() -> None:
    """Nobody knows how long it took."""
    run = a_run(is_alive=False)
    picture = make_picture([a_look(run), a_look(run)], NOW)
    assert (picture.state, picture.age_s, picture.waiting.share) == (DIED, None, None)
    assert make_picture([a_look(), a_look()], NOW).state == RUNNING


def test_what_was_seen_is_not_unseen_when_only_the_record_is_left() -> None:
    """Between two epochs, and after a death: its last reading may be of some seconds before."""
    looks = Looks()
    looks.add(a_look(at_s=50.0, batches=170, samples=1360, restarts=4, skipped=6))
    looks.add(a_look(a_run(is_alive=False), at_s=46.0, batches=30, samples=240, restarts=1, skipped=7, is_fresh=False))
    picture = looks.picture(NOW)
    assert (picture.state, picture.batches, picture.samples) == (DIED, 170, 1360)
    assert (picture.restarts, picture.skipped) == (4, 7)


def test_a_record_that_says_nothing_new_is_kept_once() -> None:
    """A loader without workers may be watched for days; each look has all of its record."""
    looks = Looks()
    for _ in range(5):
        looks.add(a_look(at_s=7.0, is_fresh=False))
    assert len(looks._looks) == 1


def test_after_a_pause_between_epochs_rates_begin_anew() -> None:
    """An hour of validation is no time in which the loader was slow."""
    looks = Looks()
    looks.add(a_look(at_s=50.0, batches=100))
    looks.add(a_look(at_s=45.0, batches=90, is_fresh=False))
    assert (looks.picture(NOW).batches, looks.picture(NOW).batches_per_s) == (100, None)
    looks.add(a_look(at_s=3650.0, batches=110))
    assert looks.picture(NOW).batches_per_s is None
    looks.add(a_look(at_s=3651.0, batches=120))
    assert looks.picture(NOW).batches_per_s == 10


@pytest.mark.parametrize(("limit", "share"), [(None, None), (0, None), (4_800_000_000, 0.25), (600_000_000, 1.0)])
def test_memory_is_a_share_of_its_limit(limit: int | None, share: float | None) -> None:
    """Never more than all of it; none where there is no limit."""
    look = a_look(workers=(a_worker(limit_bytes=limit),))
    assert make_picture([look, look], NOW).workers[0].memory_share == share


def test_incidents_are_counted_beyond_those_that_are_kept() -> None:
    """By the number of the last one: a record keeps a thousand, the picture the last fifty."""
    run = a_run(incidents=tuple(an_incident(number) for number in range(901, 1001)))
    picture = make_picture([a_look(run), a_look(run)], NOW)
    assert (picture.incidents, len(picture.last_incidents), picture.last_incidents[-1].id) == (1000, 50, "7f3a.1000")


HOSTILE = "\x1b[2J\x07[bold]a\u202eb[/bold]\r\n\x00<script>"


def test_hostile_text_is_made_harmless() -> None:
    """Of the script, the dataset, a worker, a sample and an incident: nothing steers a terminal."""
    incident = an_incident(summary=HOSTILE, done=HOSTILE, sample_index=HOSTILE)
    run = a_run(start={**START, "script": HOSTILE, "dataset": HOSTILE}, incidents=(incident,))
    look = a_look(run, workers=(a_worker(doing=HOSTILE, sample=HOSTILE),))
    said = json.dumps(to_json(make_picture([look, look], NOW)), ensure_ascii=False)
    assert "[bold]a" in said
    assert all(char.isprintable() for char in said)
    assert "\\u" not in said


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ("time", "script", "dataset", "function", "front", "rank", "pid", "waited_s", "batches", "restarts", "number")
MORE = ("worker_id", "sample_index", "summary", "cause", "done", "incidents")


def lines() -> st.SearchStrategy[dict[str, Any]]:
    """A line of a record with fields that we know and anything in them."""
    return st.dictionaries(st.sampled_from(FIELDS + MORE), JSON)


@given(start=lines(), end=st.none() | lines(), incidents=st.lists(lines(), max_size=3), is_alive=st.booleans())
def test_whatever_a_record_holds_the_picture_is_as_the_schema_says(
    start: dict[str, Any], end: dict[str, Any] | None, incidents: list[dict[str, Any]], is_alive: bool
) -> None:
    """Of another version, damaged, or made by hand: never an error, always the same form."""
    run = a_run(start=start, end=end, incidents=tuple(incidents), is_alive=is_alive)
    picture = make_picture([a_look(run), a_look(run, at_s=1.0)], NOW)
    data = {"time": NOW, "host": "here", "runs": [to_json(picture)]}
    jsonschema.validate(json.loads(json.dumps(data, allow_nan=False)), SCHEMA)
