"""Finding the processes of a loader from outside, by their place below the training process.

    fork, spawn    training ──► supervisor ──► workers
    forkserver     training ──► fork server ──► supervisor ──► workers
    portable       training ──► workers

Only what is running or stopped counts; zombies are dead already. Runs in: killer.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Role = Literal["worker", "supervisor"]
_DEAD = ("", "Z", "X")


@dataclass(frozen=True, slots=True)
class Member:
    """One process of the loader."""

    pid: int
    parent_pid: int
    role: Role
    is_stopped: bool
    supervisor_is_stopped: bool


def find_family(training_pid: int, method: str) -> list[Member]:
    """Every process of the loader under test that is alive now."""
    children = [pid for pid in _children(training_pid) if pid != os.getpid() and not _is(pid, b"resource_tracker")]
    if method == "portable":
        return _members(children, training_pid, "worker")
    parent_pid = training_pid
    if method == "forkserver":
        parent_pid = next((pid for pid in children if _is(pid, b"forkserver")), 0)
        children = _children(parent_pid)
    supervisors = _members(children, parent_pid, "supervisor")
    workers = [
        worker
        for supervisor in supervisors
        for worker in _members(_children(supervisor.pid), supervisor.pid, "worker", supervisor.is_stopped)
    ]
    return supervisors + workers


def _members(pids: list[int], parent_pid: int, role: Role, supervisor_is_stopped: bool = False) -> list[Member]:
    found = ((pid, *_state(pid)) for pid in pids)
    return [
        Member(pid, parent_pid, role, state == "T", supervisor_is_stopped or (role == "supervisor" and state == "T"))
        for pid, state, parent in found
        if state not in _DEAD and parent == parent_pid
    ]


def is_alive(member: Member) -> bool:
    """Whether it is still the process that was found, and not dead."""
    state, parent_pid = _state(member.pid)
    return state not in _DEAD and parent_pid == member.parent_pid


def _children(pid: int) -> list[int]:
    return [int(child) for child in _read(f"/proc/{pid}/task/{pid}/children").split()]


def _is(pid: int, word: bytes) -> bool:
    return word in _read(f"/proc/{pid}/cmdline")


def _state(pid: int) -> tuple[str, int]:
    """State letter and parent of a process; ("", 0) if there is none."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return (fields[0].decode(), int(fields[1])) if fields else ("", 0)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
