"""Judging from outside whether a worker may go on: a step that takes too long, a process that was stopped, too much
memory.

Time is counted in the watcher's own ticks, each worth no more than it should take: a stopped terminal, a debugger or a
suspended laptop stops the watcher as well, and is not a hang. Runs in: supervisor process; main process, of the
portable backend.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping

from holdfast.board_rows import Phase
from holdfast.memory import readings, smaps
from holdfast.workers.board import Board, Doing, WorkerMemory
from holdfast.workers.limits import IN_THE_WAY_BYTES, SLACK_BYTES

STACK_SIGNAL = signal.SIGRTMAX - 2 if hasattr(signal, "SIGRTMAX") else 0
"""Makes a worker write the stacks of its threads, whatever they do, and go on. No library we know uses it."""

STOPPED_GRACE_S = 10.0
"""How long a process may be stopped by a signal, as a debugger or a job scheduler does it, before it counts as lost.

Counted in ticks of the process that watches it. The main process reads this value and tells the supervisor.
"""

_SLOWEST_TICK_S = 0.5
_TICKS_PER_LIMIT = 5
_MEMORY_TICK_S = 0.2  # within which a process can touch half a gigabyte
_ENDING_GRACE_S = 3.0
_STACK_WITHIN_S = 0.2
_STACK_SETTLES_S = 0.05  # it writes no more: on a busy machine it may be interrupted for some time in between
_STACK_WRITTEN_WITHIN_S = 1.0
_STACK_TICK_S = 0.02
_LONGEST_STACK = 32 * 1024  # bytes: it travels in one message, and a hundred threads have more to tell
_AT_REST = (Phase.IDLE, Phase.HAND_OVER)
_WATCHED = (Phase.FETCH, Phase.COLLATE, Phase.SEND, Phase.REPLAY)


def tick_s_of(doing: Doing) -> float:
    """How often to look at a worker that does this, for the limits of its call."""
    return tick_s(doing.limit_ms / 1000 if doing.limit_ms > 0 else None, watches_memory=doing.limit_bytes > 0)


def tick_s(limit_s: float | None, *, watches_memory: bool = False) -> float:
    """How often to look, for a deadline of so many seconds."""
    longest_s = _MEMORY_TICK_S if watches_memory else _SLOWEST_TICK_S
    return longest_s if limit_s is None else min(longest_s, limit_s / _TICKS_PER_LIMIT)


class Deadline:
    """How long one worker has been at the same step. `limit_s` is for a step that is about one sample."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._last: Doing | None = None
        self._same_s = 0.0

    def is_over(self, doing: Doing, elapsed_s: float) -> bool:
        """Called at every tick with the worker's row, and the time since the last call."""
        limit_s = self._limit_s if not doing.limit_ms else doing.limit_ms / 1000
        if limit_s is None:
            return False
        self._same_s = self._same_s + elapsed_s if doing == self._last else 0.0
        self._last = doing
        return doing.phase in _WATCHED and 0 < limit_s * max(1, doing.span) < self._same_s


class EndWatch:
    """How long a worker takes to end by itself, once it has begun to."""

    def __init__(self) -> None:
        self._ending_s = 0.0

    def is_over(self, doing: Doing, elapsed_s: float) -> bool:
        """Whether what runs at its exit, threads or handlers of the user's, keeps it from ending."""
        if doing.phase is Phase.ENDING:
            self._ending_s += elapsed_s
        return self._ending_s > _ENDING_GRACE_S


