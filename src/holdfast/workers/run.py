"""The run of a pool, or of ranks, as it goes to disk: begun with the first call, ended with the workers.

A pool inside a worker of another writes nothing, as a loader in a loader's worker: there may be one for each call.
Runs in: main process, in the thread that has the workers; worker process (`be_quiet`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

import holdfast
from holdfast import counted, options
from holdfast.board_rows import HAS_ENDED, RESTARTS, SAMPLES, SKIPPED, TOKEN
from holdfast.events import Teller
from holdfast.incident import Incident
from holdfast.records.facts import RunFacts
from holdfast.records.readings import WorkerPids
from holdfast.records.writer import RunRecord
from holdfast.workers import start_methods
from holdfast.workers.board import Board, private_row
from holdfast.workers.lives import Lives

_LONGEST_NAME = 200
_quiet: list[bool] = []


def be_quiet() -> None:
    """In a worker: from now on this process, and those it forks, record no calls of their own."""
    _quiet.append(True)


@dataclass(slots=True)
class CallCounters:
    """What is counted of calls, and what a reading calls it, which has the loader's names."""

    samples: int = 0  # that have come back, whatever came of them
    skipped: int = 0  # of these, the ones that failed
    restarts: int = 0  # of workers, or of all ranks
    batches: int = 0
    waited_s: float = 0.0

    def details(self) -> Mapping[str, Any]:
        return {}


class RunOfCalls:
    """What is said of it while it runs. Where nothing is recorded, nothing of this is written."""

    def __init__(self, front: str, *, is_recorded: bool) -> None:
        """`front`: as in `counted.py`."""
        self._front = front
        self._is_recorded = is_recorded
        self._record = RunRecord.none()
        self._teller = Teller(front)
        self._shown = private_row()
        self.counters = CallCounters()

    def begin(self, function: Any, num_workers: int, start_method: str) -> None:
        counted.count(self, self._front, self.counters)
        if not self._is_recorded or _quiet or start_methods.is_starting() or not options.diagnoses():
            return
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        facts = RunFacts(
            holdfast_version=holdfast.__version__,
            torch_version=str(torch.__version__),
            num_workers=num_workers,
            start_method=start_method,
            batch_size=None,
            dataset=None,
            dataset_length=None,
            front=self._front,
            function=str(name)[:_LONGEST_NAME],
        )
        self._record = RunRecord.open(facts)

    def note(self, incident: Incident) -> None:
        """Write it down, give it the id that it has there, and tell who wants to know."""
        said = incident.to_json()
        del said["id"]  # it gets one by being written
        incident_id = self._record.note_incident(said)
        if incident_id is not None:
            incident.identify(incident_id)
        self._teller.tell(incident)

    def show_on(self, board: Board) -> None:
        """From here on, for who looks at it from outside: what is counted, and of which run the workers are."""
        self._shown = board.main_row()
        self._shown[TOKEN] = self._record.token

    def hide(self) -> None:
        """Before the workers end."""
        self._shown[HAS_ENDED] = 1
        self._shown = private_row()

    def note_lives(self, lives: Lives) -> None:
        """Which worker processes began and ended."""
        while lives.news:
            self._record.note_worker(lives.news.popleft()._asdict())

    def tick(self, now_s: float, worker_pids: WorkerPids) -> None:
        """Take a reading, if one is due. Next to nothing if not."""
        shown, counters = self._shown, self.counters
        shown[SAMPLES], shown[SKIPPED], shown[RESTARTS] = counters.samples, counters.skipped, counters.restarts
        self._record.tick(now_s, self.counters, worker_pids)

    def end(self) -> None:
        """Write the last line. To end again does nothing."""
        counters = self.counters
        self._record.close({"samples": counters.samples, "skipped": counters.skipped, "restarts": counters.restarts})
        self._teller.end()
