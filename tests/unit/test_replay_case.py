"""What a record says of a sample to load again, and what a sample is made of."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.records.reader import Run
from holdfast.tasks.replay import case as cases
from holdfast.tasks.replay.case import CannotReplayError, Case, Limits, Part
from holdfast.tasks.replay.parts import parts_of

START: dict[str, Any] = {
    "front": "DataLoader",
    "num_workers": 2,
    "batch_size": 4,
    "start_method": "spawn",
    "dataset": "Photos",
    "dataset_length": 50,
    "target": "photos:train",
    "memory_limit_bytes": 10**9,
    "sample_timeout_s": 2,
}


def case_of(incident: dict[str, Any], **start: Any) -> Case:
    run = Run(
        id="7f3a",
        path=Path("x"),
        start=START | start,
        incidents=({"kind": "incident", "number": 1, "cause": "hang", **incident},),
        readings=(),
        end=None,
        is_alive=False,
        is_full=False,
        unknown=(),
        damaged_lines=0,
    )
    return cases.case_of(run, 1)


def test_the_limits_of_the_run_are_those_of_its_replay() -> None:
    """As its first line has them; a record that has no such fields does not know."""
    found = case_of({"sample_index": 3})
    assert (found.id, found.limits, found.knows_limits) == ("7f3a.1", Limits(10**9, 2.0), True)
    assert (found.start_method, found.target) == ("spawn", "photos:train")
    bare = case_of({"sample_index": 3}, memory_limit_bytes=None, sample_timeout_s=None)
    assert (bare.limits, bare.knows_limits) == (Limits(), True)


def test_fields_of_another_type_count_as_missing() -> None:
    """A record may be full of anything."""
    hostile = {"a": ["<script>"]}
    found = case_of(
        {"sample_index": 3, "cause": hostile, "summary": 7, "worker_id": "0", "batch": True, "time": "now"},
        **{name: hostile for name in START if name != "front"},
    )
    assert (found.cause, found.summary, found.worker_id, found.batch, found.time) == ("unknown", "", None, None, None)
    assert (found.limits, found.num_workers, found.start_method, found.target) == (Limits(), 0, None, "")


@pytest.mark.parametrize(
    ("told", "index"),
    [(17, 17), ("a name", "a name"), ("<b", "<b"), (["a", [1, 2]], ("a", (1, 2))), (0, 0), (-1, -1), (False, False)],
)
def test_an_index_is_what_it_was_before_it_was_written(told: Any, index: Any) -> None:
    """Lists were tuples."""
    assert cases.sample(case_of({"sample_index": told})) == index


@pytest.mark.parametrize("told", [None, "<Key>", "abc [... 300 characters cut ...] xyz"])
def test_an_index_that_is_not_in_the_record_is_not_guessed(told: Any) -> None:
    """An object, or half a text, would be another sample."""
    with pytest.raises(CannotReplayError, match="--index"):
        cases.sample(case_of({"sample_index": told}))


def test_an_element_is_known_by_its_worker() -> None:
    """After an exception exactly, after a death by its batch: workers take turns."""
    assert cases.part(case_of({"sample_index": [1, 4]})) == Part(1, 2, 4, 4)
    death = {"worker_id": 1, "batch": 5, "phase": "loading"}
    assert cases.part(case_of(death)) == Part(1, 2, 8, 11)
    assert cases.part(case_of(death, batch_size=None)) == Part(1, 2, 2, 2)
    for unknown in ({"worker_id": None}, {"batch": None}, {"batch": -1}, {"phase": "collating"}):
        with pytest.raises(CannotReplayError, match="is of no element"):
            cases.part(case_of(death | unknown))


@pytest.mark.parametrize(("index", "length"), [(0, 1), (-1, 1), ("a", 1), (99, None)])
def test_an_index_within_the_dataset(index: Any, length: int | None) -> None:
    """Only a number can be beyond it, and only where it has a length."""
    cases.check_within(index, length, case_of({}))


@pytest.mark.parametrize(("index", "length"), [(1, 1), (-2, 1), (0, 0)])
def test_an_index_beyond_the_dataset(index: int, length: int) -> None:
    with pytest.raises(CannotReplayError, match=f"Sample {index} is beyond this dataset"):
        cases.check_within(index, length, case_of({}))


# --- what a sample is made of -----------------------------------------------------------------------------------------

Pair = namedtuple("Pair", "left right")


@dataclass
class Labelled:
    image: Any
    label: int


class Hostile:
    @property
    def shape(self) -> Any:
        raise RuntimeError("no")


def test_structure_types_and_shapes_are_told() -> None:
    """By the way to each part."""
    sample = {"a": np.zeros((2, 3), np.float32), "b": [Pair("text", None), Labelled(b"1234", 7)]}
    told = {part.path: part for part in parts_of(sample)}
    assert (told[""].type, told[""].length) == ("dict", 2)
    array = told["['a']"]
    assert (array.type, array.dtype, array.shape, array.nbytes) == ("ndarray", "float32", (2, 3), 24)
    assert told["['b'][0].left"].nbytes == 4
    assert told["['b'][0].right"].type == "NoneType"
    assert told["['b'][1].image"].nbytes == 4
    assert told["['b'][1].label"].type == "int"


def test_what_is_told_is_bounded() -> None:
    """However deep or long, and whatever it does when it is looked at."""
    deep: Any = 1
    for _ in range(1000):
        deep = [deep]
    assert len(parts_of(deep)) < 10
    assert len(parts_of([[0] * 1000] * 1000)) <= 64
    [part] = parts_of(Hostile())
    assert part.type == "Hostile, which raises RuntimeError when looked at"
