"""What `spawn()` raises: what `torch.multiprocessing.spawn` would, and one of ours at the same time.

    RankRaised        ProcessRaisedException and WorkerError         its function raised: `__cause__` is that exception
    RankCrashed       ProcessExitedException and WorkerCrashed       it died, or exited with a status
    RankTimeout       ProcessExitedException and WorkerTimeout       it took longer than `timeout`
    RankOutOfMemory   ProcessExitedException and WorkerOutOfMemory   it was ended for want of memory, or past its limit
    RankInitError     ProcessExitedException and WorkerInitError     it died before its function was called

So existing handlers of torch's keep working, and those of ours do too. Runs in: main process.
"""

from __future__ import annotations

import signal

from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from holdfast.errors import WorkerCrashed, WorkerError, WorkerInitError, WorkerOutOfMemory, WorkerTimeout
from holdfast.incident import Incident
from holdfast.launch.states import RankState


class RankError(WorkerError):
    """Base of all five. `ranks` says how every rank ended; `error_index` is that of the first to fail."""

    error_index: int
    error_pid: int
    exit_code: int
    signal_name: str | None

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int = 1, signal_name: str | None = None
    ) -> None:
        Exception.__init__(self, msg)
        self.msg = msg
        self.error_index, self.error_pid = error_index, error_pid
        self.exit_code, self.signal_name = exit_code, signal_name
        self.worker_id: int | None = error_index
        self.sample_index: object = None
        self.incident: Incident | None = None
        self.ranks: tuple[RankState, ...] = ()

    def __reduce__(self) -> tuple[object, ...]:
        made_of = self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name
        return type(self), made_of, {"incident": self.incident, "ranks": self.ranks}


class RankRaised(RankError, ProcessRaisedException):
    """The function of a rank raised. `__cause__` is what it raised."""


class RankCrashed(RankError, WorkerCrashed, ProcessExitedException):
    """A rank died, or ended itself with a status that is not 0."""


class RankTimeout(RankError, WorkerTimeout, ProcessExitedException):
    """A rank took longer than `timeout`. Its stacks are in the message."""


class RankOutOfMemory(RankError, WorkerOutOfMemory, ProcessExitedException):
    """The kernel ended a rank for want of memory, or we did, past `memory_limit`."""


class RankInitError(RankError, WorkerInitError, ProcessExitedException):
    """A rank died before its function was called, or none could be started."""


def signal_name_of(exit_code: int) -> str | None:
    """As torch names it."""
    if exit_code >= 0:
        return None
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"<Unknown signal {-exit_code}>"
