"""Loading one unit of an iterable dataset: the next elements of this worker's own iterator.

A worker that replaces another takes the stream up where the other's last finished unit left it: from the iterable's own
`state_dict`, which is taken from time to time, else from the start of the epoch. What lies between is run again, with
the random numbers it had then. A stream that has ended is not run again: its state may be that of a new start.

An element that raises can be passed over only if the iterator goes on after it. A generator does not: then the stream
ends with that exception, after the elements that came before it.
Runs in: worker process; main process, without workers.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import pickle
import traceback
from collections.abc import Callable, Iterator, Sequence
from time import monotonic_ns
from types import GeneratorType
from typing import Any

from holdfast.board_rows import PHASE, POSITION, SINCE_NS, SPAN, UNIT, Phase
from holdfast.workers import rng
from holdfast.workers.attempts import Retries, Tried
from holdfast.workers.failures import capture
from holdfast.workers.fetch import Where
from holdfast.workers.job import Job
from holdfast.workers.messages import BadSample, Progress

_HOLE: Any = object()  # an element that was passed over
_REST_PER_STATE = 100  # time from one state to the next, as a multiple of the time that taking one needs
_LARGEST_STATE_BYTES = 1 << 30  # it travels in a message, which cannot be larger than 2 GiB


class StreamEnded(Exception):
    """This worker's iterable has no more elements."""


class StateTimer:
    """Says when the next state may be taken: often enough to cost 1% of the time, and the first at once. Pure."""

    def __init__(self) -> None:
        self._due_ns = 0

    def is_due(self, now_ns: int) -> bool:
        return now_ns >= self._due_ns

    def took(self, began_ns: int, ended_ns: int) -> None:
        self._due_ns = ended_ns + _REST_PER_STATE * (ended_ns - began_ns)


