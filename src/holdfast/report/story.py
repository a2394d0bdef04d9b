"""What happened, in a few sentences: how much was done, the worst incidents, what was lost, where time went.

Pure but for the question whether this is the machine that the run was on. Runs in: wherever records are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast import words
from holdfast.records import liveness
from holdfast.report import entries
from holdfast.report.findings import Findings
from holdfast.report.incidents import MOST_SAMPLES, Group
from holdfast.report.nouns import Nouns

MOST = 5


@dataclass(frozen=True, slots=True)
class Told:
    """A sentence, and the group of incidents it is about, if it is about one."""

    words: str
    group: int | None = None


def story_of(found: Findings) -> Iterator[Told]:
    if found.pace.samples:
        yield Told(f"{_made(found)}: {_amount(found)}, {words.duration(found.duration_s)}.")
    if found.outcome == "cut short":
        yield Told(f"Its process was killed, or crashed{_elsewhere(found)}: it did not write the end of its record.")
    worst = found.worst_first
    for group in worst[:MOST]:
        yield Told(f"{_capital(what_happened(group, found.nouns))}{_how_often(group)}: {_done(group)}.", group.number)
    if len(worst) > MOST:
        yield Told(f"{words.plural(len(worst) - MOST, 'more kind')} of incident: see below.")
    if found.restarts:
        was = "was" if found.restarts == 1 else "were"
        yield Told(f"{words.plural(found.restarts, found.nouns.worker)} {was} lost, and restarted at once.")
    if found.losses.total and not worst:
        yield Told(f"{_capital(were_lost(found.losses.total, found.nouns))}: known as bad from before.")
    if found.pace.is_bottleneck:
        share = words.share(found.pace.waited_share or 0.0, 1.0)
        yield Told(f"{_capital(found.nouns.caller)} spent {share} of the time waiting: the loader is the bottleneck.")


def what_happened(group: Group, nouns: Nouns) -> str:
    """ "worker 0 died of a segmentation fault while loading sample 70"."""
    who = f"{nouns.worker} {group.workers[0]}" if len(group.workers) == 1 else f"{nouns.worker}s"
    said = group.summary
    if group.workers:
        said = f"{who} {said}" if said[:1].islower() else f"{who}: {said}"
    comma = "," if re.search("[:,`]", group.summary) else ""  # or "bad header while loading" was the error
    samples = _samples(group)
    if group.phase:
        return f"{said}{comma} while {group.phase}{f' {samples}' if samples else ''}"
    return f"{said}, {samples}" if samples else said


def were_lost(number: int, nouns: Nouns) -> str:
    """ "4 samples were left out", "1 call failed"."""
    was = "" if nouns.lost == "failed" else "was " if number == 1 else "were "
    return f"{words.plural(number, nouns.item)} {was}{nouns.lost}"


def _made(found: Findings) -> str:
    dataset = entries.text(found.start, "dataset")
    if dataset:
        return f"{found.front} over {dataset}"
    return f"{found.front} of {entries.text(found.start, 'function') or 'calls'}"


def _amount(found: Findings) -> str:
    items = words.plural(found.pace.samples, found.nouns.item)
    batches = found.pace.batches
    return f"{items} in {words.plural(batches, 'batch')}" if batches else items


def _elsewhere(found: Findings) -> str:
    host = entries.text(found.start, "host")
    return f", or it still runs on {host}" if host and not liveness.is_of_this_host(found.start) else ""


def _samples(group: Group) -> str:
    if len(group.samples) <= 1:
        return f"sample {group.samples[0]}" if group.samples else ""
    more = "more than " if len(group.samples) == MOST_SAMPLES else ""
    return f"{more}{words.plural(len(group.samples), 'sample')}"


def _how_often(group: Group) -> str:
    return "" if group.count == 1 else f", {words.times(group.count)}"


def _done(group: Group) -> str:
    """ "retried, then skipped" of one sample; "retried 3 times, skipped twice" of several."""
    if len(group.done) > 1 and all(number == 1 for _, number in group.done):
        return ", then ".join(done for done, _ in group.done)
    said = [done if number == group.count else f"{done} {words.times(number)}" for done, number in group.done[:4]]
    return ", ".join(each for each in said if each) or "nothing is known of what was done"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
