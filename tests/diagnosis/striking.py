"""What is done to a worker in the table of reproducers: a function of texts each, and the datasets that call one.

None strikes the main process, which makes and pickles these objects too. Where one returns, nothing has happened, and
the row fails.

Runs in: worker process.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch.utils.data import Dataset

from hungry import new_pages

LENGTH = 8
BATCH_SIZE = 2
NUM_WORKERS = 2
BAD = 7
BAD_WORKER = 1
"""The sample at which the worker is struck, the second of its batch, and whose it is."""
EARLIER = 3
"""A sample that the same worker loads a batch before."""
EXIT_STATUS = 3

HELD = threading.Lock()
"""Under fork a worker has a copy, which nobody will release."""
OPENED: list[Any] = []
"""The same of what the main process has opened."""
MAPPED: list[Any] = []
"""What a worker has mapped."""
SHARED_BYTES = 32 << 20
STEP_BYTES, STEP_S = 4 << 20, 0.2


# -- it raises ---------------------------------------------------------------------------------------------------------


def raise_value_error() -> None:
    raise ValueError("bad header")


def raise_of_a_service() -> None:
    """As a client does that hands on what its server has said."""
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "server:/store/7.png")


def start_one_thread_too_many() -> None:
    """In Python's words: a real limit on processes would count those of everybody who runs tests as this user."""
    raise RuntimeError("can't start new thread")


def raise_import_error() -> None:
    raise ImportError("no such driver")


def load_library(path: str) -> None:
    ctypes.CDLL(path)


def open_too_many(path: str) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    kept = []
    while True:
        kept.append(Path(path).open("rb"))  # noqa: SIM115


def use_cuda_in_a_bad_fork() -> None:
    """A build without CUDA cannot fail by itself: torch is told that it is in such a fork, the words are its own."""
    torch.cuda._is_in_bad_fork = lambda: True
    torch.cuda.init()


def use_inherited_connection() -> None:
    """The main process was in a transaction when it forked: this copy of its connection still believes to be."""
    OPENED[0].execute("begin immediate")


def use_inherited_environment() -> None:
    """lmdb takes a new place in its table of readers for each transaction of a process that did not open it."""
    for _ in range(1000):
        with OPENED[0].begin() as transaction:
            transaction.get(b"key")


def use_inherited_file() -> None:
    """A second process reads by the same handle: they move each other's place in the file."""
    file, stream = OPENED
    other = os.fork()
    if other == 0:
        while os.getppid() != 1:
            os.lseek(stream.fileno(), 0, os.SEEK_SET)
        os._exit(0)
    try:
        for k in range(100_000):
            file["samples"][k % len(file["samples"])]
    finally:
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)


def use_inherited_socket() -> None:
    """A second process has its answer by the same connection, which is closed after that."""
    other = os.fork()
    if other == 0:
        OPENED[0].request("GET", "/")
        OPENED[0].getresponse().read()
        os._exit(0)
    os.waitpid(other, 0)
    OPENED[0].request("GET", "/")
    OPENED[0].getresponse()


def ask_for_memory() -> None:
    torch.ones(1 << 31)


# -- it crashes --------------------------------------------------------------------------------------------------------


def call_library(path: str, function: str, *numbers: str) -> None:
    getattr(ctypes.CDLL(path), function)(*(ctypes.c_long(int(number)) for number in numbers))


def call_with_memory(path: str, function: str) -> None:
    getattr(ctypes.CDLL(path), function)(ctypes.create_string_buffer(4096))


def read_null() -> None:
    ctypes.c_int.from_address(0).value  # noqa: B018  (reads it)


def write_null() -> None:
    ctypes.memset(0, 1, 1)


def call_null() -> None:
    ctypes.CFUNCTYPE(None)(0)()


def map_file(path: str) -> None:
    MAPPED.append(np.memmap(path, dtype=np.uint8, mode="r+"))


def read_truncated(path: str) -> None:
    """Cut short by somebody else after it was mapped."""
    os.truncate(path, mmap.PAGESIZE)
    int(MAPPED[0][mmap.PAGESIZE])


def map_and_read_truncated(path: str) -> None:
    """By Python's own mmap, which nobody hears of."""
    with Path(path).open("r+b") as file:
        MAPPED.append(mmap.mmap(file.fileno(), 0))
    read_truncated(path)


def map_shared_memory(folder: str) -> None:
    """Takes hardly any room yet: that is why it is noticed only on writing."""
    MAPPED.append(np.memmap(Path(folder, "tensor"), dtype=np.uint8, mode="w+", shape=(SHARED_BYTES,)))


def fill_shared_memory(folder: str) -> None:
    for start in range(0, SHARED_BYTES, mmap.PAGESIZE):
        MAPPED[0][start] = 1


