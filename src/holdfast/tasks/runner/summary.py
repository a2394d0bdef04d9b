"""What is said of a run when the script has ended, whether it failed or not: on stderr, and as data where asked for.

Registered before anything of the script, so that it comes last, when every loader is closed and every record ended. It
never changes how the process ends: what goes wrong here is said in a line. A process that is killed, or leaves by
`os._exit`, says nothing; its records do.

Everything is imported beforehand: an import at exit may run `exec`, as dataclasses do, and by that the interpreter
forgets that it was interrupted, and does not die of SIGINT.

Standard library and records only: no torch, if the script had none. Runs in: the script's process, at exit.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast import options
from holdfast.tasks.runner import figures
from holdfast.tasks.runner.figures import Figures
from holdfast.tasks.runner.settings import Settings
from holdfast.words import plural

_TITLE = "holdfast run"


def print_at_exit(told: Settings) -> None:
    """Have it printed when this process ends by itself."""
    atexit.register(_tell, told)


def _tell(told: Settings) -> None:
    if not told.is_of_this_process:  # a fork of it
        return
    try:
        data = gather(told)
        if told.json_file is not None:
            Path(told.json_file).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        if not told.is_quiet:
            _print("\n".join(lines(data)))
    except Exception as error:
        _print(f"{_TITLE}: no summary: {type(error).__name__}: {error}")


def gather(told: Settings) -> dict[str, Any]:
    """The summary as data."""
    total = _of_this_process()
    recorded = figures.records_of(told)
    has_own = total.loaders > 0
    processes = recorded.add_others(total, told.pid) + has_own
    seconds = max(0.0, time.time() - told.began)
    return {
        "program": told.program,
        "seconds": round(seconds, 3),
        "disabled": options.is_disabled(),
        "processes": processes,
        "loaders": total.loaders,
        "loaders_in_process": total.in_process,
        "batches": total.batches,
        "samples": total.samples,
        "waited_s": round(total.waited_s, 3),
        "waited_share": round(min(1.0, total.waited_s / (seconds * processes)), 4) if seconds and processes else None,
        "restarts": total.restarts,
        "recycled": total.recycled,
        "skipped": total.skipped,
        "incidents": dict(total.causes.most_common()),
        "runs": [run.id for run in recorded.runs],
        "report": recorded.worth_reading,
    }


def _of_this_process() -> Figures:
    tally = sys.modules.get("holdfast.tasks.runner.tally")  # not imported: then there was no loader
    return tally.TALLY.read() if tally is not None else Figures()


def lines(data: dict[str, Any]) -> Iterator[str]:
    """The same in words."""
    yield f"{_TITLE}: {_clean(data['program'])}, {_seconds(data['seconds'])}"
    if data["disabled"]:
        yield f"  {options.DISABLE} is set: torch's own loader, and nothing was replaced"
        return
    if not data["loaders"]:
        yield "  no DataLoader was used"
        return
    for name, said in _facts(data):
        yield f"  {name:<11}{said}"
    if data["report"] is not None:
        yield f"next  holdfast report {data['report']}   {_why(data)}"


def _facts(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    among = f" in {data['processes']} processes" if data["processes"] > 1 else ""
    yield "loaders", f"{data['loaders']}{among}"
    if data["loaders_in_process"]:
        yield "", f"{data['loaders_in_process']} of them with num_workers=0, where a crash ends the script"
    if data["loaders_in_process"] < data["loaders"] or data["batches"]:
        yield "delivered", f"{plural(data['batches'], 'batch')}, {plural(data['samples'], 'sample')}"
        share = "" if data["waited_share"] is None else f", {data['waited_share']:.0%} of the time"
        yield "waited", f"{_seconds(data['waited_s'])} for batches{share}"
        yield "restarts", f"{data['restarts']:,}" + (f", and {data['recycled']:,} recycled" if data["recycled"] else "")
        yield "skipped", plural(data["skipped"], "sample")
    total = sum(data["incidents"].values())
    by_cause = ", ".join(f"{_clean(cause)} {number:,}" for cause, number in data["incidents"].items())
    yield "incidents", f"{total:,}: {by_cause}" if total else "none"


def _why(data: dict[str, Any]) -> str:
    return "what happened, and what to do" if data["incidents"] else "where the time went"


def _seconds(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def _clean(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def _print(text: str) -> None:
    """After what the script has printed. stderr may be closed, or be something of the script's by now."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    with contextlib.suppress(Exception):
        stream = sys.__stderr__ or sys.stderr
        stream.write(text + "\n")
        stream.flush()
