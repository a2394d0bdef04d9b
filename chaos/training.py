"""One scenario: what torch delivers, how fast ours is in peace, and then the same under the killer's signals.

The scenario's epochs are run again and again, each time by a new loader from the same seed, until enough was killed.
Runs in: main.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from statistics import median
from types import FrameType
from typing import Any

import torch

from holdfast.testing import leaks_since, snapshot
from holdfast.testing.leaks import _descendants, _describe_process
from holdfast.workers import watching

from .cells import Cells
from .comparing import difference
from .gaps import intervals
from .killer import STALLED_S, STALLED_SIGNAL, Kill, Orders
from .scenarios import Scenario

Batches = list[list[Any]]
"""By epoch."""

_UNITS_TIMED = 10
_LEAK_DEADLINE_S = 15.0
_PAUSE_S = {"fork": 0.08, "spawn": 0.3, "forkserver": 0.3, "portable": 0.5}
_SUPERVISOR_SHARE = {"fork": 0.05, "spawn": 0.05, "forkserver": 0.05, "portable": 0.0}
_STOP_SHARE, _SUPERVISOR_STOP_SHARE = 0.02, 0.05
_STOPPED_GRACE_S = 1.0  # who was stopped is not continued: ten seconds each time would leave little time to kill in


class Failed(Exception):
    """What was delivered is not what torch delivers, or did not come."""


class Stalled(Failed):
    """Nothing came for too long."""


@dataclasses.dataclass(slots=True)
class Outcome:
    """What one scenario showed. `epochs` are the times of deliveries under fire, `calm` intervals without."""

    scenario: Scenario
    unit_s: float = 0.0
    calm: list[float] = dataclasses.field(default_factory=list)
    kills: list[Kill] = dataclasses.field(default_factory=list)
    epochs: list[list[float]] = dataclasses.field(default_factory=list)
    passes: int = 0
    batches: int = 0
    wall_s: float = 0.0
    failure: str | None = None


def run_scenario(scenario: Scenario, kills: int) -> Outcome:
    """Run it until `kills` signals were sent, or something is wrong."""
    outcome = Outcome(scenario)
    before, began = snapshot(), time.monotonic()
    grace_s, watching.STOPPED_GRACE_S = watching.STOPPED_GRACE_S, _STOPPED_GRACE_S
    try:
        _run(scenario, kills, outcome)
    except Exception as error:
        outcome.failure = _describe(error)
    finally:
        watching.STOPPED_GRACE_S = grace_s
    gc.collect()
    leaks = leaks_since(before, _LEAK_DEADLINE_S)
    if leaks and outcome.failure is None:
        outcome.failure = f"left behind after the loader was closed:\n{leaks}"
    outcome.wall_s = time.monotonic() - began
    return outcome


def _run(scenario: Scenario, kills: int, outcome: Outcome) -> None:
    outcome.unit_s = _time_unit(scenario)
    expected = _collect(scenario)
    cells = Cells.create()
    try:
        calm: list[list[float]] = []
        _train(scenario, expected, cells, calm)
        outcome.calm = [interval for epoch in calm for interval in intervals(epoch)]
        with _killer(scenario, kills, cells, outcome.kills):
            while cells.kills < kills:
                outcome.passes += 1
                _train(scenario, expected, cells, outcome.epochs, is_under_fire=True)
    finally:
        outcome.batches = sum(map(len, outcome.epochs))
        cells.close()


def _time_unit(scenario: Scenario) -> float:
    """What a unit takes to load, in this process: the median of a few."""
    torch.manual_seed(scenario.seed)
    times = [time.perf_counter()]
    for _ in scenario.reference_loader(num_workers=0):
        times.append(time.perf_counter())
        if len(times) > _UNITS_TIMED:
            break
    return median(intervals(times))


def _collect(scenario: Scenario) -> Batches:
    """What torch's loader delivers."""
    torch.manual_seed(scenario.seed)
    loader = scenario.reference_loader()
    batches = []
    for leave_after in scenario.leave_after:
        epoch: list[Any] = []
        iterator = iter(loader)
        while leave_after is None or len(epoch) < leave_after:
            try:
                epoch.append(_own(next(iterator)))
            except StopIteration:
                break
        batches.append(epoch)
        del iterator
    return batches


