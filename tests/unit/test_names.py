"""Names of shared memory: who they belong to, when they go, and what is swept."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from holdfast.transport import names
from holdfast.transport.names import Namer
from holdfast.transport.segments import PAGE, Segment, discard
from holdfast.transport.slots import SlotPool
from holdfast.transport.writer import SlotWriter, area_of
from waits import shared_memory_names


@pytest.fixture
def namer() -> Iterator[Namer]:
    namer = Namer(names.this_owner(), maker=0xABC)
    yield namer
    names.remove_all(namer.prefix)


def listed(namer: Namer) -> set[str]:
    return {name for name in shared_memory_names() if name.startswith(namer.prefix)}


def test_a_name_says_whose_it_is(namer: Namer) -> None:
    """The pid of the main process is in it, and no two are the same."""
    first, second = namer(), namer()
    assert first != second
    assert first.split("-")[1] == str(os.getpid())


def test_names_fit_where_there_is_room_for_thirty_characters() -> None:
    """macOS: a short prefix and no namespace; the largest pid, the latest maker, many numbers."""
    assert len(f"/hf-99998-{0xFFFFFFFF:x}-{0xFFFF:x}-{0xFFFFF:x}") <= 30


def test_two_mappings_of_one_name_are_the_same_memory(namer: Namer) -> None:
    """Made here, opened there; the name may go before the memory does."""
    ours = Segment.create(4 * PAGE, namer())
    theirs = Segment(ours.name, ours.nbytes)
    names.remove(ours.name)
    assert listed(namer) == set()
    ours.view[PAGE] = 7
    assert theirs.view[PAGE] == 7
    theirs.give_back(PAGE, 2 * PAGE)
    assert ours.view[PAGE] == 0
    ours.close_fd()
    theirs.close_fd()


def test_a_name_that_is_gone_cannot_be_opened(namer: Namer) -> None:
    """FileNotFoundError, and no descriptor is left."""
    with pytest.raises(FileNotFoundError):
        Segment(namer(), PAGE)


def test_a_segment_that_cannot_be_mapped_leaves_no_name(namer: Namer) -> None:
    """More than there is address space."""
    with pytest.raises(OSError, match=r"cannot map|File too large|Invalid argument"):
        Segment.create(1 << 62, namer())
    assert listed(namer) == set()


def test_what_is_claimed_has_no_name_any_more(namer: Namer) -> None:
    """Opened and removed in one step; removed also where it cannot be opened."""
    made = Segment.create(PAGE, namer())
    made.view[0] = 5
    claimed = names.claim(made.name)
    assert listed(namer) == set()
    opened = Segment(claimed, PAGE)
    assert opened.view[0] == 5
    made.close_fd()
    opened.close_fd()
    with pytest.raises(FileNotFoundError):
        names.claim(made.name)


def test_discarding_a_name_removes_it(namer: Namer) -> None:
    """Of a segment that will not be opened; twice is harmless."""
    made = Segment.create(PAGE, namer())
    made.close_fd()
    discard(made.name)
    discard(made.name)
    assert listed(namer) == set()


def test_the_sweep_leaves_the_living_alone(namer: Namer) -> None:
    """This process is one of them."""
    made = Segment.create(PAGE, namer())
    made.close_fd()
    names.sweep()
    assert listed(namer) == {made.name}


def test_where_names_cannot_be_listed_they_are_tried_by_number(namer: Namer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS."""
    made = [Segment.create(PAGE, f"{namer.prefix}{number:x}") for number in (0, 9, 300)]
    monkeypatch.setattr(names, "_SHM", names._SHM / "nowhere")
    names.remove_all(namer.prefix)
    assert listed(namer) == set()
    for segment in made:
        segment.close_fd()


def test_a_writer_removes_the_names_of_what_it_does_not_send(namer: Namer) -> None:
    """A batch that spilled and then could not be sent."""
    slot = Segment.create(PAGE)
    writer = SlotWriter(namer)
    writer.begin(area_of(slot.view))
    writer.reserve(1 << 20)
    assert listed(namer) == set(writer.spilled_handles())
    writer.start_over(area_of(slot.view))
    assert listed(namer) == set()
    writer.reserve(1 << 20)
    writer.end()
    assert len(listed(namer)) == 1, "what was sent is the main process's"
    slot.close_fd()


def test_what_a_pool_adopts_serves_one_batch_where_segments_have_names(namer: Namer) -> None:
    """No other worker could open it: it is dropped, not granted again."""
    pool = SlotPool(warm_slots=4)
    pool.new_name = namer
    spilled = Segment.create(1 << 20, namer())
    slot = pool.adopt(names.claim(spilled.name), spilled.nbytes)
    spilled.close_fd()
    number = slot.segment.number
    pool.release(slot)
    assert pool.dropped_segments == [number]
    assert pool.acquire().segment.number != number
    pool.close()
