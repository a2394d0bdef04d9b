"""Which worker gets the next call. Pure: no process, no clock of its own, no data.

A call goes to a worker that has nothing to do. Where there is none, and calls have been short so far, it goes to the
one that has the fewest: that one finds it when it is done, and nobody has to be woken. Should the call before it take
long after all, it is taken back (`stuck`) and given to another, and that worker gets no more until it comes back.

Runs in: main process.
"""

from __future__ import annotations

from typing import Generic, TypeVar

STUCK_AFTER_S = 0.05
_DEEPEST = 4
_SHORT_S = 1e-3  # together they take no longer
_TRUSTED_AFTER = 16  # calls
_MEMORY = 0.1  # the weight of the latest one

Call = TypeVar("Call")


class Assignment(Generic[Call]):
    """What each worker has been given."""

    def __init__(self, num_workers: int, *, can_take_back: bool) -> None:
        self._deepest = _DEEPEST if can_take_back else 1
        self._calls: list[list[Call]] = [[] for _ in range(num_workers)]
        self._moved_s = [0.0] * num_workers  # when it last got its first call, or gave one back
        # By how many calls they have; the one that got there last comes first: its caches are warm.
        self._levels: list[dict[int, None]] = [{} for _ in range(self._deepest + 1)]
        self._levels[0] = dict.fromkeys(reversed(range(num_workers)))
        self._aside: set[int] = set()  # at a call that takes long: on no level
        self._service_s = 0.0
        self._seen = 0
        self.depth = 1  # how many calls a worker may have
        self.under_way = 0

    def next_worker(self) -> int | None:
        """None: all have enough."""
        for workers in self._levels[: self.depth]:
            if workers:
                return next(reversed(workers))
        return None

    def has_queues(self) -> bool:
        """Whether a call waits behind another."""
        return any(self._levels[2:])

    def sent(self, worker_id: int, call: Call, now_s: float) -> None:
        calls = self._calls[worker_id]
        if not calls:
            self._moved_s[worker_id] = now_s
        self._move(worker_id, 1)
        calls.append(call)

    def came_back(self, worker_id: int, call: Call, now_s: float) -> None:
        """Done: the worker has gone on to the next one it has."""
        self.lost(worker_id, call)
        self._readmit(worker_id)
        took_s = now_s - self._moved_s[worker_id]
        self._moved_s[worker_id] = now_s
        self._seen += 1
        self._service_s += (took_s - self._service_s) * max(_MEMORY, 1 / self._seen)
        if self._deepest > 1 and self._seen >= _TRUSTED_AFTER:
            self.depth = min(max(1, int(_SHORT_S / max(self._service_s, 1e-9))), self._deepest)

    def lost(self, worker_id: int, call: Call) -> None:
        """Not done, and the worker has it no more."""
        calls = self._calls[worker_id]
        calls.remove(call)
        self._move(worker_id, -1)
        if not calls:
            self._readmit(worker_id)

    def set_aside(self, worker_id: int) -> None:
        """It gets no more before it is done with one."""
        del self._levels[len(self._calls[worker_id])][worker_id]
        self._aside.add(worker_id)

    def _readmit(self, worker_id: int) -> None:
        if worker_id in self._aside:
            self._aside.discard(worker_id)
            self._levels[len(self._calls[worker_id])][worker_id] = None

    def stuck(self, now_s: float) -> list[int]:
        """Workers that have been at one call for longer than what waits behind it should wait."""
        queues = (worker_id for workers in self._levels[2:] for worker_id in workers)
        return [worker_id for worker_id in queues if now_s - self._moved_s[worker_id] > STUCK_AFTER_S]

    def _move(self, worker_id: int, by: int) -> None:
        self.under_way += by
        if worker_id in self._aside:
            return
        at = len(self._calls[worker_id])
        if by < 0:
            at += 1  # it has been removed by now
        del self._levels[at][worker_id]
        self._levels[at + by][worker_id] = None
