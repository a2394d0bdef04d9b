"""torch's loader over the bad samples, in a process of its own: it may hang, or take that process with it.

    run_epochs() ──starts──► python -m holdfast.demo.stock ──forks──► an epoch ──► torch's workers
         ▲                                                              │
         └──────────── JSON lines: one per batch, one at the end of each epoch

Invariants: `run_epochs` ends within its limit, whatever the child does, and nothing of the child is left then: it is a
session of its own, killed as a whole. What came before the end is kept. An epoch is a process of its own, too: torch's
iterator may outlive it, and a worker of it that dies late would be told of in the next.

Runs in: main process (`run_epochs`) | a child process (`main`), and its forks (`_epoch`).
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from torch.utils.data import DataLoader

from holdfast.demo.faults import BATCH_SIZE, FAULTS, STEP_S, FaultySamples
from holdfast.demo.outcomes import FINISHED, Outcome

_DIED = "the whole process died"

OnBatch = Callable[[int, Outcome], None]


def run_epochs(
    epochs: Sequence[Sequence[str]], workers: int, timeout_s: float, limit_s: float, on_batch: OnBatch
) -> list[Outcome]:
    """Run epochs with the named faults one after the other, and return what came of each.

    `timeout_s` is the loader's own `timeout`. `on_batch` is told the number of the epoch and its state so far.
    """
    outcomes = [Outcome() for _ in epochs]
    start = time.perf_counter()
    order = json.dumps({"epochs": [list(names) for names in epochs], "workers": workers, "timeout_s": timeout_s})
    with _child(order, limit_s) as lines:
        for number, line in _by_epoch(lines, len(epochs)):
            if "batch" in line:
                outcomes[number].delivered.append(line["batch"])
                on_batch(number, outcomes[number])
            else:
                outcomes[number].ended, outcomes[number].seconds = line["ended"], line["seconds"]
    passed_s = time.perf_counter() - start
    for outcome in outcomes:
        if not outcome.ended:
            outcome.ended = f"not ended after {passed_s:.0f} s" if passed_s >= limit_s else _DIED
    return outcomes


def _by_epoch(lines: IO[str], epochs: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number the lines by epoch, up to the end of the last one: a worker left behind may keep the pipe open."""
    number = 0
    while number < epochs and (text := lines.readline()):
        line = json.loads(text)
        yield number, line
        number += "ended" in line


@contextlib.contextmanager
def _child(order: str, limit_s: float) -> Iterator[IO[str]]:
    """Give what the child writes. At the limit, and at the end, the child and its workers are killed."""
    command = [sys.executable, "-m", __name__, order]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    lines = child.stdout
    assert lines is not None
    guard = threading.Timer(limit_s, _kill_session, (child.pid,))
    guard.start()
    try:
        yield lines
    finally:
        guard.cancel()
        guard.join()
        _kill_session(child.pid)  # not reaped yet: the number is still the child's
        child.wait()
        lines.close()


def _kill_session(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def main(order: str) -> None:
    """Run the epochs that were ordered, and write down what comes of them as it comes."""
    warnings.simplefilter("ignore")
    asked = json.loads(order)
    for names in asked["epochs"]:
        with tempfile.TemporaryDirectory() as folder:
            dataset = FaultySamples([fault for fault in FAULTS if fault.name in names], Path(folder))
            loader = DataLoader(dataset, BATCH_SIZE, num_workers=asked["workers"], timeout=asked["timeout_s"])
            start = time.perf_counter()
            epoch = multiprocessing.get_context("fork").Process(target=_epoch, args=(loader,))
            epoch.start()
            epoch.join()
            if epoch.exitcode != 0:
                _say({"ended": _DIED, "seconds": time.perf_counter() - start})


def _epoch(loader: DataLoader[int]) -> NoReturn:
    start = time.perf_counter()
    ended = _run(loader)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler raises wherever this process is
    _say({"ended": ended, "seconds": time.perf_counter() - start})
    os._exit(0)  # without a word to workers, of which one may hang: they are killed with the session


def _run(loader: DataLoader[int]) -> str:
    try:
        for batch in loader:
            _say({"batch": batch.tolist()})
            time.sleep(STEP_S)
    except Exception as error:
        return in_words(error)
    return FINISHED


def in_words(error: BaseException) -> str:
    """An error and, where it says anything, the one it was raised from: a traceback shows both."""
    cause = error.__cause__
    return "\n".join(map(_line_of, [error] if cause is None or not str(cause) else [error, cause]))


def _line_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
