"""What a scan has found so far: which samples were loaded, what they are made of, which are bad.

It can be told in lines of plain data, each saying what is new since the last, and be made again from those. To say a
line twice does no harm. Pure: no file, no process.

Runs in: main process.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.tasks.scan import majority, signature
from holdfast.tasks.scan.signature import Part, Signature

Place = tuple[int, int]
"""A worker's stream of an iterable dataset, and the position there; or 0, and the index."""

_NOT_YET, _BAD = -1, -2
_MOST_SIGNATURES = 20_000
_LISTED = 10


@dataclass(frozen=True, slots=True)
class Bad:
    """A sample that cannot be loaded."""

    place: Place
    cause: str
    """As in docs/failures."""
    summary: str
    """What its worker did: "raised ValueError: bad header", "hung"."""
    because: str = ""
    where: str = ""
    confidence: str = ""
    incident: str = ""
    """Its id in the record of the run: "7f3a.2"."""


class Ranked(NamedTuple):
    """One of the slowest, by seconds, or of the largest, by bytes."""

    value: float
    place: Place
    is_first: bool
    """Of its worker."""


@dataclass(slots=True)
class _News:
    samples: list[tuple[int, int, int]] = field(default_factory=list)
    signatures: list[tuple[int, Signature]] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)
    retried: list[tuple[int, int, str]] = field(default_factory=list)
    has_ranked: bool = False


