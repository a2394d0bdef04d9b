"""What is to be done when a worker is lost. Pure: no process, no clock, no data.

    killed for want of memory, and not alone ──► the unit again, alone
    where was it? ──► between samples: restart it, within bounds
                 ├──► in a call that loads many: the unit again, one sample at a time
                 ├──► in a sample, or making the batch: the unit again, up to max_retries times
                 └──► then that sample, or the batch, is bad: see bad_samples.py
    stopped by a signal, and not continued ──► the first time there: restart it, within bounds
                                          └──► the second time: as above, with no retries left

Runs in: main process.
"""

from __future__ import annotations

from enum import Enum

from holdfast.board_rows import Phase
from holdfast.workers.board import Doing
from holdfast.workers.messages import Reason


class Where(Enum):
    """What a worker had in hand when it was lost."""

    NOTHING = "nothing"
    SAMPLE = "one sample"
    MANY = "samples that one call loads"
    STREAM = "an iterable that was run up to where it had been, and there was no memory for it"
    BATCH = "a batch that is being made or sent, or samples that can be loaded each, but not together"


class Decision(Enum):
    """About the unit that was in hand."""

    RESTART = "nobody's sample: the unit, if there is one, again"
    RETRY = "the unit again"
    ONE_BY_ONE = "the unit again, one sample at a time"
    ALONE = "the unit again, while nothing else is being loaded"
    BAD_SAMPLE = "that sample cannot be loaded"
    BAD_BATCH = "no batch can be made of these samples"


def where(doing: Doing, *, one_by_one: bool = False, is_for_memory: bool = False) -> Where:
    """`one_by_one`: its unit was being loaded one sample at a time already. `is_for_memory`: it was killed for want of
    that; else an iterable that is run again is nobody's sample.
    """
    if doing.phase is Phase.REPLAY and is_for_memory:
        return Where.STREAM
    if doing.phase is Phase.FETCH and doing.position >= 0:
        return Where.SAMPLE
    if doing.phase is Phase.FETCH:
        return Where.BATCH if one_by_one else Where.MANY
    return Where.BATCH if doing.phase in (Phase.COLLATE, Phase.SEND) else Where.NOTHING


def decide(place: Where, reason: Reason, deaths: int, max_retries: int, *, is_crowded_out: bool = False) -> Decision:
    """`deaths`: how often workers were lost there, with this one; of one that was stopped, how often they were stopped
    there. `is_crowded_out`: it was killed for want of memory, which others had taken, too.
    """
    if place is Where.NOTHING or (reason is Reason.STOPPED and deaths <= 1):
        return Decision.RESTART  # a stop comes from outside, unless it comes again in the same place
    if is_crowded_out:
        return Decision.ALONE
    if place is Where.MANY:
        return Decision.ONE_BY_ONE
    if deaths <= max_retries and reason is not Reason.STOPPED:
        return Decision.RETRY
    return Decision.BAD_BATCH if place is Where.BATCH else Decision.BAD_SAMPLE
