"""How far each worker has come, by its own word: what its replacement takes up.

Runs in: main process.
"""

from __future__ import annotations

from holdfast.loader.units import Units
from holdfast.transport.slots import Slot, SlotPool
from holdfast.workers.backend import WorkerBackend
from holdfast.workers.messages import Aside, Epoch, Progress, pack_progress

_INLINE = 40 * 1024  # what is larger travels in a slot


class WorkersProgress:
    """The progress of all workers of one iterator."""

    def __init__(self, num_workers: int, unit_size: int, units: Units, pool: SlotPool, backend: WorkerBackend) -> None:
        self._unit_size = unit_size
        self._units, self._pool, self._backend = units, pool, backend
        self._all = [self._none() for _ in range(num_workers)]
        self._last_elements = [range(0)] * num_workers
        self._slots: dict[int, Slot] = {}  # in which a progress is on its way
        self._epoch: Epoch | None = None

    def _none(self) -> Progress:
        return Progress({}, {}, unit_size=self._unit_size)

    def begin_epoch(self, epoch: Epoch) -> None:
        """Iterables start anew; random numbers go on."""
        self._epoch = epoch
        self._all = [self._none()._replace(generators=progress.generators) for progress in self._all]

    def heard(self, worker_id: int, aside: Aside, *, is_of_this_epoch: bool) -> None:
        """A worker has finished a unit."""
        self._free(worker_id)
        old = self._all[worker_id]
        generators = {**old.generators, **aside.generators}
        if not is_of_this_epoch:
            self._all[worker_id] = old._replace(generators=generators)
            return
        self._last_elements[worker_id] = range(old.elements, aside.elements)
        self._all[worker_id] = old._replace(
            generators=generators,
            at_epoch_start=aside.at_epoch_start or old.at_epoch_start,
            units=aside.units,
            elements=aside.elements,
            stream_state=aside.stream_state,
            state_units=aside.units,
        )

    def elements(self, worker_id: int) -> int:
        """How many elements a worker's iterable has given in this epoch."""
        return self._all[worker_id].elements

    def last_elements(self, worker_id: int) -> range:
        """The places, in the worker's stream, of the elements of the last unit it finished."""
        return self._last_elements[worker_id]

    def pass_over_collate(self, worker_id: int) -> None:
        """The next unit of an iterable has killed its worker in collate_fn: go on after it."""
        progress = self._all[worker_id]
        self._all[worker_id] = progress._replace(
            units=progress.units + 1, uncollated=(*progress.uncollated, progress.units)
        )

    def restore(self, worker_id: int, *, goes_on: bool) -> None:
        """Tell the new life of a worker where the old one was. An iterable that has ended is not run again."""
        assert self._epoch is not None
        self._free(worker_id)
        progress = self._all[worker_id]
        data = pack_progress(self._epoch, progress if goes_on else Progress(progress.generators, {}))
        slot = None
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
