"""Which numbers of workers are tried, and what the arrivals of batches say of their rate. Pure.

Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Sequence

GAIN = 1.05
"""What is less is no gain: one measurement differs from the next by as much."""
_WARM_UP_SHARE = 0.2
_MOST_PATIENT = 2


def worker_counts(cpus: int, most: int | None = None) -> list[int]:
    """1, 2, 4, ... up to twice the CPUs, or to `most`; the number of CPUs and the last one are among them."""
    last = most or 2 * cpus
    powers = (1 << power for power in range(last.bit_length()))
    return sorted({count for count in (*powers, cpus, last) if 1 <= count <= last})


def has_flattened(rates: Sequence[float]) -> bool:
    """Whether the last two, in order of their workers, gained nothing over the best before."""
    if len(rates) <= _MOST_PATIENT:
        return False
    best = max(rates[:-_MOST_PATIENT])
    return max(rates[-_MOST_PATIENT:]) < GAIN * best


def has_turns(batches: int, num_workers: int) -> bool:
    """Whether as many batches came as a rate needs: the first turn of the workers, and two more."""
    return batches >= 3 * num_workers


def rate(arrivals_s: Sequence[float], num_workers: int) -> float | None:
    """Batches per second, from when each came, counted from the start of the workers; None where none came.

    Batches come in order, so those of n workers come n at a time: only whole turns are counted, and none of the first,
    which has the start of the workers in it. Where there were no two turns, the start is counted.
    """
    last = len(arrivals_s) - 1
    if last < 0:
        return None
    first = num_workers - 1 + num_workers * int(_WARM_UP_SHARE * last / num_workers)
    turns = (last - first) // num_workers
    if turns >= 1:
        end = first + turns * num_workers
        took_s = arrivals_s[end] - arrivals_s[first]
        if took_s > 0:
            return (end - first) / took_s
    return (last + 1) / arrivals_s[last] if arrivals_s[last] > 0 else None


def measured_batch_size(batch_size: int, sample_s: float, window_s: float) -> int:
    """No more samples in a batch than let one worker make six of them in the time: else there is nothing to count."""
    if 6 * batch_size * sample_s <= window_s:
        return batch_size
    return max(1, int(window_s / (6 * sample_s)))
