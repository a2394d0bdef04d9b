"""An iterator with workers: what it is made of, its epochs and its end. What it delivers, and how, is in `iterator.py`.

    start: pool, backend, units, rations, progress, rescue ──► epoch ──► epoch (persistent workers) ──► end
                                                                 └── an interrupt: no workers until it goes on

Nothing here is on the way of a batch. Whatever ends an iterator, its workers are gone within seconds, and nothing of it
is left behind. Runs in: main process.
"""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any

from torch.utils.data import dataloader as torch_loader

from holdfast.errors import WorkerError
from holdfast.loader import allowance
from holdfast.loader.allowance import Allowance
from holdfast.loader.at_exit import end_at_exit
from holdfast.loader.bad_samples import BadSamples
from holdfast.loader.display import Display
from holdfast.loader.instructions import init_fn_of, is_iterable, job_of_loader
from holdfast.loader.interrupts import Errand, Refuge, came_from_handler
from holdfast.loader.ledger import Ledger
from holdfast.loader.progress import WorkersProgress
from holdfast.loader.rations import Rations
from holdfast.loader.rescue import Rescue
from holdfast.loader.schedule import Schedule
from holdfast.loader.stats import Counters
from holdfast.loader.units import Units, UnitState
from holdfast.transport.forks import drop_passed_guards
from holdfast.transport.slots import SlotPool
from holdfast.workers.backend import BackendFactory, Event, WorkerHandle
from holdfast.workers.limits import raise_descriptor_limit
from holdfast.workers.messages import Epoch
from holdfast.workers.rng import mix

_GRACE_S = 3.0  # for workers to finish what they have in hand when the iterator is closed
_SPARE_SLOTS = 3  # beyond those under way: what the user holds while asking for more


