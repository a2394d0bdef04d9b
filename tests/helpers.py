"""What the lifetime and fault tests share: datasets, child programs, readings of processes and memory.

Datasets live at module level, so that they pickle by reference under spawn and forkserver.
A child program runs in a session of its own, with an environment variable that marks it and every process that comes
from it: whatever carries the mark after the program's end was left behind.

Runs in: the test process, the child programs, and (the datasets) the workers.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import psutil
import torch
from torch.utils.data import Dataset, IterableDataset

from waits import CLOSE_DEADLINE_S, PATIENCE_S, is_running, shared_memory_names, wait_until

TESTS = Path(__file__).parent
PROGRAMS = TESTS / "programs"
START_METHODS = ("fork", "spawn", "forkserver")

MARK = "HOLDFAST_TEST_MARK"


# --- values that are known from the index alone -----------------------------------------------------------------


def numbers(first: int, count: int, width: int) -> torch.Tensor:
    """The batch of samples `first` to `first + count - 1` of `Numbers`: row i is i, i + 1, ... i + width - 1."""
    return torch.arange(first, first + count).unsqueeze(1) + torch.arange(width)


class Numbers(Dataset[torch.Tensor]):
    """Sample i is i, i + 1, ... i + width - 1: a byte from another sample, place or batch shows."""

    def __init__(self, length: int, width: int = 4) -> None:
        self.length = length
        self.width = width

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.arange(index, index + self.width)


class Waves(Dataset[torch.Tensor]):
    """As `Numbers`, but the samples of batch k are `widths[k % len(widths)]` wide."""

    def __init__(self, batches: int, batch_size: int, widths: Sequence[int]) -> None:
        self.batches = batches
        self.batch_size = batch_size
        self.widths = tuple(widths)

    def __len__(self) -> int:
        return self.batches * self.batch_size

    def width(self, batch: int) -> int:
        return self.widths[batch % len(self.widths)]

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.arange(index, index + self.width(index // self.batch_size))

    def batch(self, batch: int) -> torch.Tensor:
        return numbers(batch * self.batch_size, self.batch_size, self.width(batch))


class Records(Dataset[dict[str, torch.Tensor]]):
    """A large image and a small label: what a user keeps part of."""

    def __init__(self, length: int, image_bytes: int) -> None:
        self.length = length
        self.image_bytes = image_bytes

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        image = torch.full((self.image_bytes,), index % 251, dtype=torch.uint8)
        return {"image": image, "label": torch.tensor([index, -index])}


class Stuck(Numbers):
    """Samples come at once up to `free`; from there on each one says "stuck" on descriptor 1 and never returns."""

    def __init__(self, length: int, free: int, how: str) -> None:
        super().__init__(length)
        self.free = free
        self.how = how

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.free:
            say("stuck")
            stay(self.how)
        return super().__getitem__(index)


def say(*words: object) -> None:
    """Write a line in one piece: `print` makes two writes where output is unbuffered, and workers write there too."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


STUCK = ("asleep", "python loop", "C call", "C loop")


def stay(how: str) -> None:
    """Never return, in one of the ways of `STUCK` (or deaf to SIGTERM and SIGINT)."""
    if how == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if how == "python loop":
        while True:
            pass
    if how == "C loop":  # holds the GIL, and looks at no signal
        sum(itertools.repeat(0))
    if how == "C call":
        while True:
            ctypes.PyDLL(None).sleep(3600)  # PyDLL: holds the GIL
    while True:
        time.sleep(3600)


class DiesOnce(Numbers):
    """The first worker that loads sample `index`, of all lives, is killed by SIGKILL."""

    def __init__(self, length: int, index: int, marker: str) -> None:
        super().__init__(length)
        self.index = index
        self.marker = marker

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.index and _first_to_create(self.marker):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class DiesAlways(Numbers):
    """Every worker that loads sample `index` dies."""

    def __init__(self, length: int, index: int, how: str) -> None:
        super().__init__(length)
        self.index = index
        self.how = how

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.index:
            die(self.how)
        return super().__getitem__(index)


