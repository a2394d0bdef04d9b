"""What stands at the top of a report: what happened, in a sentence and in a few more, and what to do about it.

Pure but for the question whether this is the machine that the run was on. Runs in: wherever records are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from holdfast.records import liveness
from holdfast.records.reader import Run
from holdfast.report import entries, words
from holdfast.report.incidents import Group, Incidents
from holdfast.report.losses import Losses
from holdfast.report.nouns import Nouns, nouns_of
from holdfast.report.pace import Pace
from holdfast.report.span import Span

Outcome = Literal["finished", "running", "cut short", "unreadable"]

_MOST_TOLD = 5
_COMMAND = re.compile(r"(?P<command>\S.*?)(?: {3,})(?P<why>\S.*)")  # how advice sets a remedy apart from what it does


@dataclass(frozen=True, slots=True)
class Told:
    """A sentence, and the group of incidents it is about, if it is about one."""

    words: str
    group: int | None = None


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do. `command` is there to be copied, `words` say what it is or does; either may be empty."""

    words: str
    command: str
    against: str
    group: int | None


@dataclass(frozen=True, slots=True)
class Headline:
    """The top of the page."""

    outcome: Outcome
    is_healthy: bool
    title: str
    story: tuple[Told, ...]
    remedies: tuple[Remedy, ...]


def headline_of(run: Run, span: Span, incidents: Incidents, pace: Pace, losses: Losses, restarts: int) -> Headline:
    outcome = outcome_of(run)
    nouns = nouns_of(run.start)
    order = sorted(incidents.groups, key=_weight, reverse=True)
    is_whole = not (incidents.total or losses.total or run.damaged_lines or run.is_newer)
    return Headline(
        outcome=outcome,
        is_healthy=is_whole and outcome in ("finished", "running"),
        title=_title(outcome, span, incidents, pace, losses, nouns),
        story=tuple(_story(run, span, order, pace, losses, restarts, nouns)),
        remedies=tuple(_remedies(outcome, order, pace, entries.text(run.start, "target"))),
    )


def outcome_of(run: Run) -> Outcome:
    if run.end is not None:
        return "finished"
    if run.is_alive:
        return "running"
    return "cut short" if run.start or run.incidents or run.readings else "unreadable"


def was_raised(group: Group) -> bool:
    return any(done.startswith("raised") for done, _ in group.done)


def _weight(group: Group) -> tuple[bool, int, int]:
    """What ended the run, then what lost most samples, then what came most often."""
    lost = sum(number for done, number in group.done if done.startswith(("skipped", "replaced")))
    return was_raised(group), lost, group.count


def _title(outcome: Outcome, span: Span, incidents: Incidents, pace: Pace, losses: Losses, nouns: Nouns) -> str:
    if outcome == "unreadable":
        return "Nothing of this record can be read"
    if outcome == "cut short":
        return f"Cut short after {words.duration(span.duration_s)}: the record has no end"
    if outcome == "running":
        so_far = words.plural(incidents.total, "incident") if incidents.total else "no incident"
        return f"Running for {words.duration(span.duration_s)}, {so_far} so far"
    raised = next((group for group in reversed(incidents.groups) if was_raised(group)), None)
    if raised is not None:
        return f"An error reached {nouns.caller}: {_what(raised)}"
    lost = _were(losses.total, nouns) if losses.total else ""
    if incidents.total:
        return f"It came through {words.plural(incidents.total, 'incident')}; {lost or 'nothing was lost'}"
    if lost:
        return f"No incident; {lost}"
    return "All went well" if pace.samples or pace.batches else "It ended, and nothing was counted"


def _were(number: int, nouns: Nouns) -> str:
    """ "4 samples were left out", "1 call failed"."""
    is_verb = nouns.lost == "failed"
    return f"{words.plural(number, nouns.item)} {'' if is_verb else 'was ' if number == 1 else 'were '}{nouns.lost}"


