"""What `holdfast tune` makes of samples that were weighed, and in which order it draws them."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.tasks.tune.guarded import Order
from holdfast.tasks.tune.sampling import repeats, summed_up
from holdfast.tasks.tune.watched import WatchedSamples, Weighed, pack, unpack

SOON_S = 60.0


def weighed(stream: int = 0, digest: str = "", **changed: Any) -> Weighed:
    return Weighed(stream, 0.01, 0.004, 1000, False, 5000, 100, digest)._replace(**changed)


@pytest.mark.parametrize(
    ("first", "second", "are_same"),
    [
        ("abcd", "abcd", True),
        ("abcd", "ab", True),  # as far as both came
        ("abcd", "efgh", False),
        ("aaaa", "aaaa", False),  # all elements are alike: nothing can be told
        ("a", "a", False),
        ("abcd", "", False),
    ],
)
def test_workers_repeat_each_other_if_they_begin_alike(first: str, second: str, are_same: bool) -> None:
    """Each letter is one element."""
    streams = [weighed(0, each) for each in first] + [weighed(1, each) for each in second]
    assert repeats(streams) is are_same


def test_the_first_sample_of_a_worker_is_in_no_other_time() -> None:
    """It may have opened a file of gigabytes."""
    summed = summed_up([weighed(seconds=9.0, is_first=True), *[weighed()] * 9], 4)
    assert (summed.first_s, summed.seconds.max, summed.slowest_s) == (9.0, 0.01, 9.0)
    assert summed.waiting_share == pytest.approx(0.6)


def test_without_a_whole_batch_its_memory_is_reckoned() -> None:
    """The samples, and the batch that they would be."""
    without = summed_up([weighed()], 10)
    with_one = summed_up([weighed(batch_bytes=9000, collate_s=0.1)], 10)
    assert (without.peak_bytes, without.batch_bytes, without.collate_s) == (5000 + 2 * 10 * 1000, None, None)
    assert (with_one.peak_bytes, with_one.batch_bytes, with_one.collate_s) == (5000, 9000, 0.1)


def test_one_sample_is_enough() -> None:
    assert summed_up([weighed(is_first=True, peak_bytes=None, start_bytes=None)], 1).count == 1


def test_loaders_take_up_the_order_where_the_last_one_left_it() -> None:
    """Every sample is drawn once before any is drawn twice, by however many loaders; one that failed is not again."""
    order = Order(10)
    drawn = [*_some(order, 4), *_some(order, 6)]
    assert sorted(drawn) == list(range(10))
    loader = SimpleNamespace(
        skipped_samples=[SimpleNamespace(index=3, reason="bad"), SimpleNamespace(index=3, reason="x")]
    )
    order.note_failed(cast("Any", loader))
    assert 3 not in _some(order, 50)
    assert [(failed.index, failed.reason) for failed in order.failed] == [(3, "bad")]


def test_the_order_ends_at_the_deadline_and_where_all_are_bad() -> None:
    order = Order(2)
    assert list(order.sampler(time.monotonic() - 1) or ()) == []
    skipped = [SimpleNamespace(index=index, reason="bad") for index in range(2)]
    order.note_failed(cast("Any", SimpleNamespace(skipped_samples=skipped)))
    assert _some(order, 5) == []


def test_of_very_many_samples_indices_are_drawn() -> None:
    """Nobody shuffles a list of a thousand million."""
    assert all(0 <= index < 10**12 for index in _some(Order(10**12), 100))


def _some(order: Order, number: int) -> list[int]:
    return list(itertools.islice(order.sampler(time.monotonic() + SOON_S) or (), number))


class _Both:
    """Loads many at once: the loader would call __getitems__."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> bytes:
        raise AssertionError("not called")

    def __getitems__(self, indices: list[int]) -> list[bytes]:
        return [b"12345" for _ in indices]


def test_a_sample_is_weighed_and_its_batch_collated() -> None:
    """Also of a dataset that loads many at once; what is sent is the measurement."""
    watched = WatchedSamples(_Both(), 2, b"".join)
    first, second = unpack(pack([watched[0], watched[1]]))
    assert (first.nbytes, first.is_first, first.batch_bytes) == (5, True, None)
    assert (second.nbytes, second.is_first, second.batch_bytes) == (5, False, 10)


def test_a_collate_fn_that_raises_is_no_fault_of_a_sample() -> None:
    watched = WatchedSamples([b"1", b"2"], 1, lambda samples: 1 / 0)
    assert watched[0].collate_error == "ZeroDivisionError: division by zero"
