"""The pool and map in a Jupyter notebook, with functions that were defined in cells."""

from __future__ import annotations

import pytest

from cells import Cell, run_cells
from helpers import START_METHODS

METHODS = (*START_METHODS, "portable")

DEFINITIONS = """
import multiprocessing, os, sys, time, warnings
import numpy as np
import holdfast

FACTOR = 10

class Scale:
    def __call__(self, number):
        return scaled(number)

def scaled(number):
    if number == 2:
        print("printed in a worker", flush=True)
        warnings.warn("warned in a worker")
        os.write(2, b"written in a worker\\n")
    return np.full(2, number * FACTOR)

def stuck(number):
    print("now", flush=True)
    time.sleep(600)

HOW = {"backend": "portable"} if METHOD == "portable" else {"mp_context": multiprocessing.get_context(METHOD)}
"""
POOL = """
with holdfast.ProcessPoolExecutor(2, **HOW) as pool:
    print([values.tolist() for values in pool.map(Scale(), range(4))], pool.submit(lambda: FACTOR).result())
"""
MAP = "print([values.tolist() for values in holdfast.map(scaled, range(4), num_workers=2, **HOW)])"
ALL = "[[0, 0], [10, 10], [20, 20], [30, 30]]"
CHANGED = "[[0, 0], [100, 100], [200, 200], [300, 300]]"
INTERRUPTED = {
    "pool": """
        with holdfast.ProcessPoolExecutor(2, **HOW) as pool:
            futures = [pool.submit(stuck, number) for number in range(50)]
            [future.result() for future in futures]
    """,
    "map": "list(holdfast.map(stuck, range(50), num_workers=2, **HOW))",
}


def definitions(method: str) -> str:
    return f"METHOD = {method!r}\n{DEFINITIONS}"


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_functions_of_cells_are_called_and_their_output_arrives(method: str) -> None:
    """A class, a function, a global, a lambda; again after the cell was changed; and a bar for map."""
    changed = definitions(method).replace("FACTOR = 10", "FACTOR = 100")
    _, pool, mapped, _, again, *_ = run_cells(definitions(method), POOL, MAP, changed, POOL, MAP)
    assert [shown.error for shown in (pool, mapped, again)] == ["", "", ""]
    assert f"{ALL} 10" in pool.shown
    assert ALL in mapped.shown
    assert f"{CHANGED} 100" in again.shown
    for text in ("printed in a worker", "warned in a worker", "written in a worker"):
        assert text in pool.shown
    assert "4/4" in mapped.shown
    assert [shown.left for shown in (pool, mapped, again)] == [[], [], []]


@pytest.mark.long
@pytest.mark.parametrize("front", INTERRUPTED)
@pytest.mark.parametrize("method", METHODS)
def test_an_interrupt_stops_the_cell_and_leaves_nothing(method: str, front: str) -> None:
    """Although 48 calls have not begun. The next cell finds all as it should be."""
    _, interrupted, after = run_cells(definitions(method), Cell(INTERRUPTED[front], interrupt_at="now"), POOL)
    assert interrupted.error == "KeyboardInterrupt"
    assert interrupted.left == []
    assert (after.error, f"{ALL} 10" in after.shown) == ("", True)
