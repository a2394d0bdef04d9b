"""share(): the same thing, with its bulk in one segment that all processes read.

    obj ──plan──► its bulk is written (Builder) ──► one segment ──► the same thing again, made of views of it

What becomes what:
- arrays, tensors, scipy's sparse matrices, Arrow tables: what they were, on memory that is shared
- list, dict, bytes: SharedList, SharedDict, SharedBytes
- tuples, named tuples, dataclasses, and dicts of few entries that hold such things: what they were, shared in turn
- small members of these (a short list of names, a number, a string) and whatever else they hold: the very same

Runs in: the process that shares.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from holdfast.sharing import arrays, bulk, handles, key_index, tables
from holdfast.sharing.blobs import SharedBytes
from holdfast.sharing.builder import Builder
from holdfast.sharing.dicts import SharedDict
from holdfast.sharing.items import Items, pack
from holdfast.sharing.lists import SharedList
from holdfast.sharing.segment import SharedSegment

T = TypeVar("T")
Recipe = Callable[[SharedSegment], Any]  # makes a thing, once all its bulk is in the segment


def share(obj: T) -> T:
    """The same thing with its bulk in one segment of shared memory, one copy for all processes.

    Arrays, tensors, scipy's sparse matrices, Arrow tables, lists, dicts and bytes, and tuples, dataclasses and dicts
    that hold them. Sent to a worker, under any start method, it is a handle; the memory is freed with its last user.
    A write to a shared array, list or dict is an error; to a shared tensor, it stays in the process that made it. What
    is shared already is returned as it is. docs/sharing.md says what becomes what, and what it costs.
    """
    sharing = _Sharing()
    try:
        recipe = sharing.plan(obj)
        segment = sharing.builder.finish()
    except RecursionError:
        raise _too_deep(obj) from None
    finally:
        sharing.builder.close()
    if recipe is None or segment is None:
        return obj
    handles.install()
    shared: T = recipe(segment)
    return shared


class _Sharing:
    """One call of share(). A plan is how to make a thing again from the segment; None: it stays as it is."""

    def __init__(self) -> None:
        self.builder = Builder()
        self._planned: dict[int, tuple[Any, Recipe | None]] = {}  # with the object, so that its id() stays its own

    def plan(self, obj: Any) -> Recipe | None:
        """The plan of what the user asked to share: also a short list, or an empty dict."""
        recipe = self._plan_member(obj, "obj")
        if recipe is not None or bulk.is_bulk(obj):
            return recipe
        if type(obj) is list:
            return self._plan_list(obj, "obj")
        if type(obj) is dict:
            return self._plan_dict(obj, "obj")
        if type(obj) is bytes and obj:
            return self._plan_bytes(obj)
        _check_can_stay(obj)
        return None

    def _plan_member(self, obj: Any, path: str) -> Recipe | None:
        if id(obj) not in self._planned:
            recipe = self._plan(obj, path)
            self._planned[id(obj)] = obj, recipe and _once(recipe)
        return self._planned[id(obj)][1]

    def _plan(self, obj: Any, path: str) -> Recipe | None:
        if isinstance(obj, np.ndarray):
            return self._plan_array(obj, path)
        if bulk.is_tensor(obj):
            return self._plan_tensor(obj, path)
        if bulk.is_sparse(obj):
            return self._plan_sparse(obj, path)
        if bulk.is_table(obj):
            return self._plan_table(obj)
        if bulk.is_shared(obj) or not bulk.is_bulk(obj):
            return None
        return self._plan_container(obj, path)

    def _plan_container(self, obj: Any, path: str) -> Recipe | None:
        if type(obj) is bytes:
            return self._plan_bytes(obj)
        if type(obj) is list:
            return self._plan_list(obj, path)
        if type(obj) is dict and len(obj) > bulk.FEW:
            return self._plan_dict(obj, path)
        if isinstance(obj, dict):
            return self._plan_members(obj, {key: (value, f"{path}[{key!r}]") for key, value in obj.items()}, _set_item)
        if bulk.is_tuple(obj):
            return self._plan_tuple(obj, path)
        return self._plan_attributes(obj, bulk.members(obj), path)

    # -- bulk ------------------------------------------------------------------------------------------------------

    def _plan_array(self, array: Any, path: str) -> Recipe | None:
        if type(array) not in (np.ndarray, np.memmap):
            raise _cannot(path, array, f"a {type(array).__name__} is more than its memory", "share numpy.asarray(...)")
        if array.dtype.hasobject:
            raise _cannot(path, array, "its elements are Python objects", "share array.tolist()")
        if not array.nbytes or arrays.find_array(array) is not None:
            return None
        form = arrays.write_array(np.asarray(array), self.builder)
        return lambda segment: arrays.read_array(segment, form)

    def _plan_tensor(self, tensor: Any, path: str) -> Recipe | None:
        if not arrays.is_dense(tensor):
            raise _cannot(path, tensor, "it is not a plain dense tensor on the CPU", "share its parts, or tensor.cpu()")
        if tensor.grad_fn is not None:
            raise _cannot(path, tensor, "it is part of a graph of autograd", "share tensor.detach()")
        if not tensor.nbytes or arrays.find_tensor(tensor) is not None:
            return None
        form = arrays.write_tensor(tensor, self.builder)
        return lambda segment: arrays.read_tensor(segment, form)

    def _plan_sparse(self, matrix: Any, path: str) -> Recipe | None:
        if matrix.format in ("lil", "dok"):
            raise _cannot(path, matrix, f"the format {matrix.format!r} is made of Python objects", "share x.tocsr()")
        if matrix.format in ("csr", "csc") and not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()  # scipy does that in place when it is first used, and could not any more
        return self._plan_attributes(matrix, vars(matrix), path)

    def _plan_table(self, table: Any) -> Recipe | None:
        if tables.find_table(table) is not None:
            return None
        form = tables.write_table(table, self.builder)
        return lambda segment: tables.read_table(segment, form)

    def _plan_bytes(self, data: bytes) -> Recipe:
        start = self.builder.write(data)
        return lambda segment: SharedBytes(segment, start, len(data))

    def _plan_list(self, items: list[Any], path: str) -> Recipe:
        form = pack(items, self.builder, lambda row: f"{path}[{row}]")
        return lambda segment: SharedList(Items(segment, form), range(form.length))

    def _plan_dict(self, entries: dict[Any, Any], path: str) -> Recipe:
        names = list(entries)
        keys = pack(names, self.builder, lambda row: f"list({path})[{row}]")
        values = pack(list(entries.values()), self.builder, lambda row: f"{path}[{names[row]!r}]")
        index = key_index.write_index(names, self.builder)
        return lambda segment: SharedDict(Items(segment, keys), Items(segment, values), index)

    # -- what holds bulk -------------------------------------------------------------------------------------------

    def _plan_tuple(self, values: Any, path: str) -> Recipe | None:
        recipes = [self._plan_member(value, f"{path}[{at}]") for at, value in enumerate(values)]
        if not any(recipes):
            return None
        make = type(values)._make if hasattr(values, "_make") else tuple
        return lambda segment: make([_made(*pair, segment) for pair in zip(values, recipes, strict=True)])

    def _plan_attributes(self, obj: Any, attributes: dict[str, Any], path: str) -> Recipe | None:
        members = {name: (value, f"{path}.{name}") for name, value in attributes.items()}
        return self._plan_members(obj, members, object.__setattr__)  # (also of a frozen dataclass)

    def _plan_members(
        self, obj: Any, members: dict[Any, tuple[Any, str]], put: Callable[[Any, Any, Any], None]
    ) -> Recipe | None:
        recipes = {name: self._plan_member(value, path) for name, (value, path) in members.items()}
        if not any(recipes.values()):
            return None

        def make(segment: SharedSegment) -> Any:
            twin = copy.copy(obj)
            for name, recipe in recipes.items():
                if recipe is not None:
                    put(twin, name, recipe(segment))
            return twin

        return make


def _set_item(obj: Any, key: Any, value: Any) -> None:
    obj[key] = value


def _made(obj: Any, recipe: Recipe | None, segment: SharedSegment) -> Any:
    return obj if recipe is None else recipe(segment)


def _once(recipe: Recipe) -> Recipe:
    """What is in two places stays one thing."""
    made: list[Any] = []

    def make(segment: SharedSegment) -> Any:
        if not made:
            made.append(recipe(segment))
        return made[0]

    return make


def _check_can_stay(obj: Any) -> None:
    """Refuse what cannot be shared although it may be large. What is small by nature is returned as it is."""
    if isinstance(obj, list | dict):
        plain = "list" if isinstance(obj, list) else "dict"
        raise _cannot("obj", obj, f"it is more than a {plain}", f"holdfast.share({plain}(obj))")
    if isinstance(obj, set | frozenset):
        raise _cannot("obj", obj, "there are no shared sets", "holdfast.share(dict.fromkeys(obj)), which `in` works on")
    if isinstance(obj, bytearray | memoryview):
        raise _cannot("obj", obj, "it can be changed", "holdfast.share(bytes(obj))")
    is_small = obj is None or isinstance(obj, str | int | float | complex | bytes | np.generic)
    if not (is_small or bulk.is_tuple(obj) or bulk.is_record(obj)):
        remedy = "share what holds its data: self.images = holdfast.share(images), pyarrow.Table.from_pandas(frame)"
        raise _cannot("obj", obj, "it is none of the kinds of data that can be", remedy)


def _too_deep(obj: Any) -> TypeError:
    if bulk.contains_itself(obj):
        return TypeError("obj cannot be shared: it contains itself")
    return TypeError(
        "obj cannot be shared: it is nested too deeply for Python's recursion limit\n"
        f"  try   sys.setrecursionlimit({10 * sys.getrecursionlimit()})   before it is shared"
    )


def _cannot(path: str, obj: Any, why: str, remedy: str) -> TypeError:
    kind = f"{type(obj).__module__}.{type(obj).__qualname__}"
    return TypeError(f"{path} ({kind}) cannot be shared: {why}\n  try   {remedy}")
