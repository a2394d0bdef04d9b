"""What the processes say to each other arrives as it was said."""

from __future__ import annotations

import dataclasses
import marshal
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.board_rows import Phase
from holdfast.diagnosis.evidence import Ending, Evidence
from holdfast.workers import messages
from holdfast.workers.board import Doing
from holdfast.workers.channel import MAX_MESSAGE
from holdfast.workers.messages import (
    Aside,
    BadSample,
    Epoch,
    Exited,
    Kind,
    Order,
    Progress,
    Reason,
    Result,
    Retire,
    Started,
    Stop,
    Unit,
)

counts = st.integers(0, 2**63 - 1)
refs = st.tuples(counts, counts, counts)


@given(unit=counts, attempt=counts, slot=refs, indices=st.binary(max_size=100) | refs)
def test_a_unit_arrives_as_it_was_sent(
    unit: int, attempt: int, slot: tuple[int, int, int], indices: bytes | tuple[int, int, int]
) -> None:
    """With its indices in the message, or their place in a slot."""
    sent = Unit(unit, attempt, slot, indices, (7, 9), True)
    message = marshal.loads(messages.pack_unit(sent))
    assert message[0] == Order.UNIT
    got = messages.unpack_unit(message)
    assert got == sent
    assert isinstance(got.indices, bytes) == isinstance(indices, bytes)


@given(
    result=st.builds(
        Result,
        kind=st.sampled_from(Kind).map(int),
        unit=counts,
        attempt=counts,
        kept=st.booleans(),
        used=st.lists(counts, max_size=4).map(tuple),
        spilled=st.lists(counts, max_size=4).map(tuple),
        layout=st.binary(max_size=100) | refs,
    )
)
def test_a_result_arrives_as_it_was_sent(result: Result) -> None:
    """Also read straight out of a buffer."""
    packed = messages.pack_result(result)
    assert messages.unpack_result(packed) == result
    assert messages.unpack_result(memoryview(packed)) == result


@given(number=counts, nbytes=counts)
def test_a_segment_is_announced_by_number_and_size(number: int, nbytes: int) -> None:
    """Its descriptor travels beside the message."""
    assert marshal.loads(messages.pack_segment(number, nbytes)) == (Order.SEGMENT, number, nbytes)


@given(numbers=st.lists(counts, max_size=50))
def test_segments_to_forget_are_listed(numbers: list[int]) -> None:
    """Many in one message."""
    assert marshal.loads(messages.pack_forget(numbers)) == (Order.FORGET, tuple(numbers))


@pytest.mark.parametrize("seed", [None, 0, 2**63])
def test_a_new_epoch_brings_its_seed(seed: int | None) -> None:
    """DataPipes need one; other datasets have none."""
    assert marshal.loads(messages.pack_resume(Epoch(seed, 3))) == (Order.RESUME, seed, 3)


def test_a_progress_arrives_as_it_was_sent() -> None:
    """With the epoch it is of."""
    progress = Progress({"torch": b"1"}, {"numpy": b"2"}, 3, 24, b"state", 2, 8, (1,))
    assert messages.unpack_progress(messages.pack_progress(Epoch(None, 7), progress)) == (Epoch(None, 7), progress)


def test_asides_arrive_as_they_were_said() -> None:
    """With what went wrong on the way; also read straight out of a slot."""
    bad = BadSample(3, 2, (b"whole", "builtins", "ValueError", None, b"", b"", b"", "text", "where"), False)
    sent = Aside({"torch": b"1"}, {"numpy": b"2"}, 3, 24, b"state", (tuple(bad),))
    got = messages.unpack_aside(memoryview(messages.pack_aside(sent)))
    assert got == sent
    assert BadSample(*got.bad[0]) == bad


@pytest.mark.parametrize(
    ("places", "position", "place"),
    [((0,), 0, 0), ((0,), 3, 3), ((40,), 2, 42), ((40, 43, 47), 1, 43), ((7, 7), 1, 7)],
)
def test_places_are_given_for_each_sample_or_for_the_first(places: tuple[int, ...], position: int, place: int) -> None:
    """As long as they follow each other, the first is enough."""
    assert messages.place_of(places, position) == place


@pytest.mark.parametrize(
    "message",
    [
        Started(worker_id=1, life=2, pid=3, tainted_by=None),
        Started(worker_id=1, life=2, pid=3, tainted_by="CUDA"),
        Exited(
            worker_id=1,
            life=2,
            pid=3,
            exitcode=-9,
            doing=Doing(Phase.FETCH, 4, 5, 6),
            replaced=True,
            reason=Reason.HUNG,
            evidence=Evidence(Ending.HUNG, python_stack="File"),
        ),
        Retire(worker_id=1),
        Stop(grace_s=0.5),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_supervisor_and_main_tell_each_other_pickles(message: object) -> None:
    """Frozen, and equal on the other side."""
    assert pickle.loads(pickle.dumps(message)) == message
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(message, dataclasses.fields(message)[0].name, 9)  # type: ignore[arg-type]


def test_orders_can_be_told_apart() -> None:
    """Every first item is another one, and a plain number in the message."""
    packed = [
        messages.pack_unit(Unit(0, 1, (0, 0, 0), b"")),
        messages.pack_segment(0, 0),
        messages.pack_forget([]),
        messages.pack_resume(Epoch(None, None)),
        messages.pack_restore(b""),
    ]
    assert [marshal.loads(message)[0] for message in packed] == list(Order)


def test_the_largest_inline_parts_fit_into_a_message() -> None:
    """32 kB of indices; 16 kB of layout, 40 kB of asides and a dozen spilled areas: less than a socket carries."""
    large = 2**62
    unit = messages.pack_unit(Unit(large, large, (large, large, large), b"x" * 32 * 1024))
    inline = b"x" * 16 * 1024, b"x" * 40 * 1024
    result = Result(0, large, large, True, (large,) * 12, (large,) * 12, *inline)
    assert len(unit) <= MAX_MESSAGE
    assert len(messages.pack_result(result)) <= MAX_MESSAGE
