"""Are these two the same? The one comparison that every parity test uses.

`differences(expected, actual)` walks two objects side by side and lists all that a user could tell apart:
- types, values (bit by bit: NaN equals NaN, 0.0 differs from -0.0), lengths, keys and their order;
- tensors: dtype, shape, strides, device, layout, requires_grad, leaf or not, conjugate and negative bits, quantizer,
  attributes of subclasses, and the parts of sparse and nested tensors;
- arrays: dtype, shape, strides, writable or not;
- identity: what was one object at two places is one object at the same two places;
- memory: what shared memory shares it, what did not does not.

Not compared, because the difference is meant: `is_shared()`, and where in its storage a tensor begins.

Runs in: the test process.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import itertools
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import torch

_BY_REFERENCE = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, enum.Enum, torch.dtype)
_NO_IDENTITY = (int, float, complex, str, bytes, tuple, frozenset, range, slice, type(None), np.generic, *_BY_REFERENCE)
_PADDED = "gG"
"""numpy's long double: some of its bytes mean nothing."""
_COMPRESSED = {torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}


def differences(expected: object, actual: object, path: str = "batch") -> list[str]:
    """Everything that differs, one line each, with the path to it. Empty: the two are the same."""
    comparison = _Comparison()
    comparison.walk(expected, actual, path)
    comparison.compare_memory()
    return comparison.found


