"""The statistics of a loader as a table of plain text.

    batches                  1,250
    waited for batches      12.3 s
    ...

Pure. Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast import words
from holdfast.incident import bounded_repr

if TYPE_CHECKING:
    from holdfast.loader.stats import LoaderStats

_WIDTH = 24
_LONGEST_INDEX = 40
Row = tuple[str, str]


def table(stats: LoaderStats) -> str:
    """All of it, in columns."""
    blocks = [_rows(_counts(stats)), _stages(stats), _memory(stats), _slowest(stats)]
    said = "\n\n".join("\n".join(block) for block in blocks if block)
    if stats.new_interpreters:
        said += f"\n\nworkers are new interpreters: {stats.new_interpreters}"
    return said


def _counts(stats: LoaderStats) -> Iterable[Row]:
    return [
        ("batches", f"{stats.batches:,}"),
        ("samples", f"{stats.samples:,}"),
        ("waited for batches", _seconds(stats.waited_s)),
        ("workers restarted", f"{stats.restarts:,}"),
        ("workers recycled", f"{stats.recycled:,}"),
        ("supervisor restarted", f"{stats.supervisor_restarts:,}"),
        ("samples skipped", f"{stats.skipped:,}"),
    ]


def _stages(stats: LoaderStats) -> list[str]:
    stages = stats.stages
    parts = {"fetch": stages.fetch_s, "collate": stages.collate_s, "send": stages.send_s}
    total_s = sum(parts.values())
    if not total_s:
        return []
    rows = _rows((f"  {name}", _seconds(seconds)) for name, seconds in parts.items())
    shares = (f"{seconds / total_s:7.0%}" for seconds in parts.values())
    return ["time in workers", *(row + share for row, share in zip(rows, shares, strict=True))]


def _memory(stats: LoaderStats) -> list[str]:
    memory = stats.memory
    if memory.main_bytes is None:
        return []
    workers = ((f"  worker {number}", nbytes) for number, nbytes in enumerate(memory.workers_bytes))
    parts = [("  main", memory.main_bytes), *workers]
    return ["memory of their own", *_rows((name, words.size(nbytes)) for name, nbytes in parts)]


def _slowest(stats: LoaderStats) -> list[str]:
    if not stats.slowest:
        return []
    indices = [_index(sample.index) for sample in stats.slowest]
    width = max(_WIDTH - 9, *map(len, indices))
    lines = [f"{'slowest samples':<{width + 2}}{'seconds':>9}{'worker':>8}{'epoch':>7}"]
    for index, sample in zip(indices, stats.slowest, strict=True):
        worker = "-" if sample.worker_id is None else str(sample.worker_id)
        lines.append(f"  {index:<{width}}{sample.seconds:>9.4f}{worker:>8}{sample.epoch:>7}")
    return lines


def _index(index: object) -> str:
    said = bounded_repr(index)
    return said if len(said) <= _LONGEST_INDEX else f"{said[: _LONGEST_INDEX - 3]}..."


def _rows(rows: Iterable[Row]) -> list[str]:
    return [f"{name:<{_WIDTH}}{value:>12}" for name, value in rows]


def _seconds(seconds: float) -> str:
    return f"{seconds:,.3f} s" if seconds < 10 else f"{seconds:,.1f} s"
