"""Which backend runs the workers: by argument, by environment, by platform. Packages can add their own.

A backend is a factory (`workers.backend.BackendFactory`). Ours are listed here; a package adds one under the entry
point group `holdfast.backends`. Entry points are read only for a name that is not ours: that takes milliseconds.
Runs in: main process.
"""

from __future__ import annotations

import functools
import os
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
    return name or options.forced_backend() or _for_platform()


def _for_platform() -> str | None:
    if sys.platform == "linux" and not _has_pidfds():
        return "portable"
    return _FOR_PLATFORM.get(sys.platform)


@functools.cache
def _has_pidfds() -> bool:
    """Linux has them, and waits for them, since 5.4. Older kernels, and some sandboxes, do not."""
    try:
        pidfd = os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        return False
    try:
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except OSError as error:
        return isinstance(error, ChildProcessError)  # understood: this process is no child of its own
    finally:
        os.close(pidfd)
    return True


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
