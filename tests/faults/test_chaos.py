"""A short run of `make chaos`, and whether it would see what it is there to see."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from chaos import training
from chaos.comparing import difference
from chaos.scenarios import Scenario, make_scenario

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_storm_of_kills_changes_nothing_that_is_delivered() -> None:
    """Workers and supervisors are killed all the time; each batch is torch's, each random number too."""
    run = subprocess.run(
        [sys.executable, "-m", "chaos", "--quick", "--json"],
        cwd=ROOT,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    survived = {"fork": 0, "spawn": 0}
    for line in json.loads(run.stdout)["lines"]:
        survived[line["method"]] += line["survived"]
    assert survived["fork"] >= 30, run.stderr
    assert survived["spawn"] >= 6, run.stderr


def _environment() -> dict[str, str]:
    """The holdfast that is tested here, installed or not."""
    package = importlib.util.find_spec("holdfast")
    assert package is not None
    assert package.origin is not None
    return {**os.environ, "PYTHONPATH": str(Path(package.origin).parents[1])}


def test_a_scenario_has_a_name() -> None:
    """What a failure prints is enough to run it again."""
    assert make_scenario("fork", 3, 5) == make_scenario("fork", 3, 5)
    assert make_scenario("fork", 3, 5) != make_scenario("fork", 3, 6)


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        ({"a": [torch.tensor([1, 2]), 0.5]}, None),
        ({"a": [torch.tensor([1, 3]), 0.5]}, "batch['a'][0][1]: 3 and 2"),
        ({"a": [torch.tensor([1, 2]), 0.25]}, "batch['a'][1]: 0.25 and 0.5"),
        ({"a": [torch.tensor([1.0, 2.0]), 0.5]}, "batch['a'][0]: torch.float32 (2,) and torch.int64 (2,)"),
        ({"a": [torch.tensor([1, 2])]}, "batch['a']: items [0] and [0, 1]"),
        ({"b": 1}, "batch: items ['b'] and ['a']"),
    ],
)
def test_the_first_difference_is_named(ours: Any, said: str | None) -> None:
    """Equal is equal in structure, type and value."""
    assert difference(ours, {"a": [torch.tensor([1, 2]), 0.5]}) == said


class _Faulty:
    """A loader that does something to what another loader delivers."""

    def __init__(self, how: str, batches: list[Any]) -> None:
        self._how, self._batches = how, batches

    def __enter__(self) -> _Faulty:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        first, second, *rest = self._batches
        orders = {
            "loses": [first, *rest],
            "repeats": [first, first, second, *rest],
            "reorders": [second, first, *rest],
            "cuts": self._batches[:-1],
            "adds": [*self._batches, first],
        }
        return iter(orders[self._how])


@pytest.mark.parametrize("how", ["loses", "repeats", "reorders", "cuts", "adds"])
def test_a_loader_that_errs_is_found_out(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is lost, repeated, moved or added fails the scenario."""
    scenario = next(s for n in range(100) if _is_plain(s := make_scenario("fork", 0, n)))
    torch.manual_seed(scenario.seed)
    batches = list(scenario.reference_loader())
    monkeypatch.setattr(Scenario, "loader_under_test", lambda self: _Faulty(how, batches))
    outcome = training.run_scenario(scenario, kills=1)
    assert outcome.failure is not None
    assert "epoch 0" in outcome.failure


def _is_plain(scenario: Scenario) -> bool:
    """Small, one whole epoch, every batch another."""
    return scenario.leave_after == (None,) and scenario.length < 2000 and scenario.kind == "map"
