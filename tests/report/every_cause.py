"""A real run with every kind of incident, or nearly: what all reproducers do, done to the workers of one loader.

    samples 0 to 7: the first reproducer's, which strikes at sample 7     8 to 15: the second's ...

A few need a loader or a program of their own: another option, a limit around the worker, a worker that never comes to
be. Their incidents are put into the first run's record after its own; each line was written by a real run.

Runs in: the test process (the lists) | worker process (the dataset).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from helpers import Numbers, Program
from holdfast import DataLoader
from holdfast.records import reader
from holdfast.records.reader import Run
from hungry import Hungry, Leaking, Reading
from places import PLACES, nothing
from reproducers import REPRODUCERS, Reproducer
from striking import BAD, BATCH_SIZE, EARLIER, LENGTH, NUM_WORKERS, MoveInit, Strike, StrikeInit, Struck
from waits import PATIENCE_S

ALONE = ("out of memory",)
"""Causes of the table that need a loader of their own."""
SAMPLE_TIMEOUT_S = 5.0
"""Of every sample here, and not only of those that hang: each strikes once, and what takes longer is a hang."""


class EachStruck(Dataset[torch.Tensor]):
    """Sample i is i, but for one in eight: each of those strikes in a way of its own, once, as is noted in `folder`.

    (What is not of the sample, as being stopped by another process, would be tried again for ever.)
    """

    def __init__(self, strikes: list[Strike], folder: Path) -> None:
        self.strikes = strikes
        self.folder = folder

    def __len__(self) -> int:
        return LENGTH * len(self.strikes)

    def __getitem__(self, index: int) -> torch.Tensor:
        strike, place = self.strikes[index // LENGTH], index % LENGTH
        if place == EARLIER:
            strike.prepare()
        if place == BAD and not (mark := self.folder / f"struck{index}").exists():
            mark.touch()
            strike()
        return torch.tensor(index)


def rows() -> list[Reproducer]:
    """One per cause, of those that strike a sample under fork. The lock comes last: it is held by this process."""
    chosen: dict[str, Reproducer] = {}
    for row in REPRODUCERS:
        if row.when == "getitem" and "fork" not in row.absent and row.cause not in ALONE:
            chosen.setdefault(row.cause, row)
    return list(chosen.values())


def run_all(folder: Path) -> Run:
    """The record of all of it, in the directory of runs."""
    _run_struck(folder)
    main = next(reader.all_runs())
    for run_alone in (_over_budget, _leak, _copies, _init, _interrupted, _no_main_guard):
        run_alone()
    with contextlib.suppress(pytest.skip.Exception):  # no memory cgroup to be had
        _out_of_memory(folder)
    return _with_the_others(main)


def _run_struck(folder: Path) -> None:
    with contextlib.ExitStack() as stack:
        strikes = list(_strikes(folder, stack))
        loader = DataLoader(
            EachStruck(strikes, folder),
            BATCH_SIZE,
            num_workers=NUM_WORKERS,
            multiprocessing_context="fork",
            on_error="skip",
            max_skipped=None,
            max_retries=0,
            max_restarts=1000,
            sample_timeout=SAMPLE_TIMEOUT_S,
            memory_limit="200MB",
        )
        with loader:
            _exhaust(loader)


def _strikes(folder: Path, stack: contextlib.ExitStack) -> Iterator[Strike]:
    for number, row in enumerate(rows()):
        place = folder / f"place{number}"
        place.mkdir()
        with contextlib.suppress(pytest.skip.Exception):
            args = stack.enter_context(PLACES.get(row.name, nothing)(place))
            yield Strike(row.how, args, os.getpid())


def _exhaust(loader: DataLoader[Any]) -> None:
    """All batches, whatever is raised in between: the next call goes on."""
    iterator = iter(loader)
    for _ in range(10 * len(loader)):
        try:
            if next(iterator, None) is None:
                return
        except Exception:
            continue


# -- alone -------------------------------------------------------------------------------------------------------------


def _over_budget() -> None:
    dataset = Hungry(4, 1000, first=3, held_s=60.0)
    with DataLoader(dataset, 2, num_workers=2, memory_budget="500MB", max_retries=0) as loader:
        _exhaust(loader)


def _leak() -> None:
    with DataLoader(Leaking(400, 1 << 20), 2, num_workers=2, memory_limit="200MB") as loader:
        _exhaust(loader)


def _copies() -> None:
    texts = [f"path {k} of a sample" for k in range(3_000_000)]
    with DataLoader(Reading(texts, 200), 2, num_workers=1, multiprocessing_context="fork") as loader:
        _exhaust(loader)


def _init() -> None:
    init = StrikeInit(Strike("exit_at_once", (), os.getpid()))
    with DataLoader(Struck(None), BATCH_SIZE, num_workers=NUM_WORKERS, worker_init_fn=init) as loader:
        _exhaust(loader)


def _out_of_memory(folder: Path) -> None:
    row = next(row for row in REPRODUCERS if row.cause == "out of memory")
    place = folder / "cgroup"
    place.mkdir()
    with PLACES[row.name](place) as args:
        dataset = Struck(Strike(row.how, args, os.getpid()))
        with DataLoader(
            dataset, BATCH_SIZE, num_workers=NUM_WORKERS, max_retries=0, worker_init_fn=MoveInit(*args)
        ) as loader:
            _exhaust(loader)


class _Raised(Exception):
    """By the handler."""


def _raise(number: int, frame: object) -> None:
    raise _Raised


def _interrupted() -> None:
    before = signal.signal(signal.SIGALRM, _raise)
    try:
        with DataLoader(Numbers(2000), 1, num_workers=2, multiprocessing_context="fork") as loader:
            iterator = iter(loader)
            for _ in range(10_000):
                if loader.incidents:
                    break
                with contextlib.suppress(_Raised):
                    try:
                        signal.setitimer(signal.ITIMER_REAL, 0.002)
                        if next(iterator, None) is None:
                            iterator = iter(loader)
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)  # or it might raise out here, where nobody expects it
    finally:
        signal.signal(signal.SIGALRM, before)


def _no_main_guard() -> None:
    with Program("no_main_guard.py", "spawn") as program:
        program.wait(2 * PATIENCE_S)
        program.wait_until_nothing_is_left()


def _with_the_others(main: Run) -> Run:
    """Its record again, with the incidents of the other runs before its last line."""
    others = [line for run in reader.all_runs() if run.id != main.id for line in reversed(run.incidents)]
    lines = main.path.read_bytes().splitlines(keepends=True)
    number = len(main.incidents)
    added = []
    for line in reversed(others):
        number += 1
        added.append(json.dumps({**line, "number": number}).encode() + b"\n")
    main.path.write_bytes(b"".join([*lines[:-1], *added, lines[-1]]))
    return reader.read(main.path)
