"""fork, spawn and forkserver, as a string and as a context object. Few cases: each start of torch's takes seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from .datasets import MapDataset, as_list, mapping, same
from .failures import Failing, failing_init_of_one
from .scenarios import Scenario, assert_parity
from .streams import Uneven
from .workers import Drawing, Informed, Surroundings, draw_first
from .zoo import BROKEN_BY_TORCH, FAMILIES, Zoo

PROGRAMS = Path(__file__).parent / "programs"
PROGRAM_DEADLINE_S = 120


def _context(method: str, **arguments: Any) -> Any:
    return lambda: {"multiprocessing_context": torch.multiprocessing.get_context(method), **arguments}


def _zoo(*families: str) -> list[tuple[str, str, int]]:
    return [(family, name, 3) for family in families for name in FAMILIES[family] if name not in BROKEN_BY_TORCH]


SCENARIOS = [
    Scenario("fork as context", Drawing, _context("fork", num_workers=2, batch_size=2), takes=(3, None)),
    Scenario(
        "fork as string",
        lambda: MapDataset(mapping),
        {"multiprocessing_context": "fork", "num_workers": 2, "batch_size": 4},
    ),
    Scenario(
        "spawn as string: random numbers",
        Drawing,
        {"multiprocessing_context": "spawn", "num_workers": 2, "batch_size": 2, "worker_init_fn": draw_first},
    ),
    Scenario(
        "spawn as context: persistent workers",
        Informed,
        _context("spawn", num_workers=2, collate_fn=as_list, persistent_workers=True),
        takes=(3, None, None),
    ),
    Scenario(
        "spawn as context: surroundings",
        Surroundings,
        _context("spawn", num_workers=1, collate_fn=as_list),
    ),
    Scenario(
        "spawn as string: payloads",
        Zoo,
        {
            "multiprocessing_context": "spawn",
            "num_workers": 1,
            "batch_size": None,
            "collate_fn": same,
            "sampler": _zoo("exotic tensors", "containers", "aliases", "array layouts"),
        },
    ),
    Scenario(
        "forkserver as string: streams",
        lambda: Uneven(5, 2),
        {"multiprocessing_context": "forkserver", "num_workers": 2, "batch_size": 2},
        asks_length=False,
    ),
    Scenario(
        "forkserver as context: errors",
        lambda: Failing("OSError", at=(1, 5)),
        _context("forkserver", num_workers=2, batch_size=4),
    ),
    Scenario(
        "spawn as context: worker_init_fn fails",
        lambda: range(8),
        _context("spawn", num_workers=2, worker_init_fn=failing_init_of_one),
        takes=(2,),
    ),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.id)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::PendingDeprecationWarning")
def test_a_start_method_gives_the_same(scenario: Scenario) -> None:
    """Batches, random numbers, worker info, errors and payloads."""
    for family, name, _ in scenario.arguments.get("sampler", []) if isinstance(scenario.arguments, dict) else []:
        FAMILIES[family][name](0)  # torch says "prototype" and "beta" once per process
    assert_parity(scenario)


@pytest.mark.parametrize("method", ["fork", "spawn", pytest.param("forkserver", marks=pytest.mark.long)])
def test_classes_of_the_main_script_arrive_as_themselves(method: str) -> None:
    """isinstance of the very class in the main process: data, tensor subclass, the class itself, and exceptions."""
    program = subprocess.run(
        [sys.executable, str(PROGRAMS / "main_classes.py"), method],
        capture_output=True,
        text=True,
        timeout=PROGRAM_DEADLINE_S,
        check=False,
    )
    assert (program.stderr, program.stdout, program.returncode) == ("", "same\n", 0)
