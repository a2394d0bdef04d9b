"""One line of a record: JSON, whatever it is given, and never longer than allowed.

Texts are cut in the middle, with a mark: a traceback says most at its ends. What is neither text, number nor container
is written as the name of its type, never as its `repr`: an index may be an object that holds a sample.

Pure. Runs in: main process; wherever records are read.
"""

from __future__ import annotations

import itertools
import json
import math
import numbers
from collections.abc import Mapping
from typing import Any

MAX_LINE_BYTES = 32 << 10

_LONGEST_TEXT = 8000
_LONGEST_KEY = 100
_MOST_FIELDS = 100  # of the line itself
_MOST_ITEMS = 256  # of a container in it
_DEEPEST = 6
_LONGEST_INT_BITS = 128
_SHORTEST_TEXT = 50  # below it there is no sense in cutting further


def encode(entry: Mapping[str, Any], max_bytes: int = MAX_LINE_BYTES) -> bytes:
    """The line with its end. Texts and containers get shorter until it fits; at worst only its kind is left."""
    longest, most = _LONGEST_TEXT, _MOST_ITEMS
    while longest >= _SHORTEST_TEXT:
        fields = list(entry.items())[:_MOST_FIELDS]
        line = _dumps({_key(key): plain(value, longest, most) for key, value in fields})
        if len(line) <= max_bytes:
            return line
        longest, most = longest // 2, most // 2
    return _dumps({"kind": entry.get("kind"), "number": entry.get("number"), "cut": True})


def decode(line: bytes) -> dict[str, Any] | None:
    """What a line says; None where it was torn, or is no line of ours."""
    try:
        entry = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("kind"), str) else None


def cut(text: str, longest: int) -> str:
    """The text, or its beginning and its end with a mark between them that says how much is missing."""
    if len(text) <= longest:
        return str.__str__(text)  # of a StrEnum: its value
    kept = longest // 2
    return f"{text[:kept]} [... {len(text) - 2 * kept} characters cut ...] {text[-kept:]}"


def plain(value: Any, longest: int = _LONGEST_TEXT, most: int = _MOST_ITEMS, depth: int = _DEEPEST) -> Any:
    """A value as JSON can say it, within bounds."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return cut(value, longest)
    if isinstance(value, numbers.Real):
        return _number(value)
    return _container(value, longest, most, depth - 1) if depth else _type_of(value)


def _container(value: Any, longest: int, most: int, depth: int) -> Any:
    if isinstance(value, Mapping):
        return _mapping(value, longest, most, depth)
    if isinstance(value, list | tuple | set | frozenset):
        items = [plain(item, longest, most, depth) for item in itertools.islice(value, most)]
        return items if len(value) <= most else [*items, f"[... {len(value) - most} more ...]"]
    return _type_of(value)


def _mapping(value: Mapping[Any, Any], longest: int, most: int, depth: int) -> dict[str, Any]:
    first = itertools.islice(value.items(), most)
    items = {_key(key): plain(item, longest, most, depth) for key, item in first}
    return items if len(value) <= most else {**items, "...": f"{len(value) - most} more"}


def _key(key: object) -> str:
    return cut(key if isinstance(key, str) else str(plain(key, depth=0)), _LONGEST_KEY)


def _number(value: numbers.Real) -> int | float | str:
    """Numbers of numpy are numbers. JSON has no infinity, and Python does not print an int of any length."""
    if isinstance(value, numbers.Integral):
        whole = int(value)
        return whole if whole.bit_length() <= _LONGEST_INT_BITS else f"<int of {whole.bit_length()} bits>"
    real = float(value)
    return real if math.isfinite(real) else repr(real)


def _type_of(value: object) -> str:
    return f"<{cut(type(value).__name__, _LONGEST_KEY)}>"


def _dumps(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":"), allow_nan=False).encode() + b"\n"