class _Comparison:
    def __init__(self) -> None:
        self.found: list[str] = []
        self._partners: dict[int, int] = {}  # id of an expected object -> id of the actual one seen with it
        self._partners_back: dict[int, int] = {}
        self._alive: list[tuple[Any, Any]] = []
        self._leaves: list[tuple[str, Any, Any]] = []  # tensors and arrays, pairwise

    def say(self, path: str, expected: object, actual: object) -> None:
        self.found.append(f"{path}: expected {expected!r}, got {actual!r}")

    def check(self, path: str, expected: object, actual: object) -> bool:
        if type(expected) is type(actual) and expected == actual:
            return True
        self.say(path, expected, actual)
        return False

    def walk(self, expected: Any, actual: Any, path: str) -> None:
        if type(expected) is not type(actual):
            self.say(f"type of {path}", type(expected), type(actual))
        elif not self._seen_together(expected, actual, path):
            self._walk_same_type(expected, actual, path)

    def _seen_together(self, expected: Any, actual: Any, path: str) -> bool:
        """Keep the pair, and check that identity is the same on both sides. True: this pair was walked before."""
        if isinstance(expected, _NO_IDENTITY):
            return False
        known, known_back = self._partners.get(id(expected)), self._partners_back.get(id(actual))
        if known is None and known_back is None:
            self._partners[id(expected)], self._partners_back[id(actual)] = id(actual), id(expected)
            self._alive.append((expected, actual))  # an id is used again once its object is gone
            return False
        if known is None:
            self.found.append(
                f"identity of {path}: expected an object of its own, got one that was at an earlier place"
            )
        elif known != id(actual):
            self.found.append(f"identity of {path}: expected the object of an earlier place, got another")
        return known is not None

    def _walk_same_type(self, expected: Any, actual: Any, path: str) -> None:
        for kinds, walk in _WALKS:
            if isinstance(expected, kinds):
                walk(self, expected, actual, path)
                return
        if list(_attribute_names(expected)):
            self._walk_attributes(expected, actual, path)
        else:
            self.check(path, expected, actual)

    def _walk_reference(self, expected: Any, actual: Any, path: str) -> None:
        if expected is not actual:
            self.say(path, expected, actual)

    def _walk_number(self, expected: Any, actual: Any, path: str) -> None:
        self.check(path, repr(expected), repr(actual))

    def _walk_numpy_scalar(self, expected: Any, actual: Any, path: str) -> None:
        self.check(f"dtype of {path}", expected.dtype, actual.dtype)
        if expected.dtype.char in _PADDED:
            self.check(path, repr(expected), repr(actual))
        else:
            self.check(path, expected.tobytes(), actual.tobytes())

    def _walk_storage(self, expected: Any, actual: Any, path: str) -> None:
        self.check(path, expected.tolist(), actual.tolist())

    def _walk_exception(self, expected: Any, actual: Any, path: str) -> None:
        self.walk(expected.args, actual.args, f"{path}.args")
        self._walk_attributes(expected, actual, path)

    def _walk_sequence(self, expected: Any, actual: Any, path: str) -> None:
        if self.check(f"length of {path}", len(expected), len(actual)):
            for position, (one, other) in enumerate(zip(expected, actual, strict=True)):
                self.walk(one, other, f"{path}[{position}]")
        self._walk_attributes(expected, actual, path)

    def _walk_mapping(self, expected: Any, actual: Any, path: str) -> None:
        if self.check(f"keys of {path}", list(expected), list(actual)):
            for key in expected:
                self.walk(expected[key], actual[key], f"{path}[{key!r}]")
        self._walk_attributes(expected, actual, path)

    def _walk_attributes(self, expected: Any, actual: Any, path: str) -> None:
        names = list(_attribute_names(expected))
        if self.check(f"attributes of {path}", names, list(_attribute_names(actual))):
            for name in names:
                self.walk(getattr(expected, name), getattr(actual, name), f"{path}.{name}")

    # --- arrays ---

    def _walk_array(self, expected: Any, actual: Any, path: str) -> None:
        if not self.check(f"dtype of {path}", expected.dtype, actual.dtype):
            return
        if not self.check(f"shape of {path}", expected.shape, actual.shape):
            return
        self.check(f"strides of {path}", _meaningful_strides(expected), _meaningful_strides(actual))
        self.check(f"writable {path}", expected.flags.writeable, actual.flags.writeable)
        if isinstance(expected, np.ma.MaskedArray):
            self.walk(np.asarray(expected.mask), np.asarray(actual.mask), f"{path}.mask")
            self.walk(expected.fill_value, actual.fill_value, f"{path}.fill_value")
        plain, other = expected.view(np.ndarray), actual.view(np.ndarray)
        if expected.dtype.hasobject or expected.dtype.names is not None or expected.dtype.char in _PADDED:
            self.walk(plain.tolist(), other.tolist(), f"{path}.tolist()")
        elif plain.tobytes() != other.tobytes():
            self.say(path, expected, actual)
        if not expected.dtype.hasobject:
            self._leaves.append((path, expected, actual))

    # --- tensors ---

    def _walk_tensor(self, expected: Any, actual: Any, path: str) -> None:
        for name in ("dtype", "layout", "device", "is_nested", "is_quantized", "requires_grad", "is_leaf"):
            if not self.check(f"{path}.{name}", getattr(expected, name), getattr(actual, name)):
                return
        if type(expected) is not torch.Tensor and not expected.is_nested:
            self._walk_attributes(expected, actual, path)
        expected, actual = expected.detach(), actual.detach()
        if expected.is_nested:
            self._walk_nested(expected, actual, path)
        elif not self.check(f"{path}.shape", expected.shape, actual.shape):
            return
        elif expected.layout == torch.sparse_coo:
            self.check(f"{path}.is_coalesced()", expected.is_coalesced(), actual.is_coalesced())
            self._walk_parts(expected, actual, path, ("_indices", "_values"))
        elif expected.layout in _COMPRESSED:
            by_row = expected.layout in {torch.sparse_csr, torch.sparse_bsr}
            parts = ("crow_indices", "col_indices") if by_row else ("ccol_indices", "row_indices")
            self._walk_parts(expected, actual, path, (*parts, "values"))
        elif not _is_wrapper(expected):
            self._walk_dense(expected.as_subclass(torch.Tensor), actual.as_subclass(torch.Tensor), path)

    def _walk_nested(self, expected: Any, actual: Any, path: str) -> None:
        if not self.check(f"parts of {path}", expected.size(0), actual.size(0)):
            return
        for position, (one, other) in enumerate(zip(expected.unbind(), actual.unbind(), strict=True)):
            self.check(f"{path}[{position}].shape", one.shape, other.shape)
            if _bits_of_tensor(one) != _bits_of_tensor(other):
                self.say(f"{path}[{position}]", one, other)
        if expected.layout == torch.jagged:
            self._walk_parts(expected, actual, path, ("values", "offsets"))

    def _walk_parts(self, expected: Any, actual: Any, path: str, parts: tuple[str, ...]) -> None:
        for part in parts:
            self._walk_dense(getattr(expected, part)(), getattr(actual, part)(), f"{path}.{part}()")

    def _walk_dense(self, expected: torch.Tensor, actual: torch.Tensor, path: str) -> None:
        for name in ("dtype", "shape"):
            if not self.check(f"{path}.{name}", getattr(expected, name), getattr(actual, name)):
                return
        for name in ("stride", "is_conj", "is_neg"):
            self.check(f"{path}.{name}()", getattr(expected, name)(), getattr(actual, name)())
        if expected.device.type == "meta":
            return
        if expected.is_quantized:
            self._walk_quantizer(expected, actual, path)
            expected, actual = expected.int_repr(), actual.int_repr()
        elif expected.numel():
            self._leaves.append((path, expected, actual))
        if _bits_of_tensor(expected) != _bits_of_tensor(actual):
            self.say(path, expected, actual)

    def _walk_quantizer(self, expected: Any, actual: Any, path: str) -> None:
        if not self.check(f"{path}.qscheme()", expected.qscheme(), actual.qscheme()):
            return
        per_tensor = expected.qscheme() in {torch.per_tensor_affine, torch.per_tensor_symmetric}
        parts = ("q_scale", "q_zero_point") if per_tensor else ("q_per_channel_scales", "q_per_channel_zero_points")
        for part in parts:
            self.walk(getattr(expected, part)(), getattr(actual, part)(), f"{path}.{part}()")
        if not per_tensor:
            self.check(f"{path}.q_per_channel_axis()", expected.q_per_channel_axis(), actual.q_per_channel_axis())

    # --- memory ---

    def compare_memory(self) -> None:
        for (path, expected, actual), (path_2, expected_2, actual_2) in itertools.combinations(self._leaves, 2):
            if expected is expected_2 and actual is actual_2:
                continue
            relation, got = _memory_relation(expected, expected_2), _memory_relation(actual, actual_2)
            if relation != got:
                self.found.append(f"memory of {path} and {path_2}: expected {relation}, got {got}")


