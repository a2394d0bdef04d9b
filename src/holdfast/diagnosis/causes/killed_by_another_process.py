"""Another process killed the worker: a user, a job scheduler, a container runtime, a memory daemon.

Signs: a fatal signal that the kernel says another process sent (its pid is named); or SIGKILL, SIGTERM, SIGINT,
SIGHUP and their like, which nothing in a crashing program raises. For SIGKILL the kernel does not tell who sent it;
it is likely only where the counts of out-of-memory kills are known and did not change.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Evidence

NAME = "killed by another process"
_ALWAYS_SENT = (
    wording.SIGTERM,
    wording.SIGINT,
    wording.SIGHUP,
    wording.SIGQUIT,
    wording.SIGUSR1,
    wording.SIGUSR2,
)


def diagnose(evidence: Evidence) -> Diagnosis | None:
    number = signs.signal_of(evidence)
    if number is None:
        return None
    sender = signs.sender_of(evidence)
    name = wording.signal_name(number)
    if sender is not None:
        return _diagnosis(evidence, Confidence.CERTAIN, f"{_whom(sender)} sent it {name}", sender)
    if signs.sent_itself(evidence):
        return None
    if number == wording.SIGKILL:
        return _of_sigkill(evidence)
    if number in _ALWAYS_SENT:
        because = f"{name} is only ever sent by a process; which one was not seen"
        return _diagnosis(evidence, Confidence.LIKELY, because)
    return None


def _of_sigkill(evidence: Evidence) -> Diagnosis | None:
    in_cgroup, on_host = signs.out_of_memory_kills(evidence)
    if in_cgroup or on_host:
        return None
    if in_cgroup is None and on_host is None:
        because = "SIGKILL is sent by a process or by the kernel; whether it was the kernel could not be read here"
        return _diagnosis(evidence, Confidence.POSSIBLE, because)
    because = (
        "a process sent it SIGKILL; which one the kernel does not tell, for SIGKILL leaves no trace in the process"
    )
    counted = "no out-of-memory kill was counted " + ("in its cgroup" if in_cgroup == 0 else "on this machine")
    return _diagnosis(
        evidence,
        Confidence.LIKELY,
        because,
        None,
        counted,
        wording.growth(evidence.memory, evidence.memory_at_start_bytes),
    )


def _diagnosis(
    evidence: Evidence, confidence: Confidence, because: str, sender: int | None = None, *more: str
) -> Diagnosis:
    number = signs.signal_of(evidence)
    assert number is not None
    name = wording.signal_name(number)
    return Diagnosis(
        cause=NAME,
        confidence=confidence,
        summary=f"was killed by {name}" + (f" from {_whom(sender)}" if sender is not None else ""),
        because=because,
        where=signs.where(evidence),
        evidence=(*signs.signal_line(evidence), *(line for line in more if line)),
        advice=_advice(number, sender),
    )


def _whom(sender: int) -> str:
    return f"process {sender}" if sender else "a process outside of this container (pid 0)"


def _advice(number: int, sender: int | None) -> tuple[str, ...]:
    look = "look at what kills processes here: the job scheduler's log, the container runtime, systemd-oomd"
    if sender:
        return (f"ps -fp {sender}   who that is, if it still runs", look)
    rule = f"auditctl -a always,exit -F arch=b64 -S kill -F a1={number} -k killed"
    return look, f"{rule}   as root, then: ausearch -k killed"
