"""What the processes say to each other.

Between main and worker: marshalled tuples, because they are sent for every batch, and both ends run one interpreter.
Between main and supervisor: pickled frozen dataclasses, because they are rare.
Runs in: main | supervisor | worker process.
"""

from __future__ import annotations

import marshal
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from holdfast.workers.board import Doing

# -- main to worker ----------------------------------------------------------------------------------------------------


class Order(IntEnum):
    """The first item of every message to a worker."""

    UNIT = 0
    SEGMENT = 1
    FORGET = 2
    RESUME = 3


_UNIT = int(Order.UNIT)
SlotRef = tuple[int, int, int]  # a range as a worker knows it: segment, offset, length


class Unit(NamedTuple):
    """One batch to load. `indices` is a pickle, or the place of one that is too large for a message."""

    unit: int
    attempt: int
    slot: SlotRef
    indices: bytes | SlotRef


def pack_unit(unit: int, attempt: int, slot: SlotRef, indices: bytes | SlotRef) -> bytes:
    return marshal.dumps((_UNIT, unit, attempt, slot, indices))


def unpack_unit(message: tuple[Any, ...]) -> Unit:
    return Unit(*message[1:])


def pack_segment(number: int, nbytes: int) -> bytes:
    """Announces a segment; its descriptor travels with the message."""
    return marshal.dumps((int(Order.SEGMENT), number, nbytes))


def pack_forget(numbers: list[int]) -> bytes:
    return marshal.dumps((int(Order.FORGET), tuple(numbers)))


def pack_resume(shared_seed: int | None) -> bytes:
    """A new epoch for workers that stay alive."""
    return marshal.dumps((int(Order.RESUME), shared_seed))


# -- worker to main ----------------------------------------------------------------------------------------------------


class Kind(IntEnum):
    """What came of a unit."""

    BATCH = 0
    FAILURE = 1  # the user's code raised
    END = 2  # this worker's iterable is exhausted


class Result(NamedTuple):
    """The header of a finished unit. The descriptors of what was `spilled` travel with the message."""

    kind: int
    unit: int
    attempt: int
    kept: bool  # the worker's own code still holds a tensor in the slot
    used: tuple[int, ...]  # bytes used per area
    spilled: tuple[int, ...]  # sizes of areas 1, 2, ...
    layout: bytes | tuple[int, int, int]


def pack_result(result: Result) -> bytes:
    return marshal.dumps(tuple(result))


def unpack_result(data: bytes | memoryview) -> Result:
    return Result(*marshal.loads(data))


# -- supervisor to main and back ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """A worker process runs. Its socket and pidfd travel with the message.

    `tainted_by` says why it had to be a new interpreter and not a fork of the supervisor.
    """

    worker_id: int
    life: int
    pid: int
    tainted_by: str | None


@dataclass(frozen=True, slots=True)
class Exited:
    """A worker process is gone and reaped. `replaced` tells whether another life follows."""

    worker_id: int
    life: int
    pid: int
    exitcode: int
    doing: Doing
    replaced: bool


@dataclass(frozen=True, slots=True)
class Retire:
    """Main to supervisor: this worker will end by itself, and is not to be replaced."""

    worker_id: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Main to supervisor: all workers will end by themselves; after the grace end those that did not, then exit."""

    grace_s: float