def _story(
    run: Run, span: Span, order: list[Group], pace: Pace, losses: Losses, restarts: int, nouns: Nouns
) -> Iterator[Told]:
    yield from _amounts(run, span, pace, nouns)
    for group in order[:_MOST_TOLD]:
        yield Told(f"{_capital(_what(group))}{_how_often(group)}: {_done(group)}.", group.number)
    if len(order) > _MOST_TOLD:
        yield Told(f"{words.plural(len(order) - _MOST_TOLD, 'more kind')} of incident: see below.")
    if restarts:
        again = "it was" if restarts == 1 else "they were"
        yield Told(f"{words.plural(restarts, nouns.worker)} lost, and {again} restarted at once.")
    if losses.total and not order:
        yield Told(f"{_capital(_were(losses.total, nouns))}: known as bad from before.")
    if pace.is_bottleneck and pace.waited_share is not None:
        share = words.share(pace.waited_share, 1.0)
        yield Told(f"{_capital(nouns.caller)} spent {share} of the time waiting: the loader is the bottleneck.")


def _amounts(run: Run, span: Span, pace: Pace, nouns: Nouns) -> Iterator[Told]:
    front, of = entries.text(run.start, "front") or "DataLoader", entries.text(run.start, "dataset")
    what = f"{front} over {of}" if of else f"{front} of {entries.text(run.start, 'function') or 'calls'}"
    came = words.plural(pace.samples, nouns.item)
    batches = f" in {words.plural(pace.batches, 'batch').replace('batchs', 'batches')}" if of and pace.batches else ""
    if pace.samples:
        yield Told(f"{what}: {came}{batches} in {words.duration(span.duration_s)}.")
    if outcome_of(run) == "cut short":
        host = entries.text(run.start, "host")
        elsewhere = "" if liveness.is_of_this_host(run.start) or not host else f", or it still runs on {host}"
        yield Told(f"Its process was killed, or crashed{elsewhere}: it did not write the last line of its record.")


def _what(group: Group) -> str:
    """ "worker 0 died of a segmentation fault while loading sample 70"."""
    who = f"worker {group.workers[0]} " if len(group.workers) == 1 else "workers " if group.workers else ""
    said = group.summary
    joint = "" if said[:1].islower() or not who else ": "
    samples = group.samples
    what = ""
    if len(samples) == 1:
        what = f" sample {samples[0]}" if group.phase else f", sample {samples[0]}"
    elif samples:
        what = (
            f" {words.plural(len(samples), 'sample')}" if group.phase else f", {words.plural(len(samples), 'sample')}"
        )
    comma = "," if re.search("[:,`]", said) else ""
    return f"{who.rstrip() if joint else who}{joint}{said}{f'{comma} while {group.phase}' if group.phase else ''}{what}"


def _how_often(group: Group) -> str:
    return "" if group.count == 1 else f", {words.times(group.count)}"


def _done(group: Group) -> str:
    """ "retried, then skipped" of one sample; "retried 3 times, skipped twice" of several."""
    if len(group.done) > 1 and all(number == 1 for _, number in group.done):
        return ", then ".join(done for done, _ in group.done)
    said = [done if number == group.count else f"{done} {words.times(number)}" for done, number in group.done[:4]]
    return ", ".join(each for each in said if each) or "nothing is known of what was done"


def _remedies(outcome: Outcome, order: list[Group], pace: Pace, target: str) -> Iterator[Remedy]:
    seen: set[str] = set()
    for group in order:
        if group.advice and group.advice[0] not in seen and len(seen) < _MOST_TOLD:
            seen.add(group.advice[0])
            yield remedy_of(group.advice[0], f"{group.cause}{_samples(group)}", group.number)
    if outcome == "cut short":
        what = "look for what ended the process: the kernel's log, the scheduler's, the terminal's"
        yield Remedy(what, "dmesg -T | grep -iE 'killed process|segfault'", "the missing end", None)
    if pace.is_bottleneck and not order:
        command = f"holdfast tune {target or 'MODULE:DATASET'}"
        yield Remedy("measures, and proposes num_workers and prefetch_factor", command, "the waiting", None)


def remedy_of(advice: str, against: str, group: int | None) -> Remedy:
    match = _COMMAND.fullmatch(advice)
    return Remedy(match["why"], match["command"], against, group) if match else Remedy(advice, "", against, group)


def _samples(group: Group) -> str:
    if not group.samples:
        return ""
    return f", sample {group.samples[0]}" if len(group.samples) == 1 else f", {len(group.samples)} samples"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
