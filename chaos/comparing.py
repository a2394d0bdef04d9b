"""Whether two batches are equal, exactly: structure, types, dtypes, every bit.

Runs in: main.
"""

from __future__ import annotations

from typing import Any

import torch


def difference(ours: Any, theirs: Any, path: str = "batch") -> str | None:
    """Where two batches differ first, in words; None if they are equal."""
    if type(ours) is not type(theirs):
        return f"{path}: {type(ours).__name__} and {type(theirs).__name__}"
    if isinstance(ours, torch.Tensor):
        return _tensor_difference(ours, theirs, path)
    if isinstance(ours, dict):
        return _items_difference(ours, theirs, path)
    if isinstance(ours, list | tuple):
        return _items_difference(dict(enumerate(ours)), dict(enumerate(theirs)), path)
    return None if ours == theirs else f"{path}: {ours!r} and {theirs!r}"


def _items_difference(ours: dict[Any, Any], theirs: dict[Any, Any], path: str) -> str | None:
    if list(ours) != list(theirs):
        return f"{path}: items {list(ours)} and {list(theirs)}"
    found = (difference(ours[key], theirs[key], f"{path}[{key!r}]") for key in ours)
    return next((text for text in found if text is not None), None)


def _tensor_difference(ours: torch.Tensor, theirs: torch.Tensor, path: str) -> str | None:
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return f"{path}: {ours.dtype} {tuple(ours.shape)} and {theirs.dtype} {tuple(theirs.shape)}"
    if torch.equal(ours, theirs):
        return None
    where = (ours != theirs).nonzero()[0].tolist()
    return f"{path}{where}: {ours[tuple(where)].item()!r} and {theirs[tuple(where)].item()!r}"
