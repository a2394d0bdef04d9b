"""Resolving goes as far as it can, says what it could not, and never raises."""

from __future__ import annotations

import builtins
import errno
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.diagnosis.evidence import Ending, Evidence, Frame, Mapping
from holdfast.diagnosis.native import hang
from holdfast.diagnosis.native.hang import NativeStackRequest
from holdfast.diagnosis.native.resolve import resolve
from waits import PATIENCE_S, wait_until

MAPPING = Mapping(0x10000, 0x20000, "r-xp", 0x1000, "/no/such/library.so")


def evidence(pointer: int = 0x10010, sender: int | None = None, *mappings: Any) -> Evidence:
    frame = Frame(11, 1 if sender is None else 0, sender, 8, pointer, 0x7000, 4)
    return Evidence(Ending.EXITED, exit_code=-11, frame=frame, mappings=mappings, missing=("memory: no cgroup",))


def test_without_a_frame_nothing_is_done() -> None:
    bare = Evidence(Ending.EXITED, exit_code=-9)
    assert resolve(bare) is bare


def test_a_signal_that_was_sent_is_not_resolved() -> None:
    sent = evidence(0x10010, 77, MAPPING)
    assert resolve(sent) is sent


def test_without_mappings_it_says_so() -> None:
    resolved = resolve(evidence())
    assert resolved.place is None
    assert resolved.missing == (
        "memory: no cgroup",
        "place: it is not known which libraries the worker had loaded where",
    )


def test_an_address_in_no_mapping_is_in_no_library() -> None:
    place = resolve(evidence(0x99, None, MAPPING)).place
    assert place is not None
    assert (place.library, place.offset) == ("", 0x99)


def test_code_without_a_file_is_in_no_library() -> None:
    """Made at run time, by numba for one."""
    place = resolve(evidence(0x10010, None, Mapping(0x10000, 0x20000, "rwxp", 0, ""))).place
    assert place is not None
    assert (place.library, place.offset) == ("", 0x10010)


def test_a_library_that_cannot_be_read_is_named() -> None:
    resolved = resolve(evidence(0x10010, None, MAPPING))
    assert resolved.place is not None
    assert (resolved.place.library, resolved.place.offset) == (MAPPING.path, 0x1010)
    assert any("FileNotFoundError" in note for note in resolved.missing)


def test_a_replaced_library_is_not_read() -> None:
    """Another file lies there now: its symbols would be wrong."""
    gone = Mapping(0x10000, 0x20000, "r-xp", 0x1000, f"{sys.executable} (deleted)")
    resolved = resolve(evidence(0x10010, None, gone))
    assert resolved.place is not None
    assert (resolved.place.library, resolved.place.symbol) == (sys.executable, "")
    assert any("was replaced" in note for note in resolved.missing)


@pytest.mark.skipif(sys.platform != "linux", reason="of ELF files")
def test_a_step_that_fails_is_named_and_the_others_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The place is known all the same."""
    real = builtins.__import__

    def absent(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] in ("elftools", "iced_x86"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    path = str(Path(sys.executable).resolve())
    mapping = Mapping(0x10000, 0x90000, "r-xp", 0, path)
    monkeypatch.setattr(builtins, "__import__", absent)
    resolved = resolve(evidence(0x10020, None, mapping))
    assert resolved.place is not None
    assert resolved.place.library == path
    assert resolved.missing[1:] == (
        "symbols: ImportError: elftools.elf.elffile",
        "instruction: ImportError: iced_x86",
    )


numbers = st.integers(-(2**70), 2**70) | st.none() | st.text()
paths = st.text() | st.sampled_from(["/", "/proc/self/mem", "/dev/null", "/etc/passwd", "[vdso]", sys.executable])


@given(
    frame=st.builds(Frame, numbers, numbers, st.none(), numbers, numbers, numbers, numbers),
    mappings=st.lists(st.builds(Mapping, numbers, numbers, st.text(), numbers, paths) | st.none(), max_size=3),
)
def test_whatever_comes_nothing_is_raised(frame: Any, mappings: list[Any]) -> None:
    found = resolve(Evidence(Ending.EXITED, frame=frame, mappings=tuple(mappings)))
    assert found.place is not None or found.missing


@given(pointer=st.integers(0, 2**20), offset=st.integers(0, 2**40), path=paths)
def test_wherever_it_points_nothing_is_raised(pointer: int, offset: int, path: str) -> None:
    place = resolve(evidence(pointer, None, Mapping(0, 2**20 + 1, "r-xp", offset, path))).place
    assert place is not None


def native_stack(pid: int) -> tuple[str, str]:
    """Asked for, and waited for."""
    answers: list[tuple[str, str] | None] = []

    def is_answered() -> bool:
        answers.append(request.answer())
        return answers[-1] is not None

    request = NativeStackRequest(pid)
    try:
        wait_until(is_answered, PATIENCE_S, "an answer of py-spy")
    finally:
        request.close()
    assert answers[-1] is not None
    return answers[-1]


def test_a_native_stack_or_the_reason_why_not() -> None:
    """Of this process itself; where py-spy is not there or not allowed, that is said."""
    text, why_not = native_stack(os.getpid())
    assert bool(text) != bool(why_not)
    assert "py-spy" in why_not or "test_a_native_stack" in text


def test_the_stack_of_a_process_that_is_gone() -> None:
    text, why_not = native_stack(2**22 + 1)
    assert text == ""
    assert why_not.startswith("native stack: ")


def test_without_py_spy_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert native_stack(os.getpid()) == ("", "native stack: py-spy is not installed: pip install py-spy")


def tool_that(folder: Path, does: str) -> str:
    """In the place of py-spy."""
    script = folder / "py-spy"
    script.write_text(f"#!/bin/sh\n{does}\n")
    script.chmod(0o755)
    return str(script)


def test_what_py_spy_says_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Stacks from its stdout, and in case of failure the first line of its stderr."""
    monkeypatch.setattr(hang, "_find_tool", lambda: tool_that(tmp_path, "echo Thread 1; echo a warning >&2"))
    assert native_stack(os.getpid()) == ("Thread 1\n", "")
    monkeypatch.setattr(hang, "_find_tool", lambda: tool_that(tmp_path, "echo Error: no such process >&2; exit 1"))
    assert native_stack(os.getpid()) == ("", "native stack: py-spy says: no such process")


def test_a_py_spy_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And ended. Nobody waits for it meanwhile: that it is at work is known at once."""
    monkeypatch.setattr(hang, "LIMIT_S", 0.1)
    monkeypatch.setattr(hang, "_find_tool", lambda: tool_that(tmp_path, "exec sleep 600"))
    assert native_stack(os.getpid()) == ("", "native stack: py-spy did not answer within 0.1 s")
    monkeypatch.setattr(hang, "LIMIT_S", 600.0)
    request = NativeStackRequest(os.getpid())
    assert request.answer() is None
    request.close()
    request.close()
    assert request._process is not None
    assert request._process.returncode == -signal.SIGKILL


def test_without_descriptors_left_that_is_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hang, "_find_tool", lambda: tool_that(tmp_path, "echo Thread 1"))
    monkeypatch.setattr(os, "memfd_create", raise_too_many)
    assert native_stack(os.getpid())[1] == "native stack: py-spy cannot be run: [Errno 24] Too many open files"


def raise_too_many(*_: object) -> int:
    raise OSError(errno.EMFILE, "Too many open files")
