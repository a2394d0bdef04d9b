"""Real crashes of real processes, and what their parent knows of them afterwards: registers, place, Python stack."""

from __future__ import annotations

import mmap
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import crashing
from children import Crash, Pages
from holdfast.diagnosis.causes import stack_overflow
from holdfast.diagnosis.evidence import Confidence, Frame
from holdfast.diagnosis.native.crash_page import can_have_registers
from native_libraries import DIVISION, RECOVERY, RECURSION, compile_library

PRESENT, WRITE, FETCH = 1, 2, 16
SEGV_MAPERR, SEGV_ACCERR, SI_KERNEL, BUS_ADRERR, FPE_INTDIV = 1, 2, 0x80, 2, 1


def frame_of(crash: Crash, number: signal.Signals) -> Frame:
    assert crash.exit_signal == number
    assert crash.frame is not None, crash.missing
    assert crash.frame.signal == number
    return crash.frame


def test_a_read_of_unmapped_memory(pages: Pages) -> None:
    """The address is the one that was read, and nothing was written."""
    died = pages.run(crashing.read_wild)
    frame = frame_of(died, signal.SIGSEGV)
    assert (frame.code, frame.address, frame.sender_pid) == (SEGV_MAPERR, crashing.WILD_ADDRESS, None)
    assert frame.error_code & (PRESENT | WRITE | FETCH) == 0
    assert "read_wild" in died.evidence.python_stack


def test_a_write_to_unmapped_memory(pages: Pages) -> None:
    frame = frame_of(pages.run(crashing.write_wild), signal.SIGSEGV)
    assert (frame.code, frame.address) == (SEGV_MAPERR, crashing.WILD_ADDRESS)
    assert frame.error_code & (PRESENT | WRITE | FETCH) == WRITE


def test_a_write_to_read_only_memory(pages: Pages) -> None:
    frame = frame_of(pages.run(crashing.write_read_only), signal.SIGSEGV)
    assert frame.code == SEGV_ACCERR
    assert frame.error_code & (PRESENT | WRITE | FETCH) == PRESENT | WRITE


def test_data_that_is_executed(pages: Pages) -> None:
    """The address that faulted is the instruction pointer itself."""
    frame = frame_of(pages.run(crashing.execute_data), signal.SIGSEGV)
    assert frame.error_code & FETCH
    assert frame.address == frame.instruction_pointer


def test_an_address_that_cannot_be(pages: Pages) -> None:
    """The kernel does not tell the address of such an access; it is not said to be 0."""
    frame = frame_of(pages.run(crashing.read_no_address), signal.SIGSEGV)
    assert (frame.code, frame.address, frame.error_code) == (SI_KERNEL, None, 0)


def test_abort(pages: Pages) -> None:
    """A signal that the worker sent itself has no sender."""
    frame = frame_of(pages.run(crashing.abort), signal.SIGABRT)
    assert frame.code <= 0
    assert (frame.sender_pid, frame.address, frame.error_code) == (None, None, 0)


def test_a_signal_to_itself_has_no_sender(pages: Pages) -> None:
    frame = frame_of(pages.run(crashing.segfault_itself), signal.SIGSEGV)
    assert frame.code <= 0
    assert frame.sender_pid is None


def test_an_outside_kill_names_its_sender(pages: Pages) -> None:
    """SIGSEGV that another process sent is told from one that the worker caused."""
    ready, theirs = os.pipe()

    def kill(pid: int) -> None:
        assert os.read(ready, 16) == crashing.READY_TEXT
        os.kill(pid, signal.SIGSEGV)

    try:
        died = pages.run(crashing.wait_for_a_signal, str(theirs), while_running=kill, pass_fds=(theirs,))
    finally:
        os.close(ready)
        os.close(theirs)
    frame = frame_of(died, signal.SIGSEGV)
    assert (frame.code, frame.sender_pid, frame.address) == (0, os.getpid(), None)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 and later stop this recursion themselves")
def test_a_stack_overflow_in_python(pages: Pages) -> None:
    """There is no room for a handler on the stack itself; the address is just below the stack pointer."""
    died = pages.run(crashing.overflow_in_repr)
    assert_overflow(frame_of(died, signal.SIGSEGV))
    assert "__repr__" in died.evidence.python_stack


def test_a_stack_overflow_in_c(pages: Pages, tmp_path: Path) -> None:
    library = compile_library(tmp_path, RECURSION, "-fno-optimize-sibling-calls")
    assert_overflow(frame_of(pages.run(crashing.call_library, str(library), "start_descending"), signal.SIGSEGV))


@pytest.mark.skipif(not can_have_registers(), reason="registers are recorded on x86_64 Linux with glibc only")
def test_a_stack_overflow_in_a_worker_that_was_forked_in_a_thread(tmp_path: Path) -> None:
    """Its stack is that thread's, which ends in a guard page and not where `ulimit -s` says."""
    library = compile_library(tmp_path, RECURSION, "-fno-optimize-sibling-calls")
    pages = Pages("fork")
    try:
        with ThreadPoolExecutor(1) as thread:
            died = thread.submit(pages.run, crashing.call_library, str(library), "start_descending").result()
    finally:
        pages.close()
    assert_overflow(frame_of(died, signal.SIGSEGV))
    found = stack_overflow.diagnose(died.evidence)
    assert found is not None
    assert found.confidence is Confidence.CERTAIN


