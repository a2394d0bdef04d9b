"""The executor against the standard library's: one scenario, two pools, equal outcomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from calls import METHODS, ours, theirs
from scenarios import SCENARIOS

pytestmark = [
    pytest.mark.timeout(150),
    # Of the standard library's own pool, which warns of nothing but forks from a thread of its own.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


# Under methods that start new interpreters once for each is enough.
KINDS = [pytest.param("fork", 1, marks=pytest.mark.long), *((method, 2) for method in METHODS)]


@pytest.mark.parametrize(("method", "workers"), KINDS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_both_pools_come_to_the_same(name: str, method: str, workers: int, tmp_path: Path) -> None:
    """Values, exceptions with their causes, states of futures, and what is refused."""
    expected, got = tmp_path / "theirs", tmp_path / "ours"
    expected.mkdir()
    got.mkdir()
    run = SCENARIOS[name]
    assert run(ours(method), workers, got) == run(theirs(method), workers, expected)
