"""Fields of a line of a record, whatever is in them: a file may be of another version, damaged, or made by hand.

Each function gives what it says it gives, and nothing else: a number is finite and within bounds, a text is clean.

Pure. Runs in: wherever records are read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.report import clean

Entry = Mapping[str, Any]

_LARGEST = 1e15  # a time in seconds, a size in bytes, a count: none of them is more
_LONGEST_INDEX = 80


def number(entry: Entry, key: str) -> float | None:
    """None: there is none, or what is there is none."""
    return as_number(entry.get(key))


def as_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST < value < _LARGEST:
        return None
    return float(value) if math.isfinite(value) else None


def whole(entry: Entry, key: str) -> int | None:
    return as_whole(entry.get(key))


def as_whole(value: object) -> int | None:
    found = as_number(value)
    return None if found is None else int(found)


def count(entry: Entry, key: str) -> int:
    """Never below 0."""
    return max(whole(entry, key) or 0, 0)


def text(entry: Entry, key: str, longest: int = clean.LONGEST_LINE) -> str:
    """One line; empty where there is none."""
    return as_text(entry.get(key), longest)


def as_text(value: object, longest: int = clean.LONGEST_LINE) -> str:
    if isinstance(value, str):
        return clean.line(value, longest)
    found = as_number(value)
    return "" if found is None else f"{found:g}" if isinstance(value, float) else str(value)


def block(entry: Entry, key: str) -> str:
    """Several lines."""
    value = entry.get(key)
    return clean.block(value) if isinstance(value, str) else ""


def texts(entry: Entry, key: str, most: int = 10) -> tuple[str, ...]:
    """A list of them, without empty ones, with the runs of spaces in them."""
    value = entry.get(key)
    items = value[:most] if isinstance(value, list) else ()
    return tuple(text for item in items if isinstance(item, str) and (text := clean.spaced(item)))


def index(value: object) -> str:
    """A dataset's index, in words; empty for None. It may be a number, a text, or a list of those."""
    if value is None:
        return ""
    if isinstance(value, str):
        return clean.line(value, _LONGEST_INDEX)
    if isinstance(value, int) and not isinstance(value, bool):
        return clean.line(str(value), _LONGEST_INDEX)
    return clean.line(json.dumps(value, default=str), _LONGEST_INDEX)


def pairs(entry: Entry, key: str) -> Sequence[Sequence[Any]]:
    """A list of lists."""
    value = entry.get(key)
    return [item for item in value if isinstance(item, list)] if isinstance(value, list) else []


def table(entry: Entry, key: str) -> Entry:
    """A mapping; an empty one where there is none."""
    value = entry.get(key)
    return value if isinstance(value, dict) else {}
