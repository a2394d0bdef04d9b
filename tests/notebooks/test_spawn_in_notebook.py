"""`holdfast.spawn` in a Jupyter notebook, with a function that was defined in a cell."""

from __future__ import annotations

import pytest

from cells import Cell, run_cells
from helpers import START_METHODS

METHODS = (*START_METHODS, "portable")

DEFINITIONS = """
import os, signal, subprocess, sys, time
import holdfast
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

FACTOR = 10

def train(rank, what):
    print(f"printed by rank {rank}: {rank * FACTOR}", flush=True)
    print(f"said by rank {rank}", file=sys.stderr, flush=True)
    if rank == 1 and what == "raise":
        raise ValueError("bad header")
    if rank == 1 and what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "stay":
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        print("now", flush=True)
        time.sleep(600)
"""


def spawn(method: str, what: str, **options: object) -> str:
    how = 'backend="portable"' if method == "portable" else f'start_method="{method}"'
    more = "".join(f", {name}={value!r}" for name, value in options.items())
    return f'holdfast.spawn(train, ("{what}",), nprocs=2, {how}{more})'


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_a_function_of_a_cell_is_run_and_its_output_arrives(method: str) -> None:
    """Again after the cell has been changed and run again."""
    changed = DEFINITIONS.replace("FACTOR = 10", "FACTOR = 100")
    _, first, _, again = run_cells(DEFINITIONS, spawn(method, "finish"), changed, spawn(method, "finish"))
    for shown, value in ((first, 10), (again, 100)):
        assert (shown.error, shown.left) == ("", [])
        assert f"printed by rank 1: {value}" in shown.shown
        assert "[rank 0] said by rank 0" in shown.shown


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_a_failure_is_caught_by_handlers_of_torchs(method: str) -> None:
    """One that raises, one that dies: which rank, and why, in the cell."""

    def caught(kind: str, what: str) -> str:
        return f"try:\n    {spawn(method, what)}\nexcept {kind} as error:\n    print('caught', str(error))"

    _, raised, died = run_cells(
        DEFINITIONS, caught("ProcessRaisedException", "raise"), caught("ProcessExitedException", "die")
    )
    assert "caught rank 1 (pid" in raised.shown
    assert "raised ValueError: bad header" in raised.shown
    assert "caught rank 1 (pid" in died.shown
    assert "SIGKILL" in died.shown
    assert (raised.error, raised.left, died.error, died.left) == ("", [], "", [])


@pytest.mark.parametrize("method", START_METHODS)
def test_an_interrupt_ends_all_ranks_and_what_they_started(method: str) -> None:
    """And the next cell can start others."""
    stay = Cell(spawn(method, "stay"), interrupt_at="now")
    _, interrupted, after = run_cells(DEFINITIONS, stay, spawn(method, "finish"))
    assert (interrupted.error, interrupted.left) == ("KeyboardInterrupt", [])
    assert (after.error, after.left) == ("", [])
    assert "printed by rank 1: 10" in after.shown
