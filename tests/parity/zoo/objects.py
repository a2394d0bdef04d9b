"""The payload zoo: Python's own types, containers, and objects of the user's classes.

Classes are at module level: what arrives must be an instance of the very class that the main process knows.

Runs in: the test process and the workers.
"""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import enum
import fractions
import pathlib
import re
import types
import uuid
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from .maker import Maker
from .tensors import TENSORS, ramp


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Place(NamedTuple):
    name: str
    position: torch.Tensor


Old = collections.namedtuple("Old", ["x", "y"])


@dataclass
class Sample:
    index: int
    image: torch.Tensor
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Frozen:
    index: int
    image: torch.Tensor


class Plain:
    def __init__(self, variant: int) -> None:
        self.variant = variant
        self.tensor = ramp(variant, 3)
        self.array = np.arange(variant, variant + 2)


class Slotted:
    __slots__ = ("tensor", "variant")

    def __init__(self, variant: int) -> None:
        self.variant = variant
        self.tensor = ramp(variant, 2)


class Stateful(Plain):
    """Chooses what is pickled."""

    def __getstate__(self) -> dict[str, Any]:
        return {"variant": self.variant}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["variant"])  # type: ignore[misc]


class Pinnable(Plain):
    """Has its own pin_memory(), which nobody may call on a machine without an accelerator."""

    pinned = False

    def pin_memory(self) -> Pinnable:
        self.pinned = True
        return self


class NamedList(list[Any]):
    name = "unnamed"


class NamedDict(dict[Any, Any]):
    name = "unnamed"


class Text(str):
    pass


class Number(int):
    pass


class Pair(tuple[Any, ...]):
    pass


def named(container: Any, name: str) -> Any:
    container.name = name
    return container


def recursive(variant: int) -> list[Any]:
    found: list[Any] = [variant]
    found.append(found)
    return found


PYTHON: dict[str, Maker] = {
    "None": lambda k: None,
    "bool": lambda k: bool(k % 2),
    "int": lambda k: k - 5,
    "big int": lambda k: 2**100 + k,
    "float": lambda k: k + 0.25,
    "nan": lambda k: float("nan"),
    "minus zero": lambda k: -0.0,
    "complex": lambda k: complex(k, 2),
    "str": lambda k: f"text {k}",
    "empty str": lambda k: "",
    "unicode": lambda k: "žluťoučký kůň 🐎\0" * k,
    "lone surrogate": lambda k: "\ud800",
    "long str": lambda k: "x" * 200_000,
    "bytes": lambda k: bytes(range(k, k + 5)),
    "long bytes": lambda k: bytes(300_000),
    "bytearray": lambda k: bytearray(b"bytes"),
    "Ellipsis": lambda k: ...,
    "range": lambda k: range(k, k + 3),
    "slice": lambda k: slice(k, None, 2),
    "Decimal": lambda k: decimal.Decimal("1.10") + k,
    "Fraction": lambda k: fractions.Fraction(k, 7),
    "datetime": lambda k: datetime.datetime(2020, 1, 1 + k, tzinfo=datetime.UTC),
    "timedelta": lambda k: datetime.timedelta(days=k),
    "UUID": lambda k: uuid.UUID(int=k),
    "Path": lambda k: pathlib.PurePosixPath("data") / str(k),
    "Pattern": lambda k: re.compile("a+"),
    "Enum": lambda k: list(Color)[k % 2],
    "IntEnum": lambda k: list(Level)[k % 2],
    "set": lambda k: {k, k + 1},
    "frozenset": lambda k: frozenset({k}),
    "deque": lambda k: collections.deque([k, 1], maxlen=3),
    "array.array": lambda k: array.array("d", [k, 0.5]),
    "class": lambda k: Plain,
    "function": lambda k: ramp,
    "builtin": lambda k: len,
    "exception": lambda k: ValueError("as a value", k),
    "SimpleNamespace": lambda k: types.SimpleNamespace(k=k, tensor=ramp(k, 2)),
    "str subclass": lambda k: Text(f"text {k}"),
    "int subclass": Number,
}

CONTAINERS: dict[str, Maker] = {
    "list": lambda k: [k, ramp(k, 2), "a"],
    "empty list": lambda k: [],
    "tuple": lambda k: (k, ramp(k, 2), b"a"),
    "empty tuple": lambda k: (),
    "dict": lambda k: {"x": ramp(k, 2), 3: k, ("a", 1): 0.5},
    "empty dict": lambda k: {},
    "dict in another order": lambda k: {"z": k, "a": k, "m": k},
    "deep": lambda k: {"a": [{"b": ({"c": [ramp(k, 1), [[k]]]},)}]},
    "OrderedDict": lambda k: collections.OrderedDict(b=k, a=ramp(k, 1)),
    "defaultdict": lambda k: collections.defaultdict(list, {"a": [k]}),
    "Counter": lambda k: collections.Counter(a=k, b=2),
    "UserDict": lambda k: collections.UserDict(a=k, b=ramp(k, 1)),
    "UserList": lambda k: collections.UserList([k, ramp(k, 1)]),
    "list subclass": lambda k: named(NamedList([k, ramp(k, 1)]), f"list {k}"),
    "dict subclass": lambda k: named(NamedDict(a=k, b=ramp(k, 1)), f"dict {k}"),
    "tuple subclass": lambda k: Pair((k, ramp(k, 1))),
    "NamedTuple": lambda k: Place(f"place {k}", ramp(k, 2)),
    "namedtuple": lambda k: Old(k, ramp(k, 2)),
    "dataclass": lambda k: Sample(k, ramp(k, 2), {"note": "hello"}),
    "frozen dataclass": lambda k: Frozen(k, ramp(k, 2)),
    "object": Plain,
    "object with slots": Slotted,
    "object with state": Stateful,
    "object with pin_memory": Pinnable,
    "objects in a list": lambda k: [Plain(k), Plain(k + 1)],
    "20 tensors": lambda k: {f"field {n}": ramp(k + n, 1 + n % 3) for n in range(20)},
    "300 tensors": lambda k: [ramp(k + n, 2) for n in range(300)],
    "tensors of all dtypes": lambda k: [make(k) for make in TENSORS.values()],
    "arrays and tensors": lambda k: {"array": np.arange(k, k + 3), "tensor": ramp(k, 3), "scalar": np.float32(k)},
    "recursive": recursive,
}
