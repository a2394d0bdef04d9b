"""RUN on the command line: the id of a run, or its beginning; none: the last one.

Runs in: main process.
"""

from __future__ import annotations

import click

from holdfast.records import reader
from holdfast.records.reader import Run


def find_run(run_id: str | None) -> Run:
    """The run that is meant. click.UsageError, with the remedy, if there is none, or more than one."""
    if run_id is None:
        return _last()
    found = reader.find(run_id)
    if not found:
        known = ", ".join(run.id for run, _ in zip(reader.all_runs(), range(5), strict=False))
        raise click.UsageError(f"There is no run {run_id!r}. " + (f"The last ones: {known}." if known else NONE_YET))
    if len(found) > 1:
        ids = ", ".join(run.id for run in found[:5])
        raise click.UsageError(f"{run_id!r} is the beginning of {len(found)} runs: {ids}. Name more of it.")
    return found[0]


def _last() -> Run:
    run = next(reader.all_runs(), None)
    if run is None:
        raise click.UsageError(f"There is no run yet. {NONE_YET}")
    return run


NONE_YET = "A loader with worker processes records its run unless it has record=False; 'holdfast demo' makes one too."
