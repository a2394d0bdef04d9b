"""Carrying on after something went wrong: decisions of `recovery.py` and `bad_samples.py`, put into effect.

    worker lost ──► decide ──► its replacement takes up its progress ──► what it had not finished is sent again
    bad samples ──► on_error ─► the unit again without them, or nothing, or their exception

Runs in: main process, in the thread that calls `next()`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from holdfast.board_rows import Phase
from holdfast.diagnosis.evidence import MemoryGrowth
from holdfast.errors import WorkerCrashed, WorkerError
from holdfast.incident import Incident
from holdfast.loader import losses, recovery
from holdfast.loader.bad_samples import BadSample, BadSamples, Fate
from holdfast.loader.ledger import Blame, Ledger
from holdfast.loader.progress import WorkersProgress
from holdfast.loader.recovery import Decision, Where
from holdfast.loader.units import ALL_OF_IT, Units, UnitState
from holdfast.workers import messages
from holdfast.workers.backend import SupervisorLost, UnitDone, WorkerLost
from holdfast.workers.failures import Failure, rebuild
from holdfast.workers.losses import attach, incident_of
from holdfast.workers.messages import Reason
from holdfast.workers.restarts import RestartWindow

_NOT_YET_KNOWN = "a worker died"  # until that has been looked into, in the same call


class Deliveries(Protocol):
    """What becomes of a unit in the end: the iterator's part."""

    def is_active(self, worker_id: int) -> bool:
        """Whether the worker is to go on, in this epoch or the next."""

    def has_more(self, worker_id: int) -> bool:
        """Whether it is to go on in this epoch."""

    def batch_number(self, unit: int) -> int:
        """Which batch of the epoch the unit is; below 0 if it is of an earlier one, which was left."""

    def issue(self, unit: int) -> None:
        """Send it, once more if need be."""

    def holds_back(self, unit: int) -> bool:
        """Whether it has to wait, if it were to be sent: then it does, and is sent when it may be."""

    def fail(self, unit: int, error: BaseException) -> None:
        """Deliver an exception in its place."""

    def void(self, unit: int) -> None:
        """Deliver nothing in its place."""

    def lose_stream(self, worker_id: int, error: BaseException) -> None:
        """The worker's iterable ends with this exception."""

    def give_up(self, error: BaseException) -> None:
        """Nothing more can be delivered."""

    def memory_ran_out(self) -> str:
        """Fewer are to be loaded at once from now on. Returns what they took so far, in words."""


