"""What others can see of an iterator while it runs: counts on the status board, and its workers in the record.

The board is looked at from outside, by `records/live.py`; a store costs nothing next to a batch. What the workers have
measured there is counted with the loader's own when the iterator is closed.

Runs in: main process, in the thread that calls `next()`.
"""

from __future__ import annotations

from holdfast.board_rows import (
    BATCHES,
    EPOCH,
    FIRST_UNIT,
    HAS_ENDED,
    RESTARTS,
    SAMPLES,
    SKIPPED,
    TOKEN,
    WAITED_NS,
    WAITING_NS,
)
from holdfast.loader.ledger import Ledger
from holdfast.workers.backend import WorkerBackend
from holdfast.workers.board import Board, private_row
from holdfast.workers.lives import FIRST

_NANO = 1e9


class Display:
    """For one iterator, from the moment it has workers."""

    def __init__(self, ledger: Ledger, backend: WorkerBackend) -> None:
        self._run, self._counters = ledger.run, ledger.counters
        self._lives = backend.lives
        self._why_first = FIRST if ledger.epoch == 0 else "epoch"
        self._board: Board | None = backend.board
        self._counters.boards.append(backend.board)
        self._row = backend.board.main_row()
        self._batches_before = self._samples_before = 0

    def begin_epoch(self, epoch: int, first_unit: int) -> None:
        row = self._row
        row[TOKEN], row[EPOCH], row[FIRST_UNIT] = self._run.token, epoch, first_unit
        row[WAITED_NS] = int(self._run.counted.waited_s * _NANO)
        before = self._run.counted.before
        self._batches_before, self._samples_before = before.batches, before.samples
        self.count_batch(0)
        self.took_in()

    def count_batch(self, delivered: int = 1) -> None:
        """What the run has counted, as `CountedInRun` would say: this is done for each batch, and in few steps."""
        counters, row = self._counters, self._row
        counters.batches += delivered
        row[BATCHES] = counters.batches - self._batches_before
        row[SAMPLES] = counters.samples - self._samples_before

    def begin_wait(self, now_s: float) -> None:
        self._row[WAITING_NS] = int(now_s * _NANO)

    def end_wait(self, waited_s: float) -> None:
        self._counters.waited_s += waited_s
        row = self._row
        row[WAITED_NS], row[WAITING_NS] = int(self._run.counted.waited_s * _NANO), 0

    def took_in(self) -> None:
        """What the workers said, or became of them, is in the books."""
        self._row[SKIPPED], self._row[RESTARTS] = self._run.counted.skipped, self._run.counted.restarts
        if self._lives.news:
            self._note_lives()

    def _note_lives(self) -> None:
        """Which worker processes began and ended goes into the record."""
        while self._lives.news:
            life = self._lives.news.popleft()
            self._run.note_worker(life, why=self._why_first if life.why == FIRST else life.why)

    def hide(self) -> None:
        """Before the workers end: who looks from now on finds nothing."""
        self._row[HAS_ENDED] = 1

    def close(self) -> None:
        """Afterwards. Lets go of the board, whose mapping has a descriptor."""
        self._note_lives()
        if self._board is not None:
            self._counters.settle(self._board)
        self._board, self._row = None, private_row()
