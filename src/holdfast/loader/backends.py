"""Which backend runs the workers: by argument, by environment, by platform. Packages can add their own.

A backend is a factory (`workers.backend.BackendFactory`). Ours are listed here; a package adds one under the entry
point group `holdfast.backends`. Entry points are read only for a name that is not ours: that takes milliseconds.
Runs in: main process.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from typing import Any, cast

from holdfast import options
from holdfast.workers import portable
from holdfast.workers.backend import BackendFactory

_GROUP = "holdfast.backends"
_OURS: dict[str, BackendFactory] = {"portable": portable.PortableCrew}
_FOR_PLATFORM = {"linux": "linux", "darwin": "portable", "win32": "portable"}

if sys.platform == "linux":  # imported now, not when the first batch is waited for
    from holdfast.workers.linux import Crew

    _OURS["linux"] = Crew


def check_name(name: str | None) -> None:
    """Refuse a name that nobody provides, at construction and not in the first epoch."""
    if name is None or name in _OURS or entry_points(group=_GROUP, name=name):
        return
    known = sorted({*_OURS, *(entry.name for entry in entry_points(group=_GROUP))})
    raise ValueError(f"backend={name!r} is not known: use None (what fits this platform) or one of {known}")


def check_context(name: str | None, context: Any) -> None:
    """Refuse a `multiprocessing_context=` that the chosen backend cannot have, at construction too."""
    if _choose(name) == "portable":
        portable.check_context(context)


def _choose(name: str | None) -> str | None:
    return name or options.forced_backend() or _FOR_PLATFORM.get(sys.platform)


def find(name: str | None) -> BackendFactory:
    """The factory for a loader's `backend=` argument."""
    chosen = _choose(name)
    if chosen is None:
        raise ValueError(f"holdfast has no backend for this platform ({sys.platform}) yet: set {options.DISABLE}=1")
    if chosen in _OURS:
        return _OURS[chosen]
    try:
        check_name(chosen)
    except ValueError as error:
        raise ValueError(f"{options.BACKEND}={chosen}: {error}") from None
    (entry,) = entry_points(group=_GROUP, name=chosen)
    return cast(BackendFactory, entry.load())
