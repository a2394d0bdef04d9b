"""The rows of the live view: each is one line of text of a given width, cut and never folded.

What matters is said in words or numbers; colour only helps to find it. Pure: the clock is the caller's, but for the
local time zone. Runs in: wherever records are read.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from rich.text import Text

from holdfast import words
from holdfast.report.live_pictures import DIED, IncidentPicture, RunPicture
from holdfast.report.waiting import LOADER, SOMETIMES, TRAINING

_NARROW = 64
"""Below this many columns a row has only what matters most."""
_COLOURS = {LOADER: "red", SOMETIMES: "yellow", TRAINING: "green"}
INDENT = "  "


@dataclass(frozen=True, slots=True)
class Look:
    """What the rows are made for."""

    width: int = 80
    ascii_only: bool = False

    @property
    def is_narrow(self) -> bool:
        return self.width < _NARROW

    def bar(self, share: float, cells: int, colour: str) -> Text:
        full = round(share * cells)
        full = max(full, 1) if share > 0 else 0
        done, left = "=-" if self.ascii_only else "━─"
        return Text.assemble((done * full, colour), (left * (cells - full), "dim"))

    def cut(self, row: Text) -> Text:
        row.no_wrap = True
        if row.cell_len > self.width:
            row.truncate(self.width, overflow="crop" if self.ascii_only else "ellipsis")
        row.rstrip()
        return row

    def spread(self, left: Text, right: Text) -> Text:
        """One at each end of the row; where there is no room for both, the left one."""
        gap = self.width - left.cell_len - right.cell_len
        return self.cut(Text.assemble(left, " " * gap, right) if gap >= 2 else left)


def title(look: Look, name: str, what: str, keys: str) -> Text:
    left = Text.assemble((name, "bold"), f"  {what}")
    return look.spread(left, Text(keys, "dim"))


def run_head(look: Look, run: RunPicture) -> Text:
    """Which run it is."""
    rank = "" if run.rank is None else f"rank {run.rank}"
    front = "" if run.loads else run.front
    names = [part for part in (run.script, front, run.dataset, rank) if part]
    left = Text.assemble((run.id, "bold cyan"), "  ", (INDENT.join(names), "bold"))
    if not look.is_narrow and run.pid is not None and not run.is_over:
        left.append(f"  pid {run.pid}", "dim")
    return look.spread(left, _state(run))


def _state(run: RunPicture) -> Text:
    lasted = "" if run.age_s is None else _whole_seconds(run.age_s)
    if run.state == DIED:
        return Text("its process died", "bold red")
    if run.is_over:
        return Text(f"ended after {lasted}" if lasted else "ended", "bold")
    return Text(f"running for {lasted}" if lasted else "running", "dim")


def _whole_seconds(seconds: float) -> str:
    """A clock that goes by seconds, and not by tenths, is calm."""
    return f"{seconds:.0f} s" if seconds < 60 else words.duration(seconds)


def counts(look: Look, run: RunPicture) -> Text:
    """How fast it goes, and how far it is."""
    said = [] if run.is_over else [f"{rate_words(rate)} {units}/s" for rate, units in _rates(run) if rate is not None]
    so_far = [words.plural(count, unit) for count, unit in _so_far(run)]
    gap = "  " if look.is_narrow else "   "
    row = Text(INDENT + gap.join(said[:1] or so_far if look.is_narrow else [*said, *so_far]))
    if run.restarts:
        row.append(f"{gap}{words.plural(run.restarts, 'restart')}", "yellow")
    if run.skipped:
        row.append(f"{gap}{run.skipped:,} {'skipped' if run.loads else 'failed'}", "yellow")
    return look.cut(row)


def _rates(run: RunPicture) -> list[tuple[float | None, str]]:
    samples = (run.samples_per_s, "samples" if run.loads else "calls")
    return [(run.batches_per_s, "batches"), samples] if run.loads else [samples]


def _so_far(run: RunPicture) -> list[tuple[int, str]]:
    return [(run.batches, "batch")] if run.loads else [(run.samples, "call")]


def rate_words(rate: float) -> str:
    """ "31.2", "1,997", "0.25"."""
    return f"{rate:,.0f}" if rate >= 100 or rate == 0 else f"{rate:.1f}" if rate >= 1 else f"{rate:.2f}"


def waiting(look: Look, run: RunPicture) -> list[Text]:
    """How long training waited, and whether the loader is the bottleneck."""
    found = run.waiting
    colour = _COLOURS.get(found.bottleneck, "dim")
    if found.share is None or found.window_s is None:
        return [look.cut(Text(f"{INDENT}{found.words}", "dim"))] if found.words else []
    of = "of its time" if run.is_over else f"of the last {max(found.window_s, 1.0):.0f} s"
    row = Text.assemble(f"{INDENT}training waited ", (f"{found.share:.0%}", f"bold {colour}"), f" {of}")
    if not found.words:
        return [look.cut(row)]
    said = Text(found.words, colour)
    if row.cell_len + 2 + said.cell_len <= look.width:
        return [look.cut(Text.assemble(row, ": ", said))]
    return [look.cut(row), look.cut(Text.assemble(INDENT, said))]


def after_end(look: Look, run: RunPicture) -> list[Text]:
    """What to do about a run that is over."""
    return (
        [look.cut(Text.assemble(INDENT, (f"holdfast report {run.id}", "bold"), "  what happened"))]
        if run.is_over
        else []
    )


def incident(look: Look, one: IncidentPicture) -> Text:
    """ "12:31:04  7f3a.2  worker 1, sample 107 skipped: hung". What may be long comes last: it may be cut off."""
    who = [] if one.worker_id is None or look.is_narrow else [f"worker {one.worker_id}"]
    who += [] if one.sample is None else [f"sample {one.sample}"]
    done = "" if one.summary.startswith(one.done) else one.done  # "raised" says nothing new of "raised ValueError"
    before = " ".join(part for part in (", ".join(who), done) if part)
    named = INDENT if look.is_narrow else f"{INDENT}{_clock(one.time)}  "
    row = Text.assemble((named, "dim"), (f"{one.id}  ", "cyan"), f"{before}: " if before else "", one.summary)
    return look.cut(row)


def _clock(time: float | None) -> str:
    """ "12:31:04", as it is here; empty where it is no time that a calendar has."""
    try:
        return "" if time is None else f"{datetime.datetime.fromtimestamp(time).astimezone():%H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return ""
