"""A report as plain text: for a terminal, a log, a mail. The same parts in the same order as the page, stacks cut.

Runs in: wherever reports are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from holdfast import words
from holdfast.report import commands, families
from holdfast.report.columns import LETTERS, cut, labelled, lane, table, wrapped
from holdfast.report.incidents import Group
from holdfast.report.model import Report
from holdfast.report.remedies import Remedy

WIDTH = 80
NARROWEST = 40

_MOST_GROUPS = 50
_MOST_STACK_LINES = 12
_MOST_SKIPPED = 50


def text(report: Report, width: int = WIDTH) -> str:
    """All of it, with the end of its last line."""
    width = max(width, NARROWEST)
    lines = [*_top(report, width), *_figures(report, width), *_workers(report, width), *_memory(report, width)]
    lines += [*_time(report, width), *_incidents(report, width), *_skipped(report, width), *_run(report, width)]
    single = [line for before, line in pairwise(["", *lines]) if line or before]  # no two empty ones
    return "\n".join(single).strip("\n") + "\n"


def _heading(title: str) -> list[str]:
    return ["", title, "-" * len(title)]


def _top(report: Report, width: int) -> Iterator[str]:
    head = report.headline
    yield from wrapped(head.title, width)
    yield from wrapped(f"run {report.run_id}, {head.outcome}{', ' if report.began else ''}{report.began}", width)
    for warning in report.warnings:
        yield from wrapped(warning, width, "! ")
    if head.story:
        yield from _heading("What happened")
    for told in head.story:
        yield from wrapped(told.words, width, "- ")
    yield from _heading("What to do")
    for number, remedy in enumerate(head.remedies, 1):
        yield from wrapped(f"{_said(remedy)}  (against {remedy.against})", width, f"{number}. ")
    if not head.remedies:
        yield "Nothing: all is well." if head.is_healthy else "The record names no remedy."


def _said(remedy: Remedy) -> str:
    return f"{remedy.command}   {remedy.words}" if remedy.command else remedy.words


def _figures(report: Report, width: int) -> Iterator[str]:
    nouns, pace = report.nouns, report.pace
    figures = [
        words.plural(pace.samples, nouns.item),
        words.plural(report.incidents.total, "incident"),
        words.plural(report.restarts, "restart"),
        f"{report.losses.total:,} {nouns.lost}",
    ]
    if pace.waited_share is not None:
        figures.append(f"waited {words.share(pace.waited_share, 1.0)} of the time")
    yield ""
    yield from wrapped(", ".join(figures), width)


def _workers(report: Report, width: int) -> Iterator[str]:
    timeline = report.timeline
    if not timeline.workers:
        return
    yield from _heading("Workers over time")
    noun = report.nouns.worker
    names = ["no worker" if each.worker_id is None else f"{noun} {each.worker_id}" for each in timeline.workers]
    column = max(map(len, names)) + 2
    for name, worker in zip(names, timeline.workers, strict=True):
        yield f"{name:<{column}}{lane(worker, timeline.duration_s, width - column)}"
    yield f"{'':<{column}}0 s{words.duration(timeline.duration_s):>{width - column - 3}}"
    seen = {mark.family for worker in timeline.workers for mark in worker.marks}
    legend = [f"{LETTERS[name]} {title}" for name, title in families.TITLES.items() if name in seen]
    yield from wrapped(", ".join([*legend, "| restart"]), width)
    if timeline.workers_not_shown:
        yield from wrapped(f"{words.plural(timeline.workers_not_shown, f'more {noun}')} not shown.", width)


def _memory(report: Report, width: int) -> Iterator[str]:
    memory = report.memory
    if not memory.workers:
        return
    yield from _heading("Memory")
    rows = [
        (one.name, words.size(one.peak_bytes), "" if one.limit_bytes is None else words.size(one.limit_bytes))
        for one in (*memory.workers, *([memory.main] if memory.main else []))
    ]
    yield from table(("process", "peak", "limit"), rows, width)
    if memory.budget_bytes is not None:
        peak, budget = words.size(memory.total_peak_bytes), words.limit(memory.budget_bytes)
        yield from wrapped(f"All workers together: {peak} at most, of a memory_budget of {budget}.", width)


def _time(report: Report, width: int) -> Iterator[str]:
    pace = report.pace
    if not pace.batches:
        return
    yield from _heading("Where the time went")
    total_s = sum(seconds for _, seconds in pace.stages)
    stages = [f"{name} {words.duration(each)} ({words.share(each, total_s)})" for name, each in pace.stages]
    yield from labelled("workers", [", ".join(stages)] if stages else [], width)
    if pace.waited_share is not None:
        waited = f"wait {words.duration(pace.waited_s)} ({words.share(pace.waited_share, 1.0)})"
        yield from labelled("training", [waited], width)
    if pace.slowest:
        rows = [(slow.sample, words.duration(slow.seconds), _or_blank(slow.worker_id)) for slow in pace.slowest]
        yield ""
        yield from table((f"slowest {report.nouns.item}s", "took", "worker"), rows, width)


def _incidents(report: Report, width: int) -> Iterator[str]:
    found = report.incidents
    if not found.total:
        return
    yield from _heading(f"Incidents ({found.total:,})")
    for group in found.groups[:_MOST_GROUPS]:
        yield from _group(report, group, width)
    rest = sum(group.count for group in found.groups[_MOST_GROUPS:]) + sum(number for _, number in found.not_shown)
    if rest:
        others = words.plural(rest, "incident")
        yield from wrapped(f"And {others} of other kinds: the page and --json have them.", width)
    for cause, number in found.left_out:
        yield from wrapped(f"Counted, and not in the record: {cause}, {words.times(number)}.", width)


def _group(report: Report, group: Group, width: int) -> Iterator[str]:
    noun, replay = report.nouns.item, commands.replay(report, group)
    again = f", {words.times(group.count)}" if group.count > 1 else ""
    yield from wrapped(f"{group.summary}{again}", width, f"{LETTERS[group.family]} ")
    yield from labelled("cause", [f"{group.cause}{f' ({group.confidence})' if group.confidence else ''}"], width)
    yield from labelled("", [group.because] if group.because else [], width)
    yield from labelled("where", [group.where] if group.where else [], width)
    samples = ", ".join(group.samples[:10]) + (", ..." if len(group.samples) > 10 else "")
    yield from labelled(f"{noun}s" if len(group.samples) > 1 else noun, [samples] if samples else [], width)
    yield from labelled("evidence", group.facts, width)
    yield from labelled("done", [done if again == "" else f"{done}, {words.times(n)}" for done, n in group.done], width)
    tried = [f"{replay}   {commands.replay_does(report)}"] if replay else []
    yield from labelled("try", [*group.advice, *tried], width)
    stack = group.stack.split("\n") if group.stack else []
    yield from (cut(f"    {line}", width).rstrip() for line in stack[:_MOST_STACK_LINES])
    if len(stack) > _MOST_STACK_LINES:
        yield f"    ... {words.plural(len(stack) - _MOST_STACK_LINES, 'line')} more"
    yield ""


def _skipped(report: Report, width: int) -> Iterator[str]:
    losses = report.losses
    if not losses.total:
        return
    yield from _heading(f"{report.nouns.lost.capitalize()} ({losses.total:,})")
    rows = [(one.sample, one.reason, one.replaced_by) for one in losses.skipped[:_MOST_SKIPPED]]
    if rows:
        yield from table((report.nouns.item, "reason", "replaced by"), rows, width)
    if losses.total > len(rows):
        yield f"And {losses.total - len(rows):,} more."


def _run(report: Report, width: int) -> Iterator[str]:
    yield from _heading("The run")
    for fact in report.facts:
        yield from labelled(fact.name, [fact.value], width, indent=0, column=18)


def _or_blank(value: int | None) -> str:
    return "" if value is None else str(value)
