"""A script without a main guard that runs calls: told so, in the words of what it used."""

from __future__ import annotations

import pytest

from helpers import Program
from waits import PATIENCE_S

REMEDIES = {
    "pool": 'ProcessPoolExecutor(..., mp_context=multiprocessing.get_context("fork"))   on Linux',
    "map": 'holdfast.map(..., mp_context=multiprocessing.get_context("fork"))   on Linux',
    "spawn": 'holdfast.spawn(..., start_method="fork")   on Linux',
}


@pytest.mark.parametrize("method", ["spawn", "forkserver", "portable"])
@pytest.mark.parametrize("front", REMEDIES)
def test_a_script_without_a_main_guard_is_told_so(front: str, method: str) -> None:
    """By an error that names the guard and a remedy that this front has, and nothing of loaders."""
    with Program("no_main_guard_calls.py", front, method) as program:
        assert program.wait(2 * PATIENCE_S) == 0
        program.wait_until_nothing_is_left()
        kind, cause, *text = program.stdout.splitlines()
        assert (kind, cause) == ("RankInitError" if front == "spawn" else "BrokenPool", "missing main guard")
        said = " ".join(" ".join(text).split())
        assert (
            "found no `if __name__ == '__main__':` around the code of the main script that starts the workers" in said
        )
        assert " ".join(REMEDIES[front].split()) in said
        assert "DataLoader" not in said
        assert "Traceback" not in program.stderr