def assert_overflow(frame: Frame) -> None:
    assert frame.address is not None
    assert abs(frame.address - frame.stack_pointer) <= 64 * 1024


def test_a_division_by_zero(pages: Pages, tmp_path: Path) -> None:
    library = compile_library(tmp_path, DIVISION)
    frame = frame_of(pages.run(crashing.call_library, str(library), "divide", "1", "0"), signal.SIGFPE)
    assert (frame.code, frame.address) == (FPE_INTDIV, frame.instruction_pointer)


def test_a_read_of_a_truncated_file(pages: Pages, tmp_path: Path) -> None:
    """The address is in the page that the file has no more."""
    frame = frame_of(pages.run(crashing.read_truncated, str(tmp_path / "data")), signal.SIGBUS)
    assert frame.code == BUS_ADRERR
    assert frame.address is not None
    assert frame.address % mmap.PAGESIZE == 0


def test_handlers_that_were_set_before_do_not_matter(pages: Pages) -> None:
    """Nor that faulthandler had been enabled before them, and would do nothing when it is enabled again."""
    frame_of(pages.run(crashing.read_wild_after_other_handlers), signal.SIGSEGV)


RECOVERED = 7


@pytest.mark.parametrize("probe", [crashing.recover_from_a_fault, crashing.recover_in_a_forked_child])
def test_a_runtime_that_lives_on_its_faults_can(pages: Pages, tmp_path: Path, probe: Callable[[str], None]) -> None:
    """A handler that the user's code set in the worker stays: without it the worker would crash, and torch's not."""
    assert pages.run(probe, str(compile_library(tmp_path, RECOVERY))).exit_signal == -RECOVERED


def test_what_a_runtime_leaves_alone_is_recorded(pages: Pages, tmp_path: Path) -> None:
    frame_of(pages.run(crashing.abort_beside_a_runtime, str(compile_library(tmp_path, RECOVERY))), signal.SIGABRT)


def test_what_was_set_to_the_default_is_recorded(pages: Pages) -> None:
    """A worker_init_fn that tidies up takes no evidence away."""
    frame_of(pages.run(crashing.read_wild_after_the_default_was_set), signal.SIGSEGV)
    frame_of(pages.run(crashing.read_wild_after_stacks_were_turned_off), signal.SIGSEGV)
    frame_of(pages.run(crashing.terminate_after_the_default_was_set), signal.SIGTERM)


def test_a_forked_child_has_nothing_of_the_worker(pages: Pages) -> None:
    """Neither its signal stack, on which two processes would write, nor its stacks; and the page is mapped once."""
    assert pages.run(crashing.look_at_what_a_forked_child_has).exit_signal == -1


def test_a_crash_in_another_thread_has_stacks_only(pages: Pages) -> None:
    """An alternate stack belongs to one thread. What is missing is said."""
    died = pages.run(crashing.crash_in_thread)
    assert (died.exit_signal, died.frame) == (signal.SIGSEGV, None)
    assert "not of the main thread" in died.missing
    assert "read_wild" in died.evidence.python_stack


def test_the_crash_of_a_forked_child_is_not_the_workers(pages: Pages) -> None:
    """Neither its registers nor its stack: the worker's own death, in a thread, leaves no frame, and none is found."""
    died = pages.run(crashing.crash_in_thread_after_a_child_crashed)
    assert (died.exit_signal, died.frame) == (signal.SIGSEGV, None)
    assert died.evidence.python_stack.count("Fatal Python error") == 1


def test_a_page_is_used_again_after_it_was_cleared(pages: Pages) -> None:
    """What the last life left is not taken for the next one's."""
    assert pages.run(crashing.read_wild).frame is not None
    pages.clear()
    assert pages.crash.read(signal.SIGSEGV) is None
    assert pages.libraries.read() is None
    assert "before it was ready" in pages.crash.missing(signal.SIGSEGV)
    frame_of(pages.run(crashing.abort), signal.SIGABRT)


def test_a_frame_counts_only_for_the_signal_of_the_death(pages: Pages) -> None:
    """A worker that was killed after all, while its stacks were being written, did not die of what lies on the page."""
    pages.run(crashing.read_wild)
    assert pages.crash.read(signal.SIGSEGV) is not None
    assert pages.crash.read(signal.SIGABRT) is None
    assert pages.crash.read(signal.SIGKILL) is None
    assert pages.crash.missing(signal.SIGKILL) == ""


def test_without_registers_there_are_stacks(pages: Pages) -> None:
    """As on a platform whose layouts we do not know."""
    pages.crash.close()
    died = pages.run(crashing.read_wild)
    assert (died.exit_signal, died.frame) == (signal.SIGSEGV, None)
    assert died.missing == "registers: recorded only on x86_64 Linux with glibc"
    assert "read_wild" in died.evidence.python_stack
