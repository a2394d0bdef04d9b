"""Descriptors on their way to a process that is being started.

Runs in: main | supervisor process (sent), supervisor | worker process (received).
"""

from __future__ import annotations

from multiprocessing import reduction
from typing import Any


class PassedFd:
    """A descriptor that a process hands to one it starts, by whatever way the start method has."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> tuple[Any, ...]:
        return _receive_fd, (reduction.DupFd(self.fd),)


def _receive_fd(duplicate: Any) -> PassedFd:
    return PassedFd(duplicate.detach())
