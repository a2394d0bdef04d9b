"""What a row of the table of reproducers needs in the world: a library, a file, a small file system, a cgroup.

Each is made by a context manager that yields the arguments of the row's function, and leaves nothing behind. Where it
cannot be had, the test is skipped with the reason.

Runs in: the test process.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import mmap
import sqlite3
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

import striking
from memory_cgroups import limited_cgroup
from native_libraries import (
    DIVISION,
    DOUBLE_FREE,
    RECURSION,
    TRAP,
    UNCAUGHT,
    compile_library,
    missing_feature,
)
from waits import PATIENCE_S, wait_until

Arguments = tuple[str, ...]
Place = Callable[[Path], AbstractContextManager[Arguments]]

LIMIT_BYTES = 64 << 20
AARCH64 = 183
MOUNT_LIMIT_S = 30.0


@contextlib.contextmanager
def nothing(folder: Path) -> Iterator[Arguments]:
    yield ()


def library(source: str, function: str, *numbers: str, flags: tuple[str, ...] = (), suffix: str = ".c") -> Place:
    @contextlib.contextmanager
    def compiled(folder: Path) -> Iterator[Arguments]:
        yield (str(compile_library(folder, source, *flags, suffix=suffix)), function, *numbers)

    return compiled


@contextlib.contextmanager
def library_for_another_cpu(folder: Path) -> Iterator[Arguments]:
    yield str(missing_feature(folder)[0]), "use"


@contextlib.contextmanager
def aarch64_library(folder: Path) -> Iterator[Arguments]:
    """The header alone: the loader reads no further."""
    path = folder / "libforeign.so"
    header = struct.pack(
        "<4sBBBB8xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 3, AARCH64, 1, 0, 64, 0, 0, 64, 56, 0, 0, 0, 0
    )
    path.write_bytes(header.ljust(4096, b"\0"))
    yield (str(path),)


def path_to(name: str, nbytes: int = 0, *, exists: bool = True) -> Place:
    @contextlib.contextmanager
    def file(folder: Path) -> Iterator[Arguments]:
        path = folder / name
        if exists:
            path.write_bytes(bytes(nbytes))
        yield (str(path),)

    return file


def signal_from_outside(name: str) -> Place:
    @contextlib.contextmanager
    def sender(folder: Path) -> Iterator[Arguments]:
        yield name, str(folder / "sender")

    return sender


# -- of the main process -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_connection(folder: Path) -> Iterator[Arguments]:
    """A transaction of the main process, under way when the workers are forked."""
    connection = sqlite3.connect(folder / "samples.db", isolation_level=None)
    connection.execute("begin immediate")
    with contextlib.closing(connection), opened(connection):
        yield ()


@contextlib.contextmanager
def open_environment(folder: Path) -> Iterator[Arguments]:
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(folder / "samples.lmdb")) as environment, opened(environment):
        yield ()


@contextlib.contextmanager
def open_hdf5_file(folder: Path) -> Iterator[Arguments]:
    """By a Python file, as remote ones are opened: HDF5's own way to read has no place in the file to be moved."""
    h5py = pytest.importorskip("h5py")
    path = folder / "samples.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("samples", data=np.random.default_rng(0).random((512, 64)), chunks=(1, 64), compression=4)
    with path.open("rb") as stream, h5py.File(stream, "r") as file, opened(file, stream):
        yield ()


@contextlib.contextmanager
def open_socket(folder: Path) -> Iterator[Arguments]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    connection = http.client.HTTPConnection(*server.server_address[:2])
    try:
        connection.connect()
        with contextlib.closing(connection), opened(connection):
            yield ()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Answers(http.server.BaseHTTPRequestHandler):
    """One to each connection, which it closes then."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@contextlib.contextmanager
def opened(*handles: object) -> Iterator[None]:
    """What forked workers find open."""
    striking.OPENED.extend(handles)
    try:
        yield
    finally:
        striking.OPENED.clear()


@contextlib.contextmanager
def held_lock(folder: Path) -> Iterator[Arguments]:
    """A thread of the main process has the lock while the workers are forked."""
    holds, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with striking.HELD:
            holds.set()
            may_end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert holds.wait(PATIENCE_S)
        yield ()
    finally:
        may_end.set()
        thread.join()


# -- of the machine ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_tmpfs(folder: Path) -> Iterator[Arguments]:
    point = folder / "small"
    point.mkdir()
    _mount("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(point))
    try:
        yield (str(point),)
    finally:
        wait_until(lambda: _has_worked("umount", str(point)), PATIENCE_S, f"umount {point}")


def _mount(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=MOUNT_LIMIT_S, check=False)
    if done.returncode:
        pytest.skip(f"needs root, to mount a small tmpfs: {done.stderr.strip()}")


def _has_worked(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, timeout=MOUNT_LIMIT_S, check=False).returncode == 0


@contextlib.contextmanager
def memory_cgroup(folder: Path) -> Iterator[Arguments]:
    """Of 64 MB."""
    with limited_cgroup(LIMIT_BYTES) as cgroup:
        yield (str(cgroup.directory),)


PLACES: dict[str, Place] = {
    "an aarch64 library": aarch64_library,
    "no descriptor left": path_to("sample"),
    "an SQLite connection of the main process": open_connection,
    "an lmdb environment of the main process": open_environment,
    "an HDF5 file of the main process": open_hdf5_file,
    "a socket of the main process": open_socket,
    "an instruction that this CPU lacks": library_for_another_cpu,
    "__builtin_trap": library(TRAP, "reach_the_unreachable"),
    "an endless recursion in C": library(RECURSION, "start_descending", flags=("-fno-optimize-sibling-calls",)),
    "a division by zero in C": library(DIVISION, "divide", "1", "0"),
    "a truncated mapped file": path_to("samples.bin", 2 * mmap.PAGESIZE),
    "a truncated file, mapped a moment before": path_to("samples.bin", 2 * mmap.PAGESIZE),
    "a full tmpfs of 8 MB": small_tmpfs,
    "a double free": library(DOUBLE_FREE, "free_twice"),
    "an uncaught C++ exception": library(UNCAUGHT, "throw_it", suffix=".cc"),
    "over the limit of a memory cgroup": memory_cgroup,
    "kill -KILL by another process": signal_from_outside("KILL"),
    "kill -SEGV by another process": signal_from_outside("SEGV"),
    "kill -TERM by another process": signal_from_outside("TERM"),
    "kill -STOP by another process": signal_from_outside("STOP"),
    "the supervisor killed": path_to("mark", exists=False),
    "a lock that was held at the fork": held_lock,
}
"""By the row's name. A row that is not here needs nothing."""