class IterableFetcher:
    """The next elements. `units` and `elements` count what was taken in this epoch."""

    def __init__(self, job: Job, row: memoryview, where: Where, *, worker_id: int, state: bytes = b"") -> None:
        self._iterator, self._stateful = _open(job.dataset, state)
        self._auto_collation = job.auto_collation
        self._drop_last = job.drop_last
        self._care = job.care
        self._retries = Retries(job.care, row)
        self._row = row
        self._where = where
        seed = job.epoch.sample_seed
        self._worker_seed = None if seed is None else rng.mix(seed, worker_id)
        self._ended = False
        self._broken_by: Exception | None = None
        self._has_died = False  # the iterator, of an exception
        self._state_timer = StateTimer()
        self.bad: list[BadSample] = []
        self.is_timed = False  # each element alone, from the next unit on
        self.times: list[tuple[int, int]] = []  # of the last unit, if so: place in the worker's stream, and nanoseconds
        self.cut = -1  # elements that the last unit took, if it ended with an exception
        self.units = 0
        self.elements = 0
        self.first_place = 0  # of the last unit's elements, in this worker's stream: which unit gets them may be chance

    @property
    def sample_seed(self) -> int | None:
        return self._worker_seed

    @property
    def knows_state(self) -> bool:
        """Whether another worker can take it up without running it again."""
        return self._stateful is not None

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing more to come, neither an element nor an exception."""
        return self._ended and self._broken_by is None

    def fetch(self, indices: Any, places: Sequence[int] = (0,), *, one_by_one: bool = False) -> Any:
        """Elements of one unit, not collated. Sets `bad`. The indices say only how many."""
        self.bad, self.times, self.cut = [], [], -1
        self.units += 1
        self._row[PHASE], self._row[SPAN] = Phase.FETCH, 1
        before = self.first_place = self.elements
        try:
            return self._fetch(len(indices) if self._auto_collation else 1)
        except Exception:
            self.cut = self.elements - before
            raise

    def _fetch(self, count: int) -> Any:
        self._raise_what_broke()
        elements = [] if self._ended else self._take(count)
        if not elements or (self._drop_last and self._ended and len(elements) < count):
            self._raise_what_broke()
            raise StreamEnded
        good = self._without_holes(elements)
        if self._auto_collation:
            return good
        return good[0] if good else None

    def _take(self, count: int) -> list[Any]:
        row, iterator, seed, is_timed = self._row, self._iterator, self._worker_seed, self.is_timed
        elements: list[Any] = []
        while len(elements) < count and self._broken_by is None:
            row[POSITION] = len(elements)
            if seed is not None:
                rng.seed_sample(seed, self.elements)
            if is_timed:
                row[SINCE_NS] = began = monotonic_ns()
            try:
                elements.append(next(iterator))
                if is_timed:
                    self.times.append((self.elements, monotonic_ns() - began))
            except StopIteration:
                self._ended = True
                break
            except Exception as error:
                self._rescue(error, elements)
            self.elements += 1
        return elements

    def _rescue(self, error: Exception, elements: list[Any]) -> None:
        """Ask for the element again, pass over it, or raise what it raised."""
        tried = Tried(None, error, 1)
        if not _has_ended_with(error, self._iterator):
            tried = self._retries.after(error, lambda: self._again(error))
        if tried.error is None:
            elements.append(tried.value)
        elif not self._care.may_pass_over(tried.error):
            self._has_died = _note_the_end(tried.error, self._iterator, self.elements)
            self.elements += 1
            raise tried.error
        elif _note_the_end(tried.error, self._iterator, self.elements):
            self._has_died, self._broken_by = True, tried.error
            return
        else:
            elements.append(_HOLE)
        where = self._where(f"element {self.elements} of the worker's stream")
        failure = capture(tried.error or error, where)._replace(phase=int(Phase.FETCH))
        self.bad.append(BadSample(self.elements, tried.attempts, tuple(failure), tried.error is None))

    def _again(self, error: Exception) -> Any:
        """Ask once more. An iterator that has nothing more to give has not given the element that raised."""
        try:
            return next(self._iterator)
        except StopIteration:
            raise error from error.__cause__

    def _raise_what_broke(self) -> None:
        """The error that ended the stream: once, when the elements before it have been sent."""
        error, self._broken_by = self._broken_by, None
        if error is not None:
            self._ended = True
            raise error

    def _without_holes(self, elements: list[Any]) -> list[Any]:
        """With "replace" a hole is filled by another element of the same batch; which, depends on its place alone."""
        good = [element for element in elements if element is not _HOLE]
        if self._care.on_error != "replace" or not good:
            return good
        first = self.elements - len(elements)
        return [
            good[rng.mix(0, first + k) % len(good)] if element is _HOLE else element
            for k, element in enumerate(elements)
        ]

    # -- taking up where another left ------------------------------------------------------------------------------

    def due_state(self, *, is_needed: bool) -> bytes:
        """The state, if it is needed or cheap enough by now. Not after the end, when it may be that of a new start."""
        began_ns = monotonic_ns()
        if self._ended or not (is_needed or self._state_timer.is_due(began_ns)):
            return b""
        state = self.state()
        self._state_timer.took(began_ns, monotonic_ns())
        return state

    def state(self) -> bytes:
        """What the iterable's own state_dict() gives now; nothing if it has none.

        One that has died of an exception may call itself past that. Taken up there it would go on, the exception would
        not be raised if it has not been yet, and what is delivered would be a matter of which worker is lost when.
        """
        if self._stateful is None or self._has_died:
            return b""
        try:
            state = pickle.dumps((self._stateful is self._iterator, self._stateful.state_dict()))
        except Exception:
            state = b""
        if not 0 < len(state) <= _LARGEST_STATE_BYTES:
            self._stateful = None  # it means something else, or cannot be sent: without us nobody would have called it
            return b""
        return state

    def run_up_to(self, progress: Progress, collate: Callable[[Any], object] | None) -> None:
        """Do again, for nothing, what another worker did in this epoch. `collate` may draw random numbers, too.

        What an element raises does not matter if the iterator goes on. If it does not, and did the first time, that is
        raised by the next unit: the stream must not end without a word.
        """
        self._row[PHASE], cut = Phase.REPLAY, dict(progress.cut)
        while self.units < progress.units and (self._broken_by is None or self.units in cut):
            self._row[UNIT] = -1 - self.units  # nobody's, and another each time: who watches sees that it goes on
            if self.units in cut:
                self._take_again(cut[self.units])
                self._ended, self._broken_by = self._ended or self._broken_by is not None, None  # it was raised then
            else:
                self._run_again(progress, collate)
            self.units += 1
        given, self.units = progress.elements + progress.passed, progress.units
        if self._broken_by is None and self._ended and self.elements < given:
            self._broken_by = RuntimeError(
                f"the iterable dataset gave {self.elements} elements when it was run again, and {given} before"
            )
        if self._broken_by is not None:
            note = (
                f"raised when this worker ran the iterable dataset again, up to element {given}, in place of a worker\n"
                f"that was lost: its part ends here."
            )
            if not self.knows_state:
                note += " An iterable that has state_dict() and load_state_dict() goes on\nfrom where it was."
            self._broken_by.add_note(note)

    def _run_again(self, progress: Progress, collate: Callable[[Any], object] | None) -> None:
        """A unit of which a batch was made, or could have been."""
        samples, error = self._take_again(progress.unit_size)
        if error is not None and _has_ended_with(error, self._iterator):
            self._broken_by = error
        if collate is not None and self.units not in progress.uncollated:
            self._row[SPAN] = max(1, progress.unit_size)
            with contextlib.suppress(Exception):
                collate(samples if self._auto_collation else samples[0])

    def _take_again(self, count: int) -> tuple[list[Any], Exception | None]:
        """The elements that a unit had, as far as they come, and the last exception that one of them raised."""
        samples: list[Any] = []
        raised: Exception | None = None
        self._row[SPAN] = 1
        end = self.elements + (count if self._auto_collation else min(count, 1))
        while self.elements < end and not self._ended and self._broken_by is None:
            try:
                samples += self._take(end - self.elements)
            except Exception as error:
                raised = error
        return self._without_holes(samples), raised


def _open(dataset: Any, state: bytes) -> tuple[Iterator[Any], Any]:
    """The iterator, at the given state, and the object that knows its state: the iterator itself, or the dataset."""
    is_iterators, saved = pickle.loads(state) if state else (False, None)
    if state and not is_iterators:
        dataset.load_state_dict(saved)
    iterator = iter(dataset)
    if state and is_iterators:
        iterator.load_state_dict(saved)
    if _knows_state(iterator):
        return iterator, iterator
    return iterator, dataset if _knows_state(dataset) else None


def _knows_state(obj: object) -> bool:
    return callable(getattr(obj, "state_dict", None)) and callable(getattr(obj, "load_state_dict", None))


def _note_the_end(error: Exception, iterator: object, elements: int) -> bool:
    """Whether a stream ends with this exception; if so it says so."""
    if not _has_ended_with(error, iterator):
        return False
    error.add_note(
        f"this worker's part of the iterable dataset ends here, after {elements} elements: a generator cannot go on\n"
        f"after an exception. An iterator class whose __next__ raises for a bad element and goes on with the next can."
    )
    return True


# They let go of what they draw from when it ends, also by an exception, and give nothing from then on.
_LETTING_GO = tuple(
    kind for name in ("islice", "pairwise", "batched") if (kind := getattr(itertools, name, None)) is not None
)


def _has_ended_with(error: Exception, iterator: object) -> bool:
    """Whether the iterator is, or draws from, a generator that this exception has ended."""
    ended = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
    todo, seen = [iterator], set[int]()
    while todo:
        found = todo.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, GeneratorType) and found.gi_frame is None and found.gi_code in ended:
            return True
        sources = _sources(found)
        if isinstance(found, _LETTING_GO) and not sources:
            return True
        todo.extend(sources)
    return False


def _sources(iterator: object) -> list[Any]:
    """The iterators that an iterator holds: in its attributes, or, as map and zip do, in a tuple."""
    held = gc.get_referents(iterator)
    if hasattr(iterator, "__dict__"):
        held += vars(iterator).values()
    else:
        held += [item for part in held if type(part) is tuple for item in part]
    return [other for other in held if hasattr(type(other), "__next__")]
