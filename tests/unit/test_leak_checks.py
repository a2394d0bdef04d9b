"""The leak checks themselves: everything that can be left behind is found, and named; what goes away is not."""

from __future__ import annotations

import multiprocessing
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

import holdfast.testing
from holdfast.testing import Leaks, Snapshot, assert_no_leaks, leaks_since, snapshot

PATIENCE_S = 30
SHORT_S = 0.2


@contextmanager
def _process() -> Iterator[str]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield f"process: pid {process.pid} "
        process.kill()


@contextmanager
def _zombie() -> Iterator[str]:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    yield f"process: pid {pid} "
    os.waitpid(pid, 0)


@contextmanager
def _grandchild() -> Iterator[str]:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        yield f"parent {process.pid}): "
        process.communicate(b"\n", PATIENCE_S)


@contextmanager
def _orphan() -> Iterator[str]:
    """A grandchild whose parent has died: no longer a descendant."""
    reading, writing = os.pipe()
    hold_reading, hold_writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        if os.fork() == 0:
            os.close(hold_writing)
            os.write(writing, str(os.getpid()).encode())
            os.read(hold_reading, 1)
        os._exit(0)
    os.waitpid(parent, 0)
    pid = int(os.read(reading, 20))
    os.close(hold_reading)
    yield f"process: pid {pid} "
    pidfd = os.pidfd_open(pid)
    os.close(hold_writing)  # it reads the end of the pipe, and ends
    assert _wait_readable(pidfd)
    for descriptor in (reading, writing, pidfd):
        os.close(descriptor)


def _wait_readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], PATIENCE_S)[0])


@contextmanager
def _descriptor() -> Iterator[str]:
    with Path(__file__).open() as file:
        yield f"descriptor: {file.fileno()} -> {__file__}"


@contextmanager
def _pipe() -> Iterator[str]:
    reading, writing = os.pipe()
    yield f"descriptor: {reading} -> pipe:["
    os.close(reading)
    os.close(writing)


@contextmanager
def _name() -> Iterator[str]:
    path = Path(f"/dev/shm/holdfast_test_{os.getpid()}")
    path.touch()
    yield f"name in /dev/shm: {path.name}"
    path.unlink()


@contextmanager
def _thread() -> Iterator[str]:
    stop = threading.Event()
    thread = threading.Thread(target=_wait_here, args=(stop,), name="left behind")
    thread.start()
    yield "_wait_here"
    stop.set()
    thread.join(PATIENCE_S)


def _wait_here(stop: threading.Event) -> None:
    stop.wait(PATIENCE_S)


KINDS: dict[str, Callable[[], object]] = {
    "process": _process,
    "zombie": _zombie,
    "grandchild": _grandchild,
    "orphan": _orphan,
    "descriptor": _descriptor,
    "pipe": _pipe,
    "name": _name,
    "thread": _thread,
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_left_is_found_and_named(kind: str) -> None:
    """While it is there; and no longer once it has gone."""
    before = snapshot()
    with KINDS[kind]() as expected:  # type: ignore[attr-defined]
        leaks = leaks_since(before, SHORT_S)
        assert leaks
        assert expected in str(leaks)
    assert not leaks_since(before, PATIENCE_S)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_there_before_is_no_leak(kind: str) -> None:
    with KINDS[kind]():  # type: ignore[attr-defined]
        assert not leaks_since(snapshot(), SHORT_S)


@pytest.mark.skipif(sys.platform != "linux", reason="there psutil takes the start of the machine from elsewhere")
def test_a_process_that_was_there_before_the_clock_was_set_is_no_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a virtual machine that was suspended: by the time of day all processes have started at another one."""
    with _process():
        before, booted_s = snapshot(), psutil.boot_time()
        monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: booted_s + 5)
        assert not leaks_since(before, SHORT_S)


@pytest.mark.parametrize("kind", KINDS)
def test_the_context_manager_raises_with_the_description(kind: str) -> None:
    left = KINDS[kind]()
    with pytest.raises(AssertionError) as caught, assert_no_leaks(SHORT_S):
        expected = left.__enter__()  # type: ignore[attr-defined]
    assert expected in str(caught.value)
    left.__exit__(None, None, None)  # type: ignore[attr-defined]


def test_what_goes_away_in_time_is_no_leak() -> None:
    """The check looks again until the deadline, and returns as soon as nothing is left."""
    before = snapshot()
    stop = threading.Event()
    thread = threading.Thread(target=_wait_here, args=(stop,))
    thread.start()
    threading.Timer(SHORT_S, stop.set).start()
    assert not leaks_since(before, PATIENCE_S)


def test_nothing_left_says_so() -> None:
    leaks = leaks_since(snapshot(), 0)
    assert (bool(leaks), str(leaks), leaks) == (False, "nothing is left", Leaks())


def test_a_descriptor_that_replaces_another_is_found() -> None:
    """The number alone does not count: closing one must not hide another."""
    first = os.open(__file__, os.O_RDONLY)
    before = snapshot()
    os.close(first)
    second = os.open(sys.executable, os.O_RDONLY)
    assert second == first
    assert len(leaks_since(before, 0).descriptors) == 1
    os.close(second)


def test_a_descriptor_whose_file_loses_its_name_is_the_same(tmp_path: Path) -> None:
    """Another process may have removed it."""
    with (tmp_path / "scratch").open("w"):
        before = snapshot()
        (tmp_path / "scratch").unlink()
        assert not leaks_since(before, SHORT_S)


def test_an_exception_of_the_body_passes_through() -> None:
    with pytest.raises(KeyError), assert_no_leaks(SHORT_S):
        raise KeyError


def test_a_name_that_another_process_holds_is_not_ours() -> None:
    """Other programs use /dev/shm too. The holder is no descendant: its parent is gone, and its group is another."""
    path = Path(f"/dev/shm/holdfast_other_{os.getpid()}")
    code = f"import os, sys; f = open({str(path)!r}, 'w'); print(1, flush=True); sys.stdin.read(1); os.unlink(f.name)"
    before = snapshot()
    reading, writing = os.pipe()
    out_reading, out_writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        subprocess.Popen([sys.executable, "-c", code], stdin=reading, stdout=out_writing, start_new_session=True)
        os._exit(0)
    os.waitpid(middle, 0)
    os.close(out_writing)
    with os.fdopen(out_reading, "rb") as output:
        assert output.readline() == b"1\n"
        _check_name_is_not_ours(path, before)
        os.write(writing, b"\n")
        assert output.read() == b""  # it has ended
    os.close(reading)
    os.close(writing)
    assert not path.exists()


def _check_name_is_not_ours(path: Path, before: Snapshot) -> None:
    assert path.exists()
    found = leaks_since(before, SHORT_S)
    assert (found.shm_names, found.processes) == ((), ())


def test_what_multiprocessing_keeps_is_no_leak() -> None:
    """The resource tracker, the fork server, and their descriptors."""
    with assert_no_leaks():
        process = multiprocessing.get_context("forkserver").Process(target=int)
        process.start()
        process.join(PATIENCE_S)
        assert process.exitcode == 0
        process.close()


def test_all_public_names_are_listed() -> None:
    names = {name for name in vars(holdfast.testing) if not name.startswith("_")} - {"annotations", "leaks"}
    assert names == set(holdfast.testing.__all__)


def test_the_leak_checks_do_not_import_torch() -> None:
    """They serve where torch itself is the trouble."""
    code = "import sys, holdfast.testing; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=PATIENCE_S).returncode == 0
