"""The loader in a Jupyter notebook, with everything that the workers need defined in cells."""

from __future__ import annotations

import pytest

from cells import Cell, run_cells
from helpers import START_METHODS

METHODS = (*START_METHODS, "portable")

DEFINITIONS = """
    import os, time, warnings
    import torch
    from torch.utils.data import Dataset
    from holdfast import DataLoader

    FACTOR = 10

    def scaled(index):
        return torch.tensor(index * FACTOR)

    class Mine(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            if index == 2:
                print("printed in a worker")
                warnings.warn("warned in a worker")
                os.write(2, b"written in a worker\\n")
            return scaled(index)

    def make_loader(dataset, **options):
        how = {"backend": "portable"} if METHOD == "portable" else {"multiprocessing_context": METHOD}
        return DataLoader(dataset, batch_size=2, num_workers=2, collate_fn=lambda s: torch.stack(s), **how, **options)
"""
EPOCH = "print([batch.tolist() for batch in make_loader(Mine())])"
ALL = "[[0, 10], [20, 30], [40, 50], [60, 70]]"


def definitions(method: str) -> str:
    return f"METHOD = {method!r}\n" + DEFINITIONS.replace("\n    ", "\n")


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_all_that_workers_need_can_be_defined_in_cells(method: str) -> None:
    """Dataset class, functions, globals, a lambda; and the cell can be run again, also after the class has changed."""
    changed = definitions(method).replace("FACTOR = 10", "FACTOR = 100")
    _, first, again, _, after = run_cells(definitions(method), EPOCH, EPOCH, changed, EPOCH)
    assert ALL in first.shown
    assert ALL in again.shown
    assert "[[0, 100], [200, 300], [400, 500], [600, 700]]" in after.shown
    assert [first.left, again.left, after.left] == [[], [], []]


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_what_workers_print_warn_and_write_arrives_in_the_cell(method: str) -> None:
    """By print, by warnings.warn, and to the descriptor, as native code does."""
    _, epoch = run_cells(definitions(method), EPOCH)
    assert epoch.error == ""
    for text in ("printed in a worker", "warned in a worker", "written in a worker"):
        assert epoch.shown.count(text) >= 1, (text, epoch.shown)


INTERRUPTED = {
    "while a sample is loaded": """
        class Slow(Mine):
            def __getitem__(self, index):
                if index == 4:
                    print("now", flush=True)
                    time.sleep(600)
                return super().__getitem__(index)

        for batch in make_loader(Slow()):
            pass
    """,
    "in the training step": """
        for batch in make_loader(Mine()):
            print("now", flush=True)
            time.sleep(600)
    """,
    "with persistent workers": """
        class Slow(Mine):
            def __getitem__(self, index):
                if index == 4 and SLOW:
                    print("now", flush=True)
                    time.sleep(600)
                return super().__getitem__(index)

        SLOW = True
        loader = make_loader(Slow(), persistent_workers=True)
        for batch in loader:
            pass
    """,
}


@pytest.mark.long
@pytest.mark.parametrize("when", INTERRUPTED)
@pytest.mark.parametrize("method", METHODS)
def test_an_interrupt_stops_the_cell_and_leaves_nothing(method: str, when: str) -> None:
    """No process, although the notebook keeps the traceback; and the next cell finds all as it should be."""
    _, interrupted, after = run_cells(definitions(method), Cell(INTERRUPTED[when], interrupt_at="now"), EPOCH)
    assert interrupted.error == "KeyboardInterrupt"
    assert interrupted.left == []
    assert (after.error, ALL in after.shown) == ("", True)
    # what the workers had to say of their end is nobody's business
    assert interrupted.shown.count("KeyboardInterrupt") <= 2, interrupted.shown


@pytest.mark.long
def test_an_epoch_with_the_same_persistent_workers_goes_on_after_an_interrupt() -> None:
    """The next epoch of the same loader has new workers."""
    slow = Cell(INTERRUPTED["with persistent workers"], interrupt_at="now")
    again = "loader.dataset.__class__ = Mine\nprint([batch.tolist() for batch in loader])\nloader.close()"
    *_, after = run_cells(definitions("fork"), slow, again)
    assert (after.error, ALL in after.shown, after.left) == ("", True, [])
