"""What `holdfast tune` prints: the samples, the curve as bars, the code to paste, and the reason for each number.

Words that come from a dataset, such as the text of its exceptions, are neither markup nor orders to the terminal.
Bars are blocks on a terminal that can show them, and plain characters in a pipe.

Runs in: main process.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from holdfast.cli.lines import wrapped
from holdfast.cli.tune_code import call
from holdfast.diagnosis.wording import one_line
from holdfast.words import decimal_size, plural, rate, took

if TYPE_CHECKING:
    from holdfast.tasks.tune.facts import Point, Samples, Setting
    from holdfast.tasks.tune.session import Outcome

_LISTED = 5
_NARROW = 60
_FACT, _ARGUMENT = 10, 24
"""Columns of labels."""
_LEAST_BAR = 8
_MOST_BAR = 50
_EIGHTHS = " ▏▎▍▌▋▊▉"
_CURVE_HEAD = "workers  batches/s"


def print_outcome(console: Console, target: str, setting: Setting, outcome: Outcome) -> None:
    """All that is known."""
    page = _Page(console)
    if outcome.samples is not None:
        _print_samples(page, target, setting, outcome, outcome.samples)
    if outcome.curve:
        page.line()
        _print_curve(page, setting, outcome)
    if outcome.proposal is not None:
        page.line()
        page.line("from holdfast import DataLoader", style="bold")
        page.line(call(setting, outcome), style="bold")
        page.line()
        for name in outcome.proposal.__slots__:
            advice = getattr(outcome.proposal, name)
            head = f"{name}={advice.value!r}" if advice.value is not None else f"no {name}"
            page.labelled(head.replace("'", '"'), advice.reason)
    if outcome.notes:
        page.line()
        for note in outcome.notes:
            page.paragraph(note)
    _print_trouble(page, outcome)


def _print_samples(page: _Page, target: str, setting: Setting, outcome: Outcome, samples: Samples) -> None:
    times, sizes = samples.seconds, samples.sample_bytes
    what = "elements" if outcome.is_iterable else f"of {plural(outcome.length or 0, 'sample')}"
    workers = "two workers" if outcome.is_iterable else "one worker"
    page.paragraph(
        f"{samples.count:,} {what} of {one_line(target)} ({one_line(outcome.dataset)}), in {workers}", "bold"
    )
    waits = f"{samples.waiting_share:.0%} of it waiting" if samples.waiting_share >= 0.005 else "none of it waiting"
    page.labelled(
        "  time",
        f"median {took(times.median)}, 99% within {took(times.p99)}, slowest {took(times.max)}; {waits}",
    )
    nbytes = samples.batch_bytes
    batch = "" if nbytes is None else f"; a batch of {setting.batch_size} is {decimal_size(nbytes)}"
    page.labelled("  size", f"median {decimal_size(sizes.median)}, largest {decimal_size(sizes.max)}{batch}")
    if samples.peak_bytes is not None:
        page.labelled("  memory", f"{decimal_size(samples.peak_bytes)} beyond its start at most, with a batch in hand")


def _print_curve(page: _Page, setting: Setting, outcome: Outcome) -> None:
    chosen = outcome.proposal.num_workers.value if outcome.proposal is not None else None
    step = None if setting.step_s is None else 1 / setting.step_s
    highest = max(*(point.batches_per_s for point in outcome.curve), step or 0.0)
    page.line(_CURVE_HEAD, "bold")
    marks = [_mark(point, chosen) for point in outcome.curve]
    width = page.bar_width(len(_CURVE_HEAD) + 2, max(map(len, marks), default=0))
    for point, mark in zip(outcome.curve, marks, strict=True):
        bar = page.bar(point.batches_per_s / highest, width)
        style = "green" if mark.strip() == _PROPOSED else "cyan"
        head = f"{point.num_workers:>7}  {rate(point.batches_per_s):>9}  "
        page.parts((head, ""), (bar, style), (mark, "dim" if point.is_computed else "bold"))
    if step is not None:
        page.parts(
            (f"   step  {rate(step):>9}  ", ""), (page.bar(step / highest, width), "magenta"), (" needed", "dim")
        )
    if chosen is not None and all(point.num_workers != chosen for point in outcome.curve):
        page.paragraph(f"{chosen} is proposed: between two that were measured.")


_PROPOSED = "proposed"


def _mark(point: Point, chosen: Any) -> str:
    if point.is_computed:
        return " reckoned"
    if point.num_workers == chosen:
        return f" {_PROPOSED}"
    return " disturbed" if point.is_disturbed else ""


def _print_trouble(page: _Page, outcome: Outcome) -> None:
    if outcome.problem or outcome.failed or outcome.is_interrupted:
        page.line()
    if outcome.is_interrupted:
        done = "so this is from what was measured by then" if outcome.samples is not None else "before the first sample"
        page.paragraph(f"Interrupted, {done}.", style="yellow")
    if outcome.problem:
        page.paragraph(one_line(outcome.problem), style="red")
    if outcome.failed:
        was = "was" if len(outcome.failed) == 1 else "were"
        page.paragraph(f"{plural(len(outcome.failed), 'sample')} failed, and {was} passed over:", style="red")
        for failed in outcome.failed[:_LISTED]:
            page.labelled(f"  {one_line(str(failed.index), 60)}", one_line(failed.reason))
        if len(outcome.failed) > _LISTED:
            page.line(f"  and {len(outcome.failed) - _LISTED} more")


class _Page:
    """Lines, wrapped where somebody reads them and whole where a program does."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_read = console.is_terminal
        self._has_blocks = self._is_read and "utf" in console.encoding.lower()

    def line(self, text: str = "", style: str = "") -> None:
        self.parts((text, style))

    def parts(self, *parts: tuple[str, str]) -> None:
        self._console.print(Text.assemble(*parts), soft_wrap=True)

    def paragraph(self, text: str, style: str = "") -> None:
        for line in wrapped(self._console, text):
            self.line(line, style)

    def labelled(self, label: str, text: str) -> None:
        """Beside its label, and below it on a narrow terminal."""
        is_below = self._is_read and self._console.width < _NARROW and len(label) > _FACT
        indent = 4 if is_below else max(len(label) + 2, _FACT if label.startswith(" ") else _ARGUMENT)
        lines = iter(wrapped(self._console, text, indent))
        style = "dim" if label.startswith(" ") else "bold"
        self.parts((f"{label:<{indent}}", style), ("" if is_below else next(lines, ""), ""))
        for line in lines:
            self.line(" " * indent + line)

    def bar_width(self, before: int, after: int) -> int:
        return min(_MOST_BAR, max(_LEAST_BAR, self._console.width - before - after - 1))

    def bar(self, share: float, width: int) -> str:
        if not self._has_blocks:
            return "#" * max(1, round(share * width))
        eighths = max(1, round(8 * share * width))
        return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def as_data(target: str, setting: Setting, outcome: Outcome) -> dict[str, Any]:
    """Plain data, after docs/schemas/tune.json."""
    proposed = outcome.proposal
    return {
        "target": target,
        "dataset": outcome.dataset,
        "length": outcome.length,
        "is_iterable": outcome.is_iterable,
        "setting": dataclasses.asdict(setting),
        "machine": dataclasses.asdict(outcome.machine),
        "seconds": outcome.seconds,
        "samples": None if outcome.samples is None else dataclasses.asdict(outcome.samples),
        "curve": [dataclasses.asdict(point) for point in outcome.curve],
        "proposal": None if proposed is None else dataclasses.asdict(proposed),
        "code": None if proposed is None else call(setting, outcome),
        "notes": list(outcome.notes),
        "failed": [dataclasses.asdict(failed) for failed in outcome.failed],
        "problem": outcome.problem or None,
        "is_interrupted": outcome.is_interrupted,
    }
