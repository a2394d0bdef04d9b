"""What is done when a worker is lost: a table of where it was, why it is gone, and how often that happened."""

from __future__ import annotations

import itertools

import pytest

from holdfast.board_rows import Phase
from holdfast.loader.recovery import Decision, Where, decide, where
from holdfast.workers.board import Doing
from holdfast.workers.messages import Reason

ENDS = (Reason.EXITED, Reason.HUNG)


@pytest.mark.parametrize(
    ("phase", "position", "expected"),
    [
        (Phase.STARTING, -1, Where.NOTHING),
        (Phase.IDLE, 3, Where.NOTHING),
        (Phase.FETCH, 0, Where.SAMPLE),
        (Phase.FETCH, 3, Where.SAMPLE),
        (Phase.FETCH, -1, Where.MANY),
        (Phase.COLLATE, 3, Where.BATCH),
        (Phase.COLLATE, -1, Where.BATCH),
        (Phase.SEND, 3, Where.BATCH),
        (Phase.ENDING, 3, Where.NOTHING),
        (Phase.BACKOFF, 3, Where.NOTHING),
        (Phase.REPLAY, 3, Where.NOTHING),
        (Phase.HAND_OVER, 3, Where.NOTHING),
    ],
)
def test_the_board_says_what_was_in_hand(phase: Phase, position: int, expected: Where) -> None:
    """A position is that of the last sample: it counts only while one is being loaded."""
    assert where(Doing(phase, 5, position, 1)) is expected


def test_samples_that_die_together_after_each_was_loaded_alone_are_a_bad_batch() -> None:
    """One by one has been tried: once more would never end."""
    assert where(Doing(Phase.FETCH, 5, -1, 1), one_by_one=True) is Where.BATCH
    assert where(Doing(Phase.FETCH, 5, 2, 1), one_by_one=True) is Where.SAMPLE


def test_an_iterable_that_is_run_again_is_nobodys_unless_there_was_no_memory_for_it() -> None:
    """Then it is for the sake of the worker's next unit, which is loaded alone, and given up in the end."""
    replay = Doing(Phase.REPLAY, 5, 0, 1)
    assert where(replay) is Where.NOTHING
    assert where(replay, is_for_memory=True) is Where.STREAM
    assert where(Doing(Phase.FETCH, 5, 0, 1), is_for_memory=True) is Where.SAMPLE
    assert decide(Where.STREAM, Reason.OVER_BUDGET, 0, 1, is_crowded_out=True) is Decision.ALONE
    assert decide(Where.STREAM, Reason.OVER_BUDGET, 1, 1) is Decision.RETRY
    assert decide(Where.STREAM, Reason.OVER_BUDGET, 2, 1) is Decision.BAD_SAMPLE


def test_every_phase_has_its_place() -> None:
    """A phase that is added later must be thought of here."""
    assert {where(Doing(phase, 0, 0, 1)) for phase in Phase} == {Where.NOTHING, Where.SAMPLE, Where.BATCH}


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize(("deaths", "max_retries"), [(0, 0), (9, 0), (9, 3)])
def test_a_worker_lost_between_samples_is_restarted(reason: Reason, deaths: int, max_retries: int) -> None:
    """Nobody's sample is to blame; how often that may happen is counted elsewhere."""
    assert decide(Where.NOTHING, reason, deaths, max_retries) is Decision.RESTART


@pytest.mark.parametrize("place", [place for place in Where if place is not Where.NOTHING])
@pytest.mark.parametrize("reason", [Reason.EXITED, Reason.OVER_BUDGET])
def test_a_unit_that_was_crowded_out_is_loaded_again_alone(place: Where, reason: Reason) -> None:
    """However many retries are left: it is nobody's fault yet."""
    assert decide(place, reason, 0, 0, is_crowded_out=True) is Decision.ALONE


@pytest.mark.parametrize("place", Where)
@pytest.mark.parametrize("max_retries", [0, 3])
def test_a_worker_that_was_stopped_is_restarted_wherever_it_was(place: Where, max_retries: int) -> None:
    """A stop comes from outside: the sample in hand is not blamed."""
    assert decide(place, Reason.STOPPED, 1, max_retries) is Decision.RESTART


@pytest.mark.parametrize(
    ("place", "decision"),
    [
        (Where.NOTHING, Decision.RESTART),
        (Where.SAMPLE, Decision.BAD_SAMPLE),
        (Where.MANY, Decision.ONE_BY_ONE),
        (Where.STREAM, Decision.BAD_SAMPLE),
        (Where.BATCH, Decision.BAD_BATCH),
    ],
)
@pytest.mark.parametrize("max_retries", [0, 3])
def test_a_second_stop_in_the_same_place_is_that_places_doing(
    place: Where, decision: Decision, max_retries: int
) -> None:
    """However many retries there are; between samples there is nobody to blame."""
    assert decide(place, Reason.STOPPED, 2, max_retries) is decision


@pytest.mark.parametrize("reason", ENDS)
@pytest.mark.parametrize(("deaths", "max_retries"), [(0, 0), (5, 0), (5, 3)])
def test_samples_that_one_call_loads_are_tried_one_by_one(reason: Reason, deaths: int, max_retries: int) -> None:
    """Whichever it was, that is how it is found; this is no attempt at a sample yet."""
    assert decide(Where.MANY, reason, deaths, max_retries) is Decision.ONE_BY_ONE


@pytest.mark.parametrize("reason", ENDS)
@pytest.mark.parametrize(
    ("place", "end"), [(Where.SAMPLE, Decision.BAD_SAMPLE), (Where.BATCH, Decision.BAD_BATCH)], ids=["sample", "batch"]
)
@pytest.mark.parametrize("max_retries", [0, 1, 3])
def test_a_sample_or_a_batch_has_so_many_further_attempts(
    reason: Reason, place: Where, end: Decision, max_retries: int
) -> None:
    """The first attempt and max_retries more; the death after that is the last."""
    decisions = [decide(place, reason, deaths, max_retries) for deaths in range(1, max_retries + 3)]
    assert decisions == [Decision.RETRY] * max_retries + [end, end]


def test_there_is_a_decision_for_everything() -> None:
    """The whole table."""
    for place, reason, deaths in itertools.product(Where, Reason, range(4)):
        assert decide(place, reason, deaths, 1) in Decision
