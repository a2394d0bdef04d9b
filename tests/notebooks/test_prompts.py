"""The loader, spawn, pools and map with all they need typed at prompts, or in `python -` and `python -c`: no file."""

from __future__ import annotations

import pytest

from helpers import START_METHODS
from prompts import PROMPTS, run_typed

# Every prompt with every start method, one with the portable backend too. One at once, the others with `make more`.
FIRST = ("python -", "fork")
KINDS = [
    FIRST,
    pytest.param("python -", "portable", marks=pytest.mark.long),
    *(
        pytest.param(prompt, method, marks=pytest.mark.long)
        for prompt in PROMPTS
        for method in START_METHODS
        if (prompt, method) != FIRST
    ),
]

# A blank line ends a definition at a prompt; there is none within.
LOADER = """
import torch
from torch.utils.data import Dataset
from holdfast import DataLoader

class Mine(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return scaled(index)

def scaled(index):
    return torch.tensor(index * FACTOR)

FACTOR = 10
loader = DataLoader(Mine(), batch_size=2, num_workers=2, collate_fn=lambda samples: torch.stack(samples), HOW)
print("loaded", [batch.tolist() for batch in loader])
"""

SPAWN = """
import os
import holdfast

GREETING = "hello from"

def greet(rank, mark):
    os.write(1, f"{mark} {GREETING} {rank}\\n".encode())

holdfast.spawn(greet, ("*",), nprocs=2, HOW)
print("joined")
"""


POOL = """
import multiprocessing
import holdfast

class Scale:
    def __call__(self, number):
        return number * FACTOR

FACTOR = 10
how = {"backend": "METHOD"} if "METHOD" == "portable" else {"mp_context": multiprocessing.get_context("METHOD")}
with holdfast.ProcessPoolExecutor(2, **how) as pool:
    print("called", list(pool.map(Scale(), range(4))), pool.submit(lambda: FACTOR).result())

print("mapped", list(holdfast.map(lambda number: number + FACTOR, range(4), num_workers=2, **how)))
"""


def how(method: str, name: str) -> str:
    return 'backend="portable"' if method == "portable" else f'{name}="{method}"'


@pytest.mark.long
@pytest.mark.parametrize(("prompt", "method"), KINDS)
def test_a_loader_works_with_all_it_needs_typed(prompt: str, method: str) -> None:
    """Dataset class, function, global and lambda."""
    said = run_typed(prompt, LOADER.replace("HOW", how(method, "multiprocessing_context")))
    assert "loaded [[0, 10], [20, 30]]" in said


@pytest.mark.long
@pytest.mark.parametrize(("prompt", "method"), KINDS)
def test_spawn_works_with_a_function_that_was_typed(prompt: str, method: str) -> None:
    said = run_typed(prompt, SPAWN.replace("HOW", how(method, "start_method")))
    assert said.count("* hello from 0") == said.count("* hello from 1") == 1
    assert "joined" in said


@pytest.mark.parametrize(("prompt", "method"), KINDS)
def test_a_pool_and_map_work_with_what_was_typed(prompt: str, method: str) -> None:
    """A class, a lambda, a global."""
    said = run_typed(prompt, POOL.replace("METHOD", method))
    assert "called [0, 10, 20, 30] 10" in said
    assert "mapped [10, 11, 12, 13]" in said
