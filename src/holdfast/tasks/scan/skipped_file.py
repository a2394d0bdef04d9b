"""The file of bad samples that the loader takes, as `DataLoader(..., skipped_file=...)` writes and reads it.

    {"holdfast":"skipped samples","version":1,"dataset_length":64}
    {"index":17,"reason":"ValueError: bad header"}

What else a loader writes there is explained in `loader/skips.py`; a scan confirms what it finds, so its lines are of no
run that could be withdrawn.

While a scan runs, the loader itself notes bad samples in a new file beside it: so it is the loader that decides which
are to blame. In the end that file, what the old one says of samples that were not loaded now, and odd samples if they
are to be listed, become the new file in one step.

Runs in: main process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.loader.skips import entries_in, special_kind

_HEADER = {"holdfast": "skipped samples", "version": 1}


class NotOurs(Exception):
    """The file cannot be replaced. The text says why."""


class OfAnotherLength(NotOurs):
    """It is of a dataset that has more or fewer samples, perhaps this one before it changed."""


def read(path: Path, length: int | None) -> dict[int, str]:
    """Index to reason; nothing if there is no file. NotOurs if it is another's, or of a dataset of another length."""
    if (kind := special_kind(path)) is not None:
        raise NotOurs(f"it is {kind}")
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return {}
    header = _parsed(lines[0]) if lines else _HEADER | {"dataset_length": length}
    if header.get("holdfast") != _HEADER["holdfast"]:
        raise NotOurs("it is not a file of skipped samples")
    then = header.get("dataset_length")
    if then != length:
        raise OfAnotherLength(
            f"it is of a dataset of {then} sample{'' if then == 1 else 's'}, and this one has {length}"
        )
    return {index: reason for index, reason in entries_in(lines[1:]).items() if type(index) is int}


def merged(
    old: Mapping[int, str], new: Mapping[int, str], odd: Mapping[int, str], is_loaded: Callable[[int], bool]
) -> dict[int, str]:
    """What the file is to say. Samples of the old one that can be loaded now are not in it."""
    kept = {index: reason for index, reason in old.items() if not is_loaded(index)}
    return dict(sorted((kept | dict(odd) | dict(new)).items()))


def write(path: Path, length: int, entries: Mapping[int, str]) -> None:
    """Replace the file in one step."""
    lines = [_HEADER | {"dataset_length": length}, *({"index": k, "reason": why} for k, why in entries.items())]
    temporary = Path(f"{path}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:  # torn
        return {}
    return entry if isinstance(entry, dict) else {}
