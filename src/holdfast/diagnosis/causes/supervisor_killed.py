"""The supervisor, the process that starts and watches the workers, was lost; holdfast starts another.

Signs: its process ended, or fell silent, while the main process still needed it.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence

NAME = "supervisor killed"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if evidence.ending is not Ending.SUPERVISOR:
        return None
    ended = signs.ended(evidence)
    kills = signs.out_of_memory_kills(evidence)
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN,
        summary=ended,
        because=_because(evidence, ended, any(kills)),
        evidence=tuple(_counted(kills)) or (f"the supervisor {ended}",),
        advice=(
            "look at what kills processes here: the job scheduler's log, the container runtime, systemd-oomd",
            "dmesg | grep -i 'killed process'   as root: whether the kernel ran out of memory",
        ),
    )


def _because(evidence: Evidence, ended: str, is_memory: bool) -> str:
    if is_memory:
        return f"the supervisor {ended} while the kernel's out-of-memory killer was at work"
    if evidence.exit_code == -wording.SIGKILL:
        return "the supervisor was killed by SIGKILL; who sent it the kernel does not tell"
    return f"the supervisor {ended}: it does not end by itself while a loader is in use"


def _counted(kills: tuple[int | None, int | None]) -> list[str]:
    names = ("in its cgroup", "on the machine")
    return [
        f"out-of-memory kills counted {where}: {number}"
        for where, number in zip(names, kills, strict=True)
        if number is not None
    ]