class MemoryCap:
    """How much memory one worker has taken since it was ready, and may take.

    Its own memory is counted at every tick. Shared memory counts if no other process has it and it is no slot of ours;
    to tell that takes milliseconds, so it is looked at when there is a good deal more of it than the last time.
    """

    def __init__(self, pid: int, limit_bytes: int | None) -> None:
        self._pid = pid
        self._limit_bytes = limit_bytes
        self._looks = 0
        self._shared_seen = 0
        self._own_shared = 0
        self._shared_unit = -1  # that it had in hand when that was looked at
        self._unit = -1  # that it had in hand when the rest was
        self._before_bytes = 0  # used when it was last seen at rest, or at an earlier unit
        self.anonymous_bytes: int | None = None
        self.used_bytes: int | None = None  # when it was last looked at

    @property
    def kept_bytes(self) -> int:
        """What it had kept since earlier units of this life, as far as was seen; 0: too little to be in the way."""
        return self._before_bytes if self._before_bytes >= IN_THE_WAY_BYTES else 0

    def is_over(self, memory: WorkerMemory, doing: Doing) -> bool:
        """Called at every tick with the worker's row. A call with a limit of its own has set its own start, too."""
        limit_bytes = doing.limit_bytes or self._limit_bytes or 0
        if limit_bytes <= 0 or not memory.start:
            return False
        anonymous = self.anonymous_bytes = readings.anonymous_bytes(self._pid)
        if anonymous is None:
            return False
        own, most_bytes = max(0, anonymous - memory.start), limit_bytes + SLACK_BYTES
        is_over = own + self._own_shared > most_bytes
        self._looks += 1
        is_due = is_over or self._looks % _TICKS_PER_LIMIT == 0
        unplaced = self._look_at_shared(doing.unit, most_bytes // 4, again=is_over) if is_due else 0
        before, self.used_bytes = self.used_bytes or 0, own + self._own_shared
        self._note_kept(doing, memory, before, unplaced)
        return self.used_bytes > most_bytes

    def _note_kept(self, doing: Doing, memory: WorkerMemory, before: int, unplaced: int) -> None:
        """As seen from here, with shared memory, or by its own word, which is never too late.

        (Below 0 are the units of an iterable that is run again: what that takes is not of an earlier one.)
        """
        if doing.unit >= 0 and doing.phase in _AT_REST:
            self._before_bytes = self.used_bytes or 0
        else:
            if doing.unit != self._unit:
                self._before_bytes = before if self._unit >= 0 else 0
            self._before_bytes += unplaced if memory.kept else 0  # with none finished, it can only be of this one
        self._before_bytes = max(self._before_bytes, memory.kept - memory.start if memory.kept else 0)
        self._unit = doing.unit

    def _look_at_shared(self, unit: int, step_bytes: int, *, again: bool) -> int:
        """How much more there is of it than at the last look, if another unit was in hand then: it may be kept."""
        shared = readings.shared_memory_bytes(self._pid) or 0
        if not again and abs(shared - self._shared_seen) <= step_bytes:
            return 0
        self._shared_seen = shared
        before, unit_before = self._own_shared, self._shared_unit
        self._own_shared = smaps.own_shared_memory_bytes(self._pid) if shared > step_bytes else 0
        self._shared_unit = unit
        return max(0, self._own_shared - before) if unit != unit_before else 0


class BudgetWatch:
    """What all workers have taken together, and which one is to go if that, with the slots, is over the budget."""

    def __init__(self, budget_bytes: int | None) -> None:
        self._budget_bytes = budget_bytes
        self.used_bytes: dict[int, int] = {}  # by worker, beyond its birth, when they were last looked at
        self._when_ended: dict[int, int] = {}  # the same of those that were to go: another look may come before the end

    @property
    def has_budget(self) -> bool:
        return self._budget_bytes is not None

    def find_one_too_many(self, board: Board, anonymous: Mapping[int, int | None]) -> int | None:
        """Called at every tick with what each worker has. The one that has the most of those that load."""
        if self._budget_bytes is None:
            return None
        self.used_bytes = {
            worker_id: max(0, (nbytes or 0) - board.memory(worker_id).born) for worker_id, nbytes in anonymous.items()
        }
        if sum(self.used_bytes.values()) + board.slot_bytes() <= self._budget_bytes + SLACK_BYTES:
            return None
        loading = [worker_id for worker_id in anonymous if board.doing(worker_id).phase in _WATCHED]
        too_many = max(loading, key=self.used_bytes.__getitem__, default=None)
        if too_many is not None:
            self._when_ended.setdefault(too_many, self.used_bytes[too_many])
        return too_many

    def had_bytes(self, worker_id: int) -> int | None:
        """Of a worker that is gone: what it had when it was to go, or when it was last looked at. Then forgotten."""
        return self._when_ended.pop(worker_id, self.used_bytes.get(worker_id))


class StopWatch:
    """How long a child process has been stopped by a signal."""

    def __init__(self, pidfd: int, grace_s: float = STOPPED_GRACE_S) -> None:
        self._pidfd = pidfd
        self._grace_s = grace_s
        self.is_stopped = False
        self._stopped_s = 0.0

    def is_over(self, elapsed_s: float) -> bool:
        """Whether it was not continued within the grace."""
        with contextlib.suppress(ChildProcessError):
            while (news := os.waitid(os.P_PIDFD, self._pidfd, os.WSTOPPED | os.WCONTINUED | os.WNOHANG)) is not None:
                self.is_stopped = news.si_code == os.CLD_STOPPED
        self._stopped_s = self._stopped_s + elapsed_s if self.is_stopped else 0.0
        return self._stopped_s > self._grace_s


class StackRequest:
    """Asks a worker that is about to be ended for its Python stacks, which it writes to a file.

    The signal also interrupts C calls, so it is sent only when the end is decided. Who asks looks again and again: when
    the machine stood still for a while, or was busy, the worker has had no time to answer either.
    """

    def __init__(self, pidfd: int, file: int) -> None:
        self._file = file
        self._start = self._size = os.fstat(file).st_size
        self._looked_s = time.monotonic()
        self._same_s = self._waited_s = 0.0  # since it grew, and since it was asked
        self._within_s = _STACK_WITHIN_S
        try:
            signal.pidfd_send_signal(pidfd, STACK_SIGNAL)
        except ProcessLookupError:
            self._within_s = 0.0

    def answer(self) -> str | None:
        """Empty if it writes nothing; None: that is not known yet."""
        now, size = time.monotonic(), os.fstat(self._file).st_size
        elapsed_s, self._looked_s = min(now - self._looked_s, _STACK_TICK_S), now
        self._waited_s, self._same_s = self._waited_s + elapsed_s, self._same_s + elapsed_s
        if size != self._size:
            self._size, self._same_s, self._within_s = size, 0.0, _STACK_WRITTEN_WITHIN_S
        is_written = size > self._start and self._same_s >= _STACK_SETTLES_S
        if not is_written and self._waited_s < self._within_s:
            return None
        start = max(self._start, size - _LONGEST_STACK)  # the main thread comes last
        return os.pread(self._file, size - start, start).decode(errors="replace")
