"""The one pickler for everything that crosses a process on its way to the workers.

- What a spawned process would not find (notebook cells, lambdas, scripts from standard input) travels by value; what
  it finds when it imports the main script travels by name, as with torch (`main_module.py`).
- torch's own reductions stay in force, so that tensors in shared memory stay shared and are not copied.
- The modules that the pickle refers to are known, so that a supervisor can import them before it forks workers.
- What cannot be pickled is named by its attribute path: `dataset.transform.fn: lambda at train.py:31`.

Runs in: main process (dumping), worker process (loading).
"""

from __future__ import annotations

import contextlib
import io
import pickle
from collections import ChainMap
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from types import FunctionType
from typing import Any, ClassVar

import cloudpickle

from holdfast.errors import NotPicklable
from holdfast.transport import main_module
from holdfast.transport.main_module import SentByName

# `import torch` adds torch's to it: where there is a tensor, they are there.
_MULTIPROCESSING_REDUCERS: dict[type, Any] = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
# What goes before them here. (A reducer is not told the protocol, and ours is a later one than multiprocessing's.)
job_reducers: dict[type, Any] = {}
# By type, what gives the handle of something that lies in shared memory for good; None: it does not.
handle_makers: dict[type, Callable[[Any], Any]] = {}


class JobPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle with the reductions of multiprocessing and torch, noting the modules it meets."""

    # The C pickler reads this when it is made: on the class it counts, on an instance it would not.
    dispatch_table: ClassVar[Any] = ChainMap(
        job_reducers, _MULTIPROCESSING_REDUCERS, cloudpickle.Pickler.dispatch_table
    )

    def __init__(
        self,
        file: io.BytesIO,
        buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None,
        by_name: SentByName | None = None,
    ) -> None:
        """`by_name`: what workers have of `__main__`; None: what they will find when they import the script."""
        super().__init__(file, protocol=5, buffer_callback=buffer_callback)
        self.modules: set[str] = set()
        self._by_name = by_name

    def reducer_override(self, obj: Any) -> Any:
        owner = obj if isinstance(obj, type | FunctionType) else type(obj)
        module = getattr(owner, "__module__", None)
        if isinstance(module, str):
            self.modules.add(module)
        if module == "__main__" and owner is obj and self._is_known(obj):
            return NotImplemented  # by name
        return super().reducer_override(obj)

    def _is_known(self, obj: Any) -> bool:
        return main_module.finds_again(obj) if self._by_name is None else obj in self._by_name


def dumps(obj: object, name: str) -> tuple[bytes, frozenset[str]]:
    """Pickle `obj`, which the user knows as `name`. Returns the pickle and the modules it needs."""
    data, modules, _ = dumps_with_parts(obj, name)
    return data, modules


def dumps_with_parts(obj: object, name: str) -> tuple[bytes, frozenset[str], object]:
    """The same, and something that keeps every part of `obj` alive as it is now, with the descriptors they own."""
    file = io.BytesIO()
    pickler = JobPickler(file)
    try:
        pickler.dump(obj)
    except Exception as error:
        path, culprit = find_culprit(obj, name)
        path = path.lstrip(".")
        raise NotPicklable(_explain(path, culprit, error), path=path) from error
    modules = {m for m in pickler.modules if m not in ("__main__", "__mp_main__", "builtins")}
    return file.getvalue(), frozenset(modules), pickler  # (its memo has them all)


def _explain(path: str, culprit: object, error: Exception) -> str:
    return (
        f"{path} cannot be sent to the workers: {describe(culprit)} cannot be pickled "
        f"({type(error).__name__}: {error})\n"
        f"  try   open or create it in the worker (in worker_init_fn, or on first use in __getitem__),\n"
        f'        or use multiprocessing_context="fork", which sends nothing'
    )


def describe(obj: object) -> str:
    """What an object is, in a few words: a lambda by its place, anything else by its type."""
    if isinstance(obj, FunctionType):
        kind = "lambda" if obj.__name__ == "<lambda>" else f"function {obj.__qualname__}"
        return f"{kind} at {obj.__code__.co_filename}:{obj.__code__.co_firstlineno}"
    return f"{type(obj).__module__}.{type(obj).__qualname__} object"


def find_culprit(obj: object, path: str, depth: int = 12) -> tuple[str, object]:
    """Follow the parts that fail to pickle down to the smallest one."""
    if depth:
        for child_path, child in _parts(obj, path):
            if not pickles(child):
                return find_culprit(child, child_path, depth - 1)
    return path, obj


def _parts(obj: object, path: str) -> Iterator[tuple[str, object]]:
    if isinstance(obj, dict):
        yield from ((f"{path}[{key!r}]", value) for key, value in obj.items())
    elif isinstance(obj, list | tuple | set | frozenset):
        yield from ((f"{path}[{k}]", value) for k, value in enumerate(obj))
    elif isinstance(obj, FunctionType):
        for name, cell in zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=False):
            with contextlib.suppress(ValueError):  # a variable that was never set
                yield f"{path}.{name}", cell.cell_contents
    elif isinstance(getattr(obj, "__dict__", None), dict) and not isinstance(obj, type):
        yield from ((f"{path}.{name}", value) for name, value in vars(obj).items())


def pickles(obj: object) -> bool:
    """Whether it can be sent at all."""
    try:
        JobPickler(io.BytesIO()).dump(obj)
    except Exception:
        return False
    return True
