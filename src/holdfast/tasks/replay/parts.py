"""What a sample is made of: the structure, and of each part its type, shape and size. Nothing of what is in it.

Bounded: of a long list or a deep nest the first parts are told. torch and numpy are looked at by the names of their
attributes, so that whatever behaves like an array counts as one.

Pure. Runs in: worker process, where the sample is; main process under a debugger.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

_MOST_ITEMS = 16  # of one container
_MOST_PARTS = 64
_DEEPEST = 5
_LONGEST_PATH = 120


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a sample."""

    path: str
    """How to get there: "['image']", "[0].boxes"; empty: it is the sample itself."""
    type: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    nbytes: int | None = None
    length: int | None = None
    """Of a text, bytes or a container: how many it holds."""


def parts_of(sample: Any) -> tuple[Part, ...]:
    """The sample, and what is in it, outermost first."""
    return tuple(islice(_walk(sample, "", _DEEPEST), _MOST_PARTS))


def _walk(value: Any, path: str, depth: int) -> Iterator[Part]:
    try:
        yield _part(value, path[:_LONGEST_PATH])
        inner = _inner(value) if depth else ()
        for step, item in islice(inner, _MOST_ITEMS):
            yield from _walk(item, path + step, depth - 1)
    except Exception as error:  # an object of the user's may fail at being looked at
        yield Part(path[:_LONGEST_PATH], f"{type(value).__name__}, which raises {type(error).__name__} when looked at")


def _part(value: Any, path: str) -> Part:
    name = type(value).__name__
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if dtype is not None and isinstance(shape, tuple):
        sides = tuple(int(side) for side in shape)
        return Part(path, name, str(dtype).removeprefix("torch."), sides, _nbytes(value, sides))
    if isinstance(value, str | bytes | bytearray | memoryview):
        nbytes = len(value.encode(errors="replace")) if isinstance(value, str) else len(value)
        return Part(path, name, nbytes=nbytes, length=len(value))
    return Part(path, name, length=len(value) if isinstance(value, Mapping | list | tuple | set | frozenset) else None)


def _nbytes(value: Any, sides: tuple[int, ...]) -> int | None:
    told = getattr(value, "nbytes", None)
    if isinstance(told, int):
        return told
    each = getattr(value, "itemsize", None)
    return math.prod(sides) * each if isinstance(each, int) else None


def _inner(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield f"[{_key(key)}]", item
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for name, item in zip(value._fields, value, strict=False):
            yield f".{name}", item
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield f"[{number}]", item
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield f".{field.name}", getattr(value, field.name, None)


def _key(key: Any) -> str:
    """Keys are names nearly always; of what is neither text nor number only the type is told."""
    return repr(key)[:40] if isinstance(key, str | int) else f"<{type(key).__name__}>"
