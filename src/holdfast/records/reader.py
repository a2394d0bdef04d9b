"""The record of a run, as everybody else reads it: whatever is left of it.

A line that was torn or is garbage is counted and passed over. Fields that this version does not know are kept, lines of
kinds that it does not know too. A file that is still written to is read as far as it is.

Runs in: wherever records are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.records import home, liveness
from holdfast.records.facts import VERSION
from holdfast.records.lines import decode

_MOST_BYTES = 64 << 20  # far more than a writer writes: a file of that length is something else
_KNOWN = ("start", "incident", "reading", "worker", "skipped", "end", "full")


@dataclass(frozen=True, slots=True)
class Run:
    """What a record says. The entries are the lines as they were written, kind and all."""

    id: str
    path: Path
    start: dict[str, Any]
    """Empty where the first line is damaged."""
    incidents: tuple[dict[str, Any], ...]
    readings: tuple[dict[str, Any], ...]
    end: dict[str, Any] | None
    """None: it goes on, or was killed."""
    is_alive: bool
    """Whether its process still writes."""
    is_full: bool
    """Whether there were more incidents than fit; `end` says how many."""
    unknown: tuple[dict[str, Any], ...]
    """Lines of a kind that this version does not know."""
    damaged_lines: int
    workers: tuple[dict[str, Any], ...] = ()
    """Worker processes that started and ended."""
    skipped: tuple[dict[str, Any], ...] = ()
    """Samples that were skipped or replaced; `end` says how many more there were."""

    @property
    def last_counts(self) -> dict[str, Any]:
        """The last line that counts: that of the end, or of the last reading; empty where there is none."""
        return self.end or (self.readings[-1] if self.readings else {})

    @property
    def is_newer(self) -> bool:
        """Whether it was written by a version of holdfast whose records may mean something else."""
        version = self.start.get("version")
        return isinstance(version, int) and version > VERSION


def read(path: str | os.PathLike[str]) -> Run:
    """Read a record. OSError if the file cannot be read; never an error for what is in it."""
    path = Path(path)
    fd = home.open_to_read(path)
    try:
        held = liveness.is_held(fd)  # before the lines: who ends in between is seen as ended
        data = _contents(fd)
    finally:
        os.close(fd)
    lines = [line for line in data.split(b"\n") if line]
    decoded = [decode(line) for line in lines]
    entries = [entry for entry in decoded if entry is not None]
    start = next((entry for entry in entries if entry["kind"] == "start"), {})
    end = next((entry for entry in reversed(entries) if entry["kind"] == "end"), None)
    return Run(
        id=_run_id(path, start),
        path=path,
        start=start,
        incidents=_of_kind(entries, "incident"),
        readings=_of_kind(entries, "reading"),
        end=end,
        is_alive=end is None and (liveness.is_running(start) if held is None else held),
        is_full=bool(_of_kind(entries, "full")),
        unknown=tuple(entry for entry in entries if entry["kind"] not in _KNOWN),
        damaged_lines=len(decoded) - len(entries),
        workers=_of_kind(entries, "worker"),
        skipped=_of_kind(entries, "skipped"),
    )


def run_files() -> list[home.RunFile]:
    """Of all runs, newest first. None where there is no place for them."""
    try:
        runs = home.runs_directory()
        return [] if runs is None else home.run_files(runs)
    except OSError:
        return []


def all_runs() -> Iterator[Run]:
    """Every run that can be read, newest first, each read when it is asked for."""
    return _readable(run_files())


def find(run_id_prefix: str) -> list[Run]:
    """The runs whose id begins so, newest first. A whole id means that run and no longer one."""
    prefix = run_id_prefix.strip().lower()
    found = [file for file in run_files() if file.run_id.startswith(prefix)]
    exact = [file for file in found if file.run_id == prefix]
    return list(_readable(exact or found))


def is_found(run: Run) -> bool:
    """Whether `find` finds it: it lies among the runs here, and is not a file that was handed on."""
    try:
        runs = home.runs_directory()
        is_named = home.run_id_of(run.path.name) is not None
        return is_named and runs is not None and run.path.parent.samefile(runs)
    except OSError:
        return False


def _readable(files: list[home.RunFile]) -> Iterator[Run]:
    for file in files:
        try:
            run = read(file.path)
        except OSError:  # removed in the meantime, or not ours
            continue
        yield run


def _contents(fd: int) -> bytes:
    parts = []
    left = _MOST_BYTES
    while left > 0 and (part := os.read(fd, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _of_kind(entries: list[dict[str, Any]], kind: str) -> tuple[dict[str, Any], ...]:
    return tuple(entry for entry in entries if entry["kind"] == kind)


def _run_id(path: Path, start: dict[str, Any]) -> str:
    """What the file is called by; where it was renamed, what its first line says."""
    named = home.run_id_of(path.name)
    told = start.get("id")
    return named or (told if isinstance(told, str) else path.stem)
