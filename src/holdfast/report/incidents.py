"""Incidents, equal ones folded: one group for what happened again and again in the same place.

Equal are those of one cause, at one place in the code, with the same words but for the numbers in them: "sample 17 has
3 channels" and "sample 29 has 4 channels" are one fault of a dataset. A group tells of its first incident in full, and
of the others when, where and what was done.

Pure. Runs in: wherever records are read.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from holdfast.records.reader import Run
from holdfast.report import entries, families
from holdfast.report.entries import Entry
from holdfast.report.span import Span

MOST_MEMBERS = 40
"""Of a group, each with its own line. More are counted."""
MOST_SAMPLES = 200
MOST_GROUPS = 200
"""Told of. Of more, those with the most incidents; the rest is counted by cause."""

_MOST_FACTS = 12
_STACK = re.compile(r"^(Traceback \(most recent|Fatal Python error|Current thread |Thread 0x|Stack of|  File \")", re.M)
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")


@dataclass(frozen=True, slots=True)
class Member:
    """One incident of a group."""

    id: str
    """As commands take it: "7f3a.2"."""
    at_s: float
    worker_id: int | None
    pid: int | None
    sample: str
    epoch: int | None
    batch: int | None
    attempt: int | None
    done: str


@dataclass(frozen=True, slots=True)
class Group:
    """Equal incidents. What is empty is not known."""

    number: int
    """From 1, in the order of their first ones."""
    cause: str
    family: str
    confidence: str
    summary: str
    phase: str
    where: str
    because: str
    advice: tuple[str, ...]
    facts: tuple[str, ...]
    """Of the first one's evidence, what is no stack."""
    stack: str
    count: int
    first_at_s: float
    last_at_s: float
    workers: tuple[int, ...]
    samples: tuple[str, ...]
    """Distinct ones, `MOST_SAMPLES` at most."""
    done: tuple[tuple[str, int], ...]
    """What was done, and how often."""
    members: tuple[Member, ...]
    """The first ones, `MOST_MEMBERS` at most."""


@dataclass(frozen=True, slots=True)
class Incidents:
    """All of a run."""

    total: int
    """With those that the record only counted."""
    groups: tuple[Group, ...]
    not_shown: tuple[tuple[str, int], ...]
    """Those of more groups than are told of: cause, and how many."""
    left_out: tuple[tuple[str, int], ...]
    """Those that are not in the record, likewise."""


def incidents_of(run: Run, span: Span) -> Incidents:
    folded: dict[tuple[str, ...], list[Entry]] = {}
    for line in run.incidents:
        folded.setdefault(_key(line), []).append(line)
    numbered = list(enumerate(folded.values(), 1))
    shown = sorted(sorted(numbered, key=lambda pair: -len(pair[1]))[:MOST_GROUPS], key=lambda pair: pair[0])
    told = {number for number, _ in shown}
    others: Counter[str] = Counter()
    for number, lines in numbered:
        if number not in told:
            others[_cause(lines[0])] += len(lines)
    left_out = _left_out(run)
    return Incidents(
        total=len(run.incidents) + sum(number for _, number in left_out),
        groups=tuple(_group(number, lines, run.id, span) for number, lines in shown),
        not_shown=tuple(others.most_common()),
        left_out=left_out,
    )


def group_numbers(run: Run) -> list[int]:
    """The number of its group, for each incident of a record."""
    numbers: dict[tuple[str, ...], int] = {}
    return [numbers.setdefault(_key(line), len(numbers) + 1) for line in run.incidents]


def _key(line: Entry) -> tuple[str, ...]:
    cause, where, summary = (entries.text(line, name) for name in ("cause", "where", "summary"))
    return cause, where, _NUMBERS.sub("0", summary)


def _group(number: int, lines: list[Entry], run_id: str, span: Span) -> Group:
    first = lines[0]
    cause = _cause(first)
    facts, stack = split_evidence(entries.block(first, "evidence"))
    moments = [span.at_s(entries.number(line, "time")) for line in lines]
    samples = dict.fromkeys(entries.index(line.get("sample_index")) for line in lines)
    workers = {entries.whole(line, "worker_id") for line in lines}
    return Group(
        number=number,
        cause=cause,
        family=families.family_of(cause),
        confidence=entries.text(first, "confidence", 20),
        summary=entries.text(first, "summary") or cause,
        phase=entries.text(first, "phase"),
        where=entries.text(first, "where"),
        because=entries.text(first, "because", 1000),
        advice=entries.texts(first, "advice"),
        facts=facts,
        stack=stack,
        count=len(lines),
        first_at_s=min(moments),
        last_at_s=max(moments),
        workers=tuple(sorted(worker for worker in workers if worker is not None)),
        samples=tuple(sample for sample in samples if sample)[:MOST_SAMPLES],
        done=tuple(Counter(entries.text(line, "done") for line in lines).most_common(10)),
        members=tuple(_member(line, run_id, span) for line in lines[:MOST_MEMBERS]),
    )


def _cause(line: Entry) -> str:
    return entries.text(line, "cause") or "unknown"


def _member(line: Entry, run_id: str, span: Span) -> Member:
    number = entries.whole(line, "number")
    return Member(
        id="" if number is None else f"{run_id}.{number}",
        at_s=span.at_s(entries.number(line, "time")),
        worker_id=entries.whole(line, "worker_id"),
        pid=entries.whole(line, "pid"),
        sample=entries.index(line.get("sample_index")),
        epoch=entries.whole(line, "epoch"),
        batch=entries.whole(line, "batch"),
        attempt=entries.whole(line, "attempt"),
        done=entries.text(line, "done"),
    )


def split_evidence(evidence: str) -> tuple[tuple[str, ...], str]:
    """Facts, a line each, and from the first line of a stack on everything as it is."""
    begin = _STACK.search(evidence)
    if begin is None:
        facts, stack = evidence, ""
    else:
        facts, stack = evidence[: begin.start()], evidence[begin.start() :]
    lines = [line.strip() for line in facts.split("\n") if line.strip()]
    if len(lines) > _MOST_FACTS:
        lines, stack = lines[:_MOST_FACTS], "\n".join([*lines[_MOST_FACTS:], stack]).strip("\n")
    return tuple(lines), stack


def _left_out(run: Run) -> tuple[tuple[str, int], ...]:
    """What the last line says was counted, most first; while there is no such line nobody knows."""
    counted = entries.table(run.end or {}, "incidents_left_out")
    found = [(entries.as_text(cause, 100), entries.count(counted, cause)) for cause in list(counted)[:200]]
    return tuple(sorted((pair for pair in found if pair[1]), key=lambda pair: (-pair[1], pair[0])))
