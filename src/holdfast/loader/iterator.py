"""The iterator of one loader: how a batch comes about. Its start, its epochs and its end are in `with_workers.py`.

    sampler ──► assign ──► slot granted ──► worker ──► header ──► schedule ──► decode ──► the user's batch
                   ▲                                                 │
                   └───── re-issued with a fresh slot ◄── worker lost┘

Every decision about data is made here, in the thread that calls `next()`. There is no other thread.
Runs in: main process.
"""

from __future__ import annotations

import errno
import functools
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from torch.autograd import _profiler_enabled  # type: ignore[attr-defined]
from torch.utils.data._utils import pin_memory as torch_pin

from holdfast.diagnosis import descriptors
from holdfast.errors import TooManySkipped, WorkerError
from holdfast.loader.at_exit import hold_daemon_thread
from holdfast.loader.bad_samples import Fate
from holdfast.loader.interrupts import Refuge, came_from_handler
from holdfast.loader.losses import lost_with
from holdfast.loader.raising import raise_again, raise_failure
from holdfast.loader.schedule import Step
from holdfast.loader.supply import ASKING, Supply
from holdfast.loader.units import UnitState
from holdfast.loader.with_workers import IteratorWithWorkers
from holdfast.transport import layout
from holdfast.workers.backend import Event, UnitDone, WorkerLost
from holdfast.workers.failures import Failure
from holdfast.workers.in_flight import DescriptorsRanOut
from holdfast.workers.messages import Kind, Reason

_FOREVER_S = 1e9


