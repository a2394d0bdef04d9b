"""Descriptors and segments on their way to a process that is being started.

Runs in: main | supervisor process (sent), supervisor | worker process (received).
"""

from __future__ import annotations

from multiprocessing import reduction
from typing import Any

from holdfast.transport.segments import Segment


class PassedFd:
    """A descriptor that a process hands to one it starts, by whatever way the start method has."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> tuple[Any, ...]:
        return _receive_fd, (reduction.DupFd(self.fd),)


class PassedSegment:
    """A segment: inherited as a descriptor, so that it needs no name; by name where there are no descriptors."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment

    def __reduce__(self) -> tuple[Any, ...]:
        segment = self.segment
        return _receive_segment, (PassedFd(segment.fd) if segment.fd >= 0 else segment.name, segment.nbytes)


def _receive_fd(duplicate: Any) -> PassedFd:
    return PassedFd(duplicate.detach())


def _receive_segment(handle: PassedFd | str, nbytes: int) -> PassedSegment:
    return PassedSegment(Segment(handle.fd if isinstance(handle, PassedFd) else handle, nbytes))
