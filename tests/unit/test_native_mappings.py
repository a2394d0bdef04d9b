"""What is kept of /proc/PID/maps, how it is handed over, and when."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.diagnosis.evidence import Mapping
from holdfast.diagnosis.native import mappings
from holdfast.diagnosis.native.mappings import MOST_MAPPINGS, LibraryPage, mapping_at, of_self, parse

TEXT = """\
55d0c0000000-55d0c0001000 r--p 00000000 fe:00 123                        /usr/bin/python3.11
55d0c0001000-55d0c0002000 r-xp 00001000 fe:00 123                        /usr/bin/python3.11
55d0c1000000-55d0c1200000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000001000 rw-s 00000000 00:01 99                         /memfd:cache (deleted)
7f0000001000-7f0000002000 r--s 00000000 fe:00 44                         /data/my images.bin
7f0000002000-7f0000003000 rw-p 00000000 00:00 0
7f0000003000-7f0000004000 rwxp 00000000 00:00 0
7f0000004000-7f0000005000 rw-p 00000000 00:18 5                          /dev/shm/torch_1
7fff00000000-7fff00021000 rw-p 00000000 00:00 0                          [stack]
7fff00022000-7fff00024000 r-xp 00000000 00:00 0                          [vdso]
"""


@pytest.fixture
def page() -> Iterator[LibraryPage]:
    page = LibraryPage.create()
    yield page
    page.close()


def test_what_matters_is_kept_with_code_first() -> None:
    """Code, also without a file; stack and heap; shared memory and shared data files. No plain data, private or not."""
    found = parse(TEXT)
    assert [mapping.path for mapping in found] == [
        "/usr/bin/python3.11",
        "",
        "[vdso]",
        "[heap]",
        "[stack]",
        "/memfd:cache (deleted)",
        "/data/my images.bin",
        "/dev/shm/torch_1",
    ]
    assert found[0] == Mapping(0x55D0C0001000, 0x55D0C0002000, "r-xp", 0x1000, "/usr/bin/python3.11")


def test_a_guard_page_is_kept_and_a_gap_in_a_library_is_not() -> None:
    """An overflow of a thread's stack ends there. It comes last: there may be many."""
    guard = "7f0000005000-7f0000006000 ---p 00000000 00:00 0\n"
    gap = "7f0000006000-7f0000007000 ---p 00002000 fe:00 123                        /usr/lib/libm.so.6\n"
    found = parse(guard + gap + TEXT)
    assert found == (*parse(TEXT), Mapping(0x7F0000005000, 0x7F0000006000, "---p", 0, ""))


@pytest.mark.parametrize("path", ["/dev/shm/holdfast-19152-6afa762b-0-2c (deleted)", "/memfd:holdfast (deleted)"])
def test_our_own_segments_are_not_kept(path: str) -> None:
    """They come and go: a file of the user's may lie there when a worker dies of a bus error in it."""
    ours = f"7f0000005000-7f0000006000 rw-s 00000000 00:18 5                          {path}\n"
    assert parse(ours + TEXT) == parse(TEXT)


def test_an_address_is_looked_up() -> None:
    found = parse(TEXT)
    at = mapping_at(found, 0x7F0000000FFF)
    assert at is not None
    assert at.path == "/memfd:cache (deleted)"
    assert mapping_at(found, 0x7F0000002000) is None


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_this_process_has_code_and_a_stack() -> None:
    paths = {mapping.path for mapping in of_self()}
    assert "[stack]" in paths
    assert any("python" in path for path in paths)


@given(st.text(alphabet="0123456789abcdef-rwxsp /.[]\n:", max_size=300))
def test_any_text_is_survived(text: str) -> None:
    parse(text)
    parse(TEXT + text)


def test_a_new_page_says_nothing(page: LibraryPage) -> None:
    assert page.read() is None
    assert page.read_or_own(forked=False) == ()
    assert page.read_or_own(forked=True) == of_self()


def test_the_last_text_is_read(page: LibraryPage) -> None:
    page.write(TEXT)
    page.write(TEXT.replace("python3.11", "python3.12"))
    page.write(TEXT)
    assert page.read() == parse(TEXT)
    assert LibraryPage(page.fd).read() == parse(TEXT)  # as another process has it


@pytest.mark.parametrize("writes_before", [1, 2, 3])
def test_a_torn_write_leaves_the_text_before(
    page: LibraryPage, monkeypatch: pytest.MonkeyPatch, writes_before: int
) -> None:
    """The worker may be killed between any two steps, and within the first."""
    for _ in range(writes_before):
        page.write(TEXT)
    written: list[bytes] = []
    real = os.pwrite

    def killed_at_the_header(fd: int, data: bytes, offset: int) -> int:
        if written:
            raise KeyboardInterrupt
        written.append(data)
        return real(fd, data[: len(data) // 2], offset)

    with monkeypatch.context() as patch:
        patch.setattr(mappings.os, "pwrite", killed_at_the_header)
        with pytest.raises(KeyboardInterrupt):
            page.write("0-1 r-xp 0 0:0 0 /other\n" * 100)
    assert page.read() == parse(TEXT)


def test_a_large_text_is_cut_at_a_line(page: LibraryPage) -> None:
    """What is cut off is what tells least."""
    shared = "".join(f"{k:x}000-{k:x}fff rw-s 00000000 00:01 99 /memfd:{'x' * 200}\n" for k in range(3 * MOST_MAPPINGS))
    page.write(shared + TEXT)
    found = page.read()
    assert found is not None
    assert 1000 < len(found) <= MOST_MAPPINGS
    assert found[0].path == "/usr/bin/python3.11"
    assert all(mapping.path.endswith("x" * 200) for mapping in found[-10:])
    assert len(parse(shared)) == MOST_MAPPINGS


def test_a_path_that_is_no_text_travels(page: LibraryPage) -> None:
    path = os.fsdecode(b"/data/\xff\xfe.so")
    page.write(f"1000-2000 r-xp 00000000 00:01 99 {path}\n")
    found = page.read()
    assert found is not None
    assert found[0].path == path


def test_without_a_descriptor_nothing_is_written() -> None:
    page = LibraryPage(-1)
    page.write(TEXT)
    page.clear()
    assert page.read() is None
    page.close()
