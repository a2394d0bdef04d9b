"""The message of a group that failed: the first rank and its cause, then the others, then what each said last.

    rank 1 (pid 41822) was killed by SIGKILL

      cause      ...
      done       the other ranks were ended; the group was not started again
      try        ...
      ranks      rank 0 raised RuntimeError: Connection closed by peer, 0.1 s later
                 rank 2 finished

Pure, but for reading files of a crash. Runs in: main process.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from holdfast.counted import SPAWN
from holdfast.diagnosis import call_words, message
from holdfast.diagnosis.evidence import Diagnosis
from holdfast.diagnosis.message import Account
from holdfast.launch.states import RankState

_TAIL_LINES = 12


def account_of(diagnosis: Diagnosis, state: RankState, done: str, who: str = "") -> Account:
    """What is told of a rank, or of `who` else, in words that know nothing of datasets."""
    told = call_words.for_calls(diagnosis, SPAWN)
    pid = None if who else state.pid
    return Account(told, state.rank, pid, done=done, who=who or f"rank {state.rank}", seen_at=state.at or None)


def render(account: Account, first: RankState, states: Sequence[RankState], traceback: str = "") -> str:
    """The whole message. `traceback`: of a rank that raised."""
    others = [state for state in states if state.rank != first.rank]
    parts = [message.render(account), "\n".join(_column(first, others))]
    if traceback:
        # the words that torch has before it, which other code may look for
        parts.append(f"\n-- Process {first.rank:d} terminated with the following error:\n{traceback.rstrip()}")
    parts += [_tail(state) for state in (first, *others) if state.stderr_tail.strip()]
    return "\n".join(part for part in parts if part)


def _column(first: RankState, others: Sequence[RankState]) -> list[str]:
    heads = ["ranks", *[""] * len(others)]
    return [f"  {head:<11}{_line(first, state)}" for head, state in zip(heads, others, strict=False)]


def _line(first: RankState, state: RankState) -> str:
    later_s = state.at - first.at if state.at and first.at else 0.0
    later = f", {later_s:.1f} s later" if later_s >= 0.05 else ""
    return textwrap.shorten(f"rank {state.rank} {state.words}{later}", message.WIDTH - 13, placeholder="...")


def _tail(state: RankState) -> str:
    lines = state.stderr_tail.strip().splitlines()[-_TAIL_LINES:]
    return "\n".join([f"\nrank {state.rank}, last on its stderr:", *(f"    {line.rstrip()}" for line in lines)])
