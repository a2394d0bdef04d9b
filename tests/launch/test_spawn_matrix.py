"""64 items, two ranks, a fault at item 17: how many are done when the group has ended.

The matrix that other launchers were measured with; the loader's part is `tests/faults/test_matrix.py`. A group is
elastic: it is started again as a whole, and its function goes on where it was, as one with checkpoints does.
F7 and F8 are whole programs: `test_spawn_programs.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
import ranks
from helpers import START_METHODS

pytestmark = pytest.mark.timeout(150)

METHODS = (*START_METHODS, "portable")
LENGTH = 64
BAD = 17


def how(method: str) -> dict[str, Any]:
    return {"backend": "portable"} if method == "portable" else {"start_method": method}


def run(method: str, fault: str, directory: Path, **options: Any) -> tuple[list[int], list[tuple[int | None, str]]]:
    """The items that are done, and what went wrong: the rank, and the cause."""
    args = (str(directory), LENGTH, BAD, fault)
    group = holdfast.spawn(ranks.do_items, args, nprocs=2, join=False, max_restarts=1, **how(method), **options)
    while not group.join():
        pass
    done = sorted(int(path.stem) for path in directory.glob("*.done"))
    return done, [(incident.worker_id, incident.cause) for incident in group.incidents]


@pytest.mark.parametrize("method", METHODS)
def test_f2_a_kill_costs_nothing(method: str, tmp_path: Path) -> None:
    """SIGKILL once: 64 of 64."""
    done, [(rank, cause)] = run(method, "kill once", tmp_path)
    assert done == list(range(LENGTH))
    assert (rank, cause) == (1, "killed by another process")


FAULTS = {
    "f1": ("raise", "exception", {}),
    "f3": ("crash", "segmentation fault", {}),
    "f4": ("hang", "hang", {"timeout": 3.0}),
    "f5": ("allocate", "over memory_limit", {"memory_limit": "1GB"}),
    "f6": ("os._exit", "exit by user code", {}),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("row", [pytest.param(row, marks=pytest.mark.long if row == "f4" else []) for row in FAULTS])
def test_an_item_that_always_fails_costs_itself(row: str, method: str, tmp_path: Path) -> None:
    """63 of 64, with the rank and its cause."""
    fault, expected, options = FAULTS[row]
    done, [(rank, cause)] = run(method, fault, tmp_path, **options)
    assert done == [item for item in range(LENGTH) if item != BAD]
    assert (rank, cause) == (1, expected)