class Rescue:
    """For one iterator."""

    def __init__(
        self,
        ledger: Ledger,
        units: Units,
        progress: WorkersProgress,
        bad: BadSamples,
        deliveries: Deliveries,
        *,
        is_iterable: bool,
        num_workers: int,
        start_method: str,
    ) -> None:
        self._ledger = ledger
        self._policy = ledger.policy
        self._units = units
        self._progress = progress
        self._bad = bad
        self._deliveries = deliveries
        self._is_iterable = is_iterable
        self._num_workers = num_workers
        self._start_method = start_method
        self._due: list[tuple[WorkerLost, Callable[[], None]]] = []  # noted once the replacement has its work
        self.is_looking = False  # a death is being diagnosed; the books are in order meanwhile
        self._windows: dict[int, RestartWindow] = {}
        self._to_restore: set[int] = set()  # workers that take up their progress with the next unit
        self._has_grown: set[tuple[int, bool]] = set()

    # -- a worker is gone ------------------------------------------------------------------------------------------

    def worker_lost(self, lost: WorkerLost) -> None:
        units = self._units.sent_to(lost.worker_id)
        if units and lost.doing.phase is Phase.REPLAY and losses.is_for_want_of_memory(lost):
            # it was for its next unit's sake that it ran the iterable again
            lost = dataclasses.replace(lost, doing=lost.doing._replace(unit=units[0], position=0))
        if not lost.replaced and self._deliveries.is_active(lost.worker_id):
            error = losses.died_starting(lost, self._policy.max_restarts)
            self._deliveries.give_up(self._blame(error, self._note(lost, None, "raised")))
        elif not self._deliveries.is_active(lost.worker_id):
            for unit in units:
                self._units.give_up(unit)
        elif lost.reason is Reason.LEFT or self._settle(lost, lost.doing.unit if lost.doing.unit in units else None):
            self.carry_on(lost.worker_id)
        self.note_due()

    def note_due(self) -> None:
        """To find out what killed a worker may take a while: its replacement has its work by now.

        A signal handler of the user's that raises meanwhile finds it still to be done.
        """
        while self._due:
            lost, note = self._due[0]
            self.is_looking = True
            losses.how(lost)
            self.is_looking = False
            self._due.pop(0)
            note()

    def supervisor_lost(self, lost: SupervisorLost) -> None:
        self._ledger.note(losses.incident_of_all(lost, "restarted", self._bad.epoch))
        for worker_id in range(self._num_workers):
            self.carry_on(worker_id)

    def backend_failed(self, error: WorkerError) -> None:
        """What ran the workers has given up."""
        if error.incident is None:
            summary = str(error).split("\n", 1)[0]
            error.incident = Incident("unknown", "raised", confidence="unknown", summary=summary)
        error.incident = dataclasses.replace(error.incident, done="raised", epoch=self._bad.epoch)
        self._ledger.note(error.incident)

    def carry_on(self, worker_id: int) -> None:
        """The new life of a worker takes up the old one's progress, and what it had not finished.

        To run an iterable again may take as much memory as to load a unit: it waits until there is one, and with it.
        """
        if self._is_iterable:
            self._let_go_of_left(worker_id)
        units = self._units.sent_to(worker_id)
        if self._is_iterable and self._deliveries.has_more(worker_id) and self._have_to_wait(units):
            self._to_restore.add(worker_id)
        else:
            self._restore(worker_id, self._deliveries.issue)

    def _let_go_of_left(self, worker_id: int) -> None:
        """Units of an epoch that was left early cannot wait: they would be loaded in the next, from its elements."""
        left = [unit for unit in self._units.sent_to(worker_id) if self._deliveries.batch_number(unit) < 0]
        if left and self._deliveries.holds_back(left[0]):
            for unit in left:
                self._units.give_up(unit)

    def _have_to_wait(self, units: list[int]) -> bool:
        if units and (self._deliveries.batch_number(units[0]) < 0 or not self._deliveries.holds_back(units[0])):
            return False
        return all(self._deliveries.holds_back(unit) for unit in units)

    def take_up(self, worker_id: int) -> None:
        """A worker is about to be sent a unit: if it has not been told yet how far it was, now is the time."""
        if worker_id in self._to_restore:
            self._restore(worker_id, lambda unit: None)

    def _restore(self, worker_id: int, issue: Callable[[int], None]) -> None:
        self._to_restore.discard(worker_id)
        self._progress.restore(worker_id, issue, goes_on=self._deliveries.has_more(worker_id))

    def _settle(self, lost: WorkerLost, suspect: int | None) -> bool:
        """Decide about the unit in hand. False if nothing can go on."""
        state = self._units[suspect] if suspect is not None else None
        place, is_crowded_out = Where.NOTHING, False
        is_for_memory = state is not None and losses.is_for_want_of_memory(lost)
        if state is not None:
            place = recovery.where(lost.doing, one_by_one=state.one_by_one, is_for_memory=is_for_memory)
        if state is not None and is_for_memory:
            lost = losses.with_needs(lost, self._deliveries.memory_ran_out())
            is_crowded_out = not state.alone and self._num_workers > 1
            state.alone = True
        is_nobodys = losses.is_for_what_it_kept(lost)
        deaths = 0 if is_crowded_out or is_nobodys else _count_death(state, place, lost)
        decision = recovery.decide(place, lost.reason, deaths, self._policy.max_retries, is_crowded_out=is_crowded_out)
        if decision is Decision.RESTART:
            self._note_later(lost, state, "restarted", deaths)
            return is_nobodys or self._is_within_bounds(lost)
        assert suspect is not None
        assert state is not None
        if decision is Decision.ONE_BY_ONE:
            state.one_by_one = True
        if decision in (Decision.RETRY, Decision.ONE_BY_ONE, Decision.ALONE):
            self._note_later(lost, state, "retried", deaths)
        else:
            self._give_up_on(lost, suspect, state, deaths, decision)
        return True

    def _is_within_bounds(self, lost: WorkerLost) -> bool:
        if lost.doing.phase is Phase.STARTING:
            return True  # the supervisor counts these
        window = self._windows.setdefault(lost.worker_id, RestartWindow(self._policy.max_restarts))
        if not window.is_exceeded_by_death_at(time.monotonic()):
            return True
        self.note_due()
        self._deliveries.give_up(
            self._blame(losses.died_idle(lost, self._policy.max_restarts), self._ledger.incidents[-1])
        )
        return False

    def _give_up_on(self, lost: WorkerLost, unit: int, state: UnitState, deaths: int, decision: Decision) -> None:
        """What is sent again, and what not, is settled here; why, once the replacement has its work."""
        if self._deliveries.batch_number(unit) < 0:
            self._give_up_left(lost.worker_id, unit)
            self._note_later(lost, state, "skipped", deaths)
        elif self._is_iterable:
            self._give_up_element(lost, unit, state, deaths, decision)
        else:
            self._give_up_samples(lost, unit, state, deaths, is_batch=decision is Decision.BAD_BATCH)

    def _give_up_samples(self, lost: WorkerLost, unit: int, state: UnitState, deaths: int, *, is_batch: bool) -> None:
        indices, bad = state.listed, self._bad
        fate, taken = bad.take_out_all(state) if is_batch else bad.take_out(state, [lost.doing.position])
        self._seal(unit, fate, WorkerCrashed(_NOT_YET_KNOWN))
        batch, place = self._deliveries.batch_number(unit), self._at(unit, deaths)

        def judge() -> None:
            said, (reason, blame) = "raised", _verdict(lost, is_batch=is_batch)
            try:
                for out in taken:
                    bad.book(batch, out, reason, blame)
                said = _said(fate, self._policy.on_error)
            finally:  # also when it was one too many
                noted = losses.incident(lost, indices, said, **place)
                self._ledger.note(noted)
            if fate is Fate.RAISE:
                error = losses.given_up(lost, indices, bad.epoch, batch, deaths, incident_id=noted.id)
                self._units.fail(unit, self._blame(error, noted))

        self._due.append((lost, judge))

    def _give_up_element(self, lost: WorkerLost, unit: int, state: UnitState, deaths: int, decision: Decision) -> None:
        worker_id = lost.worker_id
        elements = self._progress.elements(worker_id)
        if decision is Decision.BAD_SAMPLE:
            noted = self._note(lost, state, "raised", deaths)
            error = losses.stream_lost(lost, elements + lost.doing.position, incident_id=noted.id)
            self._deliveries.lose_stream(worker_id, self._blame(error, noted))
            return
        self._progress.pass_over_collate(worker_id, lost.doing.span)
        fate = Fate.RAISE if self._policy.on_error == "raise" else Fate.VOID
        self._seal(unit, fate, WorkerCrashed(_NOT_YET_KNOWN))

        def judge() -> None:
            noted = self._note(lost, state, "raised" if fate is Fate.RAISE else "skipped", deaths)
            if fate is Fate.RAISE:
                batch = self._deliveries.batch_number(unit)
                error = losses.given_up(lost, [], self._bad.epoch, batch, deaths, incident_id=noted.id)
                self._units.fail(unit, self._blame(error, noted))
            else:
                places = range(elements, elements + lost.doing.span)
                self._pass_over_elements(unit, worker_id, places, f"its batch: worker {losses.how(lost)}")

        self._due.append((lost, judge))

    def _give_up_left(self, worker_id: int, suspect: int) -> None:
        """Of an epoch that was left early: nobody waits for it, and an iterable goes no further."""
        for unit in self._units.sent_to(worker_id):
            if unit == suspect or (self._is_iterable and self._deliveries.batch_number(unit) < 0):
                self._units.give_up(unit)

    def _pass_over_elements(self, unit: int, worker_id: int, places: Iterable[int], reason: str) -> None:
        """No batch can be made of these elements of an iterable."""
        for place in places:
            sample = BadSample(place, reason, Blame.NOBODY)
            self._bad.note_element(self._deliveries.batch_number(unit), (worker_id, place), sample)

    # -- what a worker says beside its batches ---------------------------------------------------------------------

    def heard(self, done: UnitDone, state: UnitState | None) -> list[messages.BadSample]:
        """Book what the worker said of its progress; returns the samples that gave it trouble."""
        said = done.result.aside
        if not said:
            return []
        if not isinstance(said, bytes):
            if state is None:
                return []
            area, offset, nbytes = said
            said = bytes(state.areas[area].peek(offset, nbytes))
        aside = messages.unpack_aside(said)
        self._progress.heard(done.worker_id, done.result.unit, aside)
        if aside.slow and state is not None:
            self._note_slow(done.worker_id, state, aside.slow)
        if aside.grown:
            self._note_growth(done.worker_id, MemoryGrowth(*aside.grown))
        return [messages.BadSample(*bad) for bad in aside.bad]

    def _note_slow(self, worker_id: int, state: UnitState, slow: Iterable[tuple[int, int]]) -> None:
        listed = () if self._is_iterable else state.listed
        for position, nanoseconds in slow:
            index = (worker_id, position) if self._is_iterable else listed[position]
            self._ledger.counters.slowest.saw(index, nanoseconds / 1e9, worker_id, self._bad.epoch)

    def _note_growth(self, worker_id: int, growth: MemoryGrowth) -> None:
        """Once for each worker, whatever its replacements find of themselves."""
        said = worker_id, bool(growth.copied_bytes)
        if said not in self._has_grown:
            self._has_grown.add(said)
            done = "reported" if growth.copied_bytes else "to be replaced between batches before it takes too much"
            self._ledger.note(losses.incident_of_growth(growth, done, worker_id=worker_id, epoch=self._bad.epoch))

    def note_failure(self, unit: int, state: UnitState, failure: Failure) -> Incident:
        """A unit is delivered as what it raised."""
        sample = messages.BadSample(failure.position, state.attempt, tuple(failure), loaded=False)
        return self._note_raised(unit, state.worker_id, sample, "raised", () if self._is_iterable else state.listed)

    def note_own(self, error: BaseException, phase: str, unit: int | None = None) -> None:
        """An exception was raised in this process, and not in a worker."""
        where = {"epoch": self._bad.epoch} if unit is None else self._at(unit)
        self._ledger.note(losses.incident_of_own(error, phase, **where))

    def note_timeout(self, error: BaseException, timeout_s: float) -> None:
        noted = losses.incident_of_timeout(timeout_s, epoch=self._bad.epoch)
        self._ledger.note(noted)
        attach(error, noted)

    # -- a worker says that samples are bad ------------------------------------------------------------------------

    def took_out(self, unit: int, worker_id: int, bad: Sequence[messages.BadSample]) -> None:
        """A batch has come, without some of its samples, or with some that were loaded at a later attempt."""
        self._pass_over(unit, worker_id, bad, "replaced" if self._policy.on_error == "replace" else "skipped")

    def _pass_over(self, unit: int, worker_id: int, bad: Sequence[messages.BadSample], done: str) -> None:
        state = self._units[unit]
        for sample in bad:
            self._note_raised(unit, worker_id, sample, "retried" if sample.loaded else done, state.listed)
            if not sample.loaded:
                self._note_skipped(unit, worker_id, state, sample)

    def _note_skipped(self, unit: int, worker_id: int, state: UnitState, sample: messages.BadSample) -> None:
        batch = self._deliveries.batch_number(unit)
        given_up = BadSample(sample.position, losses.raised(Failure(*sample.failure)))
        if self._is_iterable:
            self._bad.note_element(batch, (worker_id, sample.position), given_up)
        else:
            self._bad.note_skipped(batch, state, [given_up])

    def bad_samples(self, unit: int, worker_id: int, bad: Sequence[messages.BadSample]) -> None:
        """No batch was made: samples are missing that are to be replaced, or all of them are."""
        if self._is_iterable:
            self._pass_over(unit, worker_id, bad, "skipped")  # also with "replace": no other element could stand for it
            self._deliveries.void(unit)
            return
        state, lost = self._units[unit], [sample for sample in bad if not sample.loaded]
        given_up = [BadSample(sample.position, losses.raised(Failure(*sample.failure))) for sample in lost]
        listed, done, noted = state.listed, "raised", None
        try:
            fate = self._bad.give_up(self._deliveries.batch_number(unit), state, given_up)
            done = _said(fate, self._policy.on_error)
        finally:
            for sample in bad:
                noted = self._note_raised(unit, worker_id, sample, "retried" if sample.loaded else done, listed)
        error = rebuild(Failure(*lost[0].failure)) if fate is Fate.RAISE else None
        self._seal(unit, fate, error and self._blame(error, noted))
        if fate is Fate.AGAIN:
            self._deliveries.issue(unit)

    def load_again(self, unit: int, worker_id: int, failure: Failure) -> None:
        """Memory was refused to a worker that keeps too much of it to tell whose fault that is. It leaves, and whoever
        comes after it loads the unit.
        """
        state = self._units[unit]
        sample = messages.BadSample(failure.position, state.attempt, tuple(failure), loaded=False)
        self._note_raised(unit, worker_id, sample, "retried", () if self._is_iterable else state.listed)
        if self._is_iterable and self._deliveries.batch_number(unit) < 0:
            self._units.give_up(unit)  # of an epoch that was left: it must not be loaded in the next
        else:
            self._deliveries.issue(unit)

    def bad_batch(self, unit: int, worker_id: int, failure: Failure) -> None:
        """collate_fn raised, or what it made cannot be sent, at every attempt."""
        state, batch, cause = self._units[unit], self._deliveries.batch_number(unit), losses.raised(failure)
        done = "raised"
        try:
            if self._is_iterable:
                places = self._progress.last_elements(worker_id)
                self._pass_over_elements(unit, worker_id, places, f"its batch: {cause}")
                fate, done = Fate.VOID, "skipped"
            else:
                fate = self._bad.give_up_batch(batch, state, f"its batch: {cause}")
                done = _said(fate, self._policy.on_error)
        finally:  # also when it was one too many
            noted = incident_of(failure, done, self._start_method, worker_id=worker_id, **self._at(unit))
            self._ledger.note(noted)
        self._seal(unit, fate, self._blame(rebuild(failure), noted) if fate is Fate.RAISE else None)
        if fate is Fate.AGAIN:
            self._deliveries.issue(unit)

    def _seal(self, unit: int, fate: Fate, error: BaseException | None) -> None:
        if fate is Fate.VOID:
            self._deliveries.void(unit)
        elif fate is Fate.RAISE:
            assert error is not None
            self._deliveries.fail(unit, error)

    # -- small things ----------------------------------------------------------------------------------------------

    def _at(self, unit: int, attempt: int | None = None) -> dict[str, Any]:
        batch = self._deliveries.batch_number(unit)
        return {"epoch": self._bad.epoch, "batch": batch, "attempt": attempt}

    def _note_later(self, lost: WorkerLost, state: UnitState | None, done: str, deaths: int) -> None:
        indices, place = self._place(lost, state, deaths)
        self._due.append((lost, lambda: self._ledger.note(losses.incident(lost, indices, done, **place))))

    def _note(self, lost: WorkerLost, state: UnitState | None, done: str, deaths: int = 0) -> Incident:
        indices, place = self._place(lost, state, deaths)
        noted = losses.incident(lost, indices, done, **place)
        self._ledger.note(noted)
        return noted

    def _place(self, lost: WorkerLost, state: UnitState | None, deaths: int) -> tuple[list[Any] | None, dict[str, Any]]:
        """The indices of the unit in hand, and where in the run it was."""
        indices = None if state is None or self._is_iterable else state.listed
        place: dict[str, Any] = {"epoch": self._bad.epoch}
        return indices, place if state is None else place | self._at(lost.doing.unit, deaths)

    def _blame(self, error: BaseException, noted: Incident | None) -> BaseException:
        if noted is not None:
            attach(error, noted)
        return error

    def _note_raised(
        self, unit: int, worker_id: int, sample: messages.BadSample, done: str, listed: Sequence[Any]
    ) -> Incident:
        failure = Failure(*sample.failure)
        index: Any = None
        if sample.position >= 0:
            index = (worker_id, sample.position) if self._is_iterable else listed[sample.position]
        place = self._at(unit, sample.attempts)
        noted = incident_of(failure, done, self._start_method, worker_id=worker_id, sample_index=index, **place)
        self._ledger.note(noted)
        return noted


