"""What the processes say to each other.

Between main and worker: marshalled tuples, because they are sent for every batch, and both ends run one interpreter.
Between main and supervisor: pickled frozen dataclasses, because they are rare.
Runs in: main | supervisor | worker process.
"""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, NamedTuple

from holdfast.board_rows import Phase
from holdfast.diagnosis.evidence import Ending, Evidence
from holdfast.workers.board import Doing

# -- main to worker ----------------------------------------------------------------------------------------------------


class Order(IntEnum):
    """The first item of every message to a worker."""

    UNIT = 0
    SEGMENT = 1
    FORGET = 2
    RESUME = 3
    RESTORE = 4


_UNIT = int(Order.UNIT)
SlotRef = tuple[int, int, int]  # a range as a worker knows it: segment, offset, length


class Unit(NamedTuple):
    """One batch to load. `indices` is a pickle; if that is too large for a message, the place of a packed request."""

    unit: int
    attempt: int
    slot: SlotRef
    indices: bytes | SlotRef
    places: tuple[int, ...] = (0,)  # where its samples are in the epoch: each one, or where they follow, the first
    one_by_one: bool = False  # even if the dataset can load many in one call


def pack_unit(unit: Unit) -> bytes:
    return marshal.dumps((_UNIT, *unit))


def unpack_unit(message: tuple[Any, ...]) -> Unit:
    return Unit(*message[1:])


def pack_request(indices: bytes, places: tuple[int, ...]) -> bytes:
    """What a unit asks for, where that is too large for a message. Its first place is in the message all the same."""
    return marshal.dumps((indices, places))


def unpack_request(data: bytes | memoryview) -> tuple[bytes, tuple[int, ...]]:
    indices, places = marshal.loads(data)
    return indices, places


def place_of(places: Sequence[int], position: int) -> int:
    """Where in the epoch a sample of a unit is: given for each, or for the first of samples that follow each other."""
    return places[position] if len(places) > 1 else places[0] + position


class Call(NamedTuple):
    """What a unit of a pool asks for: a call, in place of indices."""

    layout: bytes | tuple[int, int, int]  # of function and arguments, or its place in the first of the slots
    slots: tuple[SlotRef, ...]  # where its arrays lie
    limit_ms: int  # how long it may take; 0: as long as the job says; NO_LIMIT
    limit_bytes: int = 0  # what its worker may take beyond what it has when it begins; 0: what the job says; NO_LIMIT


NO_LIMIT = -1


def pack_call(call: Call) -> bytes:
    return marshal.dumps(tuple(call))


def unpack_call(data: bytes | memoryview) -> Call:
    return Call(*marshal.loads(data))


def pack_segment(number: int, nbytes: int) -> bytes:
    """Announces a segment; its descriptor travels with the message."""
    return marshal.dumps((int(Order.SEGMENT), number, nbytes))


def pack_forget(numbers: list[int]) -> bytes:
    return marshal.dumps((int(Order.FORGET), tuple(numbers)))


class Epoch(NamedTuple):
    """What a worker must know of an epoch. `sample_seed` is None where the samples' random numbers are the worker's."""

    shared_seed: int | None  # of DataPipes
    sample_seed: int | None


def pack_resume(epoch: Epoch) -> bytes:
    """A new epoch for workers that stay alive."""
    return marshal.dumps((int(Order.RESUME), *epoch))


class Progress(NamedTuple):
    """How far a worker has come: what its replacement takes up. All of it is the worker's own word."""

    generators: dict[str, bytes]  # random states at the end of its last unit, as in `rng.States`
    at_epoch_start: dict[str, bytes]  # the same when the epoch began, for an iterable that is run again from there
    units: int = 0  # of an iterable, in this epoch
    elements: int = 0  # the same: taken from the iterator, delivered or passed over
    stream_state: bytes = b""  # what the iterable's own state_dict() gave when it was last taken
    state_units: int = 0  # after so many units
    unit_size: int = 0
    uncollated: tuple[int, ...] = ()  # units, counted in this epoch, on whose collate_fn a worker has died
    passed: int = 0  # elements of those of them that the worker had not told of
    cut: tuple[tuple[int, int], ...] = ()  # units that ended with an exception, and how many elements each took
    has_ended: bool = False  # whether the iterable has ended in this epoch; if so it is not run again
    state_elements: int = 0  # after so many elements
    at_state: dict[str, bytes] | None = None  # random states at that time, for what is run again from there


def pack_restore(where_from: bytes | SlotRef) -> bytes:
    """To a worker that replaces another, before its first unit: what `pack_progress` made, or its place."""
    return marshal.dumps((int(Order.RESTORE), where_from))


def pack_progress(epoch: Epoch, progress: Progress) -> bytes:
    return marshal.dumps((tuple(epoch), tuple(progress)))


def unpack_progress(data: bytes | memoryview) -> tuple[Epoch, Progress]:
    epoch, progress = marshal.loads(data)
    return Epoch(*epoch), Progress(*progress)


