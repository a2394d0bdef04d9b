"""What the tests of records share: facts, counters, and a real process that has a record open. Needs no torch.

Runs in: the test process and the child programs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.records.facts import RunFacts
from waits import PATIENCE_S

TESTS = Path(__file__).parents[1]

FACTS = RunFacts(
    holdfast_version="0.1.0",
    torch_version="2.13.0",
    num_workers=4,
    start_method="fork",
    batch_size=64,
    dataset="ImageFolder",
    dataset_length=50_000,
)


def facts(**changes: Any) -> RunFacts:
    return replace(FACTS, **changes)


@dataclass(frozen=True)
class Counted:
    """Counters of a loader."""

    batches: int = 0
    samples: int = 0
    waited_s: float = 0.0
    restarts: int = 0
    skipped: int = 0
    stages: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def details(self) -> dict[str, Any]:
        return {"stages": dict(zip(("fetch_s", "collate_s", "send_s"), self.stages, strict=True)), "slowest": []}


@contextlib.contextmanager
def writer_process(home: Path, mode: str, before: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """`programs/write_record.py`, ended with the context, and its child with it: both wait for the end of stdin."""
    package = importlib.util.find_spec("holdfast")
    assert package is not None
    assert package.origin is not None
    before_it = os.environ.get("PYTHONPATH")
    path = [str(TESTS), str(Path(package.origin).parents[1]), *([before_it] if before_it else [])]
    with subprocess.Popen(
        [*before, sys.executable, str(TESTS / "programs" / "write_record.py"), mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "HOLDFAST_HOME": str(home)},
        text=True,
    ) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()


def next_line(process: subprocess.Popen[str]) -> str:
    """The next line of its stdout, within a bounded time. It writes a line at once, so one is there or none is."""
    assert process.stdout is not None
    is_there, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
    assert is_there, "the program said nothing"
    line = process.stdout.readline()
    assert line, "the program ended before it said anything"
    return line.strip()