def _count_death(state: UnitState | None, place: Where, lost: WorkerLost) -> int:
    """How often a worker was lost at this sample, or this batch, with this one."""
    if state is None or place is Where.NOTHING:
        return 0
    if lost.reason is Reason.STOPPED:
        return _count_stop(state, place, lost)
    if place is Where.MANY:
        return 0
    if place is not Where.SAMPLE:
        state.batch_deaths += 1
        return state.batch_deaths
    key = state.place(lost.doing.position)
    state.deaths[key] = state.deaths.get(key, 0) + 1
    return state.deaths[key]


def _count_stop(state: UnitState, place: Where, lost: WorkerLost) -> int:
    """How often a worker was stopped at this sample, or this batch, with this one.

    Once the samples of a unit are loaded one by one because of such stops, the first stop at one of them is that
    sample's second: it was in hand before, among the others.
    """
    stops = state.stops
    if place is not Where.SAMPLE:
        stops[ALL_OF_IT] = stops.get(ALL_OF_IT, 0) + 1
        return stops[ALL_OF_IT]
    key = state.place(lost.doing.position)
    before = min(1, stops.pop(ALL_OF_IT, 0)) if state.one_by_one else 0
    stops[key] = stops.get(key, before) + 1
    return stops[key]


def _verdict(lost: WorkerLost, *, is_batch: bool) -> tuple[str, Blame]:
    reason = f"worker {losses.how(lost)}"
    if is_batch:
        return f"its batch: {reason}", Blame.NOBODY
    return reason, Blame.PERHAPS if losses.is_from_outside(lost) else Blame.ITSELF


def _said(fate: Fate, on_error: str) -> str:
    if fate is Fate.RAISE:
        return "raised"
    return "replaced" if on_error == "replace" else "skipped"
