"""What a spawned process will find in `__main__`, and what it will not.

A process started by spawn or forkserver imports the main script again. Classes and functions that the import defines
are sent by name, as torch does, so that they are the ones the script's own code refers to there. The rest (notebook
cells, `python - < script`, lambdas, what is defined under `if __name__ == "__main__":`) has to be sent by value.

Runs in: main process.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any


def finds_again(obj: object) -> bool:
    """Whether a spawned process that imports the main script will have this class or function under its name."""
    main = sys.modules["__main__"]
    qualname: str = getattr(obj, "__qualname__", "<locals>")
    if "<" in qualname or qualname.split(".", maxsplit=1)[0] not in _names_after_import(_source_of(main)):
        return False
    found: object = main
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found is obj


class SentByName:
    """Which classes and functions of `__main__` running workers have under their names: those are sent by name.

    Forked ones have what there was when they were forked, `__main__` as it is when this is made. New interpreters have
    what the import of the script gives them.
    """

    def __init__(self, *, is_forked: bool) -> None:
        self._inherited: dict[str, Any] | None = None
        if is_forked:
            found = vars(sys.modules["__main__"]).items()
            self._inherited = {name: value for name, value in found if isinstance(value, type | FunctionType)}
        self._known: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()

    def __contains__(self, obj: Any) -> bool:
        try:
            known = self._known.get(obj)
            if known is None:
                known = self._known[obj] = self._look(obj)
        except TypeError:  # a metaclass of the user's may keep a class from being hashed
            known = self._look(obj)
        return known

    def _look(self, obj: Any) -> bool:
        if self._inherited is None:
            return finds_again(obj)
        first, *rest = obj.__qualname__.split(".")
        found: object = self._inherited.get(first)
        for part in rest:
            found = getattr(found, part, None)
        return found is obj


@contextlib.contextmanager
def startable() -> Iterator[None]:
    """Keep multiprocessing from importing a main script that is not a file, such as standard input."""
    main = sys.modules["__main__"]
    claimed = getattr(main, "__file__", None)
    if claimed is None or _source_of(main) is not None:
        yield
        return
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = claimed


def _source_of(main: ModuleType) -> str | None:
    """The file of the main script, if it is one that can be imported again."""
    path = getattr(main, "__file__", None)
    return path if path is not None and Path(path).is_file() else None


@functools.lru_cache(maxsize=4)
def _names_after_import(path: str | None) -> frozenset[str]:
    if path is None:
        return frozenset()
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return frozenset()
    return frozenset(_bound(tree))


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that importing a module binds, wherever outside functions, classes and the main guard."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from ((alias.asname or alias.name).split(".")[0] for alias in names)
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.If(test=test) if _asks_for_main(test):
                yield from _bound(ast.Module(child.orelse, []))
            case _:
                yield from _bound(child)


def _asks_for_main(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))
