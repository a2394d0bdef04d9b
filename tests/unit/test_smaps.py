"""What only one process has of its memory, by mapping: from recorded text, and of a real process."""

from __future__ import annotations

import mmap
import os
import sys

import pytest

from holdfast.memory import readings, smaps
from holdfast.memory.smaps import Mapped

RECORDED = """\
5600f0a00000-5600f0b00000 rw-p 00000000 00:00 0                          [heap]
Size:               1024 kB
Rss:                 900 kB
Shared_Clean:          0 kB
Private_Clean:         4 kB
Private_Dirty:       800 kB
VmFlags: rd wr mr mw me ac sd
7f0000000000-7f0000100000 rw-s 00000000 00:01 12                         /dev/zero (deleted)
Private_Clean:         0 kB
Private_Dirty:      1024 kB
7f0000200000-7f0000300000 rw-s 00000000 00:01 13                         /memfd:holdfast (deleted)
Private_Clean:         0 kB
Private_Dirty:      1024 kB
7f0000400000-7f0000500000 r--s 00000000 fe:00 14                         /data/my samples.bin
Private_Clean:       512 kB
Private_Dirty:         0 kB
7f0000600000-7f0000700000 rw-p 00000000 00:00 0
Private_Clean:         0 kB
Private_Dirty:       100 kB
"""


def test_every_mapping_is_read_with_what_is_its_own() -> None:
    assert smaps.parse(RECORDED) == [
        Mapped("[heap]", False, 804 << 10),
        Mapped("/dev/zero (deleted)", True, 1 << 20),
        Mapped("/memfd:holdfast (deleted)", True, 1 << 20),
        Mapped("/data/my samples.bin", True, 512 << 10),
        Mapped("", False, 100 << 10),
    ]


def test_slots_and_files_are_not_shared_memory_of_its_own() -> None:
    assert [each.name for each in smaps.parse(RECORDED) if each.is_shared_memory] == ["/dev/zero (deleted)"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")
def test_memory_of_no_file_is_counted_and_shared_memory_is_not() -> None:
    nbytes = 16 << 20
    before = smaps.private_anonymous_bytes("self")
    with mmap.mmap(-1, nbytes) as shared, mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE) as private:
        for start in range(0, nbytes, mmap.PAGESIZE):
            shared[start] = private[start] = 1
        assert nbytes <= smaps.private_anonymous_bytes(os.getpid()) - before < 1.5 * nbytes


def test_what_is_no_such_text_is_empty() -> None:
    assert smaps.parse("") == smaps.parse("nonsense\n\n") == []
    assert smaps.mapped(-1) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")
def test_shared_memory_of_this_process_is_counted_once_it_is_touched() -> None:
    nbytes = 16 << 20
    before, shared_before = smaps.own_shared_memory_bytes("self"), readings.shared_memory_bytes("self")
    with mmap.mmap(-1, nbytes) as memory:
        for start in range(0, nbytes, mmap.PAGESIZE):
            memory[start] = 1
        assert smaps.own_shared_memory_bytes(os.getpid()) - before >= nbytes
        assert (readings.shared_memory_bytes("self") or 0) - (shared_before or 0) >= nbytes
    assert smaps.own_shared_memory_bytes("self") <= before
