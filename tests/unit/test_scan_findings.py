"""What a scan has found, as lines and made again from them: `tasks/scan/findings.py`, and when to load how many."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tasks.scan import findings as module
from holdfast.tasks.scan.batches import Batches
from holdfast.tasks.scan.findings import Bad, Findings
from holdfast.tasks.scan.signature import Part

ROW = (Part("", "array float32", (3,)),)
ODD = (Part("", "array float32", (4,)),)


def told(findings: Findings) -> dict[str, Any]:
    """All that can be seen of it."""
    common = findings.common()
    seen = {name: getattr(findings, name) for name in ("bad", "retried", "slowest", "largest", "loaded", "nbytes")}
    return seen | {"odd": findings.odd(common), "common": common, "left": [*findings.left(range(50))]}


def by_way_of_json(line: dict[str, Any]) -> Any:
    return json.loads(json.dumps(line))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("good"), st.integers(0, 49), st.sampled_from([ROW, ODD]), st.integers(0, 9)),
        st.tuples(st.just("bad"), st.integers(0, 49)),
        st.tuples(st.just("retried"), st.integers(0, 49)),
        st.tuples(st.just("line")),
    ),
    max_size=60,
)


@given(steps)
def test_made_again_from_its_lines_it_is_the_same(steps: list[tuple[Any, ...]]) -> None:
    """Whenever a line is told, and though each is told twice."""
    original, copy = Findings(50), Findings(50)

    def tell() -> None:
        line = original.tell_news()
        if line is not None:
            copy.hear(by_way_of_json(line))
            copy.hear(by_way_of_json(line))
            original.forget_news()

    for kind, *values in steps:
        if kind == "good":
            index, parts, value = values
            original.note((0, index), parts, value, value / 7)
        elif kind == "bad":
            original.note_bad(Bad((0, values[0]), "hang", "hung"))
        elif kind == "retried":
            original.note_retried((0, values[0]), "7f3a.1")
        else:
            tell()
    tell()
    assert told(copy) == told(original)


def test_a_sample_counts_once() -> None:
    """It may be loaded twice: by a worker that died before its batch was sent, or when a scan goes on."""
    findings = Findings(3)
    findings.note((0, 1), ROW, 10, 0.5)
    findings.note((0, 1), ROW, 10, 0.5)
    findings.note_bad(Bad((0, 1), "hang", "hung"))
    assert (findings.loaded, findings.nbytes, findings.bad) == (1, 10, {})


def test_a_bad_sample_that_is_loaded_later_is_good() -> None:
    """As at the second look."""
    findings = Findings(3)
    findings.note_bad(Bad((0, 1), "killed by another process", "was killed"))
    findings.note((0, 1), ROW, 10, 0.5)
    assert (findings.loaded, findings.bad, findings.done) == (1, {}, 1)


def test_the_slowest_and_the_largest_come_first() -> None:
    """Ten of each at most."""
    findings = Findings(100)
    for index in range(100):
        findings.note((0, index), ROW, 1000 - index, float(index))
    assert [each.place[1] for each in findings.slowest] == [*range(99, 89, -1)]
    assert [each.place[1] for each in findings.largest] == [*range(10)]


def test_of_very_many_signatures_the_sizes_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, whatever the samples are."""
    monkeypatch.setattr(module, "_MOST_SIGNATURES", 5)
    findings = Findings(100)
    for index in range(100):
        findings.note((0, index), (Part("", "array float32", (index,)),), 1, 1.0)
    assert len(findings.signatures) == 6
    assert findings.odd(findings.common()) == {}


def test_streams_are_counted_apart() -> None:
    """Of an iterable dataset: each worker has a part."""
    findings = Findings(None)
    findings.note((0, 0), ROW, 1, 1.0)
    findings.note((1, 0), ROW, 1, 1.0)
    findings.note((1, 1), ROW, 1, 1.0)
    assert [findings.done_in(stream) for stream in range(3)] == [1, 2, 0]


@given(st.lists(st.floats(0, 10)), st.integers(0, 300))
def test_batches_have_every_index_once(times: list[float], samples: int) -> None:
    """In order, whatever they are told of the time it takes."""
    batches, told = Batches(range(samples)), iter(times)
    came = []
    for batch in batches:
        came += batch
        batches.took(len(batch), next(told, 0.0))
    assert came == list(range(samples))


def test_quick_samples_come_in_large_batches_and_slow_ones_alone() -> None:
    """Twice as many at a time until a batch takes a moment; one sample that takes long is a batch."""

    def sizes(sample_s: float) -> list[int]:
        batches, found = Batches(range(2000)), []
        for batch in batches:
            found.append(len(batch))
            batches.took(len(batch), sample_s * len(batch))
        return found

    assert sizes(0.0)[:4] == [1, 2, 4, 8]
    assert max(sizes(0.0)) == 256
    assert max(sizes(0.01)) == 10
    assert set(sizes(1.0)) == {1}
