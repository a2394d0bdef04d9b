"""The `[tool.holdfast]` table: options of `holdfast run` that go with a project.

    [tool.holdfast]                 of the nearest pyproject.toml, from the script's directory upward
    on_error = "skip"
    sample_timeout = 30
    skipped_file = "bad.jsonl"      relative to the file that says so

Keys are the names of the loader's arguments, with `_` or `-`, and `dataset` and `quiet` as the flags of these names.
What is wrong is a ValueError that names file and key.

Runs in: the command.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from holdfast.tasks.runner import loader_options
from holdfast.workers.arguments import check_flag

_OF_THE_COMMAND = ("dataset", "quiet")
_KNOWN = [*loader_options.NAMES, *_OF_THE_COMMAND]


def nearest(directory: Path) -> Path | None:
    """The pyproject.toml that is nearest, from this directory upward."""
    candidates = (each / "pyproject.toml" for each in (directory, *directory.parents))
    return next((file for file in candidates if file.is_file()), None)


def read(file: Path, *, is_required: bool = False) -> dict[str, Any]:
    """What the table says, by the names of arguments; nothing if there is none and none is required."""
    try:
        tool = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is no TOML: {error}. Mend it, or name another file with --config") from None
    found = tool.get("holdfast") if isinstance(tool, dict) else None
    if found is None:
        if is_required:
            raise ValueError(f"{file} has no [tool.holdfast] table")
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"{file}: tool.holdfast must be a table, [tool.holdfast]")
    return dict(_entry(file, key, value) for key, value in found.items())


def _entry(file: Path, key: str, value: Any) -> tuple[str, Any]:
    name = key.replace("-", "_")
    if name not in _KNOWN:
        raise ValueError(f"{file}, [tool.holdfast]: {loader_options.unknown_key(key, _KNOWN)}")
    try:
        return name, _parse(file, name, value)
    except ValueError as error:
        raise ValueError(f"{file}, [tool.holdfast]: {error}") from None


def _parse(file: Path, name: str, value: Any) -> Any:
    if name == "quiet":
        check_flag(name, value)
        return value
    if name == "dataset":
        if not isinstance(value, str):
            raise ValueError(f"dataset={value!r} must be a text of the form MODULE:DATASET")
        is_file = value.rpartition(":")[0].endswith(".py")
        return str(file.absolute().parent / value) if is_file else value
    if name == "skipped_file" and isinstance(value, str) and value:
        value = str(file.absolute().parent / value)
    return loader_options.parse(name, value)
