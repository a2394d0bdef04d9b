"""From what was seen to what it means: the one way into this package for whoever has evidence.

    Evidence ──► native.resolve (library, symbol, instruction) ──► facts.gather (files, CPU) ──► engine.diagnose

Reads files, so it runs where it delays no worker. Never raises. Runs in: main process.
"""

from __future__ import annotations

from holdfast.diagnosis import collect, engine, facts
from holdfast.diagnosis.evidence import Diagnosis, Ending, Evidence, MemoryGrowth
from holdfast.diagnosis.native.resolve import resolve


def diagnose(evidence: Evidence) -> Diagnosis:
    """What killed it, or what it raised."""
    return engine.diagnose(facts.gather(resolve(evidence)))


def evidence_of_growth(growth: MemoryGrowth) -> Evidence:
    """Of a worker that is alive, and grows."""
    return Evidence(Ending.GREW, growth=growth)


def evidence_of(
    error: BaseException,
    traceback: str,
    phase: str,
    start_method: str = "",
    *,
    memory: tuple[int, int, int] | None = None,
    descriptors: str = "",
) -> Evidence:
    """Of an exception, with the traceback of where it was raised.

    `memory`: where the process that raised it has a limit: that, what it used of it, and what it had kept since earlier
    units. `descriptors`: who held them, where there were none left.
    What a forked worker has inherited is what is open here: seldom is a file opened, or closed, between the two.
    """
    return Evidence(
        Ending.RAISED,
        phase=phase,
        start_method=start_method,
        raised=facts.describe(error, traceback),
        inherited_files=collect.open_files() if start_method == "fork" else (),
        open_files_held=descriptors,
        memory_limit_bytes=memory[0] if memory is not None else None,
        memory_used_bytes=memory[1] if memory is not None else None,
        memory_kept_bytes=memory[2] if memory is not None else 0,
    )
