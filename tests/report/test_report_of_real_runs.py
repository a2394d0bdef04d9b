"""Reports of what real loaders and pools wrote: the record and the report mean the same by every field."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import Dataset

import holdfast
from holdfast import DataLoader, HoldfastWarning
from holdfast.records import reader
from holdfast.report.model import Report, report_of

SAMPLES, BATCH_SIZE = 48, 4
SLOW, CRASHES, RAISES = 14, 17, 30
SLOW_S = 0.15
TINY_S = 0.001
"""Of faster samples, and those of a worker's first batch, each is not timed."""


class Photos(Dataset[torch.Tensor]):
    """Sample i is i; one takes long, one crashes, one raises."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(SLOW_S if index == SLOW else TINY_S)
        if index == CRASHES:
            ctypes.string_at(0)
        if index == RAISES:
            raise ValueError("not a JPEG file")
        return torch.tensor(index)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def last_report() -> Report:
    return report_of(next(reader.all_runs()))


def test_a_loader_is_told_as_its_stats_are(tmp_path: Path) -> None:
    """Counts, stages, restarts, lives, slowest sample, what was skipped: all from the record."""
    options = {"num_workers": 2, "on_error": "skip", "multiprocessing_context": "fork", "memory_limit": "500MB"}
    with DataLoader(Photos(), BATCH_SIZE, **options) as loader:
        found = [int(value) for batch in loader for value in batch]
        stats = loader.stats()
    report = last_report()
    assert found == [index for index in range(SAMPLES) if index not in (CRASHES, RAISES)]
    assert (report.pace.samples, report.pace.batches, report.restarts) == (stats.samples, stats.batches, stats.restarts)
    assert [name for name, seconds in report.pace.stages if seconds > 0] == ["fetch", "collate", "send"]
    assert report.pace.stages[0][1] >= SLOW_S
    assert str(SLOW) in [slow.sample for slow in report.pace.slowest]  # on a busy machine any may take longer
    skipped = {(one.sample, one.epoch) for one in report.losses.skipped}  # in the order of their ends, which is any
    assert skipped == {(str(CRASHES), 0), (str(RAISES), 0)}
    assert {group.cause: group.count for group in report.incidents.groups} == {
        "segmentation fault": 2,
        "dataset exception": 1,
    }
    assert sum(worker.restarts for worker in report.timeline.workers) == stats.restarts == 2
    assert [len(worker.lives) for worker in report.timeline.workers] == [3, 1]
    assert report.memory.limit_bytes == 500_000_000
    assert report.headline.title == "The run came through 3 incidents; 2 samples were left out"


def test_the_loader_takes_the_file_of_what_was_skipped(tmp_path: Path) -> None:
    """The next run does not try them again, and is told to be without incidents."""
    with DataLoader(Photos(), BATCH_SIZE, num_workers=2, on_error="skip", max_retries=0) as loader:
        list(loader)
    file = tmp_path / "skipped.jsonl"
    file.write_text(last_report().losses.skipped_file)
    with DataLoader(Photos(), BATCH_SIZE, num_workers=2, on_error="skip", skipped_file=file) as again:
        with pytest.warns(HoldfastWarning, match="^2 samples listed in skipped_file"):
            batches = list(again)
        assert sum(map(len, batches)) == SAMPLES - 2
    report = last_report()
    assert report.headline.title == "No incident; 2 samples were left out"
    assert report.restarts == 0


def test_a_healthy_loader_is_well() -> None:
    with DataLoader(list(range(40)), BATCH_SIZE, num_workers=2) as loader:
        list(loader)
    report = last_report()
    assert (report.headline.title, report.headline.is_healthy, report.warnings) == ("All went well", True, ())


def exit_at_two(number: int) -> int:
    if number == 2:
        os._exit(3)
    return number * number


def test_a_map_is_told_in_calls() -> None:
    """What failed is listed, and no sample is spoken of."""
    assert list(holdfast.map(exit_at_two, range(4), num_workers=2, on_error="skip")) == [0, 1, 9]
    report = last_report()
    assert "holdfast.map of exit_at_two" in report.headline.story[0].words
    assert report.headline.title.endswith("1 call failed")
    assert report.incidents.groups[0].cause == "exit by user code"
