"""How far each worker has come, by its own word: what its replacement takes up.

An epoch may be left early, with workers that stay: they finish what they were given, though nobody waits for it, and
then begin the next. A replacement does the same, in the same order. Were it to begin with the new epoch, the old units
would take elements from its iterable, which would be lost; left out, their random numbers would be missing.

Runs in: main process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.loader.units import Units
from holdfast.transport.slots import Slot, SlotPool
from holdfast.workers.backend import WorkerBackend
from holdfast.workers.messages import Aside, Epoch, Progress, pack_progress

_INLINE = 40 * 1024  # what is larger travels in a slot


@dataclass(slots=True)
class _Run:
    """One worker's part of one epoch. Its generators are not looked at: they go on from one epoch to the next."""

    epoch: Epoch
    first_unit: int
    progress: Progress
    last_elements: range = range(0)
    passed: int = 0  # elements of units that were passed over since the worker was heard of


class WorkersProgress:
    """The progress of all workers of one iterator."""

    def __init__(self, num_workers: int, unit_size: int, units: Units, pool: SlotPool, backend: WorkerBackend) -> None:
        self._unit_size = unit_size
        self._units, self._pool, self._backend = units, pool, backend
        self._runs: list[list[_Run]] = [[] for _ in range(num_workers)]  # this epoch's last, before it unfinished ones
        self._generators: list[dict[str, bytes]] = [{} for _ in range(num_workers)]
        self._slots: dict[int, Slot] = {}  # in which a progress is on its way

    def begin_epoch(self, epoch: Epoch, first_unit: int) -> None:
        """Iterables start anew; random numbers go on."""
        for worker_id, runs in enumerate(self._runs):
            runs[:] = [run for run, units in self._unfinished(worker_id) if units]
            runs.append(_Run(epoch, first_unit, Progress({}, {}, unit_size=self._unit_size)))

    def _unfinished(self, worker_id: int) -> list[tuple[_Run, list[int]]]:
        """The worker's runs, each with what it has been sent of it and has not finished."""
        runs, sent = self._runs[worker_id], self._units.sent_to(worker_id)
        ends = [*(run.first_unit for run in runs[1:]), sys.maxsize]
        return [
            (run, [unit for unit in sent if run.first_unit <= unit < end])
            for run, end in zip(runs, ends[: len(runs)], strict=True)
        ]

    def heard(self, worker_id: int, unit: int, aside: Aside) -> None:
        """A worker has finished a unit."""
        self._free(worker_id)
        self._generators[worker_id].update(aside.generators)
        run = next((run for run in reversed(self._runs[worker_id]) if run.first_unit <= unit), None)
        if run is None:
            return
        old = run.progress
        run.last_elements, run.passed = range(old.elements + run.passed, aside.elements), 0
        new = run.progress = old._replace(
            at_epoch_start=aside.at_epoch_start or old.at_epoch_start,
            units=aside.units,
            elements=aside.elements,
            cut=(*old.cut, (aside.units - 1, aside.cut)) if aside.cut >= 0 else old.cut,
            has_ended=aside.has_ended,
        )
        if aside.stream_state:
            run.progress = new._replace(
                stream_state=aside.stream_state,
                state_units=aside.units,
                state_elements=aside.elements,
                at_state={**new.at_epoch_start, **self._generators[worker_id]},
            )

    def elements(self, worker_id: int) -> int:
        """How many elements a worker's iterable has given in this epoch."""
        run = self._runs[worker_id][-1]
        return run.progress.elements + run.passed

    def count_elements(self) -> int:
        """The same of all workers."""
        return sum(map(self.elements, range(len(self._runs))))

    def last_elements(self, worker_id: int) -> range:
        """The places, in the worker's stream, of the elements of the last unit it finished."""
        return self._runs[worker_id][-1].last_elements

    def pass_over_collate(self, worker_id: int, elements: int) -> None:
        """The next unit of an iterable, of so many elements, has killed its worker in collate_fn: go on after it."""
        run = self._runs[worker_id][-1]
        run.passed += elements
        units, uncollated = run.progress.units, run.progress.uncollated
        run.progress = run.progress._replace(units=units + 1, uncollated=(*uncollated, units))

    def restore(self, worker_id: int, issue: Callable[[int], None], *, goes_on: bool) -> None:
        """Have the new life of a worker take up what the old one was at, and issue what that had not finished.

        An iterable that has ended in this epoch is not run again.
        """
        *earlier, last = self._unfinished(worker_id)
        for k, (run, units) in enumerate([*((run, units) for run, units in earlier if units), last]):
            if k > 0:
                self._backend.resume(run.epoch, worker_id)
            else:
                self._send(worker_id, run, has_ended=run is last[0] and not goes_on)
            for unit in units:
                issue(unit)

    def _send(self, worker_id: int, run: _Run, *, has_ended: bool) -> None:
        self._free(worker_id)
        generators, has_ended = self._generators[worker_id], has_ended or run.progress.has_ended
        progress = run.progress._replace(generators=generators, has_ended=has_ended, passed=run.passed)
        data, slot = pack_progress(run.epoch, progress), None
        if len(data) > _INLINE:
            slot = self._slots[worker_id] = self._units.store(data)
        self._backend.restore(worker_id, b"" if slot is not None else data, slot)

    def _free(self, worker_id: int) -> None:
        slot = self._slots.pop(worker_id, None)
        if slot is not None:
            self._pool.release(slot)

    def close(self) -> None:
        for worker_id in list(self._slots):
            self._free(worker_id)
