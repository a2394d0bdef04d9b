"""Whose bad samples the file of `holdfast run --skipped-file` is about, and who is told that it is not about them."""

from __future__ import annotations

import warnings
from pathlib import Path

from holdfast.tasks.runner.skipping import SkippedFileOwner


class Numbers:
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


def test_each_dataset_without_the_file_is_told(tmp_path: Path) -> None:
    """Not only the first of them, and none twice, however many loaders it has."""
    train, validation, test = Numbers(3), Numbers(4), Numbers(5)
    owner, path = SkippedFileOwner(), str(tmp_path / "bad.jsonl")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        has_it = [owner.may_use(path, each) for each in (train, validation, test) * 2]
    assert has_it == [True, False, False] * 2
    assert [str(each.message).partition(" than ")[2] for each in told] == [
        "this Numbers of length 4, whose bad samples are not kept",
        "this Numbers of length 5, whose bad samples are not kept",
    ]
