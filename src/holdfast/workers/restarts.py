"""When a worker that died is worth another life. Pure.

Runs in: whichever process starts the workers.
"""

from __future__ import annotations

from holdfast.workers.board import Phase


class StartingDeaths:
    """Remembers which workers' last life ended before it was ready."""

    def __init__(self) -> None:
        self._died_starting: set[int] = set()

    def is_worth_another(self, worker_id: int, phase: Phase) -> bool:
        """One that died before it was ready, twice in a row, would do so again."""
        died_starting = phase is Phase.STARTING
        again = died_starting and worker_id in self._died_starting
        (self._died_starting.add if died_starting else self._died_starting.discard)(worker_id)
        return not again
