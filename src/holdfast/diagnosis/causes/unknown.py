"""None of the known causes fits what was seen.

Signs: none that another cause knows. What it was not is listed, with how that is known.

Pure. Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence

NAME = "unknown"
_MEANING = {
    wording.SIGXCPU: "it had used the CPU time that ulimit -t allows",
    wording.SIGXFSZ: "it wrote a file larger than ulimit -f allows",
    wording.SIGSYS: "it made a system call that is forbidden here (seccomp)",
    wording.SIGPIPE: "it wrote into a pipe or socket that nobody reads any more",
    wording.SIGALRM: "a timer went off that the program had set without a handler (signal.alarm)",
    wording.SIGTRAP: "it ran into a breakpoint, or a check of its native code",
}


def diagnose(evidence: Evidence) -> Diagnosis:
    number = signs.signal_of(evidence)
    meaning = f"; {wording.signal_name(number)} mostly means that {_MEANING[number]}" if number in _MEANING else ""
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.UNKNOWN,
        summary=signs.ended(evidence),
        because=f"what was seen fits no known cause{meaning}",
        where=signs.where(evidence),
        evidence=(*signs.signal_line(evidence), *signs.stack_lines(evidence, 3)),
        advice=(
            "DataLoader(..., num_workers=0)   loads in this process, where a debugger sees it",
            "report it, with this message, so that holdfast learns the cause",
        ),
        ruled_out=tuple(ruled_out(evidence)),
    )


def ruled_out(evidence: Evidence) -> Iterator[str]:
    """What it was not, and how we know. Nothing is ruled out for want of evidence."""
    in_cgroup, on_host = signs.out_of_memory_kills(evidence)
    number, frame = signs.signal_of(evidence), signs.frame_of(evidence)
    if in_cgroup == 0 or on_host == 0:
        yield f"out of memory: no kill was counted {'in its cgroup' if in_cgroup == 0 else 'on this machine'}"
    elif number is not None and number != wording.SIGKILL:
        yield "out of memory: the kernel would have sent SIGKILL"
    if frame is not None and frame.code > 0:
        code = wording.code_name(frame.signal, frame.code)
        yield f"killed by another process: the kernel raised the signal itself ({code})"
    if number is not None:
        yield "exit by user code: a signal ended it"
    elif evidence.exit_code is not None and evidence.exit_code >= 0:
        yield f"a crash: it exited with status {evidence.exit_code}, by itself"
    if evidence.raised is None and evidence.ending is not Ending.RAISED:
        yield "an exception: none arrived from it"
    if evidence.ending is Ending.EXITED:
        yield "a hang: it ended by itself, and not by us"
