"""What is known of each rank of a group: kept up to date with what happens to it.

Runs in: main process.
"""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Iterable, Sequence

from holdfast.counted import SPAWN
from holdfast.diagnosis.call_words import for_calls
from holdfast.diagnosis.wording import one_line
from holdfast.launch.states import End, RankState, first_to_fail, is_about_a_peer
from holdfast.workers.backend import SupervisorLost, WorkerLost
from holdfast.workers.calls import Happening, Lost, Raised
from holdfast.workers.failures import Failure, rebuild

_LONGEST_WORDS = 200


class Register:
    """The states of all ranks, and what they are known from."""

    def __init__(self, pids: Sequence[int | None]) -> None:
        """`pids`: of all ranks, in their order."""
        self.states = [RankState(rank, pid) for rank, pid in enumerate(pids)]
        self.failures: dict[int, Failure] = {}  # of ranks whose function raised
        self.losses: dict[int, WorkerLost] = {}  # of ranks whose process is gone
        self.lost_all: SupervisorLost | None = None
        self.is_ending = False  # what happens from now on is our doing

    @property
    def first_failed(self) -> RankState | None:
        return first_to_fail(self.states)

    @property
    def all_are_gone(self) -> bool:
        return len(self.losses) == len(self.states) or self.lost_all is not None

    def take_in(self, happenings: Iterable[Happening]) -> None:
        for happening in happenings:
            if isinstance(happening, Raised):
                self._raised(happening.call.worker_id, happening.failure)
            elif isinstance(happening, Lost):
                self._lost(happening.loss)

    def _set(self, rank: int, end: End, words: str, at: float = 0.0, *, is_consequence: bool = False) -> None:
        self.states[rank] = dataclasses.replace(
            self.states[rank],
            end=end,
            words=one_line(words, _LONGEST_WORDS),
            at=at or time.time(),
            is_consequence=is_consequence,
        )

    def _raised(self, rank: int, failure: Failure) -> None:
        error = rebuild(failure)
        said = _in_a_line(error)
        if isinstance(error, KeyboardInterrupt):
            self._set(rank, End.INTERRUPTED, "was interrupted")
        elif isinstance(error, SystemExit) and not error.code:
            return  # it has ended as if it had returned: its exit says so
        elif self.is_ending:
            self._set(rank, End.ENDED, f"was ended with the group, and raised {said}")
        else:
            self.failures[rank] = failure
            words = f"exited with status {error.code}" if isinstance(error, SystemExit) else f"raised {said}"
            about_peer = is_about_a_peer(failure.qualname, said)
            self._set(rank, End.FAILED, words, failure.raised_at, is_consequence=about_peer)

    def _lost(self, loss: WorkerLost | SupervisorLost) -> None:
        if isinstance(loss, SupervisorLost):
            self._all_gone(loss)
        elif self.lost_all is None:  # else it was started in the place of a rank that is lost, and had nothing to do
            self._gone(loss)

    def _gone(self, loss: WorkerLost) -> None:
        rank = loss.worker_id
        self.losses[rank] = loss
        if self.states[rank].end is End.NONE:
            self._judge_exit(rank, loss)
        tail = loss.evidence.stderr_tail
        self.states[rank] = dataclasses.replace(self.states[rank], stderr_tail=tail)

    def _judge_exit(self, rank: int, loss: WorkerLost) -> None:
        if loss.exitcode == 0:
            self._set(rank, End.FINISHED, "finished")
        elif self.is_ending and loss.exitcode == -signal.SIGTERM:
            self._set(rank, End.ENDED, "was running, and was ended with the group")
        elif self.is_ending:
            self._set(rank, End.ENDED, "was running, and did not end when it was told to: it was killed")
        else:
            summary = for_calls(loss.diagnosis, SPAWN).summary
            self._set(rank, End.FAILED, summary, loss.evidence.seen_at or 0.0)

    def _all_gone(self, loss: SupervisorLost) -> None:
        self.lost_all = loss
        for state in self.states:
            if state.end is End.NONE:
                end = End.ENDED if self.is_ending else End.FAILED
                self._set(state.rank, end, "was lost with the supervisor of all ranks")


def _in_a_line(error: BaseException) -> str:
    """ "ValueError: bad header", of an exception of the user's, whose text may be anything, or raise."""
    try:
        text = one_line(str(error), _LONGEST_WORDS)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
