"""What to do, the best first: the advice that the incidents have, each piece once. Pure.

Runs in: wherever records are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote

from holdfast.report import entries
from holdfast.report.findings import Findings
from holdfast.report.incidents import Group

MOST = 5

_COMMAND = re.compile(r"(?P<command>\S.*?)(?: {3,})(?P<why>\S.*)")  # how advice sets a remedy apart from what it does


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do. `command` is there to be copied, `words` say what it is or does; it may be empty."""

    words: str
    command: str
    against: str
    group: int | None


def remedies_of(found: Findings) -> Iterator[Remedy]:
    seen: set[str] = set()
    for group in found.worst_first:
        if group.advice and group.advice[0] not in seen and len(seen) < MOST:
            seen.add(group.advice[0])
            yield remedy_of(group.advice[0], f"{group.cause}{_samples(group)}", group.number)
    if found.outcome == "cut short":
        what = "what the kernel ended; then look at the scheduler's log, and the terminal's"
        yield Remedy(what, "dmesg -T | grep -iE 'killed process|segfault'", "the missing end", None)
    if found.pace.is_bottleneck and not seen:
        command = f"holdfast tune {quote(entries.text(found.start, 'target') or 'MODULE:DATASET')}"
        yield Remedy("measures, and proposes num_workers and prefetch_factor", command, "the waiting", None)


def remedy_of(advice: str, against: str = "", group: int | None = None) -> Remedy:
    match = _COMMAND.fullmatch(advice)
    return Remedy(match["why"], match["command"], against, group) if match else Remedy(advice, "", against, group)


def _samples(group: Group) -> str:
    if not group.samples:
        return ""
    return f", sample {group.samples[0]}" if len(group.samples) == 1 else f", {len(group.samples)} samples"
