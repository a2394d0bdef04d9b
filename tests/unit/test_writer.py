"""Where a worker puts the batch in hand: the slot, and memory of its own when the slot is too small."""

from __future__ import annotations

import itertools
import os
import resource
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.transport.segments import PAGE, Segment, slot_bytes_for
from holdfast.transport.writer import SlotWriter, area_of

from .readings import descriptors

SLOT_BYTES = 16 * 1024
CAN_MAP_AT_ONCE = sys.platform == "linux" and tuple(map(int, os.uname().release.split(".")[:2])) >= (5, 14)


def new_slot() -> memoryview:
    """A slot as a worker has it: mapped, its descriptor closed. It goes with the last view of it."""
    segment = Segment.create(SLOT_BYTES)
    segment.close_fd()
    return segment.view


def begun(slot: memoryview) -> SlotWriter:
    writer = SlotWriter()
    writer.begin(area_of(slot))
    return writer


@given(sizes=st.lists(st.integers(0, SLOT_BYTES // 4) | st.integers(0, 3 * SLOT_BYTES), max_size=20))
def test_space_is_aligned_disjoint_and_inside_its_area(sizes: list[int]) -> None:
    """Whatever is asked for: every range starts on a cache line, ends inside its area, and overlaps no other."""
    writer = begun(new_slot())
    ranges = []
    for nbytes in sizes:
        area, start = writer.reserve(nbytes)
        assert start % 64 == 0
        assert start + nbytes <= writer.areas[area].nbytes
        ranges.append((area, start, start + nbytes))
    for one, other in itertools.pairwise(sorted(ranges)):
        assert one[0] < other[0] or one[2] <= other[1]
    for number, area in enumerate(writer.areas):
        assert area.used == max((stop for at, _, stop in ranges if at == number), default=0)
    assert writer.used_bytes() == [area.used for area in writer.areas]
    writer.end()


def test_what_fits_is_not_spilled() -> None:
    """The last byte of the slot is used before another area is made."""
    slot = new_slot()
    writer = begun(slot)
    assert writer.reserve(SLOT_BYTES) == (0, 0)
    assert len(writer.areas) == 1
    assert writer.spilled_handles() == []
    assert writer.spilled_bytes() == []


def test_what_does_not_fit_goes_into_memory_of_the_workers_own() -> None:
    """A memfd of a size class, at least twice the area before it, whose descriptor travels with the header."""
    slot = new_slot()
    writer = begun(slot)
    writer.reserve(100)
    assert writer.reserve(SLOT_BYTES) == (1, 0)
    assert writer.spilled_bytes() == [slot_bytes_for(2 * SLOT_BYTES)]
    (fd,) = writer.spilled_handles()
    assert os.fstat(fd).st_size == slot_bytes_for(2 * SLOT_BYTES)
    assert writer.used_bytes() == [100, SLOT_BYTES]
    writer.end()


def test_a_batch_of_many_small_parts_needs_few_descriptors() -> None:
    """Areas grow by size class: thousands of parts, 16,000 times the slot together, spill a handful of times."""
    slot = new_slot()
    writer = begun(slot)
    for _ in range(4096):
        writer.reserve(64 * 1024)
    assert len(writer.spilled_handles()) <= 6
    writer.end()


def test_one_very_large_part_spills_once() -> None:
    """The new area is as large as the part, not merely twice as large as the slot."""
    slot = new_slot()
    writer = begun(slot)
    assert writer.reserve(500 * SLOT_BYTES) == (1, 0)
    assert len(writer.spilled_handles()) == 1
    writer.end()


def test_bytes_written_lie_where_the_writer_says() -> None:
    """In the slot and in a spilled area, which another process reads by its descriptor."""
    slot = new_slot()
    writer = begun(slot)
    writer.write(b"before")
    area, start, nbytes = writer.write(b"hello")
    assert (area, nbytes) == (0, 5)
    assert bytes(slot[start : start + 5]) == b"hello"
    large = bytes(range(256)) * 256
    assert writer.write(large) == (1, 0, len(large))
    assert os.pread(writer.spilled_handles()[0], len(large), 0) == large
    writer.end()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.bfloat16, torch.float32, torch.complex128])
def test_a_tensor_is_built_in_the_slot(dtype: torch.dtype) -> None:
    """It has the shape and dtype asked for, and what is written to it is in the slot."""
    slot = new_slot()
    writer = begun(slot)
    writer.reserve(3)
    tensor = writer.tensor(dtype, (2, 5), 10 * dtype.itemsize)
    assert (tensor.dtype, tensor.shape) == (dtype, (2, 5))
    tensor.fill_(1)
    expected = torch.ones(10, dtype=dtype).view(torch.uint8).numpy().tobytes()
    assert bytes(slot[64 : 64 + len(expected)]) == expected
    assert tensor.data_ptr() % 64 == 0


def test_a_tensor_that_does_not_fit_is_built_in_a_spilled_area() -> None:
    """Also a collated batch that outgrows the slot needs no second copy."""
    slot = new_slot()
    writer = begun(slot)
    tensor = writer.tensor(torch.uint8, (2 * SLOT_BYTES,), 2 * SLOT_BYTES)
    assert writer.locate(tensor.data_ptr()) == (1, 0)
    writer.end()


def test_memory_in_the_areas_is_located_and_other_memory_is_not() -> None:
    """By address: the used part of each area, and nothing beyond it."""
    slot = new_slot()
    writer = begun(slot)
    base = area_of(slot).address
    assert writer.locate(base) is None
    writer.reserve(100)
    assert writer.locate(base) == (0, 0)
    assert writer.locate(base + 99) == (0, 99)
    assert writer.locate(base + 100) is None
    assert writer.locate(base - 1) is None
    assert writer.locate(torch.zeros(1).data_ptr()) is None
    writer.reserve(SLOT_BYTES)
    spilled = writer.areas[1].address
    assert writer.locate(spilled + 7) == (1, 7)
    writer.end()
    assert writer.locate(base) is None


def test_a_tensor_that_nobody_holds_is_not_kept() -> None:
    """The usual case: the batch was sent and let go, and the slot is the main process's to use again."""
    slot = new_slot()
    writer = begun(slot)
    tensor = writer.tensor(torch.float32, (4,), 16)
    assert writer.is_kept()
    del tensor
    other = begun(slot)
    tensor = other.tensor(torch.float32, (4,), 16)
    del tensor
    assert not other.is_kept()
    other.begin(area_of(slot))
    other.begin_collate()
    assert other.accepts_tensors


@pytest.mark.parametrize("part", ["whole", "slice", "numpy", "storage"])
def test_any_part_of_a_tensor_that_user_code_holds_keeps_the_slot(part: str) -> None:
    """A cache in a collate function may hold a view, an array or a storage: then nothing more is built in place."""
    slot = new_slot()
    writer = begun(slot)
    tensor = writer.tensor(torch.float32, (4,), 16)
    match part:
        case "whole":
            kept: object = tensor
        case "slice":
            kept = tensor[1:2]
        case "numpy":
            kept = tensor.numpy()
        case "storage":
            kept = tensor.untyped_storage()
    del tensor
    assert writer.is_kept()
    writer.begin(area_of(slot))
    assert not writer.accepts_tensors
    assert kept is not None


def test_the_slot_is_used_from_its_start_by_every_unit() -> None:
    """begin() forgets what the unit before had reserved."""
    slot = new_slot()
    area = area_of(slot)
    writer = SlotWriter()
    for _ in range(3):
        writer.begin(area)
        assert writer.reserve(SLOT_BYTES // 2) == (0, 0)
        assert writer.used_bytes() == [SLOT_BYTES // 2]


def test_tensors_are_accepted_only_while_collate_runs() -> None:
    """Outside the loader's own call of collate_fn nothing is built in a slot."""
    writer = SlotWriter()
    assert not writer.accepts_tensors
    writer.begin(area_of(new_slot()))
    writer.begin_fetch()
    assert not writer.accepts_tensors
    writer.begin_collate()
    assert writer.accepts_tensors
    writer.end()
    assert not writer.accepts_tensors


def test_starting_over_forgets_what_was_written_but_not_who_holds_it() -> None:
    """collate_fn kept its batch and then raised: the error is written from the start, and the slot counts as kept."""
    slot = new_slot()
    writer = begun(slot)
    kept = writer.tensor(torch.float32, (4,), 16)
    writer.reserve(2 * SLOT_BYTES)
    writer.start_over(area_of(slot))
    assert not writer.accepts_tensors
    assert (writer.used_bytes(), writer.spilled_handles()) == ([0], [])
    assert writer.is_kept()
    assert kept is not None


@pytest.mark.parametrize("how", ["end", "begin"])
def test_descriptors_of_what_was_spilled_are_closed(how: str) -> None:
    """Sent or dropped, once and twice: the worker keeps none of them."""
    slot = new_slot()
    before = descriptors()
    writer = begun(slot)
    writer.reserve(2 * SLOT_BYTES)
    assert descriptors() > before
    if how == "begin":
        writer.begin(area_of(slot))
    else:
        writer.end()
        writer.end()
    assert descriptors() == before


@pytest.mark.skipif(not CAN_MAP_AT_ONCE, reason="here pages are mapped one by one")
def test_large_space_is_mapped_at_once_and_small_space_as_it_is_written() -> None:
    """A worker meets every slot for the first time once: a fault for each page would take longer than the copy."""
    segment = Segment.create(64 << 20)
    try:
        writer = begun(segment.view)

        def there() -> int:
            return os.fstat(segment.fd).st_blocks * 512

        writer.reserve(64 << 10)
        assert there() == 0
        writer.reserve(8 << 20)
        assert (8 << 20) <= there() < (9 << 20)
        source = b"x" * (8 << 20)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        segment.view[: 8 << 20] = source
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        assert faults < (8 << 20) // PAGE // 4
        writer.end()
    finally:
        segment.close_fd()