BEFORE = {read_truncated: map_file, fill_shared_memory: map_shared_memory}
"""What is done to the same worker a batch earlier, as by a dataset that opens its files at the first sample."""


# -- it is killed ------------------------------------------------------------------------------------------------------


def move_into(cgroup: str) -> None:
    Path(cgroup, "cgroup.procs").write_text(str(os.getpid()))


def use_memory(cgroup: str) -> None:
    """As a dataset that keeps too much: a little more at each step, slowly enough to be watched.

    Not in the gaps of the heap that a forked worker inherits: by what is written there it does not seem to grow.
    """
    while True:
        MAPPED.append(new_pages(STEP_BYTES))
        time.sleep(STEP_S)


def take_shared_memory() -> None:
    """Which no limit of the process counts: it has to be watched."""
    MAPPED.append(np.frombuffer(mmap.mmap(-1, 1 << 30), dtype=np.uint8))
    MAPPED[-1][:: mmap.PAGESIZE] = 1
    wait_for_ever()


def be_sent(name: str, note: str) -> None:
    """Another process, whose pid it notes, sends the signal to this one.

    Once we wait for it, and no earlier: while it is being started, our main thread has all signals blocked.
    """
    command = f"read go; echo $$ > '{note}'; kill -{name} {os.getpid()}"
    subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE).communicate(b"go\n")
    wait_for_ever()


def kill_supervisor(mark: str) -> None:
    """Once: a second one would be as many restarts without a batch in between."""
    if Path(mark).exists():
        return
    Path(mark).touch()
    os.kill(os.getppid(), signal.SIGKILL)
    wait_for_ever()


def wait_for_ever() -> NoReturn:
    while True:
        signal.pause()


# -- it ends itself ----------------------------------------------------------------------------------------------------


def exit_at_once() -> None:
    os._exit(EXIT_STATUS)


def exit_by_exception() -> None:
    sys.exit(EXIT_STATUS)


def log_and_exit() -> None:
    """The exception was caught, and is not what the process died of."""
    try:
        raise_value_error()
    except ValueError:
        os.write(2, traceback.format_exc().encode())  # (sys.stderr is pytest's)
    os.write(2, b"going on without\n")
    os._exit(1)


def close_all_descriptors() -> None:
    """But those of a terminal: as code does that makes a process a daemon, or is about to start another program."""
    os.closerange(3, 1024)


def run_into_alarm() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest-timeout's is inherited by fork
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    wait_for_ever()


# -- it makes no progress ----------------------------------------------------------------------------------------------


def sleep() -> None:
    time.sleep(3600)


def sleep_deaf() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(3600)


def take_inherited_lock() -> None:
    with HELD:
        pass


# -- who calls them ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Strike:
    """A function of this module with its arguments, for any process but the main one."""

    how: str
    args: tuple[str, ...]
    main_pid: int

    def __call__(self) -> None:
        if os.getpid() != self.main_pid:
            globals()[self.how](*self.args)

    def prepare(self) -> None:
        BEFORE.get(globals()[self.how], _nothing)(*self.args)


def _nothing(*_: str) -> None:
    pass


class Struck(Dataset[torch.Tensor]):
    """Sample i is i, but for the one that strikes. `cargo` is whatever else must travel along."""

    def __init__(self, strike: Strike | None, cargo: object = None) -> None:
        self.strike = strike
        self.cargo = cargo

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == EARLIER and self.strike is not None:
            self.strike.prepare()
        if index == BAD and self.strike is not None:
            self.strike()
        return torch.tensor(index)


@dataclass(frozen=True)
class StrikeInit:
    """A worker_init_fn that strikes one worker."""

    strike: Strike

    def __call__(self, worker_id: int) -> None:
        if worker_id == BAD_WORKER:
            self.strike()


@dataclass(frozen=True)
class MoveInit:
    """A worker_init_fn that moves one worker into a cgroup."""

    cgroup: str

    def __call__(self, worker_id: int) -> None:
        if worker_id == BAD_WORKER:
            move_into(self.cgroup)


class StrikesWhenLoaded:
    """Strikes where it is unpickled."""

    def __init__(self, strike: Strike) -> None:
        self.strike = strike

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.strike()


IMPORTED = """\
from striking import Strike

Strike({how!r}, {args!r}, {main_pid!r})()


class FromHere:
    pass
"""
"""A module that strikes when it is imported."""


def write_module(folder: Path, name: str, strike: Strike) -> None:
    text = IMPORTED.format(how=strike.how, args=strike.args, main_pid=strike.main_pid)
    (folder / f"{name}.py").write_text(text)
