"""Records made for tests of the report: lines as the loader writes them, without a loader. Needs no torch.

Runs in: the test process.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from holdfast.records import home, reader
from holdfast.records.reader import Run

STARTED = 1_794_821_277.0
MIB = 1 << 20

STACK = """Fatal Python error: Segmentation fault

Current thread 0x00007fd33c5f9b80 (most recent call first):
  File "/home/me/photos.py", line 31 in __getitem__
  File "/home/me/train.py", line 7 in <module>"""

HOSTILE = (
    '</style></script><script>alert("no")</script><img src=x onerror=alert(1)>'
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x00\x07 \u202egpj.exe\u202c \u2066 \ud800 {{ 7 * 7 }} "
    "[bold]rich[/bold] `<b>x</b>`"
)


def start(**changes: Any) -> dict[str, Any]:
    return {
        "holdfast": "run record",
        "version": 1,
        "kind": "start",
        "id": "7f3a",
        "time": STARTED,
        "holdfast_version": "0.1.0",
        "torch_version": "2.13.0",
        "num_workers": 2,
        "start_method": "fork",
        "batch_size": 8,
        "dataset": "Photos",
        "dataset_length": 192,
        "python_version": "3.11.7",
        "front": "DataLoader",
        "function": None,
        "platform": "Linux 6.1 x86_64",
        "cpus": 8,
        "script": "train.py",
        "target": None,
        "host": "somewhere",
        "pid": 4711,
        **changes,
    }


def incident(number: int = 1, at_s: float = 1.0, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "incident",
        "number": number,
        "time": STARTED + at_s,
        "cause": "segmentation fault",
        "done": "skipped",
        "worker_id": 1,
        "pid": 4800 + number,
        "phase": "loading",
        "sample_index": 70,
        "epoch": 0,
        "batch": 8,
        "attempt": 1,
        "confidence": "certain",
        "summary": "died of a segmentation fault",
        "because": "read of address 0x0 (a null pointer) in libjpeg.so.8+0x1f2a4",
        "where": "photos.py:31 in __getitem__",
        "evidence": f"SIGSEGV, SEGV_MAPERR at libjpeg.so.8+0x1f2a4\n{STACK}",
        "advice": ["update libjpeg", "python -X dev train.py   checks more"],
        **changes,
    }


def reading(at_s: float, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "reading",
        "time": STARTED + at_s,
        "at_s": at_s,
        "interval_s": 5.0,
        "incidents": 0,
        "batches": int(at_s * 10),
        "samples": int(at_s * 80),
        "waited_s": at_s / 10,
        "restarts": 0,
        "skipped": 0,
        "main": [900 * MIB, 700 * MIB],
        "workers": [[4801, 300 * MIB, int((100 + at_s) * MIB), 0], [4802, 300 * MIB, int((90 + at_s) * MIB), 1]],
        "stages": {"fetch_s": at_s * 1.5, "collate_s": at_s / 4, "send_s": at_s / 8},
        **changes,
    }


def worker(at_s: float, worker_id: int, event: str, why: str, pid: int = 4801) -> dict[str, Any]:
    line = {"kind": "worker", "time": STARTED + at_s, "worker_id": worker_id, "pid": pid}
    return {**line, "event": event, "why": why}


def skipped(index: Any, at_s: float = 1.0, **changes: Any) -> dict[str, Any]:
    line = {"kind": "skipped", "time": STARTED + at_s, "epoch": 0, "index": index, "reason": "raised ValueError: bad"}
    return {**line, "replaced_by": None, **changes}


def end(at_s: float = 60.0, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "end",
        "time": STARTED + at_s,
        "incidents": 0,
        "incidents_left_out": {},
        "readings": 0,
        "readings_left_out": 0,
        "batches": 24,
        "samples": 188,
        "waited_s": 3.0,
        "restarts": 0,
        "supervisor_restarts": 0,
        "recycled": 0,
        "skipped": 0,
        "new_interpreters": None,
        **changes,
    }


def full_run() -> list[dict[str, Any]]:
    """With everything that a record of this version can have."""
    readings = [reading(float(at_s)) for at_s in range(5, 60, 5)]
    slowest = [[70, 1.5, 1, 0], ["b.jpg", 0.5, 0, 0]]
    return [
        start(memory_limit_bytes=200_000_000, memory_budget_bytes=2_000_000_000, on_error="skip", target="data:photos"),
        worker(0.0, 0, "started", "first"),
        worker(0.0, 1, "started", "first", 4802),
        worker(20.0, 1, "ended", "died", 4802),
        worker(20.1, 1, "started", "restart", 4803),
        incident(1, 20.0, done="retried"),
        incident(2, 30.0, attempt=2),
        incident(3, 31.0, cause="hang", summary="hung for more than 1 s", where="", worker_id=0, sample_index=107),
        *readings,
        skipped(70, 30.0),
        skipped(107, 31.0, replaced_by=3, reason="hung"),
        worker(59.0, 0, "ended", "done"),
        worker(59.0, 1, "ended", "done", 4803),
        end(restarts=1, skipped=2, incidents=3, stages=readings[-1]["stages"], slowest=slowest),
    ]


def write(folder: Path, lines: Iterable[dict[str, Any]], run_id: str = "7f3a", *, torn: bytes = b"") -> Path:
    """A file of records, in the directory that commands look in when HOLDFAST_HOME is `folder`."""
    runs = folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    path = runs / home.file_name(run_id, STARTED)
    path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines) + torn)
    return path


def run_of(folder: Path, *lines: dict[str, Any], torn: bytes = b"") -> Run:
    return reader.read(write(folder, lines, torn=torn))
