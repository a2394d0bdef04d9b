"""The kernel's out-of-memory killer ended the worker: its memory cgroup, or the machine, had no memory left.

Signs: SIGKILL, and a count of such kills went up between the readings before and after. The count of the worker's own
cgroup proves it if it went up by as many as were killed, and if the worker was large: else the kernel may have chosen
a neighbour, and it is likely, as it is by the count of the whole machine. A SIGKILL without such a count is never
called out of memory.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast import words
from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Evidence, MemoryCounters

NAME = "out of memory"
_LARGE_SHARE = 0.1


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if signs.signal_of(evidence) != wording.SIGKILL:
        return None
    in_cgroup, on_host = signs.out_of_memory_kills(evidence)
    if in_cgroup:
        is_proven = (evidence.kills_seen or 1) <= in_cgroup and _is_large(evidence)
        confidence = Confidence.CERTAIN if is_proven else Confidence.LIKELY
        because = "the out-of-memory killer ended a process of the worker's memory cgroup at that moment"
        because += "" if is_proven else "; the kernel does not tell which"
        counted = f"kills counted in cgroup {_cgroup(evidence)}: {in_cgroup} more than before"
    elif on_host:
        confidence = Confidence.LIKELY
        because = (
            "the out-of-memory killer ended a process on this machine at that moment; the kernel does not tell which"
        )
        counted = f"kills counted on the machine (/proc/vmstat oom_kill): {on_host} more than before"
    else:
        return None
    growth = wording.growth(evidence.memory, evidence.memory_at_start_bytes)
    lines = (
        counted,
        _killed(evidence, in_cgroup or on_host or 0),
        _limit(evidence),
        _budget(evidence),
        evidence.memory_needs,
        growth,
    )
    return Diagnosis(
        cause=NAME,
        confidence=confidence,
        summary="was killed by the kernel, which was out of memory"
        if confidence is Confidence.CERTAIN
        else "was killed by SIGKILL, when the kernel was out of memory",
        because=because,
        where=signs.where(evidence),
        evidence=("SIGKILL", *(line for line in lines if line)),
        advice=_advice(evidence),
    )


def _is_large(evidence: Evidence) -> bool:
    """Whether what it had of its own, when it was last looked at, was a good part of what its cgroup may have."""
    after = evidence.counters_after or MemoryCounters()
    room = after.cgroup_limit_bytes or after.cgroup_usage_bytes
    seen = [reading.anonymous_bytes for reading in evidence.memory if reading.anonymous_bytes > 0]
    own = seen[-1] - min(evidence.memory_at_start_bytes, *seen) if seen else 0
    return room is not None and own >= _LARGE_SHARE * room > 0


def _killed(evidence: Evidence, counted: int) -> str:
    """Where there were more deaths than such kills."""
    seen = evidence.kills_seen or 1
    return (
        f"workers that were killed by SIGKILL, or were about to end, at that moment: {seen}" if seen > counted else ""
    )


def _cgroup(evidence: Evidence) -> str:
    after = evidence.counters_after
    return wording.one_line(after.cgroup, 120) if after is not None and after.cgroup else "of the worker"


def _limit(evidence: Evidence) -> str:
    """The limit, and what was used of it just before: afterwards the dead worker's memory is free again."""
    before, after = evidence.counters_before or MemoryCounters(), evidence.counters_after or MemoryCounters()
    limit = after.cgroup_limit_bytes or before.cgroup_limit_bytes
    usage = max(before.cgroup_usage_bytes or 0, after.cgroup_usage_bytes or 0)
    if limit:
        return f"limit of the cgroup {words.size(limit)}" + (f", in use {words.size(usage)}" if usage else "")
    free = before.host_available_bytes
    return "" if free is None else f"available on the machine before: {words.size(free)}"


def _budget(evidence: Evidence) -> str:
    budget = evidence.memory_budget_bytes
    return "" if budget is None else f"memory_budget {words.limit(budget)}"


def _advice(evidence: Evidence) -> tuple[str, ...]:
    fewer = "use fewer workers (num_workers), a smaller batch_size or a smaller prefetch_factor"
    if evidence.memory_budget_bytes is None:
        fewer = 'DataLoader(..., memory_budget="80%")   fewer batches at once where memory is short'
    limit = evidence.counters_after is not None and bool(evidence.counters_after.cgroup_limit_bytes)
    raise_it = (
        "raise the memory limit of the container or job (docker run --memory, Slurm --mem, Kubernetes limits)"
        if limit
        else "free memory on this machine: ps aux --sort=-rss | head"
    )
    if " grew " in wording.growth(evidence.memory, evidence.memory_at_start_bytes):
        return (
            "find what the dataset keeps of each sample: the worker's memory grew from sample to sample",
            fewer,
            raise_it,
        )
    return fewer, raise_it
