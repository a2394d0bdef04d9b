"""What is worth sharing: pure questions about an object, its type and its size.

Libraries that are not imported cannot have made the object, and are not imported to ask. Runs in: the process that
shares.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from holdfast.sharing.blobs import SharedBytes
from holdfast.sharing.dicts import SharedDict
from holdfast.sharing.lists import SharedList

FEW = 16  # entries of a dict that may stay a dict: its handle holds one for each
_LARGE_BYTES = 1024


def is_shared(obj: Any) -> bool:
    return isinstance(obj, SharedList | SharedDict | SharedBytes)


def is_tensor(obj: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(obj, torch.Tensor)


def is_sparse(obj: Any) -> bool:
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(obj))


def is_table(obj: Any) -> bool:
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow is not None and isinstance(obj, pyarrow.Table)


def is_tuple(obj: Any) -> bool:
    """A plain or a named one: what can be made again from its members."""
    return type(obj) is tuple or (isinstance(obj, tuple) and hasattr(obj, "_make"))


def is_record(obj: Any) -> bool:
    return dataclasses.is_dataclass(obj) and not isinstance(obj, type)


def members(obj: Any) -> dict[str, Any]:
    """Those of a dataclass that are set."""
    names = (field.name for field in dataclasses.fields(obj))
    return {name: getattr(obj, name) for name in names if hasattr(obj, name)}


def is_bulk(obj: Any) -> bool:
    """Whether it is shared where it is a member of something else. Small lists, dicts and bytes are not."""
    if isinstance(obj, np.ndarray) or is_shared(obj) or is_tensor(obj) or is_sparse(obj) or is_table(obj):
        return True
    if type(obj) is bytes:
        return len(obj) >= _LARGE_BYTES
    if type(obj) in (list, dict) and len(obj) > FEW:
        return True
    if type(obj) is list or is_tuple(obj):
        return any(map(is_bulk, obj))
    if isinstance(obj, dict):
        return len(obj) <= FEW and any(map(is_bulk, obj.values()))
    return is_record(obj) and any(map(is_bulk, members(obj).values()))


def contains_itself(obj: Any) -> bool:
    """Whether a way into it leads back to where it was before. Not recursive: it is asked where that went too deep."""
    way, on_the_way, seen = [(obj, _inside(obj))], {id(obj)}, {id(obj)}
    while way:
        for inner in way[-1][1]:
            if id(inner) in on_the_way:
                return True
            if id(inner) not in seen:
                seen.add(id(inner))
                on_the_way.add(id(inner))
                way.append((inner, _inside(inner)))
                break
        else:
            on_the_way.remove(id(way.pop()[0]))
    return False


def _inside(obj: Any) -> Iterator[Any]:
    if isinstance(obj, list | tuple):
        return iter(obj)
    if isinstance(obj, dict):
        return iter(obj.values())
    return iter(members(obj).values()) if is_record(obj) else iter(())
