"""What a piece of code left behind in this process: processes, descriptors, names in /dev/shm, threads.

    before = snapshot()
    ...                                        the code under test
    leaks = leaks_since(before)                looks again and again, until nothing is left or the deadline has passed
    assert not leaks, str(leaks)

- Only what is new since the snapshot counts; what has gone since then is never reported.
- Processes: every descendant, and orphans: members of this process group, running this executable, whose parent died.
  A zombie is a leak too: somebody forgot to wait for it.
- What the standard library keeps for the life of the process is no leak: multiprocessing's resource tracker,
  fork server and resource sharer, and their descriptors.
- Names in /dev/shm belong to the machine. One that only a process outside this tree has open or mapped is not ours.
- Where a platform has no /proc or no /dev/shm, there are no descriptors or names to compare.

Runs in: main process.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

_FD_DIR = Path("/proc/self/fd")
_TASK_DIR = Path("/proc/self/task")
_SHM_DIR = Path("/dev/shm")
_UNLINKED = " (deleted)"  # how the kernel shows a file that has lost its name, and is the same all the same
_PAUSE_S = (0.001, 0.05)
_STACK_TOOL_DEADLINE_S = 10.0

DescriptorKey = tuple[int, str, int]
"""Number, target and inode: the number alone is used again at once."""
ThreadKey = tuple[int, int]
"""Python's and the kernel's id of the thread: Python's alone is used again."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What there was at one moment."""

    processes: frozenset[psutil.Process]
    """Equal by pid and start, counted from that of the machine: a pid alone is used again, and a clock may be set."""
    descriptors: frozenset[DescriptorKey]
    shm_names: frozenset[str]
    threads: frozenset[ThreadKey]


@dataclass(frozen=True, slots=True)
class ProcessLeak:
    pid: int
    parent_pid: int
    name: str
    command: str
    state: str
    stack: str
    """As py-spy prints it where py-spy is installed, else the kernel function the process waits in, if any."""

    def __str__(self) -> str:
        head = f"pid {self.pid} ({self.name}, {self.state}, parent {self.parent_pid}): {self.command}"
        return head + _indented(self.stack)


@dataclass(frozen=True, slots=True)
class DescriptorLeak:
    number: int
    target: str

    def __str__(self) -> str:
        return f"{self.number} -> {self.target}"


@dataclass(frozen=True, slots=True)
class ThreadLeak:
    name: str
    daemon: bool
    stack: str

    def __str__(self) -> str:
        return f"{self.name}{' (daemon)' if self.daemon else ''}{_indented(self.stack)}"


@dataclass(frozen=True, slots=True)
class Leaks:
    """What is left. False when there is nothing; `str()` says what, with the stack of each process and thread."""

    processes: tuple[ProcessLeak, ...] = ()
    descriptors: tuple[DescriptorLeak, ...] = ()
    shm_names: tuple[str, ...] = ()
    threads: tuple[ThreadLeak, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.processes or self.descriptors or self.shm_names or self.threads)

    def __str__(self) -> str:
        kinds: tuple[tuple[str, tuple[object, ...]], ...] = (
            ("process", self.processes),
            ("descriptor", self.descriptors),
            ("name in /dev/shm", self.shm_names),
            ("thread", self.threads),
        )
        lines = [f"{kind}: {item}" for kind, items in kinds for item in items]
        return "\n".join(lines) if lines else "nothing is left"


def snapshot() -> Snapshot:
    """What this process has now."""
    return Snapshot(
        processes=frozenset((*_descendants(), *_orphans())),
        descriptors=frozenset(_descriptors()),
        shm_names=frozenset(_shm_names()),
        threads=frozenset(map(_thread_key, _threads())),
    )


def leaks_since(before: Snapshot, deadline_s: float = 10.0) -> Leaks:
    """What is new since `before` and has not gone by the deadline. Returns as soon as nothing is left.

    Call `gc.collect()` first if the code under test may have left reference cycles.
    """
    end = time.monotonic() + deadline_s
    pause_s, longest_pause_s = _PAUSE_S
    names = set(_shm_names()) - before.shm_names
    while _is_anything_new(before) or names:
        if time.monotonic() > end:
            return _describe_new(before, names)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, longest_pause_s)
        names.intersection_update(_shm_names())  # a name that came later is another process's
    return Leaks()


@contextlib.contextmanager
def assert_no_leaks(deadline_s: float = 10.0) -> Iterator[None]:
    """Raise AssertionError if the body leaves anything behind. An exception of the body passes through unchecked:
    its traceback keeps the body's objects alive.
    """
    before = snapshot()
    yield
    gc.collect()
    leaks = leaks_since(before, deadline_s)
    if leaks:
        raise AssertionError(f"left behind after {deadline_s} s:\n{leaks}")


def _is_anything_new(before: Snapshot) -> bool:
    return bool(_new_threads(before) or _new_descriptors(before) or _new_processes(before))


def _describe_new(before: Snapshot, names: set[str]) -> Leaks:
    return Leaks(
        processes=tuple(leak for process in _new_processes(before) if (leak := _describe_process(process)) is not None),
        descriptors=tuple(DescriptorLeak(number, target) for number, target, _ in _new_descriptors(before)),
        shm_names=tuple(sorted(name for name in names if not _is_only_others(name))),
        threads=tuple(map(_describe_thread, _new_threads(before))),
    )


def _new_processes(before: Snapshot) -> list[psutil.Process]:
    return [process for process in (*_descendants(), *_orphans()) if process not in before.processes]


def _new_descriptors(before: Snapshot) -> list[DescriptorKey]:
    return sorted(set(_descriptors()) - before.descriptors)


def _new_threads(before: Snapshot) -> list[threading.Thread]:
    return [thread for thread in _threads() if _thread_key(thread) not in before.threads]


