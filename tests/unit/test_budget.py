"""How much may be under way within a memory budget: what is expected, decided, and what comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.memory.budget import Governor, Largest, Use

MB = 1 << 20
CAPACITY = 8
sizes = st.integers(0, 4096)


def use(
    total: int | None = 2000, kept: int = 0, *, batches: int = 0, slots: int = 0, loading: int = 0, workers: int = 4
) -> Use:
    """In megabytes."""
    return Use(None if total is None else total * MB, kept * MB, batches * MB, slots * MB, loading, workers)


def governor(loading_mb: int = 1000, batch_mb: int = 1) -> Governor:
    """One that has seen a unit."""
    one = Governor(CAPACITY)
    one.saw_unit(loading_mb * MB, batch_mb * MB)
    return one


def test_the_first_unit_is_sent_alone() -> None:
    """Nobody knows yet what they take."""
    one = Governor(CAPACITY)
    assert one.allows_one_more(use(loading=0))
    assert not one.allows_one_more(use(loading=1))


def test_without_a_budget_all_are_sent() -> None:
    assert Governor(CAPACITY).allows_one_more(use(None, loading=CAPACITY - 1))
    assert not Governor(CAPACITY).allows_one_more(use(None, loading=CAPACITY))


def test_as_many_are_loaded_at_once_as_fit() -> None:
    """Each takes a gigabyte of its worker, and there are two."""
    one = governor(loading_mb=1000, batch_mb=0)
    assert [one.allows_one_more(use(2000, loading=loading)) for loading in range(3)] == [True, True, False]


def test_batches_that_wait_or_that_the_user_keeps_count() -> None:
    one = governor(loading_mb=0, batch_mb=500)
    assert one.allows_one_more(use(2000, batches=1500))
    assert not one.allows_one_more(use(2000, batches=1600))


def test_free_slots_are_used_again_and_not_counted_twice() -> None:
    one = governor(loading_mb=0, batch_mb=500)
    assert one.allows_one_more(use(1000, slots=1000, loading=1))
    assert not one.allows_one_more(use(1000, slots=1001, loading=1))


def test_a_worker_is_given_up_only_if_not_even_one_unit_fits_beside_what_they_keep() -> None:
    one = governor(loading_mb=1000)
    assert not one.gives_up_a_worker(use(2000, kept=900))
    assert one.gives_up_a_worker(use(2000, kept=1100))
    assert not one.gives_up_a_worker(use(2000, kept=1100, loading=1))
    assert not one.gives_up_a_worker(use(2000, kept=1100, workers=1))
    assert not one.gives_up_a_worker(use(None, kept=1100))
    assert not Governor(CAPACITY).gives_up_a_worker(use(2000, kept=2100))


def test_after_a_kill_fewer_are_loaded_at_once_and_then_more_again() -> None:
    one = governor(loading_mb=0)
    one.saw_kill(loading=4)
    assert not one.is_free
    assert [one.allows_one_more(use(None, loading=loading)) for loading in range(4)] == [True, True, True, False]
    for _ in range(64 * (CAPACITY - 3)):
        one.saw_unit(0, MB)
    assert one.is_free


def test_however_many_are_killed_one_may_always_be_loaded() -> None:
    one = governor()
    for loading in (4, 3, 2, 1, 0, 0):
        one.saw_kill(loading)
        assert one.allows_one_more(use(None, loading=0))


def test_what_was_needed_once_is_forgotten_after_a_while() -> None:
    """A hundred units: then there is room for more again."""
    one = governor(loading_mb=1000)
    for _ in range(128):
        one.saw_unit(10 * MB, MB)
    assert one.loading_bytes == 10 * MB
    assert one.allows_one_more(use(2000, loading=7))


@given(st.lists(st.integers(0, 100), min_size=1, max_size=300))
def test_the_largest_is_that_of_one_or_two_windows(numbers: list[int]) -> None:
    largest = Largest()
    for k, number in enumerate(numbers):
        largest.saw(number)
        recent = numbers[max(0, k - 63) : k + 1]
        assert max(recent) <= (largest.value or 0) <= max(numbers[max(0, k - 127) : k + 1])


@given(
    loading_mb=sizes,
    batch_mb=sizes,
    total=sizes,
    kept=sizes,
    batches=sizes,
    slots=sizes,
    loading=st.integers(0, CAPACITY),
)
def test_what_is_allowed_fits(
    *, loading_mb: int, batch_mb: int, total: int, kept: int, batches: int, slots: int, loading: int
) -> None:
    """Added up anew: nothing that is allowed goes past the total, and with more room no less is allowed."""
    one = governor(loading_mb, batch_mb)
    rest = {"batches": batches, "slots": slots}
    now = use(total, kept, loading=loading, **rest)
    if one.allows_one_more(now):
        assert kept + (loading + 1) * loading_mb + batches + max(slots, (loading + 1) * batch_mb) <= total
        assert one.allows_one_more(use(total + 100, kept, loading=loading, **rest))
        if loading:
            assert one.allows_one_more(use(total, kept, loading=loading - 1, **rest))


@given(
    loading_mb=sizes,
    batch_mb=sizes,
    total=sizes,
    batches=sizes,
    kept=st.lists(sizes, min_size=2, max_size=8),
)
def test_a_worker_that_had_to_go_does_not_come_back_at_once(
    *, loading_mb: int, batch_mb: int, total: int, batches: int, kept: list[int]
) -> None:
    """Given up and taken back without any change in between would go on for ever."""
    one = governor(loading_mb, batch_mb)
    before = use(total, sum(kept), batches=batches, workers=len(kept))
    gone = max(kept)
    after = use(total, sum(kept) - gone, batches=batches, workers=len(kept) - 1)
    if one.gives_up_a_worker(before):
        assert not one.takes_a_worker_back(after, gone * MB)


@given(sizes, sizes, sizes, sizes)
def test_with_plenty_everything_is_allowed(loading_mb: int, batch_mb: int, kept: int, total: int) -> None:
    one = governor(loading_mb, batch_mb)
    if one.has_plenty(use(total, kept)):
        assert all(one.allows_one_more(use(total, kept, loading=loading)) for loading in range(CAPACITY))
