"""What a sample is made of, in a few words: its parts, each with its kind and sizes.

    (image, {"label": 3})  ──►  [0]            tensor float32   3, 224, 224
                                ['label'] ...  int

Never raises, whatever a sample is: where an object does not say what it is, its type's name has to do. Bounded: of a
sample with very many parts the first are looked at. Neither torch nor numpy is imported, only asked.

Runs in: worker process; main process, which reads it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

VARIES = -1
"""A size that is not the same in all items of a list, or that was not kept."""

_MOST_PARTS = 256
_MOST_FIELDS = 64
_MOST_ITEMS = 1000
_DEEPEST = 8
_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes, bytearray))
_LISTS = (tuple, list, set, frozenset)
_NAMES = {"ndarray": "array", "Tensor": "tensor", "NoneType": "None"}


class Part(NamedTuple):
    """One part of a sample. `path` is how to get there: "[0]", "['label']", "[1][*]" for the items of a list."""

    path: str
    kind: str
    sizes: tuple[int, ...] = ()


Signature = tuple[Part, ...]


class Look(NamedTuple):
    """What was seen of one object."""

    parts: Signature
    nbytes: int


def look_at(sample: Any) -> Look:
    """The signature of a sample, and roughly how much memory it takes."""
    look = _look("", sample, 0)
    return Look(look.parts[:_MOST_PARTS], look.nbytes)


def without_sizes(signature: Signature) -> Signature:
    """The same, where nothing is known of the sizes."""
    return tuple(part._replace(sizes=(VARIES,) * len(part.sizes)) for part in signature)


def _look(path: str, value: Any, depth: int) -> Look:
    try:
        return _look_closely(path, value, depth)
    except Exception:  # an object of the user's may do anything when asked
        return Look((Part(path, _name(value)),), 0)


def _look_closely(path: str, value: Any, depth: int) -> Look:
    if type(value) in _PLAIN:
        return Look((Part(path, _name(value)),), _size(value))
    if not isinstance(value, (*_LISTS, dict)):
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            kind = _array_kind(type(value).__name__, type(value).__module__, value.dtype)
            return Look((Part(path, kind, tuple(value.shape)),), _nbytes(value))
        if hasattr(value, "mode") and hasattr(value, "getbands"):
            return _look_at_image(path, value)
    fields = None if depth == _DEEPEST else _fields(path, value)
    if fields is not None:
        return _together(_look(*field, depth + 1) for field in fields)
    if isinstance(value, _LISTS) and depth < _DEEPEST:
        return _look_at_items(path, value, depth)
    return Look((Part(path, _name(value)),), _size(value))


def _look_at_image(path: str, value: Any) -> Look:
    """Of Pillow."""
    width, height = value.size
    return Look((Part(path, f"image {value.mode}", (width, height)),), width * height * len(value.getbands()))


@functools.lru_cache(maxsize=1000)
def _array_kind(name: str, module: str, dtype: Any) -> str:
    name = _NAMES.get(name, "numpy" if module == "numpy" else name)
    return f"{name} {dtype}".replace("torch.", "")


def _nbytes(value: Any) -> int:
    try:
        return int(value.nbytes)
    except Exception:  # a sparse tensor has none
        return 0


def _fields(path: str, value: Any) -> Iterator[tuple[str, Any]] | None:
    """The parts that have names; None if there are none, or too many to be more than so many items."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ((f"{path}.{name}", getattr(value, name)) for name in value._fields)
    if isinstance(value, tuple):
        if 0 < len(value) <= _MOST_FIELDS:
            return ((f"{path}[{k}]", item) for k, item in enumerate(value))
    elif isinstance(value, Mapping):
        if len(value) <= _MOST_FIELDS:
            return ((f"{path}[{key!r}]", value[key]) for key in sorted(value, key=repr))
    elif dataclasses.is_dataclass(value):
        return ((f"{path}.{each.name}", getattr(value, each.name)) for each in dataclasses.fields(value))
    return None


def _look_at_items(path: str, value: Any, depth: int) -> Look:
    """A list, which may be of any length. Its items count as one part where they are of one kind."""
    items = [_look(f"{path}[*]", item, depth + 1) for item in itertools.islice(value, _MOST_ITEMS)]
    nbytes = _size(value) + sum(item.nbytes for item in items) * len(value) // max(1, len(items))
    if len({_kinds(item.parts) for item in items}) > 1:
        if len(value) <= _MOST_FIELDS and isinstance(value, list):  # it is used as a tuple
            return _together(_look(f"{path}[{k}]", item, depth + 1) for k, item in enumerate(value))
        items = []
    own = Part(path, _name(value), (len(value),))
    return Look((own, *_merged([item.parts for item in items])), nbytes)


def _kinds(signature: Signature) -> tuple[object, ...]:
    return tuple((part.path, part.kind, len(part.sizes)) for part in signature)


def _merged(signatures: list[Signature]) -> Iterator[Part]:
    """Of signatures that differ in sizes only, the one that fits them all."""
    for parts in zip(*signatures, strict=True):
        sizes = zip(*(part.sizes for part in parts), strict=True)
        yield parts[0]._replace(sizes=tuple(each[0] if len(set(each)) == 1 else VARIES for each in sizes))


def _together(looks: Iterable[Look]) -> Look:
    parts: list[Part] = []
    nbytes = 0
    for look in looks:
        nbytes += look.nbytes
        if len(parts) < _MOST_PARTS:
            parts += look.parts
    return Look(tuple(parts), nbytes)


def _name(value: Any) -> str:
    name = type(value).__qualname__
    return _NAMES.get(name, name)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | bytearray) else sys.getsizeof(value, 0)
