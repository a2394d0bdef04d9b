"""Bad samples are remembered between runs: what is written, what is read back, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers import Numbers
from holdfast import DataLoader
from records import Asked, Calls, flat

pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings(r"ignore:\d+ samples? listed in skipped_file")]

LENGTH = 12
BAD = 5
REST = [index for index in range(LENGTH) if index != BAD]


def dataset(tmp_path: Path, *bad: int) -> Asked:
    return Asked(LENGTH, Calls(tmp_path / "calls"), {index: ValueError("broken header") for index in bad})


def new_loader(data: Any, file: Path, num_workers: int = 2, **options: Any) -> DataLoader[torch.Tensor]:
    options = {"on_error": "skip", **options}
    return DataLoader(data, 2, num_workers=num_workers, skipped_file=file, **options)


def entries(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_known_bad_sample_is_not_tried_again(num_workers: int, on_error: str, tmp_path: Path) -> None:
    """Neither in the next epoch, nor by another loader that reads the file; it is listed there all the same."""
    file, data = tmp_path / "skipped.jsonl", dataset(tmp_path, BAD)
    for _ in range(2):
        with new_loader(data, file, num_workers, on_error=on_error) as loader:
            for epoch in (1, 2):
                delivered = flat(loader)
                assert [index for index in delivered if index != 4] == [index for index in REST if index != 4]
                assert delivered.count(4) == (1 if on_error == "skip" else 2)
                assert [sample.index for sample in loader.skipped_samples] == epoch * [BAD]
                assert "broken header" in loader.skipped_samples[-1].reason
    assert data.calls.counts()[str(BAD)] == 1
    header, entry = entries(file)
    assert header == {"holdfast": "skipped samples", "version": 1, "dataset_length": LENGTH}
    assert entry["index"] == BAD
    assert "broken header" in entry["reason"]


def test_a_file_is_made_only_when_there_is_something_to_write(tmp_path: Path) -> None:
    """A good dataset leaves no file; an empty one is as good as none."""
    file = tmp_path / "skipped.jsonl"
    with new_loader(dataset(tmp_path), file) as loader:
        assert flat(loader) == list(range(LENGTH))
    assert not file.exists()
    file.touch()
    with new_loader(dataset(tmp_path, BAD), file) as loader:
        assert flat(loader) == REST
    assert [entry.get("index") for entry in entries(file)] == [None, BAD]


@pytest.mark.parametrize("torn", ['{"index":7,"rea', '{"index":7', "{", '{"index":7,"reason":"x"}'])
def test_a_torn_last_line_is_passed_over(torn: str, tmp_path: Path) -> None:
    """A line without its end was not written whole. What comes after it is written on a line of its own, and read."""
    file = tmp_path / "skipped.jsonl"
    with new_loader(dataset(tmp_path, 3), file) as loader:
        list(loader)
    file.write_text(file.read_text() + torn)
    with new_loader(dataset(tmp_path, BAD), file) as loader:
        assert flat(loader) == [index for index in REST if index != 3]
    data = dataset(tmp_path / "again")
    (tmp_path / "again").mkdir()
    with new_loader(data, file) as loader:
        delivered = flat(loader)
    assert [index for index in delivered if index != 7] == [index for index in REST if index not in (3, 7)]
    assert not {"3", str(BAD)} & data.calls.counts().keys()


def test_a_torn_first_line_is_a_new_file(tmp_path: Path) -> None:
    """The machine went down while the file was made: nothing was in it, and what is written now is read back."""
    file, data = tmp_path / "skipped.jsonl", dataset(tmp_path, BAD)
    file.write_text('{"holdfast":"skipped sam')
    for _ in range(2):
        with new_loader(data, file) as loader:
            assert flat(loader) == REST
    assert data.calls.counts()[str(BAD)] == 1


def test_a_file_of_another_length_is_refused(tmp_path: Path) -> None:
    """Its indices mean other samples. Both lengths and the file are named."""
    file = tmp_path / "skipped.jsonl"
    with new_loader(dataset(tmp_path, BAD), file) as loader:
        list(loader)
    with pytest.raises(ValueError, match=rf"skipped_file.*skipped\.jsonl.* {LENGTH} .* {LENGTH + 1}"):
        new_loader(Numbers(LENGTH + 1), file)


@pytest.mark.parametrize(
    "text", ["import torch\n", "a note", '{"holdfast": "report"}\n', "[1, 2]\n", "\nimport os\n", "\x00\xff\n"]
)
def test_a_file_that_is_not_ours_is_refused_and_left_alone(text: str, tmp_path: Path) -> None:
    """A path to the wrong file must not cost its owner anything."""
    file = tmp_path / "train.py"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"skipped_file.*train\.py.*not a file of skipped samples"):
        new_loader(dataset(tmp_path), file)
    assert file.read_text() == text


def test_a_file_without_on_error_is_refused() -> None:
    """With "raise" nothing is ever skipped: the argument would have no effect."""
    with pytest.raises(ValueError, match=r"skipped_file.*on_error"):
        DataLoader(Numbers(LENGTH), skipped_file="skipped.jsonl")


class _Killed(Numbers):
    """Sample 5 costs the life of its worker each time: by its own doing, or by another process."""

    def __init__(self, number: signal.Signals, by: str) -> None:
        super().__init__(LENGTH, 1)
        self.number, self.by = number, by

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == BAD and self.by == "itself":
            os.kill(os.getpid(), self.number)
        elif index == BAD:
            subprocess.run(["kill", f"-{int(self.number)}", str(os.getpid())], check=True)
            signal.pause()
        return super().__getitem__(index)


@pytest.mark.parametrize(
    ("number", "by", "is_written"),
    [
        (signal.SIGKILL, "another", False),
        (signal.SIGKILL, "itself", False),  # the kernel does not tell who sent it
        (signal.SIGTERM, "another", False),
        (signal.SIGTERM, "itself", True),
        (signal.SIGSEGV, "another", False),
        (signal.SIGSEGV, "itself", True),
        (signal.SIGABRT, "itself", True),
    ],
)
def test_only_what_the_sample_caused_itself_is_written(
    number: signal.Signals, by: str, is_written: bool, tmp_path: Path
) -> None:
    """A kill from outside, or by the kernel that needs memory: skipped in this run, but not for ever."""
    file = tmp_path / "skipped.jsonl"
    with new_loader(_Killed(number, by), file) as loader:
        assert flat(loader) == REST
        assert [sample.index for sample in loader.skipped_samples] == [BAD]
    assert file.exists() == is_written


def test_a_batch_that_cannot_be_collated_is_not_written(tmp_path: Path) -> None:
    """None of its samples is known to be the one."""
    file = tmp_path / "skipped.jsonl"
    with new_loader(Numbers(LENGTH, 1), file, collate_fn=_refuse_five) as loader:
        assert flat(loader) == [index for index in range(LENGTH) if index not in (4, 5)]
    assert not file.exists()


def _refuse_five(samples: list[torch.Tensor]) -> torch.Tensor:
    batch = torch.cat(samples)
    if BAD in batch:
        raise ValueError("uneven")
    return batch


def test_two_loaders_share_a_file(tmp_path: Path) -> None:
    """As the ranks of a training do: what both append is there for the next, each sample on its own line."""
    file = tmp_path / "skipped.jsonl"
    first, second = new_loader(dataset(tmp_path, 2, 3), file), new_loader(dataset(tmp_path, 8), file)
    with first, second:
        for left, right in zip(first, second, strict=False):
            assert left.numel() <= 2 >= right.numel()
    assert sorted(entry["index"] for entry in entries(file)[1:]) == [2, 3, 8]
    with new_loader(dataset(tmp_path), file) as loader:
        assert flat(loader) == [index for index in range(LENGTH) if index not in (2, 3, 8)]


class _Tensors(list[Any]):
    """A sampler that gives tensors, as `torch.randperm` does."""

    def __iter__(self) -> Any:
        return iter(torch.arange(LENGTH))


class _TakesTensors(Asked):
    def __getitem__(self, index: Any) -> torch.Tensor:
        return super().__getitem__(int(index))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_sample_whose_index_is_a_tensor_is_not_tried_again_either(num_workers: int, tmp_path: Path) -> None:
    """Neither in the next epoch nor in the next run."""
    data = _TakesTensors(LENGTH, Calls(tmp_path / "calls"), {BAD: ValueError("broken header")})
    for _ in range(2):
        with new_loader(data, tmp_path / "skipped", num_workers, sampler=_Tensors()) as loader:
            for _ in range(2):
                assert flat(loader) == REST
    assert data.calls.counts()[str(BAD)] == 1
