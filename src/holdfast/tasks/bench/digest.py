"""A batch as a short text that is equal for equal batches: structure, types, dtypes, shapes and every value.

Two processes can compare what they have loaded without sending it. What is neither an array nor plain data counts by
its pickle, with the values of the arrays in it, and where it has none by its type.

Pure. Runs in: the child process that has the batch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def digest(batch: Any) -> str:
    """The same for two batches that are equal."""
    found = hashlib.blake2b(digest_size=16)
    _feed(found, batch)
    return found.hexdigest()


def _feed(found: hashlib.blake2b, value: Any) -> None:
    found.update(f"{type(value).__qualname__} ".encode())
    if isinstance(value, torch.Tensor):
        _feed_tensor(found, value)
    elif _is_array(value):
        found.update(f"{value.dtype} {value.shape} ".encode())
        found.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _feed(found, key)
            _feed(found, item)
    elif isinstance(value, list | tuple):
        for item in value:
            _feed(found, item)
    elif isinstance(value, set | frozenset):
        for item in sorted(map(digest, value)):
            found.update(item.encode())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _feed(found, getattr(value, field.name, None))
    else:
        found.update(_plain(value))


def _feed_tensor(found: hashlib.blake2b, value: torch.Tensor) -> None:
    found.update(f"{value.dtype} {value.layout} ".encode())
    if value.is_nested:
        for inner in value.unbind():
            _feed(found, inner)
        return
    found.update(f"{tuple(value.shape)} ".encode())
    if value.layout is not torch.strided:
        entries = (value if value.layout is torch.sparse_coo else value.to_sparse()).coalesce()
        _feed(found, entries.indices())
        _feed(found, entries.values())
        return
    dense = (value.int_repr() if value.is_quantized else value).detach().cpu().contiguous()
    found.update(dense.reshape(-1).view(torch.uint8).numpy().tobytes() if dense.numel() else b"")


def _plain(value: Any) -> bytes:
    if isinstance(value, str | int | float | complex | bool | bytes | None):
        return repr(value).encode()
    pickled = io.BytesIO()
    try:
        _Pickler(pickled).dump(value)
        return pickled.getvalue()
    except Exception:  # it has no values that another process could see
        return b"?"


class _Pickler(pickle.Pickler):
    """Has arrays by their values: the pickle of a tensor says where in memory it was."""

    def persistent_id(self, value: Any) -> str | None:
        return digest(value) if isinstance(value, torch.Tensor) or _is_array(value) else None


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype != object  # of objects: those count, and not where they are