_WALKS: tuple[tuple[Any, Callable[[_Comparison, Any, Any, str], object]], ...] = (
    (torch.Tensor, _Comparison._walk_tensor),
    (np.ndarray, _Comparison._walk_array),
    (np.generic, _Comparison._walk_numpy_scalar),  # before float: numpy's float64 is one
    (_BY_REFERENCE, _Comparison._walk_reference),
    (Mapping, _Comparison._walk_mapping),
    ((list, tuple, collections.deque), _Comparison._walk_sequence),
    (torch.UntypedStorage, _Comparison._walk_storage),
    ((float, complex), _Comparison._walk_number),
    (BaseException, _Comparison._walk_exception),
    (PurePath, lambda self, expected, actual, path: self.check(path, expected, actual)),  # its slots are a cache
)


def _memory_relation(one: Any, other: Any) -> str:
    first, second = _extent(one), _extent(other)
    if first[0] < second[1] and second[0] < first[1]:
        return f"overlapping, {second[0] - first[0]} bytes apart"
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return "apart"
    one_storage = one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    return "apart in one storage" if one_storage else "apart"


def _extent(leaf: Any) -> tuple[int, int]:
    """The first byte, and the one after the last."""
    if isinstance(leaf, np.ndarray):
        low, high = np.lib.array_utils.byte_bounds(leaf)
        return (low, high) if leaf.size else (0, 0)
    reach = sum((size - 1) * stride for size, stride in zip(leaf.shape, leaf.stride(), strict=True))
    return leaf.data_ptr(), leaf.data_ptr() + (reach + 1) * leaf.element_size()


def _meaningful_strides(array: Any) -> tuple[int, ...]:
    """numpy leaves the strides of an empty array and of dimensions of length one undefined."""
    return tuple(s for n, s in zip(array.shape, array.strides, strict=True) if n > 1) if array.size else ()


def _is_wrapper(tensor: torch.Tensor) -> bool:
    """Whether the data is in the attributes, and not in the tensor itself."""
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def _bits_of_tensor(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()


def _attribute_names(thing: Any) -> Iterator[str]:
    """The names under which an object of a user's class keeps its state."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        yield from (field.name for field in dataclasses.fields(thing) if hasattr(thing, field.name))
        return
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(thing, name):
                yield name
    yield from sorted(getattr(thing, "__dict__", {}))