class IteratorWithWorkers(torch_loader._MultiProcessingDataLoaderIter):
    """Stands where torch's multi-process iterator stands, and keeps what other code reads of it."""

    def __init__(self, loader: Any, make_backend: BackendFactory) -> None:
        self._shutdown = True  # until there is something to shut down
        self._owner_pid = os.getpid()
        torch_loader._BaseDataLoaderIter.__init__(self, loader)
        self._is_iterable = is_iterable(self)
        self._prefetch_factor, self._in_order = loader.prefetch_factor, loader.in_order
        if self._prefetch_factor <= 0:
            raise AssertionError("prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter")
        self._worker_init_fn = init_fn_of(self, loader.worker_init_fn)
        self._counters: Counters = loader._counters
        self._sampler = loader.sampler
        self._ledger: Ledger = loader._ledger
        self._policy = self._ledger.policy
        self._ledger.take_seed(int(self._base_seed))
        self._bad = BadSamples(self._ledger, ahead=self._num_workers * self._prefetch_factor)
        self._begin_epoch()
        self._lost_streams: dict[int, BaseException] = {}  # by worker id: why its iterable goes no further
        self._broken: BaseException | None = None
        self._finished = False  # the epoch was delivered to its end
        self._due: tuple[int, UnitState] | None = None  # being taken from the books, not yet given out
        # _is_clean: the last call of next() ended as it should. _is_paused: the call that runs, or was interrupted, is
        # at a place where nothing is half done.
        self._is_clean, self._is_paused = True, False
        self._handling: Event | None = None
        self._refuge: Refuge | None = None
        self._resting: Errand | None = None  # since an interrupt there are no workers
        self._is_waiting = False
        self._first_unit = 0  # of this epoch
        self._budget = self._policy.resolve_budget(allowance.resolve)
        self._schedule = self._new_schedule(first_unit=0)
        self._pool = self._make_pool(loader, self._schedule.capacity + _SPARE_SLOTS)
        self._backend = make_backend(
            job_of_loader(self, self._ledger, self._epoch(), self._budget), self._pool, loader.multiprocessing_context
        )
        self._ledger.run.begin(loader, self._backend.start_method, self._budget)
        self._units = Units(self._pool, self._backend)
        myself = weakref.proxy(self)  # a cycle would keep a dropped iterator, and its workers, until the collector runs
        self._rations = Rations(self._make_allowance(), self._units, self._backend, myself)
        self._rations.begin_epoch(self._schedule)
        unit_size = (loader.batch_size or 1) if self._is_iterable else 0
        self._progress = WorkersProgress(self._num_workers, unit_size, self._units, self._pool, self._backend)
        self._progress.begin_epoch(self._epoch(), self._first_unit)
        self._rescue = Rescue(
            self._ledger,
            self._units,
            self._progress,
            self._bad,
            myself,
            is_iterable=self._is_iterable,
            num_workers=self._num_workers,
            start_method=self._backend.start_method,
        )
        self._display = Display(self._ledger, self._backend)
        self._display.begin_epoch(self._bad.epoch, self._first_unit)
        self._shutdown = False
        end_at_exit(self)
        raise_descriptor_limit()
        try:
            self._start_backend()
            # Once more, as torch does here: what a sampler draws in __iter__ is drawn twice for the first epoch.
            torch_loader._BaseDataLoaderIter._reset(self, loader, True)
            self._prefetch()
        except BaseException:
            self._shutdown_workers()
            raise

    def _start_backend(self) -> None:
        try:
            self._backend.start()
        except WorkerError as error:
            self._rescue.backend_failed(error)
            raise

    def _make_pool(self, loader: Any, warm_slots: int) -> SlotPool:
        return SlotPool(warm_slots)

    def _make_allowance(self) -> Allowance:
        return Allowance(
            self._budget,
            self._num_workers,
            self._schedule.capacity,
            backend=self._backend,
            pool=self._pool,
            units=self._units,
        )

    def _epoch(self) -> Epoch:
        seed = mix(self._ledger.seed, self._bad.epoch) if self._policy.rng == "sample" else None
        return Epoch(self._shared_seed, seed)

    def _begin_epoch(self) -> None:
        self._ledger.epoch += 1
        self._bad.begin_epoch(self._ledger.epoch, self._ledger.seed, self._count_samples())

    def _count_samples(self) -> int | None:
        """How many samples the epoch has, where that is known and somebody wants to know."""
        counted = (self._dataset,) if self._is_iterable else (self._sampler, self._index_sampler)
        return self._ledger.policy.count_samples(*counted)

    def _new_schedule(self, first_unit: int) -> Schedule:
        return Schedule(self._num_workers, self._prefetch_factor, in_order=self._in_order, first_unit=first_unit)

    @property
    def _workers(self) -> list[WorkerHandle]:  # type: ignore[override]  # torch's are processes it started itself
        try:
            return self._all_workers()
        except WorkerError as error:
            self._backend_failed(error)
            raise

    def _worker_pids(self) -> dict[int, int]:
        """By worker id, of those that run."""
        if not self._num_yielded or self._shutdown or self._resting is not None:
            return {}  # to ask for all of them before the first batch may be to wait until they are started
        return {k: worker.pid for k, worker in enumerate(self._all_workers()) if worker.pid is not None}

    def _all_workers(self) -> list[WorkerHandle]:
        """Wait until all workers are started, and return them.

        Between two calls of next(), an interrupt in here counts as one of a wait inside next(). While next() runs, its
        flags are left alone: another thread may be asking.
        """
        if not self._is_clean:
            return list(self._backend.workers)
        self._is_clean, self._is_paused = False, not self._is_iterable
        workers = list(self._backend.workers)
        self._is_clean = True
        return workers

    # -- epochs ----------------------------------------------------------------------------------------------------

    @property
    def can_begin_epoch(self) -> bool:
        """Whether its workers can go on with another epoch. Not if they were given up, or something was cut short.

        Nor once there is a refuge: a batch of this epoch may lie there, loaded for a call that was interrupted.
        """
        return self._broken is None and self._is_clean and self._refuge is None

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """A new epoch with the same workers. Results of the old one that still come are dropped by their number."""
        torch_loader._BaseDataLoaderIter._reset(self, loader, first_iter)
        self._is_clean = self._is_paused = False
        try:
            self._begin_another_epoch()
        except Exception as error:
            self._is_clean = not came_from_handler(error)
            raise
        self._is_clean = True

    def _begin_another_epoch(self) -> None:
        self._rations.order_all()
        self._units.give_up_finished()
        self._due = None
        self._lost_streams.clear()
        self._finished = False
        self._first_unit = self._schedule.next_unit
        self._schedule = self._new_schedule(first_unit=self._first_unit)
        self._rations.begin_epoch(self._schedule)
        self._begin_epoch()
        self._progress.begin_epoch(self._epoch(), self._first_unit)
        self._display.begin_epoch(self._bad.epoch, self._first_unit)
        self._backend.resume(self._epoch())
        self._prefetch()

    def _prefetch(self) -> None:
        """Have the workers begin with the epoch."""
        raise NotImplementedError

    # -- after an interrupt ----------------------------------------------------------------------------------------

    @property
    def _is_trusted(self) -> bool:
        """Whether the books are whole though a signal handler has raised inside next().

        They are if it raised while that waited, asked the sampler, or looked into a death. Those of an iterable are
        not: how far it has come may be in a message that was lost.
        """
        return self._is_paused or (self._rescue.is_looking and not self._is_iterable)

    def _rest(self) -> None:
        """End the workers; should somebody go on with this iterator, they are started over anyway. A notebook does not
        go on, and it keeps the traceback, which keeps this iterator: for hours, and the workers with it.
        """
        if self._refuge is None and self._resting is None and not self._shutdown:
            if self._is_clean:
                self._is_clean, self._is_paused = False, True
            self._resting = Errand(self._backend.end_all)
            self._resting.run()

    def _end_rest(self) -> None:
        if self._resting is not None:
            self._resting.wait()
            self._resting = None

    # -- the end ---------------------------------------------------------------------------------------------------

    def give_up(self, error: BaseException) -> None:
        """Nothing more can come. The error is raised by this and every later `next()`."""
        self._broken = error
        self._shutdown_workers()

    def _backend_failed(self, error: WorkerError) -> None:
        """There are no workers any more, and none can be started."""
        self._rescue.backend_failed(error)
        self.give_up(error)

    def _shutdown_workers(self, grace_s: float = _GRACE_S) -> None:
        """End all workers. Bounded in time, whatever they do; harmless when called again."""
        if self._shutdown or os.getpid() != self._owner_pid or sys.is_finalizing():
            return
        try:
            self._shutdown = True
            if self._refuge is not None:
                self._refuge.end()
            self._end_rest()
            self._count_new_interpreters()
            self._display.hide()
            self._backend.stop(grace_s)
        except BaseException:
            # An interrupt: once more, without patience. Nobody can call this again, so nothing may be left behind.
            self._end_rest()
            self._backend.stop(0.0)
            raise
        finally:
            self._display.close()
            for unit in self._units:
                self._units.give_up(unit)
            self._progress.close()
            self._pool.close()
            drop_passed_guards()

    def _count_new_interpreters(self) -> None:
        self._counters.new_interpreters = self._backend.new_interpreters or self._counters.new_interpreters

    def __del__(self) -> None:
        if not sys.is_finalizing() and not getattr(self, "_shutdown", True):
            self._shutdown_workers()
