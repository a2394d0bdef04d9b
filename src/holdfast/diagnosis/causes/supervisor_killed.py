"""The supervisor, the process that starts and watches the workers, was lost; holdfast starts another.

Signs: a signal ended its process, or has stopped it, while the main process still needed it. Where it only gives no
sign of life, it is possible. One that exited by itself was not killed: that is unknown.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence

NAME = "supervisor killed"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    has_exited = evidence.exit_code is not None and evidence.exit_code >= 0
    if evidence.ending is not Ending.SUPERVISOR or has_exited:
        return None
    is_seen = evidence.exit_code is not None or evidence.is_stopped
    ended = _ended(evidence)
    kills = signs.out_of_memory_kills(evidence)
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN if is_seen else Confidence.POSSIBLE,
        summary=ended,
        because=_because(evidence, ended, any(kills)),
        evidence=tuple(_counted(kills)) or (f"the supervisor {ended}",),
        advice=(
            "look at what kills processes here: the job scheduler's log, the container runtime, systemd-oomd",
            "dmesg | grep -i 'killed process'   as root: whether the kernel ran out of memory",
        ),
    )


def _ended(evidence: Evidence) -> str:
    if evidence.exit_code is not None:
        return signs.ended(evidence)
    return "was stopped by a signal and not continued" if evidence.is_stopped else "gave no sign of life any more"


def _because(evidence: Evidence, ended: str, is_memory: bool) -> str:
    if is_memory:
        return f"the supervisor {ended}, and the out-of-memory killer was at work since it was last looked at"
    if evidence.exit_code == -wording.SIGKILL:
        return "the supervisor was killed by SIGKILL; who sent it the kernel does not tell"
    if evidence.exit_code is None:
        return f"the supervisor {ended}: it was stopped, or had no processor for seconds; it was ended by holdfast"
    return f"the supervisor {ended}: it does not end by itself while a loader is in use"


def _counted(kills: tuple[int | None, int | None]) -> list[str]:
    names = ("in its cgroup", "on the machine")
    return [
        f"out-of-memory kills counted {where}: {number}"
        for where, number in zip(names, kills, strict=True)
        if number is not None
    ]