class Findings:
    """`length`: of a dataset with indices; None of an iterable."""

    def __init__(self, length: int | None) -> None:
        self._numbers: dict[int, array[int]] = {}  # by stream: for each position the number of its signature
        if length is not None:
            self._numbers[0] = array("i", [_NOT_YET]) * length
        self.signatures: list[Signature] = []
        self._number_of: dict[Signature, int] = {}
        self.bad: dict[Place, Bad] = {}
        self.retried: dict[Place, str] = {}
        """Lost with their worker at first: the ids of the incidents. Those that are not bad came then."""
        self.slowest: list[Ranked] = []
        self.largest: list[Ranked] = []
        self.loaded = 0
        self.nbytes = 0
        self.load_s = 0.0
        self.states: dict[int, tuple[int, str]] = {}
        """Of streams that know their state: from which position on, and the state there."""
        self._news = _News()

    @property
    def done(self) -> int:
        return self.loaded + len(self.bad)

    def done_in(self, stream: int) -> int:
        """How far a worker's stream was."""
        return len(self._numbers.get(stream, ()))

    def left(self, planned: Iterable[int]) -> Iterator[int]:
        """Which indices are to be loaded yet."""
        numbers = self._numbers[0]
        return (index for index in planned if numbers[index] == _NOT_YET)

    # -- as it is found --------------------------------------------------------------------------------------------

    def note(self, place: Place, parts: Signature, nbytes: int, seconds: float, *, is_first: bool = False) -> None:
        """A sample was loaded. One that was before counts once."""
        number = self._number(parts)
        if not self._mark(place, number):
            return
        self.nbytes += nbytes
        self.load_s += seconds
        if _rank(self.slowest, Ranked(seconds, place, is_first)) | _rank(self.largest, Ranked(nbytes, place, is_first)):
            self._news.has_ranked = True

    def note_bad(self, bad: Bad) -> None:
        """A sample cannot be loaded."""
        if bad.place not in self.bad and self._mark(bad.place, _BAD):
            self.bad[bad.place] = bad
            self._news.bad.append(bad)

    def note_retried(self, place: Place, incident: str) -> None:
        """A sample was lost with its worker, and is tried again."""
        self.retried[place] = incident
        self._news.retried.append((*place, incident))

    def _number(self, parts: Signature) -> int:
        number = self._number_of.get(parts)
        if number is None and len(self.signatures) >= _MOST_SIGNATURES:
            parts = signature.without_sizes(parts)  # they differ by nature: no more of them are kept
            number = self._number_of.get(parts)
        return self._add_signature(parts) if number is None else number

    def _add_signature(self, parts: Signature) -> int:
        number = self._number_of[parts] = len(self.signatures)
        self.signatures.append(parts)
        self._news.signatures.append((number, parts))
        return number

    def _mark(self, place: Place, number: int) -> bool:
        """False if it was loaded before. What was bad may be loaded later."""
        if self.is_loaded(place):
            return False
        stream, position = place
        numbers = self._numbers.setdefault(stream, array("i"))
        if position >= len(numbers):
            numbers.extend([_NOT_YET] * (position + 1 - len(numbers)))
        numbers[position] = number
        self._news.samples.append((stream, position, number))
        if number >= 0:
            self.loaded += 1
            self.bad.pop(place, None)
        return True

    def is_loaded(self, place: Place) -> bool:
        numbers = self._numbers.get(place[0], ())
        return place[1] < len(numbers) and numbers[place[1]] >= 0

    # -- as lines --------------------------------------------------------------------------------------------------

    def tell_news(self) -> dict[str, Any] | None:
        """What is new since `forget_news`; None: nothing. An interrupt between the two has it told twice."""
        news = self._news
        if not (news.samples or news.retried):
            return None
        return {
            "samples": _runs(news.samples),
            "signatures": news.signatures,
            "bad": [dataclasses.asdict(bad) for bad in news.bad],
            "retried": news.retried,
            "ranked": news.has_ranked and [self.slowest, self.largest],
            "nbytes": self.nbytes,
            "load_s": self.load_s,
            "states": [[stream, *state] for stream, state in self.states.items()],
        }

    def forget_news(self) -> None:
        """It has been written down."""
        self._news = _News()

    def hear(self, line: Mapping[str, Any]) -> None:
        """Take up what another had found, as told."""
        for number, parts in line["signatures"]:
            if number == len(self.signatures):
                self._add_signature(tuple(Part(path, kind, tuple(sizes)) for path, kind, sizes in parts))
        for bad in line["bad"]:
            place = tuple(bad["place"])
            if not self.is_loaded(place):
                self.bad[place] = Bad(**bad | {"place": place})
        for stream, start, stop, number in line["samples"]:
            for position in range(start, stop):
                self._mark((stream, position), number)
        self.retried |= {(stream, position): incident for stream, position, incident in line["retried"]}
        if line["ranked"]:
            self.slowest, self.largest = (
                [Ranked(value, tuple(place), is_first) for value, place, is_first in ranked]
                for ranked in line["ranked"]
            )
        self.nbytes, self.load_s = line["nbytes"], line["load_s"]
        self.states = {stream: (position, state) for stream, position, state in line["states"]}
        self.forget_news()

    # -- in the end ------------------------------------------------------------------------------------------------

    def common(self) -> tuple[majority.Common, ...]:
        """What nearly all samples have in common."""
        counts = Counter[int]()
        for numbers in self._numbers.values():
            counts.update(numbers)
        return majority.find_common({parts: counts[k] for k, parts in enumerate(self.signatures) if counts[k]})

    def odd(self, common: tuple[majority.Common, ...]) -> dict[Place, str]:
        """The samples that differ from that, and how."""
        said = {k: majority.differences(parts, common) for k, parts in enumerate(self.signatures)}
        said = {k: words for k, words in said.items() if words}
        if not said:
            return {}
        return {
            (stream, position): said[number]
            for stream, numbers in self._numbers.items()
            for position, number in enumerate(numbers)
            if number in said
        }


def _rank(ranked: list[Ranked], new: Ranked) -> bool:
    """Whether it is one of the first."""
    is_one = len(ranked) < _LISTED or new.value > ranked[-1].value
    if is_one:
        ranked[:] = sorted([*ranked, new], key=lambda each: (-each.value, each.place))[:_LISTED]
    return is_one


def _runs(samples: list[tuple[int, int, int]]) -> list[list[int]]:
    """Neighbours with the same number as one: [stream, start, stop, number]. In the order they were marked in."""
    runs: list[list[int]] = []
    for stream, position, number in samples:
        last = runs[-1] if runs else None
        if last is not None and (last[0], last[2], last[3]) == (stream, position, number):
            last[2] += 1
        else:
            runs.append([stream, position, position + 1, number])
    return runs
