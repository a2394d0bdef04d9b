"""Whether two samples are the same, part by part, and where they first differ; how large one is; what it consists of.

torch and numpy are asked only about what is theirs. Runs in: worker process.
"""

from __future__ import annotations

import dataclasses
import math
import pickle
import sys
from collections.abc import Iterator, Mapping
from typing import Any

_DEEPEST = 20
_MOST_PARTS = 5
_PLAIN = (int, float, str, bytes, bool, type(None), complex)


def difference(first: Any, second: Any, path: str = "sample", depth: int = _DEEPEST) -> str | None:
    """The path of the first part that differs; None: they are the same. A NaN is the same as a NaN."""
    if type(first) is not type(second):
        return path
    parts = _parts(first) if depth else None
    if parts is None:
        return None if _equal(first, second) else path
    others = dict(_parts(second) or ())
    if len(parts) != len(others) or any(name not in others for name, _ in parts):
        return path
    found = (difference(value, others[name], f"{path}{name}", depth - 1) for name, value in parts)
    return next((where for where in found if where is not None), None)


def size(value: Any, depth: int = _DEEPEST) -> int:
    """The bytes of tensors, arrays, bytes and texts in it."""
    if _is_array(value):
        return _nbytes(value)
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    parts = _parts(value) if depth else None
    return sum(size(part, depth - 1) for _, part in parts or ())


def _nbytes(array: Any) -> int:
    try:
        return int(array.nbytes)
    except RuntimeError:  # a sparse tensor does not say
        return 0


def has_cuda(value: Any, depth: int = _DEEPEST) -> bool:
    """Whether a part of it lies on a CUDA device."""
    if _is_array(value):
        return bool(getattr(value, "is_cuda", False))
    parts = _parts(value) if depth else None
    return any(has_cuda(part, depth - 1) for _, part in parts or ())


def describe(value: Any, depth: int = 2) -> str:
    """ "tuple of Tensor float32 3x224x224, int"."""
    name = type(value).__name__
    if _is_array(value):
        kind = str(value.dtype).removeprefix("torch.")
        return f"{name} {kind} {'x'.join(map(str, value.shape)) or 'scalar'}"
    if not depth or not isinstance(value, list | tuple | Mapping):
        return name
    shown = [describe(part, depth - 1) for _, part in (_parts(value) or [])[:_MOST_PARTS]]
    more = ", ..." if len(value) > _MOST_PARTS else ""
    return f"{name} of {', '.join(shown)}{more}" if shown else f"empty {name}"


def _parts(value: Any) -> list[tuple[str, Any]] | None:
    """What it is made of, by how it is reached; None: it is no container that we know."""
    if _is_array(value):
        return None
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", part) for key, part in value.items()]
    if isinstance(value, list | tuple) or _is_nested(value):
        items = value if isinstance(value, list | tuple) else value.unbind()
        return [(f"[{number}]", part) for number, part in enumerate(items)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value)]
    if "__eq__" not in _names_of(type(value)) and isinstance(getattr(value, "__dict__", None), dict):
        return [(f".{name}", part) for name, part in vars(value).items()]
    return None


def _is_array(value: Any) -> bool:
    return any(isinstance(value, kind) for kind in _array_types()) and not _is_nested(value)


def _is_nested(value: Any) -> bool:
    """A tensor that is a list of tensors, and has no shape."""
    return bool(getattr(value, "is_nested", False)) and hasattr(value, "unbind")


def _array_types() -> Iterator[type]:
    """Of the libraries that are there: a sample of theirs cannot come without them."""
    for module, name in (("torch", "Tensor"), ("numpy", "ndarray"), ("numpy", "generic")):
        if module in sys.modules:
            yield getattr(sys.modules[module], name)


def _names_of(kind: type) -> set[str]:
    """What its classes define, but `object`."""
    return {name for base in kind.__mro__ if base is not object for name in vars(base)}


def _equal(first: Any, second: Any) -> bool:
    """Of two that have no parts, and are of one type."""
    if _is_array(first):
        return _equal_arrays(first, second)
    if isinstance(first, float) and math.isnan(first):
        return math.isnan(second)
    return bool(first == second) if isinstance(first, _PLAIN) else _equal_objects(first, second)


def _equal_arrays(first: Any, second: Any) -> bool:
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(first, torch.Tensor):
        if first.layout is not torch.strided or first.is_quantized:
            return bool(torch.equal(_dense(first), _dense(second)))
        return bool(((first == second) | (first.isnan() & second.isnan())).all())
    assert numpy is not None
    can_be_nan = first.dtype.kind in "fcmM"  # of a time it is NaT
    return bool(numpy.array_equal(first, second, equal_nan=can_be_nan))


def _dense(tensor: Any) -> Any:
    return tensor.dequantize() if tensor.is_quantized else tensor.to_dense()


def _equal_objects(first: Any, second: Any) -> bool:
    """By what they would be sent as, and where that tells nothing by their own word."""
    try:
        if pickle.dumps(first) == pickle.dumps(second):
            return True
    except Exception:
        pass
    try:
        return bool(first == second)
    except Exception:
        return False
