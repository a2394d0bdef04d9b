"""The rows of the table of reproducers that are about memory over many samples: what is said of real growth."""

from __future__ import annotations

import re
from typing import Any

import pytest

from holdfast import DataLoader, WorkerOutOfMemory
from hungry import Hungry, Leaking, Reading
from reproducers import COPIES, LEAK, METHODS, OVER_BUDGET

pytestmark = pytest.mark.timeout(120)


def how(method: str) -> dict[str, Any]:
    return {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_over_the_budget_is_told(method: str) -> None:
    dataset = Hungry(4, 1000, first=3, held_s=60.0)
    with DataLoader(dataset, 2, num_workers=2, memory_budget="500MB", max_retries=0, **how(method)) as loader:
        with pytest.raises(WorkerOutOfMemory) as caught:
            list(loader)
        incident = loader.incidents[-1]
    assert (incident.cause, incident.confidence, incident.sample_index) == (OVER_BUDGET.cause, "certain", 3)
    assert [words for words in OVER_BUDGET.says if words not in str(caught.value)] == []


@pytest.mark.parametrize("method", METHODS)
def test_a_leak_is_told_once_for_each_worker(method: str) -> None:
    """With its rate; and the worker is replaced before it takes too much."""
    with DataLoader(Leaking(600, 1 << 20), 2, num_workers=2, memory_limit="200MB", **how(method)) as loader:
        assert [int(value) for batch in loader for value in batch] == list(range(600))
        incidents = list(loader.incidents)
        assert loader.stats().recycled >= 2
        assert loader.stats().restarts == 0
    assert {found.cause for found in incidents} == {LEAK.cause}
    assert sorted(found.worker_id for found in incidents) == [0, 1]
    for found in incidents:
        assert found.confidence == "certain"
        assert re.match(r"grows (1\.\d MiB|9\d\d\.\d KiB|10\d\d\.\d KiB) per sample, \S+ MiB since", found.summary), (
            found
        )
        assert "malloc" in found.because


@pytest.mark.long
@pytest.mark.parametrize("method", [method for method in METHODS if method not in COPIES.absent])
def test_copies_of_a_list_are_told_from_a_leak(method: str) -> None:
    texts = [f"path {k} of a sample" for k in range(3_000_000)]
    with DataLoader(Reading(texts, 200), 2, num_workers=1, **how(method)) as loader:
        list(loader)
        (incident,) = loader.incidents
    assert (incident.cause, incident.confidence, incident.worker_id) == (COPIES.cause, "certain", 0)
    assert incident.done == "reported"
    assert "holdfast.share(" in incident.advice[0]
