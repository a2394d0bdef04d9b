"""From what was measured to what to write: each argument of the loader, with the reason for it. Pure.

    num_workers       the fewest that are as fast as the best, or fast enough for the step; no more than fit in memory
    prefetch_factor   so many batches ahead that nobody waits for the slowest sample
    memory_limit      far above what was seen, so that only a worker that runs away meets it
    memory_budget     all workers at that limit, or four fifths of what is left
    sample_timeout    far above the slowest sample

More workers than CPUs are proposed only where samples wait, and where they were seen to gain by it.

Runs in: main process.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast.tasks.tune import sizing
from holdfast.tasks.tune.facts import Measured, Point
from holdfast.tasks.tune.rates import GAIN
from holdfast.words import decimal_size, plural, rate, took

SPARE_RATE = 1.2
"""Times what the step needs: sample times vary, and so does what else the machine does."""
CROWD_GAIN, CROWD_WAITING = 1.1, 0.3
"""What more workers than CPUs must gain, and the share of the time that samples must wait."""
ROOM_SHARE = 0.8
MOST_AHEAD = 8
LIMIT_TIMES, LIMIT_LEAST_TIMES, LIMIT_LEAST = 4, 1.5, 10**9
TIMEOUT_TIMES, TIMEOUT_LEAST_S = 20, 10
_IN_HAND = 2  # batches that the training loop holds: the one it computes with, and the one it gets


@dataclass(frozen=True, slots=True)
class Advice:
    """One argument. `value` is None where it is better left out."""

    value: int | str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Proposal:
    num_workers: Advice
    prefetch_factor: Advice
    memory_limit: Advice
    memory_budget: Advice
    sample_timeout: Advice

    @property
    def workers(self) -> int:
        return int(self.num_workers.value or 1)

    def arguments(self) -> dict[str, int | str]:
        """Those that have a value, in the order in which they are written."""
        named = {name: getattr(self, name).value for name in self.__slots__}
        return {name: value for name, value in named.items() if value is not None}


def propose(measured: Measured) -> Proposal:
    """The curve must have a point that was measured."""
    need = Need(measured)
    num_workers, why_workers = choose_workers(measured, need)
    ahead, why_ahead = choose_prefetch(measured, need, num_workers)
    limit, why_limit = choose_limit(measured, need, num_workers, ahead)
    budget, why_budget = choose_budget(need, num_workers, ahead, limit)
    return Proposal(
        Advice(num_workers, why_workers),
        Advice(ahead, why_ahead),
        Advice(None if limit is None else sizing.written(limit), why_limit),
        Advice(budget if isinstance(budget, str) else sizing.written(budget), why_budget),
        Advice(*choose_timeout(measured)),
    )


class Need:
    """What a loader takes of the memory, and how much of it there is."""

    def __init__(self, measured: Measured) -> None:
        samples, left = measured.samples, measured.machine.left_bytes
        self.room_bytes = None if left is None else int(ROOM_SHARE * left)
        self.left_bytes = left
        self.batch_bytes = samples.batch_bytes or int(samples.sample_bytes.max * measured.setting.batch_size)
        self.start_bytes = samples.start_bytes or 0
        seen = max((point.worker_bytes or 0 for point in measured.curve), default=0)
        self.worker_bytes = max(seen, self.start_bytes + (samples.peak_bytes or self.batch_bytes))

    def batches_bytes(self, num_workers: int, ahead: int) -> int:
        return (num_workers * ahead + _IN_HAND) * self.batch_bytes

    def total_bytes(self, num_workers: int, ahead: int = 2) -> int:
        return num_workers * self.worker_bytes + self.batches_bytes(num_workers, ahead)

    def fits(self, num_workers: int, ahead: int = 2) -> bool:
        return self.room_bytes is None or self.total_bytes(num_workers, ahead) <= self.room_bytes


# -- num_workers ---------------------------------------------------------------------------------------------------


def choose_workers(measured: Measured, need: Need) -> tuple[int, str]:
    points = [point for point in measured.curve if not point.is_computed]
    if measured.repeats_elements:
        return 1, (
            "each worker of this iterable dataset gives the same elements as the others: more workers would deliver "
            "everything several times. Have __iter__ take its part, by torch.utils.data.get_worker_info()"
        )
    fitting = [point for point in points if need.fits(point.num_workers)] or points[:1]
    allowed = [point for point in fitting if _may_be_proposed(point, fitting, measured)]
    most = max(point.batches_per_s for point in allowed)
    fewest = next(point for point in allowed if GAIN * point.batches_per_s >= most)
    if measured.setting.step_s is not None:
        number, reason = _enough_for(measured.setting.step_s, allowed, fewest)
    else:
        number, reason = fewest.num_workers, _why_fewest(fewest, fitting, allowed)
    return number, "; ".join(part for part in (reason, _why_crowd(number, measured), _why_fits(measured, need)) if part)


def _may_be_proposed(point: Point, fitting: list[Point], measured: Measured) -> bool:
    cpus = measured.machine.cpus
    within = max((each.batches_per_s for each in fitting if each.num_workers <= cpus), default=0.0)
    gains = point.batches_per_s >= CROWD_GAIN * within and measured.samples.waiting_share >= CROWD_WAITING
    return point.num_workers <= cpus or gains


def _enough_for(step_s: float, allowed: list[Point], fewest: Point) -> tuple[int, str]:
    """Between two that were measured, the rate is taken to rise evenly."""
    wanted = SPARE_RATE / step_s
    needs = f"a step of {took(step_s)} takes {rate(1 / step_s)} batches/s"
    enough = next((point for point in allowed if point.batches_per_s >= wanted), None)
    if enough is None:
        share = min(1.0, fewest.batches_per_s * step_s)
        return fewest.num_workers, (
            f"{needs}, and {_gave(fewest)}, the most there is: the step would get {share:.0%} of that"
            if share < 1
            else f"{needs}, and {_gave(fewest)}, the most there is: enough, with little to spare"
        )
    below = max((p for p in allowed if p.num_workers < enough.num_workers), key=_workers, default=None)
    if below is None:
        return enough.num_workers, f"{needs}, and {_gave(enough)}"
    gap = enough.batches_per_s - below.batches_per_s
    part = (wanted - below.batches_per_s) / gap if gap > 0 else 1.0
    number = below.num_workers + max(1, math.ceil(part * (enough.num_workers - below.num_workers)))
    number = min(number, enough.num_workers)
    between = "" if number == enough.num_workers else f", so {number} are enough"
    return number, f"{needs}, and a fifth to spare: {_gave(below)}, {_gave(enough)}{between}"


def _why_fewest(fewest: Point, fitting: list[Point], allowed: list[Point]) -> str:
    fewer = [point for point in allowed if point.num_workers < fewest.num_workers]
    more = [point for point in fitting if point.num_workers > fewest.num_workers]
    said = [_gave(fewest), *(_gave(point) for point in fewer[-1:])]
    if more:
        best = max(more, key=lambda point: point.batches_per_s)
        is_crowd = best not in allowed and best.batches_per_s > GAIN * fewest.batches_per_s
        said.append(f"{_gave(best)}{_ONLY_A_CROWD}" if is_crowd else _gave(best))
    return ", ".join(said) if len(said) > 1 else f"{said[0]}, and more were not measured"


_ONLY_A_CROWD = ": more than there are CPUs, which is to be relied on only where samples wait"


def _why_crowd(number: int, measured: Measured) -> str:
    cpus = measured.machine.cpus
    if number <= cpus:
        return ""
    return (
        f"more than the {plural(cpus, 'CPU')} pay, since samples wait {measured.samples.waiting_share:.0%} of their "
        f"time (torch and holdfast warn of it all the same)"
    )


def _why_fits(measured: Measured, need: Need) -> str:
    if need.left_bytes is None:
        return ""
    left = f"{decimal_size(need.left_bytes)} are left"
    if not need.fits(1):
        return f"memory is short: even one needs {decimal_size(need.total_bytes(1))}, and {left}"
    tried = (point.num_workers for point in measured.curve if not need.fits(point.num_workers))
    too_many = next(tried, measured.too_many)
    if too_many is None:
        return ""
    return f"{too_many} would need {decimal_size(need.total_bytes(too_many))}, and {left}"


def _workers(point: Point) -> int:
    return point.num_workers


def _gave(point: Point) -> str:
    return f"{point.num_workers} gave {rate(point.batches_per_s)}/s"


# -- the others ----------------------------------------------------------------------------------------------------


def choose_prefetch(measured: Measured, need: Need, num_workers: int) -> tuple[int, str]:
    """While one worker is late, what the others have ready must last: batches are delivered in order."""
    samples, step_s = measured.samples, measured.setting.step_s
    delivered = rate_of(measured, num_workers)
    taken = delivered if step_s is None else min(delivered, 1 / step_s)
    late_s = max(0.0, samples.seconds.max - samples.mean_s)
    wanted = 1 + math.ceil(late_s * taken / num_workers)
    ahead = min(max(2, wanted), MOST_AHEAD)
    while ahead > 1 and not need.fits(num_workers, ahead):
        ahead -= 1
    lasts = f"{ahead} batches ahead for each worker last {took(ahead * num_workers / taken)}"
    slowest = f"the slowest sample took {took(samples.seconds.max)}, the median one {took(samples.seconds.median)}"
    if ahead < min(max(2, wanted), MOST_AHEAD):
        each = decimal_size(need.batch_bytes)
        return ahead, f"{slowest}; more than {ahead} ahead, of {each} each, do not fit in memory"
    if wanted > MOST_AHEAD:
        return ahead, f"{slowest}: {lasts}, and it would take {wanted} to never wait for such a one"
    return ahead, f"{slowest}: {lasts}, so nobody waits for such a one"


def rate_of(measured: Measured, num_workers: int) -> float:
    """Of the most workers that were measured and are no more; of the fewest, if there are none."""
    points = [point for point in measured.curve if not point.is_computed]
    below = [point for point in points if point.num_workers <= num_workers]
    return (below[-1] if below else points[0]).batches_per_s


def choose_limit(measured: Measured, need: Need, num_workers: int, ahead: int) -> tuple[int | None, str]:
    peak = measured.samples.peak_bytes
    if peak is None:
        return None, "what a worker takes cannot be measured on this platform"
    seen = f"a worker took {decimal_size(peak)} beyond its start at most, with a batch in hand"
    wanted = sizing.rounded_up(max(LIMIT_TIMES * peak, LIMIT_LEAST))
    affordable = _affordable(need, num_workers, ahead)
    if affordable is None or wanted <= affordable:
        times = f"{LIMIT_TIMES} times that" if LIMIT_TIMES * peak >= LIMIT_LEAST else "far above that"
        return wanted, f"{seen}; {times}, for samples larger than those seen: only a worker that runs away meets it"
    limit = max(sizing.rounded_down(affordable), sizing.rounded_up(LIMIT_LEAST_TIMES * peak))
    if limit <= affordable:
        all_of_them = (
            f"{num_workers} workers that all take so much still fit"
            if num_workers > 1
            else "a worker that takes so much still fits"
        )
        return limit, f"{seen}; {all_of_them} in what is left"
    return limit, f"{seen}; little above that, since memory is short: not all workers can have so much at once"


def _affordable(need: Need, num_workers: int, ahead: int) -> float | None:
    """Beyond its start, for each worker."""
    if need.room_bytes is None:
        return None
    return (need.room_bytes - need.batches_bytes(num_workers, ahead)) / num_workers - need.start_bytes


def choose_budget(need: Need, num_workers: int, ahead: int, limit: int | None) -> tuple[int | str, str]:
    past_it = "past it fewer batches are loaded ahead"
    total = need.total_bytes(num_workers, ahead)
    if need.room_bytes is None or need.left_bytes is None:
        return "80%", f"of what this process may use; {decimal_size(total)} are expected; {past_it}"
    expected = f"{decimal_size(total)} are expected"
    at_limit = num_workers * (need.start_bytes + (limit or need.worker_bytes)) + need.batches_bytes(num_workers, ahead)
    wanted = sizing.rounded_up(max(at_limit, total))
    if wanted <= need.room_bytes:
        return wanted, f"{expected}, and this is room for every worker at its limit; {past_it}"
    left = decimal_size(need.left_bytes)
    if total <= need.room_bytes:
        budget = max(total, sizing.rounded_down(need.room_bytes))
        return _whole(budget), f"{expected}; four fifths of the {left} left, so that the rest stays free; {past_it}"
    budget = _whole(need.room_bytes)
    return budget, f"{expected} and only {left} are left: batches will be loaded one at a time; {past_it}"


def _whole(nbytes: int) -> int:
    """In whole megabytes, as far as there are any."""
    return max(1, nbytes // sizing.MEGABYTE) * sizing.MEGABYTE


def choose_timeout(measured: Measured) -> tuple[int, str]:
    samples = measured.samples
    value = sizing.rounded_up_s(max(TIMEOUT_LEAST_S, TIMEOUT_TIMES * samples.slowest_s))
    slowest = f"slowest of {plural(samples.count, 'sample')}"
    which = "first sample of a worker" if samples.first_s > samples.seconds.max else slowest
    if value <= TIMEOUT_LEAST_S:
        why = f"no less than {TIMEOUT_LEAST_S} s, since a disk or a network that stalls is no hang"
    else:
        why = f"{TIMEOUT_TIMES} times that is no slow sample, but a hang"
    return value, f"the {which} took {took(samples.slowest_s)}; {why}"
