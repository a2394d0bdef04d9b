"""The engine: whatever the evidence is, one diagnosis comes out, and a bug in a cause costs only that cause."""

from __future__ import annotations

import pickle
import string
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.diagnosis import engine, evidence, message

from .evidence_made import MAPPINGS, crashed, died
from .evidence_seen import SEEN

numbers = st.integers(-(2**65), 2**65)
small = st.integers(-70, 70)
texts = st.text(max_size=60) | st.sampled_from(
    [text for seen in SEEN for text in (seen.evidence.python_stack, seen.evidence.stderr_tail) if text]
)
addresses = st.sampled_from([at for mapping in MAPPINGS for at in (mapping.start, mapping.end - 1)]) | numbers
frames = st.builds(
    evidence.Frame, small, st.integers(-8, 130), st.none() | small, st.none() | addresses, addresses, addresses, numbers
)
words = st.lists(texts, max_size=3).map(tuple)
places = st.builds(evidence.Place, texts, numbers, texts, texts, words, words, st.booleans())
mappings = st.builds(evidence.Mapping, numbers, numbers, texts, numbers, texts) | st.sampled_from(MAPPINGS)
readings = st.builds(evidence.MemoryReading, st.floats(allow_nan=True), numbers, small, small)
counts = st.none() | numbers
counters = st.none() | st.builds(evidence.MemoryCounters, texts, counts, counts, counts, counts, counts)
exceptions = st.none() | st.builds(
    evidence.RaisedException, texts, texts, texts, st.none() | st.integers(0, 40), words, texts
)
anything = st.builds(
    evidence.Evidence,
    ending=st.sampled_from(evidence.Ending),
    exit_code=st.none() | small | numbers,
    phase=st.sampled_from(["", "loading", "starting"]),
    start_method=st.sampled_from(["", "fork", "spawn"]),
    frame=st.none() | frames,
    place=st.none() | places,
    mappings=st.lists(mappings, max_size=3).map(tuple),
    stack_limit_bytes=counts,
    python_stack=texts,
    native_stack=texts,
    stderr_tail=texts,
    memory=st.lists(readings, max_size=3).map(tuple),
    memory_at_start_bytes=numbers,
    counters_before=counters,
    counters_after=counters,
    sample_timeout_s=st.none() | st.floats(),
    open_files=counts,
    open_files_limit=counts,
    inherited_files=words,
    raised=exceptions,
    missing=words,
    pid=st.none() | small,
    threads=counts,
    is_stopped=st.booleans(),
    waiting_in=texts,
    cpu=texts,
    cpu_level=texts,
    package=st.none() | texts,
    seen_at=st.none() | st.floats(),
    wrong_machine=texts,
    mapped_file_bytes=counts,
    shared_memory_mount=texts,
    shared_memory_bytes=counts,
    shared_memory_free_bytes=counts,
)


@given(anything)
def test_no_evidence_makes_the_engine_raise(seen: evidence.Evidence) -> None:
    """Not even a cause may: the engine's own guard must not be what saves it."""
    diagnosis = engine.diagnose(seen)
    assert diagnosis.cause in {cause.NAME for cause in engine.ALL}
    assert not any("a bug of holdfast" in line for line in diagnosis.evidence), diagnosis.evidence
    assert pickle.loads(pickle.dumps(diagnosis)) == diagnosis
    lines = message.render(message.Account(diagnosis, 1, 2, "loading", 17)).split("\n")
    assert all(len(line) <= message.WIDTH and line == line.rstrip() for line in lines[1:])


@given(st.binary(max_size=200).map(lambda data: data.decode("utf-8", "surrogateescape")))
def test_broken_text_does_no_harm(tail: str) -> None:
    """The tail of stderr is whatever native code wrote there."""
    text = message.render(message.Account(engine.diagnose(died(6, stderr_tail=tail)), 1, 2))
    assert all(char.isprintable() or char == "\n" for char in text)


def test_a_cause_that_raises_is_passed_over_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in one cause must not hide the others, nor go unseen."""

    def fail(evidence: evidence.Evidence) -> None:
        raise ZeroDivisionError("oops")

    broken = SimpleNamespace(NAME="broken", diagnose=fail)
    monkeypatch.setattr(engine, "SPECIFIC", (broken, *engine.SPECIFIC))
    diagnosis = engine.diagnose(crashed(11))
    assert diagnosis.cause == "segmentation fault"
    assert "a bug of holdfast: the cause 'broken' could not be judged (ZeroDivisionError: oops)" in diagnosis.evidence


def test_even_the_last_resort_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the answer is unknown, and says that it is a bug of ours."""
    monkeypatch.setattr(engine.unknown, "ruled_out", None)
    diagnosis = engine.diagnose(evidence.Evidence(evidence.Ending.EXITED))
    assert (diagnosis.cause, diagnosis.confidence) == ("unknown", "unknown")
    assert "a bug of holdfast" in diagnosis.evidence[-1]


def test_a_long_line_on_stderr_is_read_quickly() -> None:
    """A progress bar may write a megabyte without a newline: no pattern may take quadratic time over it."""
    engine.diagnose(died(6, stderr_tail=string.ascii_letters * 20_000))
