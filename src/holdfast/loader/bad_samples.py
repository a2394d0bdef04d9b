"""What becomes of samples that cannot be loaded: `on_error`, carried out on the unit that asked for them.

"skip" asks for the unit's other samples. "replace" asks for a substitute in the same place. Every sample that is passed
over is written down, and counted against `max_skipped`.

Runs in: main process, in the thread that calls `next()`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

from holdfast.loader import substitutes
from holdfast.loader.ledger import Blame, Ledger
from holdfast.loader.policy import AUTO
from holdfast.loader.skips import SkippedSample, number_or_itself
from holdfast.loader.supply import Supply
from holdfast.loader.units import UnitState, load_listed
from holdfast.workers.rng import mix

_HISTORY = 256  # units before one, or after it, whose samples may stand for its bad ones
_MAX_SUBSTITUTES = 16  # tried for one place
_MOST_IN_VAIN = 1000  # samples in a row that are all known to be bad


class Fate(Enum):
    """Of a unit some of whose samples cannot be loaded."""

    AGAIN = "to be sent again, as it is now"
    VOID = "nothing of it is left to deliver"
    RAISE = "to be delivered as an exception"


class BadSample(NamedTuple):
    """A sample that is given up."""

    position: int
    reason: str
    blame: Blame = Blame.ITSELF
    is_known: bool = False  # from the file or an earlier epoch: it was not tried


class TakenOut(NamedTuple):
    """An index that a unit asks for no more, where in the epoch that was, and what it asks for in its place."""

    index: Any
    place: int
    substitute: Any = None
    has_substitute: bool = False


class _Given(NamedTuple):
    """A unit as the sampler gave it, and where in the epoch it starts."""

    start: int
    payload: bytes
    is_list: bool

    @property
    def listed(self) -> list[Any]:
        return load_listed(self.payload, is_list=self.is_list)


class BadSamples:
    """The bad samples of one iterator."""

    def __init__(self, ledger: Ledger, *, ahead: int = 0) -> None:
        """`ahead`: how many units may have been sent after one of whose samples it is only now known that it is bad."""
        self._ledger = ledger
        self.supply: Supply | None = None  # of this epoch: what is yet to be sent
        self.count_elements: Callable[[], int] | None = None  # of an iterable: how many it has given in this epoch
        self._history: deque[_Given] = deque(maxlen=_HISTORY + 1 + ahead)
        self.begin_epoch(0, 0, None)

    def begin_epoch(self, epoch: int, seed: int, samples: int | None) -> None:
        """`samples`: how many the epoch has, if known."""
        self.epoch, self._seed, self._samples = epoch, mix(seed, epoch), samples
        self._skipped = self._tried = 0  # passed over; without those known before the epoch, and each sample once
        self._found: set[Any] = set()  # the indices among those tried, as far as they are remembered
        self._in_vain = 0  # samples of the last units, if nothing of them was left to load
        self._delivered_before = self._ledger.counters.samples
        self._history.clear()
        self._substitutes: dict[int, int] = {}  # by place: how many were asked for
        self._replaced: dict[int, int] = {}  # by place: the number of its entry among the ledger's skipped samples

    # -- before a unit is sent -------------------------------------------------------------------------------------

    def screen(self, batch: int, state: UnitState) -> Fate:
        """Leave out what is known to be bad."""
        if self._ledger.policy.on_error == "raise":
            return Fate.AGAIN
        if self._ledger.policy.on_error == "replace":
            self._history.append(_Given(state.places[0], state.payload, state.is_list))
        known = self._ledger.known
        if not known:
            return Fate.AGAIN
        bad = [
            BadSample(k, known.reason(index), is_known=known.was_known_before(index, self.epoch))
            for k, index in enumerate(state.listed)
            if index in known
        ]
        fate = self.give_up(batch, state, bad) if bad else Fate.AGAIN
        self._in_vain = self._in_vain + len(bad) if fate is Fate.VOID else 0
        # A sampler without end may give the same ones for ever: then no end of the epoch tells that nothing comes.
        if self._in_vain > max(_MOST_IN_VAIN, 10 * len(known)):
            self._ledger.refuse_known(self._in_vain)
        return fate

    # -- when samples turned out to be bad -------------------------------------------------------------------------

    def give_up(self, batch: int, state: UnitState, bad: Sequence[BadSample]) -> Fate:
        """Change the unit so that it asks for these no more. May raise TooManySkipped."""
        fate, taken = self.take_out(state, [sample.position for sample in bad])
        for out, sample in zip(taken, bad, strict=fate is not Fate.RAISE):
            self._book(batch, out, sample)
        return fate

    def give_up_batch(self, batch: int, state: UnitState, reason: str) -> Fate:
        """No batch can be made of the unit's samples: all of them are passed over."""
        fate, taken = self.take_out_all(state)
        for out in taken:
            self.book(batch, out, reason, Blame.NOBODY)
        return fate

    def take_out(self, state: UnitState, positions: Sequence[int]) -> tuple[Fate, list[TakenOut]]:
        """The first half of giving up: the unit asks for these no more. They are to be booked after that."""
        if self._ledger.policy.on_error == "raise":
            return Fate.RAISE, []
        if self._ledger.policy.on_error == "replace":
            return self._replace(state, positions)
        return self._drop(state, positions)

    def take_out_all(self, state: UnitState) -> tuple[Fate, list[TakenOut]]:
        if state.is_substituted:
            return Fate.RAISE, []  # nor can a batch be made of those that stood for them
        state.is_substituted = self._ledger.policy.on_error == "replace"
        return self.take_out(state, range(len(state.listed)))

    def book(self, batch: int, out: TakenOut, reason: str, blame: Blame) -> None:
        """The second half: why it was. May raise TooManySkipped."""
        self._book(batch, out, BadSample(-1, reason, blame))

    def _book(self, batch: int, out: TakenOut, sample: BadSample) -> None:
        if out.has_substitute:
            self._note_replaced(batch, out.index, sample, out.place, out.substitute)
        else:
            self._note(batch, out.index, sample)

    def note_skipped(self, batch: int, state: UnitState, bad: Sequence[BadSample]) -> None:
        """A worker has left these out of the batch it made."""
        listed = state.listed
        for sample in bad:
            self._note(batch, listed[sample.position], sample)

    def note_element(self, batch: int, index: Any, sample: BadSample) -> None:
        """The same for an element of an iterable, which has no index but its place in the worker's stream."""
        self._note(batch, index, sample)

    def check_delivered(self) -> None:
        """At the end of an epoch: raise TooManySkipped if samples were passed over and none was delivered."""
        if self._skipped and self._ledger.counters.samples == self._delivered_before:
            self._ledger.refuse_nothing(self._tried, self._skipped - self._tried)

    # -- how -------------------------------------------------------------------------------------------------------

    def _drop(self, state: UnitState, positions: Sequence[int]) -> tuple[Fate, list[TakenOut]]:
        listed, gone = state.listed, set(positions)
        taken = [TakenOut(listed[position], state.place(position)) for position in positions]
        left = [k for k in range(len(listed)) if k not in gone]
        if not left:
            return Fate.VOID, taken
        state.change([listed[k] for k in left], [state.place(k) for k in left])
        return Fate.AGAIN, taken

    def _replace(self, state: UnitState, positions: Sequence[int]) -> tuple[Fate, list[TakenOut]]:
        listed = state.listed
        if not state.sampled:
            state.sampled = tuple(listed)
        places = [state.place(k) for k in range(len(listed))]
        state.given_up.extend(listed[position] for position in positions)
        taken = []
        for position in positions:
            substitute = self._substitute(state, places[0], places[position])
            if substitute is substitutes.NONE_LEFT:
                self._ledger.withdraw()  # so many failed in a row that the storage may be to blame
                return Fate.RAISE, []
            taken.append(TakenOut(listed[position], places[position], substitute, has_substitute=True))
            listed[position] = substitute
            state.deaths.pop(places[position], None)  # it has attempts of its own
            state.stops.pop(places[position], None)
        state.change(listed, places)
        return Fate.AGAIN, taken

    def _substitute(self, state: UnitState, first: int, place: int) -> Any:
        """Another sample of the batch, or of those before it; if none is good, of those after it, one by one.

        Of the batch as the sampler gave it: what stands in it by now depends on the order in which bad ones were found.
        """
        number = self._substitutes[place] = self._substitutes.get(place, 0) + 1
        if number > _MAX_SUBSTITUTES:
            return substitutes.NONE_LEFT
        # As many as there were when the unit was sent, whatever was sent since: that is a matter of timing.
        before = [unit for unit in self._history if unit.start < first][-_HISTORY:]
        earlier = [index for unit in before for index in unit.listed]

        def is_bad(index: Any) -> bool:
            return index in self._ledger.known or any(_are_equal(index, other) for other in state.given_up)

        groups = itertools.chain((state.sampled, earlier), self._later(first))
        return substitutes.choose(groups, is_bad, self._seed, place)

    def _later(self, first: int) -> Iterator[Sequence[Any]]:
        """The units after this one, in the order of the sampler, whether they have been sent by now or not."""
        sent = (unit.listed for unit in self._history if unit.start > first)
        unsent = self.supply.ahead() if self.supply is not None else ()
        return itertools.islice(itertools.chain(sent, unsent), _HISTORY)

    def _note_replaced(self, batch: int, index: Any, sample: BadSample, place: int, substitute: Any) -> None:
        """One entry for each place, whatever was tried in it: how many were depends on what is known by then."""
        entry = self._replaced.get(place)
        if entry is None:
            self._replaced[place] = len(self._ledger.skipped)
            self._note(batch, index, sample, replaced_by=substitute)
            return
        self._ledger.skipped[entry] = dataclasses.replace(self._ledger.skipped[entry], replaced_by=substitute)
        self._ledger.remember(index, sample.reason, sample.blame)

    def _note(self, batch: int, index: Any, sample: BadSample, replaced_by: Any = None) -> None:
        passed_over = SkippedSample(index, sample.reason, replaced_by, self.epoch, batch)
        self._ledger.pass_over(passed_over, sample.blame, is_known=sample.is_known)
        self._skipped += 1
        self._tried += not sample.is_known and self._is_first(index, sample.blame)
        counted = self._tried if self._ledger.policy.max_skipped == AUTO else self._skipped
        self._ledger.check_number(counted, self._samples if self._samples is not None else self._so_far())

    def _is_first(self, index: Any, blame: Blame) -> bool:
        """Whether a sample was not given up before in this epoch. A sampler may give it again and again."""
        if blame is Blame.NOBODY:
            return True
        before = len(self._found)
        try:
            self._found.add(number_or_itself(index))
        except TypeError:  # it cannot be hashed, so it is not remembered either, but tried each time
            return True
        return len(self._found) > before

    def _so_far(self) -> int:
        """How many samples of the epoch the sampler, or the iterable, has given so far."""
        if self.count_elements is not None:
            return self.count_elements()
        return self.supply.position if self.supply is not None else 0


def _are_equal(one: Any, other: Any) -> bool:
    try:
        return bool(one is other or one == other)
    except Exception:
        return False  # arrays, as indices of whole batches, do not say
