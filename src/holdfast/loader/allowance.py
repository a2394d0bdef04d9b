"""Whether there is memory for one more unit: the governor of `memory/budget.py`, with what is in use now.

What may be used is the budget, or what the cgroup and the machine have left, if that is less: so the memory of the
training program counts as well. Readings are taken at most twenty times a second.

Runs in: main process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import psutil

from holdfast import words
from holdfast.loader.units import Units
from holdfast.memory import cgroups
from holdfast.memory.budget import Governor, Use
from holdfast.transport.slots import SlotPool
from holdfast.workers.backend import WorkerBackend

_EVERY_S = 0.05
_MARGIN_SHARE = 20  # of what there is at all, a twentieth is left alone
_MOST_MARGIN = 256 << 20
_WORTH_IT = 32 << 20  # a worker that keeps less is no help


def resolve(budget: int | float) -> int:
    """In bytes: a share is one of the cgroup's limit, or of the machine's memory where it has none."""
    return budget if isinstance(budget, int) else int(budget * _all_there_is())


def _all_there_is() -> int:
    cgroup = cgroups.memory_cgroup_of("self")
    limit = cgroup.limit_bytes() if cgroup is not None else None
    total = int(psutil.virtual_memory().total)
    return total if limit is None else min(limit, total)


class Allowance:
    """For one iterator. Without a budget it holds nothing back, until a worker is killed for want of memory."""

    def __init__(
        self,
        budget_bytes: int | None,
        num_workers: int,
        most_loading: int,
        *,
        backend: WorkerBackend,
        pool: SlotPool,
        units: Units,
    ) -> None:
        self._budget_bytes = budget_bytes
        self._governor = Governor(most_loading)
        self._num_workers = num_workers
        self._backend, self._pool, self._units = backend, pool, units
        self._warm_slots = pool.warm_slots
        self._cgroups = cgroups.limited_cgroups_of("self") if budget_bytes is not None else []
        self._margin_bytes = min(_all_there_is() // _MARGIN_SHARE, _MOST_MARGIN) if budget_bytes is not None else 0
        self._read_at = -_EVERY_S
        self._total_bytes: int | None = None
        self._keeps: dict[int, int] = {}  # by worker that keeps something
        self._expected = 0  # of one that has not loaded anything
        self._is_ample = False  # as long as that reading is good
        self._kept_by_retired: dict[int, int] = {}
        self._gone: set[int] = set()  # for good

    @property
    def is_unbound(self) -> bool:
        return self._budget_bytes is None and self._governor.is_free and not self.retired

    @property
    def retired(self) -> Collection[int]:
        """Workers that are done without."""
        return self._kept_by_retired.keys()

    # -- what is learned -------------------------------------------------------------------------------------------

    def saw_unit(self, worker_id: int, batch_bytes: int) -> None:
        """A unit has come."""
        memory = self._backend.memory(worker_id)
        self._governor.saw_unit(max(0, memory.peak - memory.kept), batch_bytes)

    def saw_kill(self) -> None:
        """A worker was killed for want of memory."""
        self._governor.saw_kill(len(self._units.loading()))

    def needs(self) -> str:
        """In words: what units took so far."""
        governor = self._governor
        if not governor.batch_bytes and not governor.loading_bytes:
            return ""
        batch, loading = words.size(governor.batch_bytes), words.size(governor.loading_bytes)
        return f"a batch takes up to {batch}, and loading one up to {loading} of its worker, by those that came"

    # -- what is decided -------------------------------------------------------------------------------------------

    def allows_one_more(self, due_bytes: int, turn: int | None) -> bool:
        """`due_bytes`: of the batch that is on its way to the user. `turn`: the worker that would get the unit."""
        if self._is_ample and time.monotonic() - self._read_at < _EVERY_S:
            return True
        use = self._use(due_bytes, turn)
        allowed = self._governor.allows_one_more(use)
        if self._budget_bytes is not None:
            self._pool.keep_warm(self._warm_slots if allowed else max(1, use.loading))
            self._is_ample = allowed and self._governor.has_plenty(use)
        return allowed

    def retire_one(self, due_bytes: int, turn: int, is_active: Callable[[int], bool]) -> int | None:
        """A worker to be done without, so that there is room for a single unit; None if none would help.

        One that has nothing more to do in this epoch before all others. Rather the one whose turn it is, if it has not
        begun and would come to keep as much as the others, than one that has.
        """
        if not self._governor.gives_up_a_worker(self._use(due_bytes, turn)):
            return None
        keeps = {worker_id: self._kept(worker_id) for worker_id in self._working()}
        idle = [worker_id for worker_id, kept in keeps.items() if kept >= _WORTH_IT and not is_active(worker_id)]
        if idle:
            self._kept_by_retired[idle[0]] = keeps[idle[0]]
            return idle[0]
        most = max(keeps, key=keeps.__getitem__)
        has_loaded = self._has_loaded(turn)
        worker_id = max(keeps.keys() - {turn}, key=keeps.__getitem__) if has_loaded else turn
        if keeps[most] < _WORTH_IT or (has_loaded and keeps[worker_id] < _WORTH_IT):
            return None
        self._kept_by_retired[worker_id] = keeps[worker_id] if has_loaded else keeps[most]
        return worker_id

    def retire_all_but(self, worker_id: int) -> list[int]:
        """The others that keep memory: a unit is to be loaded alone."""
        keeps = {other: self._kept(other) for other in self._working() if other != worker_id}
        found = {other: kept for other, kept in keeps.items() if kept >= _WORTH_IT}
        self._kept_by_retired.update(found)
        return list(found)

    def takes_one_back(self, due_bytes: int, is_active: Callable[[int], bool]) -> int | None:
        """The worker that there is room for again, and work."""
        use = self._use(due_bytes, None)
        for worker_id, kept_bytes in self._kept_by_retired.items():
            if is_active(worker_id) and self._governor.takes_a_worker_back(use, kept_bytes):
                return worker_id
        return None

    def has_begun(self, worker_id: int) -> bool:
        """Whether it has loaded anything, and so may keep something; or has a good deal without that."""
        return self._kept(worker_id) > 0

    def has_left(self, worker_id: int) -> None:
        """It has nothing more to do, and ends."""
        self._gone.add(worker_id)

    def took_back(self, worker_id: int) -> None:
        self._kept_by_retired.pop(worker_id, None)

    # -- what is in use --------------------------------------------------------------------------------------------

    def _use(self, due_bytes: int, turn: int | None) -> Use:
        self._pool.collect()
        given_out, free = self._pool.memory_bytes()
        finished, granted = self._units.memory_bytes()
        loading = self._units.loading()
        if self._budget_bytes is not None:
            self._read(self._budget_bytes, given_out + free + finished + granted + due_bytes)
        begins = {self._units[unit].worker_id for unit in loading} | ({turn} if turn is not None else set())
        yet_to_come = sum(
            max(0, self._expected - self._keeps.get(worker_id, 0))
            for worker_id in begins
            if not self._has_loaded(worker_id)
        )
        return Use(
            total_bytes=self._total_bytes,
            kept_bytes=sum(self._keeps.values()) + yet_to_come,
            batches_bytes=given_out + finished + due_bytes,
            slots_bytes=free + granted,
            loading=len(loading),
            workers=len(self._working()),
        )

    def _working(self) -> list[int]:
        missing = self._gone.union(self._kept_by_retired)
        return [worker_id for worker_id in range(self._num_workers) if worker_id not in missing]

    def _has_loaded(self, worker_id: int) -> bool:
        return self._backend.memory(worker_id).kept > 0

    def _kept(self, worker_id: int) -> int:
        """Of one that has not loaded anything yet: 0, unless it is a new interpreter, or has loaded an index to start.

        (Such a one counts in the budget from its start. A fork has next to nothing of its own by then.)
        """
        memory = self._backend.memory(worker_id)
        if memory.kept:
            return max(1, memory.kept - memory.born)
        has = memory.start - memory.born if memory.start else self._backend.used_bytes(worker_id)
        return has if has >= _WORTH_IT else 0

    def _read(self, budget_bytes: int, slot_bytes: int) -> None:
        now_s = time.monotonic()
        if now_s - self._read_at < _EVERY_S:
            return
        self._read_at = now_s
        self._backend.set_slot_bytes(slot_bytes)
        working = self._working()
        self._keeps = {worker_id: kept for worker_id in working if (kept := self._kept(worker_id))}
        self._expected = max(self._keeps.values(), default=0)
        used = slot_bytes + sum(map(self._backend.used_bytes, working))
        left = cgroups.left_bytes(self._cgroups)
        self._total_bytes = budget_bytes if left is None else min(budget_bytes, used + left - self._margin_bytes)
