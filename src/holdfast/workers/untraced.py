"""Workers that leave nothing behind but how they ended: `HOLDFAST_DIAGNOSIS=0`, to measure what diagnosis costs.

The same interface as `Traces`, so that who starts and watches workers need not ask. Runs in: supervisor process
(Untraced), worker process (UntracedEnds).
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast import options
from holdfast.diagnosis.evidence import Evidence
from holdfast.workers.board import Doing
from holdfast.workers.messages import ENDINGS, Reason
from holdfast.workers.traces import KeptTraces, Surroundings, TraceEnds, Traces


def make_traces() -> Traces:
    """For a worker that is about to be started."""
    return KeptTraces() if options.diagnoses() else Untraced()


class UntracedEnds:
    """Has the worker keep what it was started with: its stderr, and no handler of ours."""

    def install(self, *, is_forked: bool) -> Callable[[], None]:
        return self._look_at_nothing

    def install_handlers(self) -> None:
        pass

    def _look_at_nothing(self) -> None:
        pass


class _NoRelay:
    """There is no pipe: nobody has to poll it."""

    def __init__(self) -> None:
        self.fd = -1

    def take_in(self) -> bool:
        return False

    def name(self, who: str) -> None:
        pass

    @property
    def wants_more(self) -> bool:
        return False


class Untraced:
    """Watches nothing, and knows a pid."""

    def __init__(self) -> None:
        self.stderr = _NoRelay()
        self._pid = -1

    @property
    def ends(self) -> TraceEnds:
        return UntracedEnds()

    @property
    def descriptors(self) -> list[int]:
        return []

    @property
    def kept_here(self) -> list[int]:
        return []

    def begin(self, pid: int) -> None:
        self._pid = pid

    def watch(self, doing: Doing, now_s: float) -> None:
        pass

    def has_stacks(self, pidfd: int) -> bool:
        return True

    def take_stacks(self) -> None:
        pass

    def saw_memory_kill(self) -> bool:
        return False

    def evidence(self, reason: Reason, exit_code: int, doing: Doing, surroundings: Surroundings) -> Evidence:
        return Evidence(
            ending=ENDINGS[reason],
            exit_code=exit_code,
            pid=self._pid,
            phase=doing.words,
            is_cut_off=doing.is_cut_off,
            start_method=surroundings.start_method,
            sample_timeout_s=surroundings.sample_timeout_s,
            memory_limit_bytes=surroundings.memory_limit_bytes,
            memory_budget_bytes=surroundings.memory_budget_bytes,
            missing=(f"registers, stacks, memory and stderr of the worker: {options.DIAGNOSIS}=0",),
        )

    def discard(self) -> None:
        pass
