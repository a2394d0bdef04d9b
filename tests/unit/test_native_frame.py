"""The kernel's frame in the bytes of a signal stack, as far as it can be shown without a crash."""

from __future__ import annotations

import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.diagnosis.native.crash_page import STACK_BYTES, CrashPage, can_have_registers
from holdfast.diagnosis.native.kernel_frame import find_frame

BASE, SIZE = 0x7F0000000000, 64 * 1024
SIGILL, SIGSEGV, SIGUSR1 = 4, 11, 10


def frame_bytes(number: int, code: int, field: int, selector: int = 0x33) -> bytes:
    registers = [0] * 23
    registers[15], registers[16], registers[18], registers[19], registers[20] = 0x1000, 0x2000, selector, 6, 14
    ucontext = struct.pack("<QQQQQ23Q", 0, 0, BASE, 0, SIZE, *registers).ljust(304, b"\0")
    return ucontext + struct.pack("<iiiiQ", number, 0, code, 0, field)


def stack_with(*frames: tuple[int, bytes]) -> bytes:
    memory = bytearray(SIZE)
    for at, frame in frames:
        memory[at : at + len(frame)] = frame
    return bytes(memory)


def test_the_outermost_frame_counts() -> None:
    """A fault within the handler lies further down, and is not what the worker died of in the first place."""
    memory = stack_with((40_000, frame_bytes(SIGSEGV, 1, 0xAAA)), (20_000, frame_bytes(SIGSEGV, 1, 0xBBB)))
    frame = find_frame(memory, BASE, SIZE, SIGSEGV, own_pid=1)
    assert frame is not None
    assert (frame.address, frame.error_code) == (0xAAA, 6)
    assert (frame.stack_pointer, frame.instruction_pointer) == (0x1000, 0x2000)


def test_another_signals_frame_is_passed_over() -> None:
    memory = stack_with((40_000, frame_bytes(SIGUSR1, 0, 77)), (20_000, frame_bytes(SIGSEGV, 1, 0xBBB)))
    frame = find_frame(memory, BASE, SIZE, SIGSEGV, own_pid=1)
    assert frame is not None
    assert frame.address == 0xBBB
    assert find_frame(memory, BASE, SIZE, SIGILL, own_pid=1) is None


def test_the_sender_is_another_process() -> None:
    """And an older page fault, of which the kernel keeps the error code, is not this signal's."""
    memory = stack_with((40_000, frame_bytes(SIGSEGV, 0, 77)))
    frame = find_frame(memory, BASE, SIZE, SIGSEGV, own_pid=1)
    assert frame is not None
    assert (frame.sender_pid, frame.address, frame.error_code) == (77, None, 0)
    own = find_frame(memory, BASE, SIZE, SIGSEGV, own_pid=77)
    assert own is not None
    assert own.sender_pid is None


def test_what_is_no_frame_of_user_code_is_none() -> None:
    memory = stack_with((40_000, frame_bytes(SIGSEGV, 1, 0, selector=0)))
    assert find_frame(memory, BASE, SIZE, SIGSEGV, own_pid=1) is None


@given(
    memory=st.binary(max_size=2000), marks=st.lists(st.integers(0, 2000), max_size=5), base=st.integers(0, 2**64 - 1)
)
def test_any_bytes_are_survived(memory: bytes, marks: list[int], base: int) -> None:
    """The page may hold anything: the worker was free to write to it."""
    data = bytearray(memory)
    for at in marks:
        data[at : at + 24] = struct.pack("<QQQ", base, 0, SIZE)
    find_frame(bytes(data), base, SIZE, SIGSEGV, own_pid=1)


def test_elsewhere_there_is_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """And all that is done with it does nothing, and says so."""
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    page = CrashPage.create()
    assert page.fd == -1
    assert page.read(SIGSEGV) is None
    assert page.missing(SIGSEGV) == "registers: recorded only on x86_64 Linux with glibc"
    page.clear()
    page.close()


@pytest.mark.skipif(not can_have_registers(), reason="of x86_64 Linux with glibc")
def test_a_page_in_ruins_is_read() -> None:
    """A worker may have written anything there, or cut it off."""
    page = CrashPage.create()
    os.pwrite(page.fd, b"\xff" * 64, STACK_BYTES)
    assert page.read(SIGSEGV) is None
    assert "wrote over" in page.missing(SIGSEGV)
    os.ftruncate(page.fd, 100)
    assert page.read(SIGSEGV) is None
    assert page.missing(SIGSEGV) != ""
    page.close()
