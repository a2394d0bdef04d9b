"""multiprocessing's objects inside a dataset, under every start method; and datasets that live in `__main__`."""

from __future__ import annotations

import pytest

from helpers import START_METHODS, run_program

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("method", START_METHODS)
def test_queue_value_lock_event_and_shared_tensor_in_a_dataset_are_the_parents_own(method: str) -> None:
    """What workers put, count, lock and write is seen by the main process, and the event it sets is seen by them."""
    assert run_program("connected_dataset.py", method).splitlines()[-1] == "connected"


@pytest.mark.parametrize("through_stdin", [False, True], ids=["script", "stdin"])
@pytest.mark.parametrize("method", START_METHODS)
def test_a_dataset_defined_in_main_with_lambdas_works(method: str, through_stdin: bool) -> None:
    """Dataset, collate function and init function in `__main__`, holding lambdas, reach the workers by value."""
    output = run_program("main_module.py", method, through_stdin=through_stdin)
    assert output.splitlines()[-1] == "[0, 10, 20, 30, 40, 50, 60, 70] init [0, 1]"
