"""The job on its way to processes that main starts one by one, each a new interpreter.

    main: SharedJob ──pickled inside Process.start──► one segment ◄──read in place── every worker: ArrivedJob

The pickle lies in shared memory and not in the pipe of `Process.start`, which would block the main process until the
new interpreter reads it. It is made once, inside the first start, because queues, locks and shared tensors refuse to
be pickled anywhere else; a worker that is started later gets the dataset as it was then, and inherits the same
descriptors. Where what is in a pickle serves one process only (Windows' handles, tensors shared by file name) each
start makes its own.

Runs in: main process (SharedJob), worker process (ArrivedJob).
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import get_spawning_popen
from typing import Any

import torch.multiprocessing

from holdfast.transport import names, pickling
from holdfast.transport.segments import Segment
from holdfast.workers.job import Job
from holdfast.workers.passing import PassedSegment


@dataclass(frozen=True, slots=True)
class _Pickled:
    segment: Segment
    nbytes: int
    modules: frozenset[str]
    fds: tuple[int, ...]  # descriptors of this process that the pickle refers to by number
    parts: object  # keeps their owners alive, whatever the user does to the dataset


class SharedJob:
    """Main's side. Its pickling, inside `Process.start`, is what puts the job into shared memory."""

    def __init__(self, job: Job, new_name: Callable[[], str]) -> None:
        self._job = job
        self._new_name = new_name
        self._for_all: _Pickled | None = None
        self._for_one: Segment | None = None  # what the latest start made for its process alone

    def __reduce__(self) -> tuple[Any, ...]:
        popen: Any = get_spawning_popen()
        pickled = self._for_all or self._pickle(popen)
        inherited: list[int] = getattr(popen, "_fds", [])
        for fd in pickled.fds:
            if fd not in inherited:  # (named twice, it could not be inherited at all)
                popen.duplicate_for_child(fd)
        return ArrivedJob, (PassedSegment(pickled.segment), pickled.nbytes, pickled.modules)

    def _pickle(self, popen: Any) -> _Pickled:
        inherited: list[int] = getattr(popen, "_fds", [])
        first = len(inherited)
        data, modules, parts = pickling.dumps_with_parts(self._job, "")
        modules |= self._job.imports
        segment = _store(data, self._new_name())
        pickled = _Pickled(segment, len(data), modules, tuple(inherited[first:]), parts)
        if _serves_all(popen):
            self._for_all = pickled
        else:
            self._for_one = segment
        return pickled

    def take_for_one(self) -> object:
        """What the caller has to keep until the process that it started runs. (A descriptor is inherited by now.)"""
        segment, self._for_one = self._for_one, None
        if segment is not None:
            segment.close_fd()
        return segment

    def close(self) -> None:
        self.take_for_one()
        if self._for_all is not None:
            self._for_all.segment.close_fd()
            self._for_all = None


def _serves_all(popen: Any) -> bool:
    """Whether another process could load the same pickle: descriptors keep their numbers in every process, handles of
    Windows do not; and torch counts how often memory that it shares by file name has been opened.
    """
    return hasattr(popen, "_fds") and torch.multiprocessing.get_sharing_strategy() == "file_descriptor"  # type: ignore[no-untyped-call]


def _store(data: bytes, name: str) -> Segment:
    segment = Segment.create(max(len(data), 1), name)
    names.remove(name)  # inherited as a descriptor
    if segment.fd >= 0 and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(segment.fd, 0, segment.nbytes)  # an error now, where the write would be a SIGBUS
    segment.view[: len(data)] = data
    return segment


class ArrivedJob:
    """The worker's side."""

    def __init__(self, passed: PassedSegment, nbytes: int, modules: frozenset[str]) -> None:
        self._segment: Segment | None = passed.segment
        self._segment.close_fd()
        self._nbytes = nbytes
        self.modules = modules

    def open(self) -> Job:
        """The worker's own copy, made once. May raise whatever the user's classes raise while they are loaded."""
        assert self._segment is not None
        view, self._segment = self._segment.view[: self._nbytes], None
        job: Job = pickle.loads(view)
        return job