class LoaderIterator(IteratorWithWorkers):
    """Brings schedule, slots and workers together."""

    # -- giving out work -------------------------------------------------------------------------------------------

    def _prefetch(self) -> None:
        self._supply = self._bad.supply = Supply(self._sampler_iter, auto_collation=self._auto_collation)
        self._bad.count_elements = self._progress.count_elements if self._is_iterable else None
        self._try(functools.partial(self._assign_next, is_first=True))
        for _ in range(1 if self._rations.is_bound else self._schedule.capacity - 1):
            self._send_more()

    def _send_more(self) -> None:
        """Another unit in the place of one that was delivered."""
        if self._rations.is_bound:
            self._rations.fill(self._due[1] if self._due is not None else None)
        else:
            self.order_next()

    def _assign_next(self, *, is_first: bool = False) -> None:
        """Take the next indices from the sampler and send them to the worker whose turn it is."""
        error: BaseException | None = None
        # A signal handler may raise in here: nothing is booked yet, and Supply keeps what the sampler has given.
        self._is_paused = not self._is_iterable
        try:
            state = self._supply.peek()
        except Exception as raised:
            if came_from_handler(raised):
                raise
            self._is_paused = False
            if is_first:
                self._rescue.note_own(raised, ASKING)
                raise
            # Delivered at its own place: the batches before it are good and are not lost.
            state, error = UnitState(b""), raised
        self._is_paused = False
        assigned = self._schedule.assign() if state is not None else None
        if state is None or assigned is None:
            return
        unit, worker_id = assigned
        state.worker_id = worker_id
        self._units.add(unit, state)
        self._supply.taken()
        if error is not None:
            self._rescue.note_own(error, ASKING, unit)
        error = error or self._lost_streams.get(worker_id)
        if error is None:
            self._send(unit)
        else:
            self.fail(unit, error)

    def _send(self, unit: int) -> None:
        """Send a unit for the first time, without the samples that are known to be bad."""
        fate = Fate.AGAIN if self._is_iterable else self._bad.screen(self.batch_number(unit), self._units[unit])
        if fate is Fate.VOID:
            self.void(unit)
        elif fate is Fate.RAISE:
            self.fail(unit, self._ledger.no_substitute(self.batch_number(unit)))
        else:
            self.issue(unit)

    # -- what workers are told (rations.Orders) ------------------------------------------------------------------------

    def order_next(self) -> None:
        self._try(self._assign_next)

    def order(self, unit: int) -> None:
        """What cannot be sent becomes the unit's error."""
        try:
            self._rescue.take_up(self._units[unit].worker_id)
            self._units.send(unit)
        except Exception as error:
            if came_from_handler(error):
                raise
            self.fail(unit, error)

    def carry_on(self, worker_id: int) -> None:
        self._rescue.carry_on(worker_id)

    # -- taking in results -----------------------------------------------------------------------------------------

    def __next__(self) -> Any:
        # torch's way, which also warns of iterables longer than they said, costs ten times this without a profiler
        if getattr(self, "_IterableDataset_len_called", None) is not None or _profiler_enabled():
            data = super().__next__()
            self._display.count_batch()
            return data
        data = self._next_data()
        self._num_yielded += 1
        self._display.count_batch()
        return data

    def _next_data(self) -> Any:
        if os.getpid() != self._owner_pid:
            raise RuntimeError("this iterator belongs to the process it was made in; make one in the forked process")
        try:
            if self._is_clean and self._refuge is None:
                return self._advance()
            if self._shutdown:  # the thread of the refuge has ended, too: a call of it would wait for ever
                self._check_usable()
            if self._refuge is None:
                self._refuge = Refuge()
            return self._refuge.call(self._mend_and_advance)
        except KeyboardInterrupt:
            self._rest()
            raise
        except Exception:
            hold_daemon_thread()
            raise

    def _advance(self) -> Any:
        """To the next batch, or exception, or the end."""
        self._is_clean = self._is_paused = False
        while True:
            self._check_usable()
            if self._ledger.notices.due:
                self._is_clean = True  # a warning may be an error: what is due stays due
                self._ledger.notices.say()
                self._is_clean = False
            if self._due is not None and not self._due[1].is_void:
                return self._hand_over()
            self._due = None
            step = self._schedule.next_step()
            if self._rations.is_bound and isinstance(step, Step):
                self._send_more()
                step = self._schedule.next_step()
            if step is Step.WAIT or (step is Step.END and self._rations.is_letting_go):
                self._wait()
            elif step is Step.END:
                self._try(self._bad.check_delivered)
                self._check_usable()
                self._is_clean = self._finished = True
                if not self._persistent_workers:
                    self._shutdown_workers()
                raise StopIteration
            else:
                assert isinstance(step, int)
                self._due = step, self._units[step]
                self._book_due()
                self._send_more()

    def _book_due(self) -> None:
        assert self._due is not None
        self._schedule.delivered(self._due[0])
        self._units.forget(self._due[0])

    # -- after a signal handler of the user's has raised in the middle of the above -----------------------------------

    def _mend_and_advance(self) -> Any:
        """Runs in the refuge. Start over if the books can be trusted, else end with an error; then advance as usual."""
        self._end_rest()
        if self._is_clean or self._shutdown:
            return self._advance()
        if not self._is_trusted:
            said = f"interrupted inside next() at batch {self._num_yielded}"
            self.give_up(RuntimeError(f"{said}: the batches so far are good; call iter() again"))
            return self._advance()
        try:
            self._start_over()
        except WorkerError as error:
            self._backend_failed(error)
        return self._advance()

    def _start_over(self) -> None:
        """Messages may have been lost, so start new workers and send them every unit that is not finished."""
        self._try(self._rescue.note_due)
        self._supply.mend()
        self._backend.start_over()  # a signal handler raised inside next()
        events = self._backend.wait(0.0)
        if events and events[0] is self._handling:
            events.popleft()  # a death, of which only the diagnosis was cut short: note_due() has finished it
        self._take_in_all(events)
        for _ in range(self._schedule.capacity - self._schedule.under_way):
            self._send_more()

    def _check_usable(self) -> None:
        if self._broken is None and not self._finished and not self._shutdown:
            return
        self._is_clean = True
        if self._broken is not None:
            raise_again(self._broken)
        if self._finished:
            raise StopIteration
        if self._shutdown:
            raise RuntimeError("this iterator was closed before its end; call iter() on the loader for a new one")

    def _hand_over(self) -> Any:
        """Give the unit that is due to the user: a batch, or the exception it became."""
        assert self._due is not None
        state = self._due[1]
        if state.result is None:
            self._due, self._is_clean = None, True
            error, state.error = state.error, None
            assert error is not None
            try:
                raise_again(error)
            finally:
                del error  # its traceback holds this frame, and this frame the iterator
        try:
            value = layout.decode(state.result.layout, state.areas, self._pool)
        except BaseException as error:
            if not came_from_handler(error):  # else it stays due
                self._let_go(state)
            raise
        self._let_go(state)
        if state.result.kind == Kind.FAILURE:
            failure = Failure(*value)
            noted = self._rescue.note_failure(state.result.unit, state, failure)
            raise_failure(failure, noted, "" if self._is_iterable else lost_with(failure, state.listed))
        self._counters.samples += state.samples
        return self._pinned(value) if self._pin_memory else value

    def _pinned(self, value: Any) -> Any:
        return torch_pin.pin_memory(value, self._pin_memory_device)  # type: ignore[no-untyped-call]

    def _let_go(self, state: UnitState) -> None:
        """The unit that was due is the user's now. Its slots live as long as their views."""
        self._due, self._is_clean = None, True
        for slot in state.areas:
            self._pool.delivered(slot)

    def _wait(self) -> None:
        """Until something has happened. torch's `timeout` counts from here on."""
        began = time.monotonic()
        deadline = began + (self._timeout if self._timeout > 0 else _FOREVER_S)
        self._is_waiting = True
        self._display.begin_wait(began)
        try:
            self._ledger.run.tick(began, self._worker_pids)
            while not (events := self._hear(max(0.0, deadline - time.monotonic()))):
                now = time.monotonic()
                self._ledger.run.tick(now, self._worker_pids)
                if now >= deadline:
                    self._is_clean = True
                    timed_out = RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
                    self._rescue.note_timeout(timed_out, self._timeout)
                    raise timed_out
                if self._refuge is not None and self._refuge.is_ending:
                    self.give_up(RuntimeError("this iterator was closed while next() was waiting"))
                    return
        except WorkerError as error:
            self._backend_failed(error)
            return
        finally:
            self._is_waiting = False
            self._display.end_wait(time.monotonic() - began)
        hold_daemon_thread()
        self._take_in_all(events)

    def _hear(self, timeout_s: float) -> deque[Event]:
        """Wait for events. If a signal handler raises in here, `_start_over` asks again for what may be lost."""
        self._is_paused = not self._is_iterable
        events = self._backend.wait(timeout_s)
        self._is_paused = False
        return events

    def _take_in_all(self, events: deque[Event]) -> None:
        while events:
            event = self._handling = events[0]
            self._try(self._take_in, event)
            if events and events[0] is event:  # (a shutdown has emptied the deque)
                events.popleft()
        self._handling = None
        self._display.took_in()
        self._rations.order_held()

    def _take_in(self, event: Event) -> None:
        if isinstance(event, UnitDone):
            self._take_result(event)
        elif isinstance(event, WorkerLost):
            if self._rations.saw_end(event.worker_id, replaced=event.replaced):
                return
            if event.reason is Reason.LEFT:
                self._counters.recycled += event.replaced
            else:
                self._counters.restarts += event.replaced
            self._rescue.worker_lost(event)
        else:
            self._counters.supervisor_restarts += 1
            self._rations.take_all_back()
            self._rescue.supervisor_lost(event)

    def _try(self, step: Callable[..., None], *args: Any) -> None:
        """Too many bad samples end the epoch, wherever that is found out."""
        try:
            step(*args)
        except TooManySkipped as error:
            error.incident = self._ledger.last_incident
            self.give_up(error)

    def _take_result(self, done: UnitDone) -> None:
        unit = done.result.unit
        try:
            state = self._units.take(done)
        except DescriptorsRanOut:
            said = f"a batch could not be received: this process has too many open files ({descriptors.held()})"
            error = OSError(errno.EMFILE, said)
            self._rescue.note_own(error, "receiving a batch", unit)
            self.fail(unit, error)
            return
        self._ledger.has_been_ready = True
        bad = self._rescue.heard(done, state)
        if state is None:
            return
        if done.result.kind == Kind.END:
            self._stream_exhausted(unit)
        elif done.result.kind == Kind.AGAIN:
            failure = Failure(*layout.decode(done.result.layout, state.areas, self._pool))
            self._rescue.load_again(unit, done.worker_id, failure)
        elif not self._schedule.expects(unit):
            self._units.give_up(unit)
        elif done.result.kind == Kind.BAD_SAMPLES:
            self._rescue.bad_samples(unit, done.worker_id, bad)
        elif done.result.kind == Kind.BAD_BATCH:
            failure = Failure(*layout.decode(done.result.layout, state.areas, self._pool))
            self._rescue.bad_batch(unit, done.worker_id, failure)
        else:
            if self._is_iterable:
                state.samples = len(self._progress.last_elements(done.worker_id))
            if bad:
                self._rescue.took_out(unit, done.worker_id, bad)
                state.samples -= sum(not sample.loaded for sample in bad)
            if self._rations.is_bound:
                self._rations.saw_unit(done.worker_id, sum(done.result.used))
            self._pool.saw_batch(sum(done.result.used))
            self._schedule.arrived(unit)

    def _stream_exhausted(self, unit: int) -> None:
        """A worker's iterable has no more. It leaves what it was given beyond that untouched: those slots are free."""
        worker_id = self._units[unit].worker_id
        expected = self._schedule.expects(unit)
        self._units.give_up(unit)
        for other in self._units.sent_to(worker_id):
            if other > unit and self._schedule.expects(other) == expected:
                self._units.give_up(other)
        if expected:
            self._end_stream(worker_id)

    def _end_stream(self, worker_id: int) -> None:
        """The worker gets no more units in this epoch."""
        self._schedule.ended(worker_id)
        if not self._persistent_workers:
            self._rations.has_left(worker_id)
            self._backend.retire(worker_id)
        self._send_more()

    # -- what becomes of a unit that did not come out as it should (rescue.Deliveries; `give_up`: with_workers.py) -----

    def is_active(self, worker_id: int) -> bool:
        return self._persistent_workers or self._schedule.is_active(worker_id)

    def has_more(self, worker_id: int) -> bool:
        return self._schedule.is_active(worker_id)

    def batch_number(self, unit: int) -> int:
        return unit - self._first_unit

    def memory_ran_out(self) -> str:
        return self._rations.saw_kill()

    def issue(self, unit: int) -> None:
        """Send a unit to its worker, now or, if one is to be loaded alone, when that is done."""
        if not self.holds_back(unit):
            self.order(unit)
        elif self._units[unit].result is not None:
            self._units.reopen(unit)

    def holds_back(self, unit: int) -> bool:
        return self._rations.holds_back(unit)

    def fail(self, unit: int, error: BaseException) -> None:
        """The unit will be delivered as an exception, if anyone still asks for it."""
        if not self._schedule.expects(unit):
            self._units.give_up(unit)
            return
        worker_id = self._units[unit].worker_id
        self._units.fail(unit, error)
        self._schedule.arrived(unit)
        if self._lost_streams.get(worker_id) is error:
            del self._lost_streams[worker_id]
            self._end_stream(worker_id)

    def void(self, unit: int) -> None:
        """Nothing will be delivered in its place."""
        if self._schedule.expects(unit):
            self._units.void(unit)
            self._schedule.arrived(unit)
        else:
            self._units.give_up(unit)

    def lose_stream(self, worker_id: int, error: BaseException) -> None:
        """An iterable that cannot be taken up: its stream ends with an error, never silently."""
        self._lost_streams[worker_id] = error
        units = self._units.sent_to(worker_id)
        expected = [unit for unit in units if self._schedule.expects(unit)]
        for unit in units:
            if unit not in expected[:1]:
                self._units.give_up(unit)
        if expected:
            self.fail(expected[0], error)
        # else: it had finished all it was given, and the error is delivered when its turn comes (_assign_next)
