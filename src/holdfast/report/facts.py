"""The facts of a run: what ran, where, with what. Pure.

Runs in: wherever records are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast import words
from holdfast.records.reader import Run
from holdfast.report import entries
from holdfast.report.entries import Entry
from holdfast.report.nouns import nouns_of
from holdfast.report.span import Span


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and what it is."""

    name: str
    value: str


def facts_of(run: Run, span: Span) -> tuple[Fact, ...]:
    """Those that the record has."""
    return tuple(Fact(name, value) for name, value in _facts(run, span) if value)


def _facts(run: Run, span: Span) -> Iterator[tuple[str, str]]:
    start = run.start
    yield "run", run.id
    yield "began", words.moment(span.started)
    yield "took", words.duration(span.duration_s) if span.started is not None else ""
    yield "front", entries.text(start, "front")
    yield "dataset", _dataset(start)
    yield "function", entries.text(start, "function")
    yield "found as", entries.text(start, "target")
    yield "script", entries.text(start, "script")
    yield nouns_of(start).worker + "s", _workers(start)
    yield "batch size", entries.text(start, "batch_size")
    yield "on error", entries.text(start, "on_error")
    yield "memory limit", _limit(start, "memory_limit_bytes", "above its start, for each worker")
    yield "memory budget", _limit(start, "memory_budget_bytes", "for workers and batches together")
    yield "rank", _rank(start)
    yield "recycled", _counted(run, "recycled", "worker", "between batches, as recycle_after says")
    yield "supervisor", _counted(run, "supervisor_restarts", "restart", "")
    yield "new interpreters", entries.text(run.last_counts, "new_interpreters")
    yield "versions", _versions(start)
    yield "machine", _machine(start)
    yield "process", entries.text(start, "pid")


def _dataset(start: Entry) -> str:
    name, length = entries.text(start, "dataset"), entries.whole(start, "dataset_length")
    return f"{name}, {words.plural(length, 'sample')}" if name and length is not None else name


def _workers(start: Entry) -> str:
    number, method = entries.whole(start, "num_workers"), entries.text(start, "start_method")
    return "" if number is None else f"{number}, by {method}" if method else str(number)


def _limit(start: Entry, key: str, of_what: str) -> str:
    nbytes = entries.number(start, key)
    return "" if nbytes is None else f"{words.limit(nbytes)} {of_what}"


def _rank(start: Entry) -> str:
    rank, world = entries.whole(start, "rank"), entries.whole(start, "world_size")
    return "" if rank is None else f"{rank} of {world}" if world is not None else str(rank)


def _counted(run: Run, key: str, noun: str, why: str) -> str:
    number = entries.count(run.last_counts, key)
    return f"{words.plural(number, noun)} {why}".strip() if number else ""


def _versions(start: Entry) -> str:
    named = (("holdfast", "holdfast_version"), ("torch", "torch_version"), ("Python", "python_version"))
    return ", ".join(f"{name} {found}" for name, key in named if (found := entries.text(start, key)))


def _machine(start: Entry) -> str:
    cpus = entries.whole(start, "cpus")
    usable = "" if cpus is None else words.plural(cpus, "CPU")
    return ", ".join(part for part in (entries.text(start, "host"), entries.text(start, "platform"), usable) if part)
