"""What ranks run in the tests. Module level, so that they pickle by reference. Runs in: rank processes."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed

from helpers import Numbers
from waits import PATIENCE_S, wait_until


def note(rank: int, directory: str, *words: object) -> None:
    """A line in a file of this rank's."""
    with Path(directory, str(rank)).open("a") as file:
        file.write(" ".join(map(str, (os.getpid(), *words))) + "\n")


def notes(directory: Path) -> dict[int, list[str]]:
    """In the test: what ranks have noted, without their pids."""
    return {
        int(path.name): [line.partition(" ")[2] for line in path.read_text().splitlines()]
        for path in directory.iterdir()
    }


def wait_for(rank: int, path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.005)


def put(rank: int, queue: Any, lock: Any, tensor: torch.Tensor) -> None:
    with lock:
        tensor[rank] = rank + 1
    queue.put((rank, os.getpid()))


def fail(  # noqa: PLR0917  (a rank gets all by position)
    rank: int, failing: int, how: str, then: str = "stay", meet_in: str = "", count: int = 0
) -> None:
    """One rank fails; the others stay, or are done. With a place to meet in, when so many have come there."""
    os.write(2, f"rank {rank} was here\n".encode())
    if rank != failing and then == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if meet_in:
        Path(meet_in, str(rank)).touch()
        wait_until(lambda: len(list(Path(meet_in).iterdir())) == count, PATIENCE_S, "the others")
    if rank == failing:
        FAILURES[how]()
    elif then != "done":
        time.sleep(600)


def _raise() -> None:
    raise ValueError("bad header")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _crash() -> None:
    ctypes.string_at(0)


def _allocate() -> None:
    kept = np.ones(1 << 30)
    print(kept.sum())


FAILURES = {
    "raise": _raise,
    "kill": _kill,
    "crash": _crash,
    "os._exit": lambda: os._exit(3),
    "os._exit(0)": lambda: os._exit(0),
    "sys.exit": lambda: sys.exit(4),
    "sys.exit(0)": lambda: sys.exit(0),
    "sys.exit(text)": lambda: sys.exit("gone for good"),
    "hang": lambda: time.sleep(600),
    "allocate": _allocate,
    "interrupt": lambda: signal.raise_signal(signal.SIGINT),
}


def fail_once(rank: int, marker: str, directory: str) -> None:
    """The group fails the first time it is run."""
    note(rank, directory, "began")
    if rank == 1 and not Path(marker).exists():
        Path(marker).touch()
        _kill()
    if rank == 0 and not Path(marker).exists():
        time.sleep(600)
    note(rank, directory, "finished")


def do_items(rank: int, directory: str, length: int, bad: int, fault: str) -> None:
    """This rank's part of the items, without those that are done. One that was begun and not finished is left out."""
    for item in range(rank, length, 2):
        begun, done = Path(directory, f"{item}.begun"), Path(directory, f"{item}.done")
        is_again = begun.exists()
        if done.exists() or (is_again and fault != "kill once" and item == bad):
            continue
        begun.touch()
        if item == bad and not is_again:
            FAILURES["kill" if fault == "kill once" else fault]()
        done.touch()


def start_child(rank: int, directory: str, then: str) -> None:
    """A process that would go on for long after this one, in a session of its own."""
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    Path(directory, f"{rank}.child").write_text(str(child.pid))
    if then == "raise":
        _raise()
    if then == "kill":
        wait_for(rank, str(Path(directory, "0.child")))
        _kill()
    if then == "stay":
        time.sleep(600)


def fork_and_come_back(rank: int, directory: str, how: str) -> None:
    """In two processes, of which the one that was forked is no rank."""
    child = os.fork()
    if child == 0:
        if how == "raises":
            raise ValueError("of the fork")
        if how == "exits":
            sys.exit(5)
        return
    note(rank, directory, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def load(rank: int, directory: str) -> None:
    """A loader with workers, inside a rank."""
    from holdfast import DataLoader

    batches = list(DataLoader(Numbers(8), batch_size=4, num_workers=2, multiprocessing_context="fork"))
    note(rank, directory, [int(batch[0, 0]) for batch in batches])


def describe(rank: int, directory: str) -> None:
    """Threads, scheduling and flags of a rank's process."""
    import multiprocessing

    from torch.utils.data import get_worker_info

    process = multiprocessing.current_process()
    note(rank, directory, torch.get_num_threads(), os.sched_getscheduler(0), process.daemon, get_worker_info())


def leave_thread(rank: int, directory: str) -> None:
    """The function returns; a thread of its own goes on for longer than workers have to end."""
    import threading

    def finish() -> None:
        time.sleep(4)
        note(rank, directory, "thread finished")

    threading.Thread(target=finish).start()


def flood(rank: int, directory: str) -> None:
    """More on stderr than any pipe holds: it ends only if somebody reads."""
    for _ in range(1000):
        os.write(2, b"x" * 999 + b"\n")
    note(rank, directory, "flooded")


def all_reduce(rank: int, nprocs: int, store: str, failing: int, how: str) -> None:
    """A real process group; one rank fails in the middle, and the others notice by their connections."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=nprocs)
    tensor = torch.ones(1)
    torch.distributed.all_reduce(tensor)
    if rank == failing:
        FAILURES[how]()
    torch.distributed.all_reduce(tensor)
    torch.distributed.destroy_process_group()
