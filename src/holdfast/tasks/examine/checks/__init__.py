"""One check per file: what was seen of a dataset, and what that means. Pure.

Runs in: main process.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.doctor.finding import Finding
from holdfast.tasks.examine.checks import before_fork, cost, loads, made, pickles, same_twice
from holdfast.tasks.examine.seen import Seen


class Check(Protocol):
    NAME: str

    def judge(self, seen: Seen) -> list[Finding]:
        """Empty where there is no dataset to judge."""


ALL: tuple[Check, ...] = (made, pickles, before_fork, loads, same_twice, cost)
