"""64 samples in batches of 4, two workers, a fault at sample 17: how many samples an epoch delivers.

The matrix that other loaders were measured with. F8, nothing is left after `kill -9` of the main process, is
`test_main_process_killed.py`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from faulty import Fault
from helpers import run_program
from holdfast import DataLoader

pytestmark = pytest.mark.timeout(150)

LENGTH = 64
BAD = 17
REST = [index for index in range(LENGTH) if index != BAD]


class Numbers64(Dataset[torch.Tensor]):
    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == BAD:
            self.fault.strike()
        return torch.tensor(index)


def epoch(how: str, directory: Path, *, once: bool = False, **options: object) -> list[list[int]]:
    """The batches of one epoch."""
    fault = Fault(how, once, directory / "struck", os.getpid())
    with DataLoader(Numbers64(fault), batch_size=4, num_workers=2, **options) as loader:
        batches = [batch.tolist() for batch in loader]
        assert [sample.index for sample in loader.skipped_samples] == ([] if once else [BAD])
    assert fault.has_struck()
    return batches


def flat(batches: list[list[int]]) -> list[int]:
    return [index for batch in batches for index in batch]


def test_f1_an_exception_costs_one_sample_with_skip(tmp_path: Path) -> None:
    """63 of 64, in order."""
    assert flat(epoch("exception", tmp_path, on_error="skip")) == REST


def test_f1_an_exception_costs_no_place_with_replace(tmp_path: Path) -> None:
    """64: sixteen batches of four, and in the bad one's place another of its batch."""
    batches = epoch("exception", tmp_path, on_error="replace")
    assert [len(batch) for batch in batches] == [4] * 16
    assert flat(batches)[BAD] in {16, 18, 19}
    assert [index for place, index in enumerate(flat(batches)) if place != BAD] == REST


def test_f2_a_kill_costs_nothing(tmp_path: Path) -> None:
    """SIGKILL once: 64 of 64, in order, by default."""
    assert flat(epoch("SIGKILL", tmp_path, once=True)) == list(range(LENGTH))


@pytest.mark.parametrize("how", ["SIGSEGV", "os._exit"], ids=["f3", "f6"])
def test_f3_f6_a_sample_that_crashes_each_time_costs_itself(how: str, tmp_path: Path) -> None:
    """63 of 64: its batch has the other three."""
    assert flat(epoch(how, tmp_path, on_error="skip")) == REST


def test_f4_a_sample_that_hangs_costs_itself(tmp_path: Path) -> None:
    """63 of 64, with sample_timeout."""
    assert flat(epoch("endless loop", tmp_path, on_error="skip", sample_timeout=1.0)) == REST


class Memory64(Numbers64):
    """The bad sample is of 8 GiB."""

    def __init__(self, library: str) -> None:
        self.library = library

    def __getitem__(self, index: int) -> torch.Tensor:
        if index != BAD:
            return torch.tensor(index)
        return torch.ones(1 << 31) if self.library == "torch" else torch.from_numpy(np.ones(1 << 30))


@pytest.mark.parametrize("library", ["torch", "numpy"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver", "portable"])
def test_f5_a_sample_over_memory_limit_costs_itself(library: str, method: str) -> None:
    """63 of 64: with memory_limit it may be passed over; the incident names the sample, its size and the limit."""
    how = {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}
    with DataLoader(Memory64(library), 4, num_workers=2, memory_limit="1GB", on_error="skip", **how) as loader:
        assert flat([batch.tolist() for batch in loader]) == REST
        assert [sample.index for sample in loader.skipped_samples] == [BAD]
        (incident,) = loader.incidents
    assert (incident.cause, incident.confidence, incident.sample_index) == ("over memory_limit", "likely", BAD)
    assert incident.summary == "asked for 8.0 GiB, over memory_limit (1 GB)" or library == "numpy"
    assert "asked for 8.00 GiB, over memory_limit (1 GB)" in incident.summary or library == "torch"
    assert "of its own memory, above its start, it had" in incident.evidence


@pytest.mark.parametrize(
    "through_stdin", [pytest.param(False, id="script"), pytest.param(True, id="python -", marks=pytest.mark.long)]
)
def test_f7_a_lambda_in_main_reaches_new_interpreters(through_stdin: bool) -> None:
    """64 of 64 under spawn, from a script and from a program on standard input."""
    assert run_program("lambda_dataset.py", "spawn", through_stdin=through_stdin) == "64 in order\n"


# -- two programs of a user's account ----------------------------------------------------------------------------------


def test_a_sample_that_raises_now_and_then_ends_the_epoch_with_its_own_error_by_default() -> None:
    """Its type and message, the index, the worker, and the line of the dataset."""
    *_, text = run_program("one_bad_sample.py", "raise").partition("Traceback")
    assert re.search(r"^ValueError: not today$", text, re.MULTILINE), text
    assert "dataset[5]" in text
    assert re.search(r"worker process \d \(pid \d+\)", text), text
    assert re.search(r'one_bad_sample\.py", line \d+, in __getitem__\n\s+raise ValueError', text), text


def test_a_sample_that_raises_now_and_then_is_left_out_with_skip() -> None:
    """Every epoch ends: whole until the sample raises for the first time, and from there on without it."""
    *epochs, skipped = run_program("one_bad_sample.py", "skip").splitlines()
    whole, rest = "0 1 2 3 4 5 6 7 8 9", "0 1 2 3 4 6 7 8 9"
    assert len(epochs) == 60
    assert epochs == [whole] * epochs.count(whole) + [rest] * epochs.count(rest)
    assert skipped == "skipped 5", "not once in 60 epochs"


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_dataset_with_a_lock_runs_to_the_end(on_error: str) -> None:
    """Nothing is wrong with it where workers are forked: each has its own lock and its own counter."""
    assert run_program("shared_counter.py", "fork", on_error) == "50 batches of 2 in epoch 0\n"


def test_a_dataset_with_a_lock_is_refused_by_name_where_it_must_be_pickled() -> None:
    """The attribute that cannot travel is named."""
    assert "dataset.lock" in run_program("shared_counter.py", "spawn", "skip")