class Stream(IterableDataset[torch.Tensor]):
    """`length` elements split over the workers by their id: worker w of n yields w, w + n, w + 2n..."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for value in range(first, self.length, step):
            yield torch.tensor([value])


def die(how: str) -> None:
    if how == "exit":
        os._exit(3)
    if how == "SIGSEGV":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)


def _first_to_create(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


# --- processes ----------------------------------------------------------------------------------------------------


def worker_pids(iterator: Any) -> list[int]:
    return [worker.pid for worker in iterator._workers]


def wait_until_ended(pids: Sequence[int], deadline_s: float = CLOSE_DEADLINE_S) -> float:
    return wait_until(lambda: not any(map(is_running, pids)), deadline_s, f"the end of processes {list(pids)}")


def _heed_interrupts() -> None:
    """A shell has its background jobs ignore SIGINT, and they hand that down; a program of a user's has it not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Program:
    """A child script, its output in files, and all that comes from it. A context manager: nothing outlives it."""

    def __init__(self, script: str, *args: str, through_stdin: bool = False, before: Sequence[str] = ()) -> None:
        path = PROGRAMS / script
        self.command = [*before, sys.executable, "-" if through_stdin else str(path), *args]
        self._stdin = path if through_stdin else Path(os.devnull)
        self._mark = f"{MARK}={uuid.uuid4().hex}".encode()

    def __enter__(self) -> Self:
        self._names_before = shared_memory_names()
        self._out: BinaryIO = tempfile.TemporaryFile()
        self._err: BinaryIO = tempfile.TemporaryFile()
        with self._stdin.open("rb") as stdin:
            self.process = subprocess.Popen(
                self.command,
                stdin=stdin,
                stdout=self._out,
                stderr=self._err,
                env=self._environment(),
                start_new_session=True,
                preexec_fn=_heed_interrupts,  # noqa: PLW1509  (it makes one system call)
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and hasattr(error, "add_note"):
            error.add_note(f"program: {' '.join(self.command)}\nits stdout:\n{self.stdout}\nits stderr:\n{self.stderr}")
        for pid in {self.process.pid, *self.processes()} if self.process.poll() is None else self.processes():
            _kill(pid)
        self.process.wait(PATIENCE_S)
        self._out.close()
        self._err.close()

    def _environment(self) -> dict[str, str]:
        name, value = self._mark.decode().split("=")
        package = importlib.util.find_spec("holdfast")
        assert package is not None
        assert package.origin is not None
        path = [str(TESTS), str(Path(package.origin).parents[1])]
        return {**os.environ, name: value, "PYTHONPATH": os.pathsep.join(path)}

    @property
    def stdout(self) -> str:
        return _read(self._out)

    @property
    def stderr(self) -> str:
        return _read(self._err)

    def wait_for_lines(self, line: str, count: int = 1) -> None:
        """Wait until the program, or a process of it, has written `line` `count` times."""

        def written() -> bool:
            if self.stdout.splitlines().count(line) >= count:
                return True
            assert self.process.poll() is None, f"it ended ({self.process.returncode}) before it wrote {line!r}"
            return False

        wait_until(written, PATIENCE_S, f"{line!r}, {count} times, on the program's stdout")

    def processes(self) -> dict[int, str]:
        """Every living process that carries the program's mark: pid and command line. Zombies have no environment."""
        found = {}
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and self._mark in _read_proc(entry.name, "environ").split(b"\0"):
                command = _read_proc(entry.name, "cmdline").replace(b"\0", b" ")
                found[int(entry.name)] = command.decode(errors="replace").strip()
        return found

    def new_names(self) -> set[str]:
        """Names in /dev/shm that are new and that no process outside the program has open: those are others' own."""
        new = shared_memory_names() - self._names_before
        return {name for name in new if not _holders(name) - self.processes().keys()}

    def wait(self, deadline_s: float = PATIENCE_S) -> int:
        """Wait for the main process's end. Returns its exit status; negative: the signal that ended it."""
        wait_until(lambda: self.process.poll() is not None, deadline_s, "the end of the program")
        return int(self.process.returncode)

    def wait_until_nothing_is_left(self, deadline_s: float = CLOSE_DEADLINE_S) -> float:
        try:
            return wait_until(lambda: not self.processes() and not self.new_names(), deadline_s)
        except AssertionError:
            left = {pid: (name, _state(pid)) for pid, name in self.processes().items()}
            raise AssertionError(f"left after {deadline_s} s: processes {left}, names {self.new_names()}") from None

    def signal_group(self, number: signal.Signals) -> None:
        """As the terminal does on Ctrl-C: every process of the program gets it."""
        os.killpg(self.process.pid, number)


def run_program(script: str, *args: str, through_stdin: bool = False, before: Sequence[str] = ()) -> str:
    """Run a program that must succeed, say nothing on stderr and leave nothing behind. Returns its stdout."""
    with Program(script, *args, through_stdin=through_stdin, before=before) as program:
        status = program.wait(2 * PATIENCE_S)
        assert (status, program.stderr) == (0, "")
        program.wait_until_nothing_is_left()
        return program.stdout


def _holders(name: str) -> set[int]:
    """The processes that have the file of this name open or mapped."""
    path = f"/dev/shm/{name}"
    pids = {int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()}
    return {pid for pid in pids if path.encode() in _read_proc(str(pid), "maps") or path in dict(_open_files(pid))}


def _open_files(pid: int) -> list[tuple[str, os.stat_result]]:
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found.append((str(link.readlink()), link.stat()))
    return found


def _read(file: BinaryIO) -> str:
    return os.pread(file.fileno(), 1 << 20, 0).decode(errors="replace")


def _read_proc(pid: str, name: str) -> bytes:
    try:
        return Path("/proc", pid, name).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def _state(pid: int) -> str:
    found = re.search(rb"State:\s*(.*)", _read_proc(str(pid), "status"))
    return found[1].decode() if found else "gone"


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


# --- memory -------------------------------------------------------------------------------------------------------

_SHARED = ("/memfd:", "/dev/shm/", "/dev/zero (deleted)")
_MAPPING = re.compile(r"^([0-9a-f]+-[0-9a-f]+) \S+ \S+ (\S+) (\d+)\s+(.*)$")


def shared_memory_bytes() -> int:
    """Bytes of memory-backed files that this process and its descendants have open or mapped, each file once."""
    files: dict[tuple[str, int], int] = {}
    this = psutil.Process()
    for pid in (this.pid, *(child.pid for child in this.children(recursive=True))):
        opened = (_identity_and_size(stat) for path, stat in _open_files(pid) if path.startswith(_SHARED))
        for file, size in itertools.chain(opened, _mapped_shared_files(pid)):
            files[file] = max(size, files.get(file, 0))
    return sum(files.values())


def private_memory_bytes() -> int:
    """Anonymous memory of this process that is resident."""
    found = re.search(rb"RssAnon:\s*(\d+) kB", _read_proc("self", "status"))
    assert found is not None
    return int(found[1]) * 1024


def _mapped_shared_files(pid: int) -> Iterator[tuple[tuple[str, int], int]]:
    """Shared files that are mapped: their whole size where we may ask (root), else what this process has resident."""
    resident: dict[tuple[str, int], int] = {}
    mapping: re.Match[str] | None = None
    for line in _read_proc(str(pid), "smaps").decode(errors="replace").splitlines():
        header = _MAPPING.match(line)
        if header is not None:
            mapping = header if header[4].startswith(_SHARED) else None
        elif mapping is not None and line.startswith("Rss:"):
            try:
                yield _identity_and_size(Path(f"/proc/{pid}/map_files/{mapping[1]}").stat())
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                file = (mapping[2], int(mapping[3]))
                resident[file] = resident.get(file, 0) + int(line.split()[1]) * 1024
    yield from resident.items()


def _identity_and_size(status: os.stat_result) -> tuple[tuple[str, int], int]:
    return (f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", status.st_ino), status.st_blocks * 512