def _own(batch: Any) -> Any:
    """The batch, with tensors that hold no shared memory, of which there is only so much."""
    if isinstance(batch, torch.Tensor):
        return batch.clone()
    if isinstance(batch, dict):
        return {key: _own(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(map(_own, batch))
    return batch


# -- the training loop -------------------------------------------------------------------------------------------------


def _train(
    scenario: Scenario, expected: Batches, cells: Cells, epochs: list[list[float]], *, is_under_fire: bool = False
) -> None:
    """All epochs of a scenario with a new loader; the killer is let loose when the first batch has come."""
    torch.manual_seed(scenario.seed)
    with scenario.loader_under_test() as loader:
        for number, (batches, leave_after) in enumerate(zip(expected, scenario.leave_after, strict=True)):
            epochs.append([])
            iterator = iter(loader)
            for k, batch in enumerate(batches):
                _check(iterator, batch, f"epoch {number}, batch {k} of {len(batches)}", epochs[-1])
                cells.progressed()
                if is_under_fire and not cells.is_armed:
                    cells.arm(True)
            if leave_after is None:
                _check_end(iterator, f"epoch {number}")
            del iterator
        cells.progressed()
    cells.arm(False)


def _check(iterator: Iterator[Any], expected: Any, where: str, times: list[float]) -> None:
    try:
        batch = next(iterator)
    except StopIteration:
        raise Failed(f"{where}: lost, the epoch ended before it") from None
    except Exception as error:
        error.add_note(f"raised instead of {where}")
        raise
    times.append(time.monotonic())
    differs = difference(batch, expected)
    if differs is not None:
        raise Failed(f"{where} (ours and torch's) {differs}\nours:    {batch!r:.500}\ntorch's: {expected!r:.500}")


def _check_end(iterator: Iterator[Any], where: str) -> None:
    for batch in iterator:
        raise Failed(f"{where}: one batch more than torch's: {batch!r:.500}")


# -- the killer --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _killer(scenario: Scenario, kills: int, cells: Cells, killed: list[Kill]) -> Iterator[None]:
    """A killer at work for as long as the body runs; what it did is added to `killed`."""
    orders = Orders(
        training_pid=os.getpid(),
        method=scenario.method,
        seed=scenario.seed * 1000 + scenario.number,
        kills=kills,
        mean_pause_s=_PAUSE_S[scenario.method],
        capacity=scenario.capacity,
        patience=3 * scenario.num_workers,
        settle=0 if scenario.is_storm else scenario.capacity + 2,
        supervisor_share=_SUPERVISOR_SHARE[scenario.method],
        stop_share=_STOP_SHARE,
        supervisor_stop_share=_SUPERVISOR_STOP_SHARE,
    )
    arguments = [json.dumps(dataclasses.asdict(orders)), str(cells.fd)]
    with tempfile.TemporaryFile("w+") as log, _alarm():
        command = [sys.executable, "-m", "chaos.killer", *arguments]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, pass_fds=[cells.fd]) as process:
            try:
                yield
            finally:
                process.communicate()  # closes its standard input: it ends
                log.seek(0)
                killed.extend(Kill(**json.loads(line)) for line in log)
        if process.returncode != 0:
            raise RuntimeError(f"the killer ended with {process.returncode}")


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    """Have the killer's alarm raise in the training loop."""

    def raise_stalled(number: int, frame: FrameType | None) -> None:
        stacks = "".join(traceback.format_stack(frame))
        raise Stalled(f"no batch within {STALLED_S:.0f} s\n{stacks}{_processes()}")

    old = signal.signal(STALLED_SIGNAL, raise_stalled)
    try:
        yield
    finally:
        signal.signal(STALLED_SIGNAL, old)


def _processes() -> str:
    """Every process below this one, with its stack where py-spy is there to tell."""
    return "\n".join(map(str, filter(None, map(_describe_process, _descendants()))))


def _describe(error: Exception) -> str:
    if isinstance(error, Failed):
        return str(error)
    return "".join(traceback.format_exception(error))
