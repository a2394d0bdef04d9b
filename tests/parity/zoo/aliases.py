"""The payload zoo: objects that are at two places at once, and tensors that share memory.

Runs in: the test process and the workers.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .maker import Maker
from .objects import Plain
from .tensors import Tagged, ramp


def _twice(thing: Any) -> list[Any]:
    return [thing, thing]


def _with(use: Callable[[Any], Any]) -> Maker:
    """`use` of one and the same tensor."""
    return lambda k: use(ramp(k, 4))


def _parts(variant: int) -> dict[str, torch.Tensor]:
    base = ramp(variant, 4, 6)
    return {"whole": base, "row": base[1], "column": base[:, 2], "flat": base.view(-1), "transposed": base.t()}


def _some_parts(variant: int) -> list[torch.Tensor]:
    parts = _parts(variant)
    return [parts["row"], parts["column"]]


def _array_parts(variant: int) -> dict[str, Any]:
    base = np.arange(variant, variant + 12).reshape(3, 4)
    return {"whole": base, "row": base[1], "again": base}


def _array_and_tensor(variant: int) -> list[Any]:
    base = np.arange(variant, variant + 12)
    return [base, torch.from_numpy(base)]


def _complex_parts(variant: int) -> list[torch.Tensor]:
    base = torch.complex(ramp(variant, 3), ramp(variant, 3))
    return [base, base.real, base.imag]


ALIASES: dict[str, Maker] = {
    "one tensor twice": _with(_twice),
    "one array twice": lambda k: _twice(np.arange(k, k + 3)),
    "one list twice": lambda k: _twice([k]),
    "one object twice": lambda k: _twice(Plain(k)),
    "one tensor in two objects": _with(lambda t: [types.SimpleNamespace(t=t), types.SimpleNamespace(t=t)]),
    "two tensor objects on one storage": _with(lambda t: [t, t.view(-1)]),
    "views of one storage": _parts,
    "views, the whole not among them": _some_parts,
    "disjoint views": _with(lambda t: list(t.chunk(2))),
    "views of different dtypes": _with(lambda t: [t, t.view(torch.int32)[1:]]),
    "views, one expanded": _with(lambda t: [t, t[1].expand(3, 2)]),
    "real and imaginary part": _complex_parts,
    "leaf and its data": _with(lambda t: [t.requires_grad_(), t.detach()]),
    "parameter and its data": _with(lambda t: [torch.nn.Parameter(t), t]),
    "subclass of a tensor": _with(lambda t: [t, t.as_subclass(Tagged)]),
    "zero-size views": _with(lambda t: [t, t[:0], t[3:]]),
    "views of one array": _array_parts,
    "tensor of an array": _array_and_tensor,
}
