"""The iterator of one loader: schedule, slots and workers, brought together by the thread that calls `next()`.

    sampler ──► assign ──► slot granted ──► worker ──► header ──► schedule ──► decode ──► the user's batch
                   ▲                                                 │
                   └───── re-issued with a fresh slot ◄── worker lost┘

Every decision about data is made here, in the thread that calls `next()`. There is no other thread.
Runs in: main process.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import os
import pickle
import signal
import sys
import time
import weakref
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
from torch.autograd import _profiler_enabled  # type: ignore[attr-defined]
from torch.utils.data import IterDataPipe, MapDataPipe
from torch.utils.data import dataloader as torch_loader
from torch.utils.data._utils import pin_memory as torch_pin

from holdfast.errors import TooManyRestarts, WorkerCrashed, WorkerError, WorkerInitError
from holdfast.loader.schedule import Schedule, Step
from holdfast.transport import layout
from holdfast.transport.slots import Slot, SlotPool
from holdfast.workers.backend import BackendFactory, SupervisorLost, UnitDone, WorkerBackend, WorkerHandle, WorkerLost
from holdfast.workers.board import Phase
from holdfast.workers.failures import Failure, rebuild
from holdfast.workers.job import Job
from holdfast.workers.messages import Kind, Result

_GRACE_S = 3.0  # for workers to finish what they have in hand when the iterator is closed
_MAX_ATTEMPTS = 2  # of a unit that was in hand when its worker died
_MAX_IDLE_DEATHS = 3  # of a worker with nothing in hand, without a finished unit in between
_INLINE_INDICES = 32 * 1024
_SPARE_SLOTS = 3  # beyond those under way: what the user holds while asking for more
_FOREVER_S = 1e9


@dataclass(slots=True)
class _UnitState:
    """A unit on its way: what it asks for, where it will be, and what came of it."""

    indices: Any
    worker_id: int
    slot: Slot | None = None
    indices_slot: Slot | None = None
    attempt: int = 1
    result: Result | None = None
    areas: list[Slot] = field(default_factory=list)
    error: BaseException | None = None


class LoaderIterator(torch_loader._MultiProcessingDataLoaderIter):
    """Stands where torch's multi-process iterator stands, and keeps what other code reads of it."""

    def __init__(self, loader: Any, make_backend: BackendFactory) -> None:
        self._shutdown = True  # until there is something to shut down
        self._owner_pid = os.getpid()
        torch_loader._BaseDataLoaderIter.__init__(self, loader)
        self._prefetch_factor = loader.prefetch_factor
        self._in_order = loader.in_order
        if self._prefetch_factor <= 0:
            raise AssertionError("prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter")
        self._worker_init_fn = self._wrap_init_fn(loader.worker_init_fn)
        self._units: dict[int, _UnitState] = {}
        self._idle_deaths = [0] * self._num_workers
        self._broken: BaseException | None = None
        self._sampler_ended = False
        self._finished = False  # the epoch was delivered to its end
        self._is_waiting = False
        self._schedule = self._new_schedule(first_unit=0)
        self._pool = SlotPool(warm_slots=self._schedule.capacity + _SPARE_SLOTS)
        self._backend: WorkerBackend = make_backend(self._make_job(), self._pool, loader.multiprocessing_context)
        self._shutdown = False
        _end_at_exit(self)
        try:
            self._backend.start()
            self._prefetch()
        except BaseException:
            self._shutdown_workers()
            raise

    def _wrap_init_fn(self, init_fn: Any) -> Any:
        if not isinstance(self._dataset, IterDataPipe | MapDataPipe):
            return init_fn
        return functools.partial(torch_loader._sharding_worker_init_fn, init_fn, self._world_size, self._rank)

    def _make_job(self) -> Job:
        return Job(
            dataset=self._dataset,
            collate_fn=self._collate_fn,
            worker_init_fn=self._worker_init_fn,
            is_iterable=self._dataset_kind == torch_loader._DatasetKind.Iterable,
            auto_collation=self._auto_collation,
            drop_last=self._drop_last,
            base_seed=int(self._base_seed),
            shared_seed=self._shared_seed,
            num_workers=self._num_workers,
        )

    def _new_schedule(self, first_unit: int) -> Schedule:
        return Schedule(self._num_workers, self._prefetch_factor, in_order=self._in_order, first_unit=first_unit)

    @property
    def _workers(self) -> list[WorkerHandle]:  # type: ignore[override]  # torch's are processes it started itself
        return list(self._backend.workers)

    # -- epochs ----------------------------------------------------------------------------------------------------

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """A new epoch with the same workers. Results of the old one that still come are dropped by their number."""
        torch_loader._BaseDataLoaderIter._reset(self, loader, first_iter)
        if self._broken is not None:
            raise self._broken
        for unit in list(self._units):
            if self._units[unit].result is not None or self._units[unit].error is not None:
                self._drop(unit)
        self._sampler_ended = False
        self._finished = False
        self._schedule = self._new_schedule(first_unit=self._schedule.next_unit)
        self._backend.resume(self._shared_seed)
        self._prefetch()

    # -- giving out work -------------------------------------------------------------------------------------------

    def _prefetch(self) -> None:
        for k in range(self._schedule.capacity):
            self._assign_next(is_first=k == 0)

    def _assign_next(self, *, is_first: bool = False) -> None:
        """Take the next indices from the sampler and send them to the worker whose turn it is."""
        if self._sampler_ended:
            return
        error: BaseException | None = None
        indices: Any = None
        try:
            indices = next(self._sampler_iter)
        except StopIteration:
            self._sampler_ended = True
            return
        except Exception as raised:
            if is_first:
                raise
            # Delivered at its own place: the batches before it are good and are not lost.
            error = raised
        assigned = self._schedule.assign()
        if assigned is None:
            return
        unit, worker_id = assigned
        self._units[unit] = _UnitState(indices, worker_id)
        if error is None:
            self._issue(unit)
        else:
            self._fail(unit, error)

    def _issue(self, unit: int) -> None:
        """Send a unit to its worker, with a fresh slot. What cannot be sent becomes the unit's error."""
        try:
            self._send(unit)
        except Exception as error:
            self._fail(unit, error)

    def _send(self, unit: int) -> None:
        state = self._units[unit]
        payload = _dump_indices(state.indices)
        indices: bytes | Slot = payload
        if len(payload) > _INLINE_INDICES:
            indices = state.indices_slot = self._store(payload)
        state.slot = self._pool.acquire()
        self._backend.submit(state.worker_id, unit, state.attempt, state.slot, indices)

    def _store(self, payload: bytes) -> Slot:
        slot = self._pool.acquire(len(payload))
        slot.peek(0, len(payload))[:] = payload
        slot.touched = max(slot.touched, len(payload))
        return slot

    # -- taking in results -----------------------------------------------------------------------------------------

    def __next__(self) -> Any:
        # torch's way, which also warns of iterables longer than they said, costs ten times this without a profiler
        if getattr(self, "_IterableDataset_len_called", None) is not None or _profiler_enabled():
            return super().__next__()
        data = self._next_data()
        self._num_yielded += 1
        return data

    def _next_data(self) -> Any:
        if os.getpid() != self._owner_pid:
            raise RuntimeError("this iterator belongs to the process it was made in; make one in the forked process")
        while True:
            self._check_usable()
            step = self._schedule.next_step()
            if step is Step.WAIT:
                self._wait()
            elif step is Step.END:
                self._finished = True
                if not self._persistent_workers:
                    self._shutdown_workers()
                raise StopIteration
            else:
                assert isinstance(step, int)
                return self._deliver(step)

    def _check_usable(self) -> None:
        if self._broken is not None:
            raise self._broken
        if self._finished:
            raise StopIteration
        if self._shutdown:
            raise RuntimeError("this iterator was closed before its end; call iter() on the loader for a new one")

    def _deliver(self, unit: int) -> Any:
        self._schedule.delivered(unit)
        state = self._units.pop(unit)
        self._assign_next()
        if state.error is not None:
            raise state.error
        assert state.result is not None
        try:
            value = layout.decode(state.result.layout, state.areas, self._pool)
        finally:
            self._let_go(state)
        if state.result.kind == Kind.FAILURE:
            raise rebuild(Failure(*value))
        return self._pinned(value) if self._pin_memory else value

    def _pinned(self, value: Any) -> Any:
        return torch_pin.pin_memory(value, self._pin_memory_device)  # type: ignore[no-untyped-call]

    def _let_go(self, state: _UnitState) -> None:
        """The slots of a delivered unit live as long as their views."""
        assert state.result is not None
        for slot in state.areas:
            slot.is_retired = state.result.kept  # the worker's own code holds a tensor in it: never used again
            self._pool.delivered(slot)

    def _wait(self) -> None:
        """Until something has happened. torch's `timeout` counts from here on."""
        deadline = time.monotonic() + (self._timeout if self._timeout > 0 else _FOREVER_S)
        self._is_waiting = True
        try:
            while not (events := self._backend.wait(max(0.0, deadline - time.monotonic()))):
                if time.monotonic() >= deadline:
                    raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        except WorkerError as error:
            self._break(error)
            return
        finally:
            self._is_waiting = False
        for event in events:
            self._take_in(event)

    def _take_in(self, event: UnitDone | WorkerLost | SupervisorLost) -> None:
        if isinstance(event, UnitDone):
            self._take_result(event)
        elif isinstance(event, WorkerLost):
            self._worker_lost(event)
        else:
            self._supervisor_lost(event)

    def _take_result(self, done: UnitDone) -> None:
        result = done.result
        state = self._units.get(result.unit)
        if len(done.fds) != len(result.spilled):
            self._descriptors_ran_out(done)
            return
        adopted = [self._pool.adopt(fd, nbytes) for fd, nbytes in zip(done.fds, result.spilled, strict=True)]
        if state is None or state.attempt != result.attempt or state.slot is None:
            for slot in adopted:
                self._pool.release(slot)
            return  # of an attempt that was given up
        state.areas = [state.slot, *adopted]
        state.slot = None
        for slot, used in zip(state.areas, result.used, strict=True):
            slot.touched = max(slot.touched, used)
        if state.indices_slot is not None:
            self._release_indices(state)
        state.result = result
        self._idle_deaths[done.worker_id] = 0
        if result.kind == Kind.END:
            self._stream_ended(result.unit)
        elif self._schedule.expects(result.unit):
            self._pool.saw_batch(sum(result.used))
            self._schedule.arrived(result.unit)
        else:
            self._drop(result.unit)

    def _descriptors_ran_out(self, done: UnitDone) -> None:
        """The kernel drops descriptors that do not fit into our table, without a word."""
        for fd in done.fds:
            os.close(fd)
        state = self._units.get(done.result.unit)
        if state is not None and state.attempt == done.result.attempt and self._schedule.expects(done.result.unit):
            self._fail(done.result.unit, OSError(errno.EMFILE, "a batch could not be received: too many open files"))

    def _stream_ended(self, unit: int) -> None:
        """A worker's iterable is exhausted. It leaves what it was given beyond that untouched: those slots are free."""
        worker_id = self._units[unit].worker_id
        expected = self._schedule.expects(unit)
        self._give_up(unit)
        for other, state in list(self._units.items()):
            if state.worker_id == worker_id and other > unit and self._schedule.expects(other) == expected:
                self._give_up(other)
        if not expected:
            return
        self._schedule.ended(worker_id)
        if not self._persistent_workers:
            self._backend.retire(worker_id)
        self._assign_next()

    def _fail(self, unit: int, error: BaseException) -> None:
        """The unit will be delivered as an exception."""
        state = self._units[unit]
        self._release_slots(state)
        state.error = error
        self._schedule.arrived(unit)

    def _drop(self, unit: int) -> None:
        """Nobody wants this unit any more. Its slot is free unless a worker may still write to it."""
        state = self._units.get(unit)
        if state is not None and (state.slot is None or state.result is not None):
            del self._units[unit]
            self._release_slots(state)

    def _release_slots(self, state: _UnitState) -> None:
        self._release_indices(state)
        for slot in (*state.areas, *([state.slot] if state.slot else [])):
            self._pool.release(slot)
        state.areas, state.slot = [], None

    def _release_indices(self, state: _UnitState) -> None:
        if state.indices_slot is not None:
            self._pool.release(state.indices_slot)
            state.indices_slot = None

    # -- when something died ---------------------------------------------------------------------------------------

    def _worker_lost(self, lost: WorkerLost) -> None:
        """Re-issue what the worker had not finished. Only the unit in hand is suspect."""
        worker_id = lost.worker_id
        units = [u for u, s in sorted(self._units.items()) if s.worker_id == worker_id and s.slot is not None]
        if not self._schedule.is_active(worker_id):
            for unit in units:
                self._give_up(unit)
            return
        if not lost.replaced:
            self._break(WorkerInitError(_init_message(lost), worker_id=worker_id))
        elif lost.doing.phase is Phase.STARTING:
            self._issue_again(units)
        elif self._dataset_kind == torch_loader._DatasetKind.Iterable:
            self._end_lost_stream(worker_id, units, self._crash_error(lost, None))
        else:
            self._reissue(lost, units)

    def _reissue(self, lost: WorkerLost, units: list[int]) -> None:
        in_hand = lost.doing.unit if lost.doing.phase in (Phase.FETCH, Phase.COLLATE, Phase.SEND) else None
        if in_hand not in units:
            self._idle_deaths[lost.worker_id] += 1
            if self._idle_deaths[lost.worker_id] > _MAX_IDLE_DEATHS:
                self._break(TooManyRestarts(_idle_message(lost), worker_id=lost.worker_id))
                return
        for unit in units:
            state = self._units[unit]
            self._release_slots(state)  # safe: the supervisor reports a death only after it has reaped the process
            if unit == in_hand and state.attempt >= _MAX_ATTEMPTS:
                error = self._crash_error(lost, state)
                if self._schedule.expects(unit):
                    self._fail(unit, error)
                else:
                    self._give_up(unit)
                continue
            state.attempt += unit == in_hand
            self._issue(unit)

    def _end_lost_stream(self, worker_id: int, units: list[int], error: BaseException) -> None:
        """An iterable cannot be taken up where a dead worker left it: its stream ends with an error, not silently."""
        self._schedule_error(units, error)
        self._schedule.ended(worker_id)
        if not self._persistent_workers:
            self._backend.retire(worker_id)
        self._assign_next()

    def _schedule_error(self, units: list[int], error: BaseException) -> None:
        wanted = [unit for unit in units if self._schedule.expects(unit)]
        for unit in units:
            if wanted and unit == wanted[0]:
                self._fail(unit, error)
            else:
                self._give_up(unit)

    def _supervisor_lost(self, lost: SupervisorLost) -> None:
        units = [unit for unit, state in sorted(self._units.items()) if state.slot is not None]
        if self._dataset_kind == torch_loader._DatasetKind.Iterable:
            for worker_id in range(self._num_workers):
                if self._schedule.is_active(worker_id):
                    mine = [u for u in units if self._units[u].worker_id == worker_id]
                    error = WorkerCrashed(_stream_message(worker_id, lost.reason), worker_id=worker_id)
                    self._end_lost_stream(worker_id, mine, error)
            return
        self._issue_again(units)

    def _issue_again(self, units: list[int]) -> None:
        for unit in units:
            self._release_slots(self._units[unit])
            self._issue(unit)

    def _give_up(self, unit: int) -> None:
        self._release_slots(self._units.pop(unit))

    def _break(self, error: BaseException) -> None:
        """Nothing more can come. The error is raised by this and every later `next()`."""
        self._broken = error
        self._shutdown_workers()

    def _crash_error(self, lost: WorkerLost, state: _UnitState | None) -> WorkerCrashed:
        if state is None:
            return WorkerCrashed(_stream_message(lost.worker_id, _how(lost)), worker_id=lost.worker_id)
        index, what = self._sample_in_hand(lost, state)
        message = (
            f"worker {lost.worker_id} (pid {lost.pid}) {_how(lost)} while {what}\n"
            f"  where   batch {lost.doing.unit}, attempt {state.attempt} of {_MAX_ATTEMPTS}\n"
            f"  done    the worker was restarted each time; its other batches are not affected\n"
            f"  try     load it in this process: loader.dataset[{index!r}]"
        )
        return WorkerCrashed(message, worker_id=lost.worker_id, sample_index=index)

    def _sample_in_hand(self, lost: WorkerLost, state: _UnitState) -> tuple[Any, str]:
        phase, position = lost.doing.phase, lost.doing.position
        if phase is Phase.FETCH and not self._auto_collation:
            return state.indices, f"loading dataset[{state.indices!r}]"
        if phase is Phase.FETCH and position >= 0:
            return state.indices[position], f"loading sample {state.indices[position]!r}"
        doing = {Phase.FETCH: "loading", Phase.COLLATE: "collating", Phase.SEND: "sending"}[phase]
        return None, f"{doing} the samples {state.indices!r:.200}"

    # -- the end ---------------------------------------------------------------------------------------------------

    def _shutdown_workers(self, grace_s: float = _GRACE_S) -> None:
        """End all workers. Bounded in time, whatever they do; harmless when called again."""
        if self._shutdown or os.getpid() != self._owner_pid or sys.is_finalizing():
            return
        self._shutdown = True
        try:
            self._backend.stop(grace_s)
        finally:
            for unit in list(self._units):
                self._give_up(unit)
            self._pool.close()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # of an iterator that was never finished
            self._shutdown_workers()


