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
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType


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
