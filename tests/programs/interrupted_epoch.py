"""Epochs under a storm: a signal handler that raises inside `next()` every millisecond or so.

Usage: interrupted_epoch.py map | unordered | growing | persistent | stream (what is loaded) seed
Runs in: a child of the test process.

Every batch is delivered, in order, or missing because of an interrupt that came after the iterator had given it out,
on the way to the caller: that nobody can mend, and each interrupt can cost one batch at most. Where the iterator cannot
go on, it says so in place of the rest, as often as it is asked, and another one is made.
"""

from __future__ import annotations

import random
import re
import signal
import sys
from typing import Any

import torch

from helpers import Numbers, Stream, Waves, say
from holdfast import DataLoader

BATCHES, BATCH_SIZE = 600, 4
CUT_SHORT = re.compile(r"interrupted inside next\(\) at batch \d+: the batches so far are good; call iter\(\) again")
TRIES = 20  # iterators that may be cut short in one epoch


class Interrupted(TimeoutError):
    """What such handlers raise. It is an OSError, too."""


class Storm:
    """Interrupts, at irregular intervals, for as long as `next()` runs."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.iterator: Any = None
        self.is_inside = False
        self.count = 0
        self.came_late = 0  # after a batch was given out, for all we know

    def begin(self) -> None:
        signal.signal(signal.SIGALRM, self._strike)
        self._wait_a_little()

    def end(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _wait_a_little(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, self._random.uniform(0.0004, 0.0035))

    def _strike(self, *_: object) -> None:
        self._wait_a_little()
        if self.is_inside:
            self.count += 1
            self.came_late += self.iterator._is_clean
            raise Interrupted


def run_epoch(iterator: Any, storm: Storm) -> tuple[list[int], bool]:
    """The first number of each batch that was delivered, and whether it was cut short."""
    storm.iterator = iterator
    firsts: list[int] = []
    refusals: list[str] = []
    while len(refusals) < 2:
        try:
            storm.is_inside = True
            batch = next(iterator)
            storm.is_inside = False
        except Interrupted:
            storm.is_inside = False
            continue
        except StopIteration:
            storm.is_inside = False
            return firsts, False
        except RuntimeError as error:
            storm.is_inside = False
            refusals.append(str(error))
            continue
        assert not refusals
        firsts.append(int(batch.flatten()[0]))
    assert refusals[0] == refusals[1]
    assert CUT_SHORT.fullmatch(refusals[0]), refusals
    return firsts, True


def check(firsts: list[int], expected: list[int], storm: Storm) -> None:
    missing = sorted(set(expected) - set(firsts))
    say(len(firsts), "batches,", storm.count, "interrupts,", storm.came_late, "of them late; missing:", *missing)
    assert firsts == [first for first in expected if first not in missing], firsts
    assert len(missing) <= storm.came_late, (missing, storm.came_late)


def make_loader(what: str) -> DataLoader[Any]:
    batches = [list(range(first, first + BATCH_SIZE)) for first in range(0, BATCHES * BATCH_SIZE, BATCH_SIZE)]
    options: dict[str, Any] = {"num_workers": 2, "persistent_workers": what == "persistent"}
    if what == "stream":
        return DataLoader(Stream(BATCHES * BATCH_SIZE), batch_size=BATCH_SIZE, **options)
    dataset: Any = Numbers(BATCHES * BATCH_SIZE)
    if what == "growing":  # each eighth batch outgrows its slot, and brings a segment of its own
        dataset = Waves(BATCHES, BATCH_SIZE, [10, 10, 10, 10, 10, 10, 10, 200_000])
    # A list as sampler: a generator that a signal handler raises in has ended, and no more comes of it.
    return DataLoader(dataset, batch_sampler=batches, in_order=what != "unordered", **options)


def expected_of(what: str) -> list[int]:
    if what != "stream":
        return list(range(0, BATCHES * BATCH_SIZE, BATCH_SIZE))
    # of worker w: w, w + 2, ... in batches of four, and the workers in turn
    return [first + worker for first in range(0, BATCHES * BATCH_SIZE, 2 * BATCH_SIZE) for worker in (0, 1)]


def weather_epoch(loader: DataLoader[Any], what: str, seed: int) -> bool:
    """Whether an iterator came to its end. If not, what it gave up to there is checked all the same."""
    storm = Storm(seed)
    iterator = iter(loader)
    storm.begin()
    try:
        firsts, is_cut = run_epoch(iterator, storm)
    finally:
        storm.end()
    expected = expected_of(what)
    if is_cut and what == "unordered":
        expected = [first for first in expected if first in firsts]
    elif is_cut:
        expected = expected[: len(firsts) + storm.came_late]
    check(sorted(firsts) if what == "unordered" else firsts, expected, storm)
    return not is_cut


def main(what: str, seed: int) -> None:
    torch.set_num_threads(1)
    loader = make_loader(what)
    for epoch in range(2):
        ended = any(weather_epoch(loader, what, TRIES * seed + attempt) for attempt in range(TRIES))
        assert ended or what == "stream"  # of an iterable every interrupt inside next() is one too many
        say("epoch", epoch)
    firsts = [int(batch.flatten()[0]) for batch in loader]  # in calm weather
    assert (sorted(firsts) if what == "unordered" else firsts) == expected_of(what)
    loader.close()
    say("done")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