_alive: weakref.WeakSet[LoaderIterator] = weakref.WeakSet()


def _end_at_exit(iterator: LoaderIterator) -> None:
    """Have an iterator that lives until the interpreter ends closed before modules are torn down."""
    if not _alive:
        atexit.unregister(_end_all)
        atexit.register(_end_all)
    _alive.add(iterator)


def _end_all() -> None:
    for iterator in list(_alive):
        # One that a daemon thread waits in is left alone: its workers go with this process.
        if not iterator._is_waiting:
            iterator._shutdown_workers(grace_s=0.0)  # as torch: at exit, workers are not waited for


def _dump_indices(indices: Any) -> bytes:
    try:
        return pickle.dumps(indices, protocol=5)
    except Exception:
        return bytes(cloudpickle.dumps(indices, protocol=5))


def _how(lost: WorkerLost) -> str:
    if lost.exitcode < 0:
        return f"was killed by {_signal_name(-lost.exitcode)}"
    return f"exited with status {lost.exitcode}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _init_message(lost: WorkerLost) -> str:
    return (
        f"worker {lost.worker_id} (pid {lost.pid}) {_how(lost)} before its first sample\n"
        f"  where   while loading the dataset in the worker, or in worker_init_fn\n"
        f"  done    it was restarted once and died again"
    )


def _idle_message(lost: WorkerLost) -> str:
    return (
        f"worker {lost.worker_id} (pid {lost.pid}) {_how(lost)} between batches, "
        f"{_MAX_IDLE_DEATHS + 1} times without a batch in between"
    )


def _stream_message(worker_id: int, how: str) -> str:
    return (
        f"worker {worker_id} was lost ({how}): its part of the iterable dataset ends here\n"
        f"  done    what it had delivered is good; the other workers go on"
    )
