"""What was passed over, as a table: which sample, why, and what came in its place.

A record of this version has a line for each; of an older one the incidents say it. Also as the `skipped_file` that a
loader takes, with what the sample itself caused, and as CSV.

Pure. Runs in: wherever records are read.
"""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass
from typing import Any

from holdfast.records.reader import Run
from holdfast.report import clean, entries, families
from holdfast.report.entries import Entry
from holdfast.report.span import Span

_REPLACED = re.compile(r"replaced by (.*)", re.DOTALL)
_FORMULA = ("=", "+", "-", "@")  # what a spreadsheet would compute


@dataclass(frozen=True, slots=True)
class Skipped:
    """One sample that was not delivered."""

    sample: str
    reason: str
    replaced_by: str
    """Empty: nothing came in its place."""
    epoch: int | None
    at_s: float


@dataclass(frozen=True, slots=True)
class Losses:
    """All of them."""

    total: int
    """With those that the record only counted."""
    skipped: tuple[Skipped, ...]
    skipped_file: str
    """Its text; empty where the record is not of a dataset."""


def losses_of(run: Run, span: Span) -> Losses:
    lines = run.skipped or _from_incidents(run)
    skipped = tuple(_skipped(line, span) for line in lines)
    total = max(len(skipped), entries.count(run.last_counts, "skipped"))
    return Losses(total, skipped, _skipped_file(run, lines))


def as_csv(losses: Losses) -> str:
    """With a head. No cell is taken for a formula."""
    out = io.StringIO()
    rows = csv.writer(out)
    rows.writerow(["sample", "epoch", "reason", "replaced_by", "seconds_since_start"])
    for one in losses.skipped:
        epoch = "" if one.epoch is None else one.epoch
        rows.writerow([_cell(one.sample), epoch, _cell(one.reason), _cell(one.replaced_by), f"{one.at_s:.3f}"])
    return out.getvalue()


def _cell(text: str) -> str:
    is_number = text.lstrip("-").isdigit()
    return f"'{text}" if text.startswith(_FORMULA) and not is_number else text


def _skipped(line: Entry, span: Span) -> Skipped:
    return Skipped(
        sample=entries.index(line.get("index")),
        reason=entries.text(line, "reason"),
        replaced_by=entries.index(line.get("replaced_by")),
        epoch=entries.whole(line, "epoch"),
        at_s=span.at_s(entries.number(line, "time")),
    )


def _from_incidents(run: Run) -> tuple[Entry, ...]:
    """In the form of such lines."""
    return tuple(line for incident in run.incidents if (line := _passed_over(incident)) is not None)


def _passed_over(incident: Entry) -> Entry | None:
    done = entries.text(incident, "done")
    replaced = _REPLACED.match(done)
    if incident.get("sample_index") is None or not (replaced or done.startswith("skipped")):
        return None
    return {
        "time": incident.get("time"),
        "index": incident["sample_index"],
        "epoch": incident.get("epoch"),
        "reason": incident.get("summary") or incident.get("cause"),
        "replaced_by": replaced[1] if replaced else None,
    }


def _skipped_file(run: Run, lines: tuple[Entry, ...]) -> str:
    """As the loader writes it: see docs on `skipped_file`. Only what the sample itself caused belongs there."""
    if not run.start.get("dataset") or not lines:
        return ""
    outside = {_plain(incident.get("sample_index")) for incident in run.incidents if _is_outside(incident)}
    head = {"holdfast": "skipped samples", "version": 1, "dataset_length": entries.whole(run.start, "dataset_length")}
    rows: dict[str, Any] = {}
    for line in lines:
        key = _plain(line.get("index"))
        if key not in outside and isinstance(line.get("index"), int | str | list):
            rows[key] = {"index": line["index"], "reason": clean.line(str(line.get("reason") or ""), 500)}
    return "".join(f"{json.dumps(row, separators=(',', ':'))}\n" for row in (head, *rows.values())) if rows else ""


def _is_outside(incident: Entry) -> bool:
    """Whether a sample was passed over for what it had no part in."""
    return _passed_over(incident) is not None and entries.text(incident, "cause") in families.NOT_OF_THE_SAMPLE


def _plain(index: object) -> str:
    return json.dumps(index, default=str)
