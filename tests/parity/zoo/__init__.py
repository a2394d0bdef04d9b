"""The payload zoo: everything that a dataset may return, in families: tables from name to maker.

A payload of `BROKEN_BY_TORCH` is damaged by torch's workers (quantizer, conjugate bit, negative bit and the class
around a wrapped tensor are lost, or default collation fails on them): there, torch without workers is the oracle.

Runs in: the test process and the workers.
"""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset

from .aliases import ALIASES
from .arrays import ARRAY_LAYOUTS, ARRAYS, SCALARS
from .maker import Maker
from .objects import CONTAINERS, PYTHON
from .tensors import EXOTIC, LAYOUTS, TENSORS

FAMILIES: dict[str, dict[str, Maker]] = {
    "tensors": TENSORS,
    "layouts": LAYOUTS,
    "exotic tensors": EXOTIC,
    "arrays": ARRAYS,
    "array layouts": ARRAY_LAYOUTS,
    "numpy scalars": SCALARS,
    "Python": PYTHON,
    "containers": CONTAINERS,
    "aliases": ALIASES,
}

BROKEN_BY_TORCH = {"quantized", "quantized per channel", "conjugate", "negative bit", "wrapper subclass"}


class Zoo(Dataset[Any]):
    """Sample `(family, name, k)` is variant k of that payload."""

    def __getitem__(self, index: tuple[str, str, int]) -> Any:
        family, name, variant = index
        return FAMILIES[family][name](variant)
