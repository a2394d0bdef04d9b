"""Epochs that are short of memory, each in a real cgroup of its own: torch's loader is killed, ours finishes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory_cgroups import limited_cgroup

GIB = 1 << 30
SHM = Path("/dev/shm")
LIMIT_S = 150.0
pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.timeout(2 * LIMIT_S + 30)]

PROGRAM = Path(__file__).parent.parent / "programs" / "memory_in_cgroup.py"
BUDGET = {"memory_budget": "80%"}


def run(limit_bytes: int, loader: str, workload: str, **arguments: Any) -> dict[str, Any] | None:
    """What the program prints; None if it was killed."""
    with _what_torch_leaves_removed(), limited_cgroup(limit_bytes) as cgroup:
        command = [sys.executable, str(PROGRAM), str(cgroup.directory), str(limit_bytes), loader, workload]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        done = subprocess.run(
            [*command, json.dumps(arguments)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env=environment,
            check=False,
        )
    print(done.stderr[-2000:], done.stdout[-2000:])
    return json.loads(done.stdout) if done.returncode == 0 and done.stdout else None


@contextlib.contextmanager
def _what_torch_leaves_removed() -> Iterator[None]:
    """Shared memory of a worker that was killed has a name, and keeps it."""
    before = set(SHM.glob("torch_*"))
    try:
        yield
    finally:
        for path in set(SHM.glob("torch_*")) - before:
            path.unlink(missing_ok=True)


def is_finished(said: dict[str, Any] | None, samples: int) -> bool:
    return said is not None and said["error"] == "" and said["found"] == list(range(samples))


@pytest.mark.parametrize(("workload", "samples"), [("program2", 8), ("crowd", 24)])
def test_an_epoch_finishes_under_memory_budget_where_torchs_is_killed(workload: str, samples: int) -> None:
    """A user's program whose samples are a quarter of the cgroup each; workers that need twice the cgroup together."""
    assert not is_finished(run(2 * GIB, "torch", workload), samples)
    said = run(2 * GIB, "holdfast", workload, **BUDGET)
    assert is_finished(said, samples)
    assert said is not None
    assert said["counts"] == {}


@pytest.mark.parametrize("arguments", [{}, BUDGET], ids=["by default", "with a budget"])
def test_a_dataset_that_leaks_finishes_its_epoch_where_torchs_is_killed(arguments: dict[str, Any]) -> None:
    """A megabyte for each of 5,000 samples, in 1.5 GB; it is told once for each worker."""
    assert not is_finished(run(3 * GIB // 2, "torch", "leak"), 5000)
    said = run(3 * GIB // 2, "holdfast", "leak", **arguments)
    assert is_finished(said, 5000)
    assert said is not None
    assert said["counts"] == {"memory growth": 4}
    assert said["restarts"] == 0


@pytest.mark.parametrize("arguments", [{}, BUDGET], ids=["by default", "with a budget"])
def test_samples_whose_workers_the_kernel_kills_are_loaded_again_alone(arguments: dict[str, Any]) -> None:
    """The first samples are small: nothing could be learned from them. No sample is blamed."""
    said = run(2 * GIB, "holdfast", "late crowd", **arguments)
    assert is_finished(said, 24)
    assert said is not None
    assert set(said["counts"]) <= {"out of memory", "over memory_budget"}
    assert all(": retried | " in incident for incident in said["incidents"])


@pytest.mark.parametrize("workload", ["keepers", "keeping stream"])
def test_workers_that_keep_too_much_are_done_without(workload: str) -> None:
    """Each keeps two fifths of the cgroup: nothing is lost or repeated."""
    said = run(2 * GIB, "holdfast", workload, **BUDGET)
    assert said is not None
    assert said["error"] == ""
    assert sorted(said["found"]) == list(range(24))


@pytest.mark.parametrize("arguments", [{}, BUDGET], ids=["by default", "with a budget"])
def test_what_does_not_fit_at_all_ends_with_the_numbers(arguments: dict[str, Any]) -> None:
    said = run(1 * GIB, "holdfast", "too large", max_retries=0, **arguments)
    assert said is not None
    assert said["error"].startswith("WorkerOutOfMemory: worker ")
    assert "1.0 GiB" in said["error"]
