"""The record of a run, told: the model (pure), then as HTML, as text, as JSON.

    from holdfast import report
    report.write(run)  # run: of holdfast.records.reader; returns where the page is

Runs in: wherever records are read.
"""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.records.reader import Run

__all__ = ["write"]


def write(run: Run, path: str | os.PathLike[str] | None = None) -> Path:
    """Write the page of a run; where no path is given, beside the records. OSError where it cannot be written."""
    from holdfast.report import html, keeping, model

    text = html.page(model.report_of(run))
    if path is not None:
        keeping.save(text, Path(path))
        return Path(path)
    place = keeping.default_path(run)
    keeping.save_beside_records(text, place)
    return place
