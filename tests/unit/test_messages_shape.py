"""Every message, rendered: its shape, its width, and what it must and must not say."""

from __future__ import annotations

import re
from typing import Any

import pytest

from holdfast.diagnosis import engine
from holdfast.diagnosis.evidence import Confidence, Diagnosis
from holdfast.diagnosis.message import LABELS, WIDTH, Account, first_line, in_torchs_words, incident_of, render
from holdfast.incident import Incident

from .evidence_made import AVX512, Seen, crashed
from .evidence_seen import SEEN

WHERE: dict[str, dict[str, Any]] = {
    "sample": {"phase": "loading", "sample_index": 17, "epoch": 0, "batch": 4, "attempt": 2, "attempts": 2},
    "no sample": {"phase": "collating", "epoch": 0, "batch": 4},
    "starting": {"phase": "starting"},
    "nothing": {},
}
LINE = re.compile(r"  ([a-z]+ {2,}|           )\S.*")


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("seen", SEEN, ids=[f"{k}-{seen.cause}" for k, seen in enumerate(SEEN)])
def test_every_message_has_the_shape(seen: Seen, where: str) -> None:
    """A first line that stands alone; then the labels in order, in two columns, within the width."""
    account = Account(engine.diagnose(seen.evidence), 1, 41822, done="the worker was restarted", **WHERE[where])
    first, empty, *lines = render(account).split("\n")
    assert first == first_line(account)
    assert first.startswith("worker 1 (pid 41822) ")
    assert not first.endswith((" ", ":"))
    assert empty == ""
    assert [line for line in lines if not LINE.fullmatch(line) or len(line) > WIDTH or line != line.rstrip()] == []
    labels = [line[2:13].strip() for line in lines if line[2] != " "]
    assert labels == [label for label in LABELS if label in labels]
    assert {"cause", "evidence", "done", "try"} <= set(labels)
    text = "\n".join(lines)
    assert f"({engine.diagnose(seen.evidence).confidence})" in text
    for never in ("could be caused by", "see the logs", "None", "verdict", "quarantine"):
        assert never not in text


def test_the_message_is_the_one_of_the_design() -> None:
    """Word for word, as the documentation shows it."""
    diagnosis = engine.diagnose(crashed(4, 2, place=AVX512, cpu="AMD EPYC"))
    account = Account(
        diagnosis, 1, 41822, "loading", 17, 0, 4, 2, 2, "worker restarted twice; sample 17 failed each time", (16, 18)
    )
    assert render(account) == (
        """\
worker 1 (pid 41822) died of an illegal instruction while loading sample 17

  where      dataset[17], epoch 0, batch 4, attempt 2 of 2
             my_dataset.py:31 in __getitem__ -> libfast.so+0x1110 decode_block
  cause      vmovupd zmm0,[rdi] needs avx512f; this CPU (AMD EPYC) has no avx512f (certain)
  evidence   SIGILL, ILL_ILLOPN at libfast.so+0x1110 decode_block
  done       worker restarted twice; sample 17 failed each time
             lost with it, of the same batch: samples 16, 18
  try        rebuild libfast.so without avx512f (-march=x86-64-v3), or install a build for this CPU
             CFLAGS='-march=x86-64-v3' pip install --force-reinstall --no-binary fast fast
             loader.dataset[17]   load this sample alone, in a Python that may crash or hang
             DataLoader(..., on_error="skip")   go on without it"""
    )


@pytest.mark.parametrize(
    ("exit_code", "sentence"),
    [
        (-11, "DataLoader worker (pid 41822) is killed by signal: Segmentation fault."),
        (-9, "DataLoader worker (pid 41822) is killed by signal: Killed."),
        (3, "DataLoader worker (pid 41822) exited unexpectedly with exit code 3."),
        (0, "DataLoader worker (pid(s) 41822) exited unexpectedly"),
        (-999, "DataLoader worker (pid 41822) is killed by signal: Unknown signal 999."),
    ],
)
def test_torchs_own_sentence_has_a_line_of_its_own(exit_code: int, sentence: str) -> None:
    """Whole, and below the evidence: log matchers and search engines know it."""
    diagnosis = engine.diagnose(crashed(11))
    account = Account(diagnosis, 1, 41822, in_torchs_words=in_torchs_words(41822, exit_code))
    assert f"\n  torch      {sentence}\n" in render(account)


def test_the_supervisor_is_named_as_such() -> None:
    """It is no worker, and has no sample."""
    diagnosis = Diagnosis("supervisor killed", Confidence.CERTAIN, "was killed by SIGKILL", "x")
    assert first_line(Account(diagnosis, pid=7)) == "supervisor (pid 7) was killed by SIGKILL"


def test_a_kill_from_outside_does_not_advise_to_skip_the_sample() -> None:
    """The sample is not to blame."""
    diagnosis = Diagnosis("killed by another process", Confidence.LIKELY, "was killed by SIGKILL", "x")
    assert "skip" not in render(Account(diagnosis, 1, 2, "loading", 17))


def test_a_sample_that_on_error_has_no_say_in_is_not_advised_to_be_skipped() -> None:
    """A MemoryError is raised under every setting."""
    diagnosis = Diagnosis("dataset exception", Confidence.CERTAIN, "raised MemoryError", "x")
    assert "skip" in render(Account(diagnosis, 1, 2, "loading", 17))
    assert "skip" not in render(Account(diagnosis, 1, 2, "loading", 17, may_be_skipped=False))


def test_the_incident_says_the_same() -> None:
    """In one line the same as the first of the message, with where and what was done."""
    seen = next(seen for seen in SEEN if seen.cause == "unknown")
    account = Account(engine.diagnose(seen.evidence), 1, 2, "loading", 17, 0, 4, 2, 2, "restarted")
    incident = incident_of(account, "File ...")
    assert str(incident) == "worker 1 was killed by SIGBUS while loading sample 17 (epoch 0, batch 4): restarted"
    assert (incident.cause, incident.confidence, incident.attempt) == ("unknown", "unknown", 2)
    assert incident.evidence.endswith("a hang: it ended by itself, and not by us\nFile ...")
    assert Incident.from_json(incident.to_json()) == incident


class Odd:
    def __repr__(self) -> str:
        raise ValueError("no repr")


@pytest.mark.parametrize("index", [0, "a.png", (1, "x"), "long" * 500, "two\nlines", Odd()])
def test_any_index_is_shown_in_bounds(index: object) -> None:
    """Indices are what the user's sampler gives: anything."""
    account = Account(
        Diagnosis("hang", Confidence.CERTAIN, "hung", "x"), 1, 2, "loading", index, lost_with_it=(index,) * 99
    )
    first, _, *lines = render(account).split("\n")
    assert " while loading sample " in first
    assert all(len(line) <= WIDTH for line in lines)
    assert len(first) < 200


def test_long_texts_are_bounded() -> None:
    """An exception's message may be a megabyte, and evidence a thousand lines."""
    diagnosis = Diagnosis(
        "hang", Confidence.CERTAIN, "s" * 9999, "b " * 9999, "w" * 9999, ("e" * 999,) * 999, ("a",) * 99
    )
    lines = render(Account(diagnosis, 1, 2, "loading", 17)).split("\n")
    assert len(lines) < 100
    assert max(map(len, lines[1:])) <= WIDTH
    assert len(lines[0]) <= 500
