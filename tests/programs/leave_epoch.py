"""Comes to the interpreter's end in mid-epoch, with the iterator alive.

Usage: leave_epoch.py METHOD HOW, with one of the ways of `WAYS` below.
Runs in: a child of the test process.
"""

from __future__ import annotations

import os
import sys
import threading

from helpers import Numbers, Stuck, say
from holdfast import DataLoader

kept: list[object] = []
"""Lives until the interpreter clears its modules."""


def half_an_epoch(method: str, **options: object) -> None:
    loader = DataLoader(Numbers(400), batch_size=4, num_workers=2, multiprocessing_context=method, **options)
    iterator = iter(loader)
    kept.extend([loader, iterator])
    kept.extend(next(iterator) for _ in range(10))


def end_of_script(method: str) -> None:
    half_an_epoch(method)


def persistent_workers(method: str) -> None:
    half_an_epoch(method, persistent_workers=True)


def persistent_workers_between_epochs(method: str) -> None:
    loader = DataLoader(
        Numbers(40), batch_size=4, num_workers=2, multiprocessing_context=method, persistent_workers=True
    )
    kept.extend([loader, list(loader), list(loader)])


def sys_exit(method: str) -> None:
    for _ in DataLoader(Numbers(400), batch_size=4, num_workers=2, multiprocessing_context=method):
        sys.exit(3)


def exception(method: str) -> None:
    for _ in DataLoader(Numbers(400), batch_size=4, num_workers=2, multiprocessing_context=method):
        raise LookupError("from the training loop")


def thread(method: str) -> None:
    """The thread that iterates ends after the main thread does."""
    started = threading.Event()

    def run() -> None:
        started.set()
        threading.main_thread().join()
        half_an_epoch(method)

    threading.Thread(target=run).start()
    started.wait()


def ended_thread(method: str) -> None:
    """The thread that iterated is gone; the iterator is not."""
    worker = threading.Thread(target=half_an_epoch, args=(method,))
    worker.start()
    worker.join()


def waiting_daemon_thread(method: str) -> None:
    """A daemon thread waits in `next()` for a sample that never comes, while the interpreter ends around it."""
    loader = DataLoader(Stuck(100, 4, "asleep"), batch_size=1, num_workers=2, multiprocessing_context=method)
    waiting = threading.Event()

    def run() -> None:
        iterator = iter(loader)
        for _ in range(4):
            next(iterator)
        waiting.set()
        next(iterator)

    threading.Thread(target=run, daemon=True).start()
    assert waiting.wait(60)


def busy_daemon_threads(method: str) -> None:
    """Daemon threads ask for one batch after the other, while the interpreter ends around them."""
    begun = threading.Barrier(4)

    def run() -> None:
        iterator = iter(DataLoader(Numbers(10**6), batch_size=1, num_workers=1, multiprocessing_context=method))
        next(iterator)
        begun.wait(60)
        for _ in iterator:
            pass

    for _ in range(3):
        threading.Thread(target=run, daemon=True).start()
    begun.wait(60)


def stuck_workers(method: str) -> None:
    loader = DataLoader(Stuck(100, 4, "asleep"), batch_size=1, num_workers=2, multiprocessing_context=method)
    iterator = iter(loader)
    kept.extend([loader, iterator, *(next(iterator) for _ in range(4))])


def reference_cycle(method: str) -> None:
    half_an_epoch(method)
    kept.append(kept)
    globals()["kept"] = None


def two_iterators(method: str) -> None:
    half_an_epoch(method)
    half_an_epoch(method)


def os_exit(method: str) -> None:
    """No clean-up at all."""
    half_an_epoch(method)
    sys.stdout.flush()
    os._exit(4)


WAYS = {
    function.__name__: function
    for function in (
        end_of_script,
        persistent_workers,
        persistent_workers_between_epochs,
        sys_exit,
        exception,
        thread,
        ended_thread,
        waiting_daemon_thread,
        busy_daemon_threads,
        stuck_workers,
        reference_cycle,
        two_iterators,
        os_exit,
    )
}

if __name__ == "__main__":
    WAYS[sys.argv[2]](sys.argv[1])
    say("end of script")
