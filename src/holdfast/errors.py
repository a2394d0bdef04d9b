"""Everything holdfast raises or warns with.

    HoldfastError(Exception)
      WorkerError(HoldfastError, RuntimeError)     torch raises RuntimeError here: existing handlers keep working
        WorkerCrashed                              a worker died while it had a batch in hand, more than once
        WorkerTimeout                              a sample took longer than sample_timeout, more than once
        WorkerOutOfMemory                          a worker was ended for want of memory, more than once
        WorkerInitError                            a worker died before its first sample
        TooManyRestarts                            workers die again and again outside any sample
      TooManySkipped(HoldfastError, RuntimeError)  more samples could not be loaded than max_skipped allows
      SharedMemoryError(HoldfastError, OSError)    there is no room for what is to be shared, or it is not there
      NotPicklable(HoldfastError, TypeError)       something the workers need cannot be sent to them
      InternalError(HoldfastError)                 a bug of holdfast itself
    HoldfastWarning(UserWarning)

Every error pickles whole: the message is `args[0]`, the facts are plain attributes.
Standard library only. Runs in: main | supervisor | worker process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.incident import Incident


class HoldfastError(Exception):
    """Base of every error that holdfast itself raises."""


class WorkerError(HoldfastError, RuntimeError):
    """A worker process failed. What is not known is None; `incident` is the entry in `loader.incidents`."""

    def __init__(self, message: str, *, worker_id: int | None = None, sample_index: object = None) -> None:
        super().__init__(message)
        self.worker_id = worker_id
        self.sample_index = sample_index
        self.incident: Incident | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args, self.__dict__


class WorkerCrashed(WorkerError):
    """A worker died while it was loading a batch, and the batch could not be loaded by its replacement either."""


class WorkerTimeout(WorkerError):
    """A sample took longer than `sample_timeout` each time it was tried. The worker's stacks are in the message."""


class WorkerOutOfMemory(WorkerError):
    """The kernel's out-of-memory killer ended the worker each time it loaded a sample or made a batch, or we did, past
    `memory_limit`.
    """


class WorkerInitError(WorkerError):
    """A worker died before it was ready for its first sample."""


class TooManyRestarts(WorkerError):
    """Workers, or their supervisor, die again and again without a sample to blame."""


class TooManySkipped(HoldfastError, RuntimeError):
    """More samples of an epoch could not be loaded than the loader's `max_skipped` allows. `incident` is the last."""

    incident: Incident | None = None


class SharedMemoryError(HoldfastError, OSError):
    """What is to be shared does not fit into memory, or what was shared cannot be reached."""


class NotPicklable(HoldfastError, TypeError):
    """Something that must travel to a worker cannot be pickled. `path` names the attribute."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args, self.__dict__


class InternalError(HoldfastError):
    """A bug of holdfast, not of your program."""

    def __init__(self, message: str) -> None:
        super().__init__(
            f"{message}\nThis is a bug of holdfast, not of your program: please report it with this traceback."
        )

    def __reduce__(self) -> tuple[object, ...]:
        return Exception.__new__, (type(self), *self.args), self.__dict__


class HoldfastWarning(UserWarning):
    """Something works, but not as well as it could, or not as the arguments say."""
