"""Has a dataset made, pickled and sampled in a guarded process, step by step, and has what was seen judged.

Every step has a limit of time. One that costs the process is told by its diagnosis; after one that hung there is no
further sample. Runs in: main process.
"""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import holdfast
from holdfast.diagnosis.wording import one_line
from holdfast.doctor.finding import Finding
from holdfast.tasks.examine import in_worker, taking
from holdfast.tasks.examine.checks import ALL
from holdfast.tasks.examine.seen import Around, Lost, Made, Pickled, Raised, Sample, Seen, Taken
from holdfast.tasks.examine.taking import Which
from holdfast.tasks.examine.user_code import Loads
from holdfast.words import seconds

_EVIDENCE_LINES = 5
_OURS = re.compile(
    r"<frozen |(in_worker|taking|user_code|targets|calling)\.py|holdfast.(workers|cli|tasks).|and \d+ frames more"
)
"""Frames around those of the user's code."""
_OF_THE_POOL = "ProcessPoolExecutor("  # advice that is about our own means here


@dataclass(frozen=True, slots=True)
class Plan:
    target: str
    start_method: str
    """How the loader will start its workers."""
    samples: int = 4
    limit_s: float = 60.0
    """For making it, for pickling it, and for each sample."""


def examine(load: Loads, plan: Plan, on_step: Callable[[str], object] = lambda step: None) -> Seen:
    """Look at it. What `load` raises without a cause is wrong usage, and is raised here."""
    # New interpreters: nothing of this process is in them, under every start method of the loader's.
    context = multiprocessing.get_context("spawn")
    with holdfast.ProcessPoolExecutor(
        1, context, in_worker.print_to_stderr, timeout=plan.limit_s, record=False
    ) as pool:
        return _Examination(pool, load, plan, on_step).run()


def findings(seen: Seen) -> list[Finding]:
    """What it means, in the order of the checks. Those that need a dataset are left out where none could be made."""
    return [finding for check in ALL for finding in check.judge(seen)]


class _Examination:
    def __init__(
        self, pool: holdfast.ProcessPoolExecutor, load: Loads, plan: Plan, on_step: Callable[[str], object]
    ) -> None:
        self._pool = pool
        self._load = load
        self._plan = plan
        self._on_step = on_step

    def run(self) -> Seen:
        target, method = self._plan.target, self._plan.start_method
        made: Made | Raised | Lost = self._ask(f"making {target}", in_worker.make, self._load, target)
        if not isinstance(made, Made):
            return Seen(target, method, made)
        pickled: Pickled | Lost = self._ask("pickling it", in_worker.pickle_it, self._load, target)
        taken = self._take_first() if made.is_iterable else self._take_some(made.length)
        around: Around | Lost = self._ask("looking around", in_worker.look_around)
        return Seen(target, method, made, pickled, tuple(taken), around if isinstance(around, Around) else Around())

    def _take_some(self, length: int | None) -> list[Taken]:
        taken: list[Taken] = []
        for index in spread(self._plan.samples, length):
            taken += self._take(index, f"loading sample {index}")
            if isinstance(taken[-1].result, Lost) and taken[-1].result.is_hang:
                break
        return taken

    def _take_first(self) -> list[Taken]:
        return self._take(range(self._plan.samples), "loading the first samples")

    def _take(self, which: Which, step: str) -> list[Taken]:
        """Load, load again, and where that differs twice more with equal seeds."""
        result: list[Sample] | Raised | Lost = self._ask(step, taking.take, self._load, self._plan.target, which)
        if isinstance(result, list):
            step = f"{step} again"
            result = self._ask(step, taking.take_again, self._load, self._plan.target, which, result)
        if isinstance(result, list) and any(sample.differs_at for sample in result):
            step = f"{step}, with equal seeds"
            result = self._ask(step, taking.take_seeded, self._load, self._plan.target, which, result)
        if isinstance(result, list):
            return [Taken(sample.index, sample) for sample in result]
        return [Taken(which if isinstance(which, int) else 0, result)]

    def _ask(self, step: str, call: Callable[..., Any], *args: Any) -> Any:
        """What the call returns, or how it cost its process."""
        self._on_step(step)
        try:
            return self._pool.submit(call, *args).result()
        except holdfast.WorkerError as error:
            return lost(error, self._plan.limit_s)


def spread(count: int, length: int | None) -> list[int]:
    """The first, the last, and as many between them as are asked for; of an unknown length the first ones."""
    if length is None:
        return list(range(count))
    if count >= length:
        return list(range(length))
    return sorted({round(k * (length - 1) / max(1, count - 1)) for k in range(count)})


def lost(error: holdfast.WorkerError, limit_s: float) -> Lost:
    """By the diagnosis, in the words of a dataset: nobody here has a pool to set a timeout of."""
    incident = error.incident
    if incident is None:
        return Lost("could not be looked at", one_line(str(error)), (), ())
    is_hang = isinstance(error, holdfast.WorkerTimeout)
    because = f"it had not ended after {seconds(limit_s)}" if is_hang else incident.because
    lines = (line for line in incident.evidence.splitlines() if line.strip() and not _OURS.search(line))
    evidence = tuple(one_line(line) for line, _ in zip(lines, range(_EVIDENCE_LINES), strict=False))
    advice = tuple(line for line in incident.advice if not line.startswith(_OF_THE_POOL))
    return Lost(incident.summary or incident.cause, because, evidence, advice, is_hang)
