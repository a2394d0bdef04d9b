"""What a pool fails with when no worker can be had: an error of ours that the standard library's handlers know too.

Runs in: main process.
"""

from __future__ import annotations

from concurrent.futures.process import BrokenProcessPool

from holdfast.errors import WorkerError, WorkerInitError
from holdfast.incident import Incident


class BrokenPool(WorkerInitError, BrokenProcessPool):
    """The workers of this pool cannot be started, or die again and again outside any call."""


def broken_by(error: BaseException, who: str = "the initializer") -> BrokenPool:
    """The same story, as every future of the pool tells it. `who`: raised it, if it is none of our own."""
    if isinstance(error, WorkerError):
        broken = BrokenPool(str(error), worker_id=error.worker_id)
        broken.incident = error.incident
    else:
        broken = BrokenPool(f"{who} raised {type(error).__name__}: {error}")
        incident = getattr(error, "incident", None)
        broken.incident = incident if isinstance(incident, Incident) else None
    broken.__cause__ = error
    return broken
