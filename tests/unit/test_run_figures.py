"""The sums of `holdfast run`: loaders that live and that are gone, and other processes by their records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from holdfast.incident import Incident, Incidents
from holdfast.records import reader
from holdfast.records.facts import RunFacts
from holdfast.records.writer import RunRecord
from holdfast.tasks.runner import figures, summary
from holdfast.tasks.runner.figures import Figures
from holdfast.tasks.runner.settings import Settings
from holdfast.tasks.runner.tally import Tally

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "run.json").read_text())
FACTS = RunFacts("0.1.0", "2.6.0", 2, "fork", 8, "Photos", 48)
COUNTS = {"batches": 6, "samples": 47, "waited_s": 1.5, "restarts": 2, "recycled": 1, "skipped": 1}


@dataclass
class Counters:
    """As much of a loader's as the tally asks for."""

    batches: int = 6
    samples: int = 47
    restarts: int = 2

    def read(self) -> Counters:
        return self


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A `holdfast run` of another process than this one, whose records lie apart."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    settings = Settings("train.py", pid=1)
    monkeypatch.setenv("HOLDFAST_LAUNCH", settings.launch)
    return settings


def make_record(causes: list[str], end: Mapping[str, Any] | None = COUNTS) -> RunRecord:
    record = RunRecord.open(FACTS)
    for cause in causes:
        record.note_incident({"cause": cause, "done": "skipped"})
    if end is not None:
        record.close(end)
    return record


def test_a_loader_counts_on_after_it_is_gone() -> None:
    """As long as anybody has its incidents it is read; then its sums are kept, once."""
    tally, incidents = Tally(), Incidents()
    tally.note(2, Counters(), incidents)
    tally.note(2, Counters(), incidents)
    incidents.add(Incident("segmentation fault", "skipped"))
    expected = Figures(1, batches=6, samples=47, restarts=2, causes=Counter({"segmentation fault": 1}))
    assert tally.read() == tally.read() == expected
    del incidents
    assert tally.read() == expected
    assert not tally._living


def test_other_processes_are_counted_by_their_records(told: Settings) -> None:
    """Of the same `holdfast run`, and no other; the one with the most incidents is worth reading."""
    make_record(["hang"])
    worst = make_record(["hang", "hang: long", "abort"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_LAUNCH", "another")
        make_record(["hang"] * 9)
    data = summary.gather(told)
    jsonschema.validate(data, SCHEMA)
    assert (data["loaders"], data["batches"], data["samples"], data["restarts"]) == (2, 12, 94, 4)
    assert data["incidents"] == {"hang": 3, "abort": 1}
    assert data["report"] == worst.id
    assert len(data["runs"]) == 2


def test_a_process_that_was_killed_is_counted_by_its_last_reading(told: Settings) -> None:
    """There is no last line."""
    record = make_record(["hang"], end=None)
    try:
        assert record.path is not None
        with record.path.open("a") as file:
            file.write(json.dumps({"kind": "reading", "time": 1.0, "batches": 3}) + "\n")
        data = summary.gather(told)
    finally:
        record.close()
    assert (data["batches"], data["incidents"]) == (3, {"hang": 1})


def test_hostile_records_are_summed_up_and_printed_harmlessly(told: Settings) -> None:
    """Numbers that are none count nothing; control characters do not reach the terminal."""
    record = make_record(["\x1b[31m[red]<script>"])
    assert record.path is not None
    lines = record.path.read_text().splitlines()
    start, end = json.loads(lines[0]), json.loads(lines[-1])
    start |= {"num_workers": "many", "pid": [1]}
    end |= {"batches": float("nan"), "samples": "47", "waited_s": -1, "restarts": True, "skipped": 10**400}
    end["incidents_left_out"] = {"hang": float("inf"), "x": None}
    lines[0], lines[-1] = json.dumps(start), json.dumps(end)
    record.path.write_text("\n".join([*lines, '{"kind":"end","torn']))
    data = summary.gather(told)
    jsonschema.validate(data, SCHEMA)
    assert (data["batches"], data["samples"], data["restarts"], data["skipped"]) == (0, 0, 0, 0)
    said = "\n".join(summary.lines(data))
    assert "?[31m[red]<script> 1" in said
    assert "\x1b" not in said


def test_records_of_the_past_are_not_even_read(told: Settings) -> None:
    """They come newest first, and the first that is older than this run ends the search."""
    make_record([])
    late = Settings("train.py", launch=told.launch, pid=told.pid, began=told.began + 1000)
    assert figures.records_of(late).runs == ()
    assert len(figures.records_of(told).runs) == len(list(reader.all_runs())) == 1