# -- worker to main ----------------------------------------------------------------------------------------------------


class Kind(IntEnum):
    """What came of a unit."""

    BATCH = 0
    FAILURE = 1  # the user's code raised
    END = 2  # this worker's iterable is exhausted
    BAD_SAMPLES = 3  # some or all could not be loaded, and no batch was made: `aside` says which
    BAD_BATCH = 4  # as FAILURE, of collate_fn or of sending: may be passed over
    AGAIN = 5  # as FAILURE, of a worker that keeps too much to tell: it leaves, and another is to try
    TAKEN_BACK = 6  # the main process has taken it back, and it was not begun


class Result(NamedTuple):
    """The header of a finished unit. The descriptors of what was `spilled` travel with the message."""

    kind: int
    unit: int
    attempt: int
    kept: bool  # the worker's own code still holds a tensor in the slot
    used: tuple[int, ...]  # bytes used per area
    spilled: tuple[int, ...]  # sizes of areas 1, 2, ...
    layout: bytes | tuple[int, int, int]
    aside: bytes | tuple[int, int, int] = b""  # a marshalled `Aside`, or its place in the areas; empty: all is well


class BadSample(NamedTuple):
    """A sample that raised, for good or at first. `position` is that in the unit's list; of an iterable, in the
    worker's stream; -1: at first collate_fn raised, or `__getitems__` for all of the unit.
    """

    position: int
    attempts: int
    failure: tuple[Any, ...]  # a `failures.Failure`
    loaded: bool  # by a further attempt


class Aside(NamedTuple):
    """What else a worker has to say with a unit: how far it has come, and what went wrong on the way."""

    generators: dict[str, bytes]
    at_epoch_start: dict[str, bytes]
    units: int
    elements: int
    stream_state: bytes  # empty: not taken with this unit, or there is none
    bad: tuple[tuple[Any, ...], ...]  # BadSample
    grown: tuple[Any, ...] = ()  # a `growing.Grown`: its memory grows
    cut: int = -1  # elements of an iterable that the unit took, if it ended with an exception
    slow: tuple[tuple[int, int], ...] = ()  # position and nanoseconds of samples that took longer than any before
    has_ended: bool = False  # whether the iterable has ended; the unit may be its last batch


ARGUMENTS_KEPT = b"kept"
"""All that a worker has to say beside the result of a call: the user's code holds on to what lies in its slots."""


def pack_aside(aside: Aside) -> bytes:
    return marshal.dumps(tuple(aside))


def unpack_aside(data: bytes | memoryview) -> Aside:
    return Aside(*marshal.loads(data))


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


class Reason(Enum):
    """Why a worker process is gone."""

    EXITED = "exited"  # by itself, or killed by somebody else
    HUNG = "hung"  # ended by the supervisor: a step took longer than it may
    STOPPED = "stopped"  # ended by the supervisor: it had been stopped by a signal and was not continued
    OVER_LIMIT = "over limit"  # ended by the supervisor: it had more memory than memory_limit allows
    OVER_BUDGET = "over budget"  # ended by the supervisor: all together had more than memory_budget allows
    LEFT = "left"  # as it was to, between two units: another takes up its work


def reason_of_end(reason: Reason, doing: Doing, exitcode: int) -> Reason:
    """Of a process that is gone: one that was not ended by us, and came to its own end, has left."""
    left = reason is Reason.EXITED and doing.phase is Phase.ENDING and exitcode == 0
    return Reason.LEFT if left else reason


ENDINGS = {
    Reason.EXITED: Ending.EXITED,
    Reason.HUNG: Ending.HUNG,
    Reason.STOPPED: Ending.STOPPED,
    Reason.OVER_LIMIT: Ending.OVER_LIMIT,
    Reason.OVER_BUDGET: Ending.OVER_BUDGET,
    Reason.LEFT: Ending.EXITED,
}
"""The same as evidence."""


@dataclass(frozen=True, slots=True)
class Exited:
    """A worker process is gone and reaped. `replaced` tells whether another life follows.

    That life, and what travels with it, comes in the same message: the main process can give it work at once.
    """

    worker_id: int
    life: int
    pid: int
    exitcode: int
    doing: Doing
    replaced: bool
    reason: Reason
    evidence: Evidence
    successor: Started | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The kernel refused the supervisor a new worker process, with this error number: it ends."""

    number: int
    reached: tuple[str, ...]  # limits, as measured there
    had_all: bool  # all of its workers had been started before


@dataclass(frozen=True, slots=True)
class Retire:
    """Main to supervisor: this worker will end by itself, and is not to be replaced."""

    worker_id: int


@dataclass(frozen=True, slots=True)
class BringBack:
    """Main to supervisor: a worker that was retired, and is gone, is to be started again."""

    worker_id: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Main to supervisor: all workers will end by themselves; after the grace end those that did not, then exit."""

    grace_s: float
