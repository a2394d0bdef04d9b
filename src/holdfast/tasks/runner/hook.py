"""Puts our DataLoader where torch's is, at the moment somebody asks for it. A script without loaders imports nothing.

    import torch ──► has run: its two modules that have the class become `_Asked` modules, nothing else happens
    torch.utils.data.DataLoader, or `from torch.utils.data import DataLoader`
                 ──► _Asked: imports our loader's module ──► has run: `replacement` puts its class everywhere

- Ours is a subclass of torch's, so our own module must be given torch's when it asks: it is known by its thread.
- It may be that the script, or a worker of ours, imports our loader first, and torch by that: the same end.
- torch imports its data loader while it is half imported itself, and ours could not be imported then. Nobody outside
  has the class so early; a module of torch's own that does is found by its name, and gets ours with the others.

Standard library only. Runs in: the script's process, and those it starts.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from holdfast import options
from holdfast.tasks.runner import settings
from holdfast.tasks.runner.settings import Settings

_TORCH, _DATA = "torch", "torch.utils.data"
_HAVE_IT = (_DATA, "torch.utils.data.dataloader")
_OURS = "holdfast.loader.dataloader"
_NAME = "DataLoader"


def begin() -> None:
    """Called once in a process, before the script."""
    told = settings.from_environment()
    if told is None:
        return
    if told.is_of_this_process:
        from holdfast.tasks.runner import summary

        summary.print_at_exit(told)
    if not options.is_disabled():
        sys.meta_path.insert(0, Watch(told))
        if _DATA in sys.modules:  # by a .pth file of some package
            _mark()


class Watch:
    """A finder that finds nothing by itself. What is found of a few modules runs, and then something is done."""

    def __init__(self, told: Settings) -> None:
        self._told = told

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in (_TORCH, _DATA, _OURS):
            return None
        if name == _OURS:
            _importing.append(threading.get_ident())
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others if hasattr(finder, "find_spec"))
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            self._add_to(spec.loader)
        return spec

    def _add_to(self, loader: Any) -> None:
        """On this one object, until it is called: the module's loader is afterwards what it would have been."""
        run_module = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with contextlib.suppress(AttributeError):
                del loader.exec_module
            try:
                run_module(module)
            finally:
                if module.__name__ == _OURS:
                    _importing.clear()
            self._has_run(module.__name__)

        loader.exec_module = exec_module

    def _has_run(self, name: str) -> None:
        if name != _OURS:
            if name == _TORCH or not _is_importing(_TORCH):
                _mark()
            return
        from holdfast.tasks.runner import replacement

        for each in _HAVE_IT:
            sys.modules[each].__class__ = ModuleType
        replacement.replace_everywhere(self._told)


class _Asked(ModuleType):
    """A module whose DataLoader is replaced when it is asked for. Its own functions see what they always saw."""

    @property
    def DataLoader(self) -> Any:  # noqa: N802
        if threading.get_ident() not in _importing:
            importlib.import_module(_OURS)
        return vars(self)[_NAME]

    @DataLoader.setter
    def DataLoader(self, value: Any) -> None:  # noqa: N802  (by the script: then that is what it is to be)
        vars(self)[_NAME] = value
        self.__class__ = ModuleType  # type: ignore[assignment]


_importing: list[int] = []
"""The thread that imports our loader: it asks for torch's class, to make a subclass of it."""


def _is_importing(name: str) -> bool:
    return bool(getattr(sys.modules[name].__spec__, "_initializing", False))


def _mark() -> None:
    """Once all of them are there. `torch` brings them, or a later import of `torch.utils.data` does."""
    modules = [sys.modules.get(name) for name in _HAVE_IT]
    if all(type(module) is ModuleType and hasattr(module, _NAME) for module in modules):
        for module in modules:
            module.__class__ = _Asked