# --- processes ----------------------------------------------------------------------------------------------------


def _descendants() -> list[psutil.Process]:
    kept = _pids_kept_by_multiprocessing()
    return [process for process in psutil.Process().children(recursive=True) if process.pid not in kept]


def _orphans() -> list[psutil.Process]:
    """Processes of this group and executable whose parent has died, so that no walk down the tree finds them."""
    this = psutil.Process()
    group, executable = os.getpgrp(), this.exe()
    return [
        process
        for process in psutil.process_iter()
        if process.pid != this.pid and _group_of(process.pid) == group and _is_orphan(process, group, executable)
    ]


def _is_orphan(process: psutil.Process, group: int, executable: str) -> bool:
    try:
        parent = process.ppid()
        return (parent <= 1 or _group_of(parent) != group) and process.exe() == executable
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _describe_process(process: psutil.Process) -> ProcessLeak | None:
    try:
        with process.oneshot():
            name, state, parent_pid = process.name(), process.status(), process.ppid()
            command = "" if state == psutil.STATUS_ZOMBIE else " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
    stack = "" if state == psutil.STATUS_ZOMBIE else _stack_of_process(process.pid)
    return ProcessLeak(process.pid, parent_pid, name, command, state, stack)


def _stack_of_process(pid: int) -> str:
    tool = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if tool is not None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            result = subprocess.run(
                [tool, "dump", "--pid", str(pid)],
                capture_output=True,
                text=True,
                check=False,
                timeout=_STACK_TOOL_DEADLINE_S,
            )
            if result.returncode == 0:
                return result.stdout
    with contextlib.suppress(OSError):
        place = Path(f"/proc/{pid}/wchan").read_text()
        return f"waits in the kernel's {place}" if place not in {"", "0"} else ""
    return ""


# --- descriptors and names ----------------------------------------------------------------------------------------


def _descriptors() -> list[DescriptorKey]:
    if not _FD_DIR.exists():
        return []
    kept = _descriptors_kept_by_multiprocessing()
    found = []
    for entry in os.listdir(_FD_DIR):  # noqa: PTH208  (iterdir leaves its own descriptor open while we look)
        number = int(entry)
        with contextlib.suppress(OSError):  # the descriptor of this very listing has gone by now
            if number not in kept:
                target = str((_FD_DIR / entry).readlink()).removesuffix(_UNLINKED)
                found.append((number, target, os.fstat(number).st_ino))
    return found


def _shm_names() -> list[str]:
    return os.listdir(_SHM_DIR) if _SHM_DIR.is_dir() else []  # noqa: PTH208


def _is_only_others(name: str) -> bool:
    """Whether the name is surely not ours: another user's, or held by other processes and by none of this tree."""
    path = _SHM_DIR / name
    try:
        if path.lstat().st_uid != os.getuid():
            return True
    except FileNotFoundError:
        return True
    holders = {pid for pid in psutil.pids() if _holds(pid, str(path))}
    ours = {os.getpid(), *(process.pid for process in (*_descendants(), *_orphans()))}
    return bool(holders) and holders.isdisjoint(ours)


def _holds(pid: int, path: str) -> bool:
    try:
        if any(line.endswith(path) for line in Path(f"/proc/{pid}/maps").read_text().splitlines()):
            return True
        return any(_link(Path(f"/proc/{pid}/fd", entry)) == path for entry in os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
    except OSError:
        return False


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


# --- threads ------------------------------------------------------------------------------------------------------


def _threads() -> list[threading.Thread]:
    kept = _thread_kept_by_multiprocessing()
    return [thread for thread in threading.enumerate() if thread is not kept and _is_running(thread)]


def _is_running(thread: threading.Thread) -> bool:
    """A thread that C code started and that has ended stays in `threading.enumerate()`: ask the kernel."""
    if not _TASK_DIR.exists():
        return thread.is_alive()
    return thread.is_alive() and (_TASK_DIR / str(thread.native_id)).exists()


def _thread_key(thread: threading.Thread) -> ThreadKey:
    return thread.ident or 0, thread.native_id or 0


def _describe_thread(thread: threading.Thread) -> ThreadLeak:
    frame = sys._current_frames().get(thread.ident or 0)
    stack = "" if frame is None else "".join(traceback.format_stack(frame))
    return ThreadLeak(thread.name, thread.daemon, stack)


# --- what multiprocessing keeps -----------------------------------------------------------------------------------
# Looked up in sys.modules: a module that was never imported keeps nothing.


def _kept_object(module: str, name: str) -> Any:
    return getattr(sys.modules.get(f"multiprocessing.{module}"), name, None)


def _pids_kept_by_multiprocessing() -> set[object]:
    tracker = _kept_object("resource_tracker", "_resource_tracker")
    server = _kept_object("forkserver", "_forkserver")
    return {getattr(tracker, "_pid", None), getattr(server, "_forkserver_pid", None)}


def _descriptors_kept_by_multiprocessing() -> set[object]:
    tracker = _kept_object("resource_tracker", "_resource_tracker")
    server = _kept_object("forkserver", "_forkserver")
    listener = getattr(_kept_object("resource_sharer", "_resource_sharer"), "_listener", None)
    socket = getattr(getattr(listener, "_listener", None), "_socket", None)
    number = None if socket is None else socket.fileno()
    return {getattr(tracker, "_fd", None), getattr(server, "_forkserver_alive_fd", None), number}


def _thread_kept_by_multiprocessing() -> threading.Thread | None:
    thread: threading.Thread | None = getattr(_kept_object("resource_sharer", "_resource_sharer"), "_thread", None)
    return thread


def _indented(text: str) -> str:
    return "".join(f"\n    {line}" for line in text.splitlines())
