"""A segment is one memfd: what it costs, what it gives back, how long it lives."""

from __future__ import annotations

import gc
import os
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.transport.segments import PAGE, Segment, slot_bytes_for

from .readings import descriptors, memory_in_use, segments

KB = 1024


def fill(segment: Segment, byte: bytes = b"x") -> None:
    segment.view[:] = byte * segment.nbytes


@given(st.integers(0, 1 << 42))
def test_a_size_class_holds_what_it_is_asked_for_and_little_more(nbytes: int) -> None:
    """Every class is large enough, at most four times too large, and a class of its own."""
    size = slot_bytes_for(nbytes)
    assert size >= nbytes
    assert size == 256 * KB or size < 4 * nbytes
    assert slot_bytes_for(size) == size


def test_there_are_few_size_classes() -> None:
    """From one byte to a gigabyte: seven classes, so that few descriptors serve batches of any size."""
    sizes = {slot_bytes_for(2**k + 1) for k in range(30)}
    assert len(sizes) == 7
    assert all(size % PAGE == 0 for size in sizes)


def test_a_new_segment_takes_address_space_and_no_memory_in_use() -> None:
    """A gigabyte that nobody touched costs nothing."""
    segment = Segment.create(1 << 30)
    assert len(segment.view) == 1 << 30
    assert os.fstat(segment.fd).st_blocks == 0
    segment.view[5 * PAGE] = 1
    assert os.fstat(segment.fd).st_blocks * 512 == PAGE
    segment.close_fd()


def test_what_is_written_through_one_mapping_is_read_through_another() -> None:
    """A worker maps the same memfd by its descriptor."""
    ours = Segment.create(4 * PAGE)
    theirs = Segment(os.dup(ours.fd), ours.nbytes)
    theirs.view[PAGE : PAGE + 5] = b"hello"
    assert bytes(ours.view[PAGE : PAGE + 5]) == b"hello"
    ours.close_fd()
    theirs.close_fd()


@given(
    start=st.integers(0, 8 * PAGE) | st.integers(0, 8).map(lambda page: page * PAGE),
    nbytes=st.integers(0, 8 * PAGE) | st.integers(0, 8).map(lambda page: page * PAGE),
)
def test_give_back_returns_whole_pages_and_touches_nothing_else(start: int, nbytes: int) -> None:
    """Pages inside the range are gone from memory and read as zeros; every byte outside them is as it was."""
    segment = Segment.create(8 * PAGE)
    fill(segment)
    stop = min(start + nbytes, segment.nbytes)
    segment.give_back(start, stop)
    inside = [page for page in range(8) if start <= page * PAGE and (page + 1) * PAGE <= stop]
    assert os.fstat(segment.fd).st_blocks * 512 == (8 - len(inside)) * PAGE
    for page in range(8):
        expected = b"\0" if page in inside else b"x"
        assert bytes(segment.view[page * PAGE : (page + 1) * PAGE]) == expected * PAGE
    segment.close_fd()


def test_memory_that_was_given_back_can_be_written_again() -> None:
    """A slot that was emptied serves the next batch."""
    segment = Segment.create(4 * PAGE)
    fill(segment)
    segment.give_back(0, 4 * PAGE)
    fill(segment, b"y")
    assert bytes(segment.view) == b"y" * 4 * PAGE
    segment.close_fd()


def test_views_outlive_the_descriptor() -> None:
    """close_fd() closes a descriptor, not the memory; a second call is harmless."""
    segment = Segment.create(PAGE)
    view = segment.view[:5]
    segment.close_fd()
    segment.close_fd()
    view[:] = b"hello"
    assert bytes(segment.view[:5]) == b"hello"


def test_a_view_keeps_a_retired_segment_and_its_owner_alive() -> None:
    """After retire() the last view decides when memory, mapping and owner go."""

    class Owner:
        pass

    owner = Owner()
    gone = weakref.ref(owner)
    segment = Segment.create(4 * PAGE)
    fill(segment)
    view = segment.view[PAGE : 2 * PAGE]
    segment.retire(owner)
    assert segment.fd == -1
    del owner, segment
    gc.collect()
    assert gone() is not None
    assert bytes(view) == b"x" * PAGE
    assert memory_in_use() == 4 * PAGE
    del view
    gc.collect()
    assert gone() is None
    assert segments() == {}


def test_a_retired_segment_gives_out_no_views() -> None:
    """Whoever asks a retired segment for bytes gets none, rather than bytes that nobody watches."""
    segment = Segment.create(PAGE)
    segment.retire(owner=None)
    assert len(segment.view) == 0


def test_a_segment_that_cannot_be_made_leaves_no_descriptor() -> None:
    """An impossible size is an error of the system, and the memfd made for it is closed."""
    before = descriptors()
    for nbytes in (1 << 62, 1 << 55):  # too long for a file, too long for an address space
        with pytest.raises((OSError, OverflowError)):
            Segment.create(nbytes)
    assert descriptors() == before


def test_a_segment_is_not_inherited_by_a_program_that_is_started() -> None:
    """The descriptor closes on exec: a child program of the user's does not keep batches in memory."""
    segment = Segment.create(PAGE)
    assert not os.get_inheritable(segment.fd)
    segment.close_fd()
