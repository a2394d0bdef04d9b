"""What every rank runs. It travels with the job and not with the call, inside the supervisor's own start: queues, locks
and shared tensors can be sent then, and only then.

Runs in: main process (made), rank process (run).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Program:
    """The user's function and its arguments. As the `init` of a rank it is kept there until the rank is told to run."""

    def __init__(self, fn: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.fn = fn
        self.args = args

    def __call__(self, rank: int) -> None:
        _here.append(self)


_here: list[Program] = []


def run(rank: int) -> None:
    """The one call of a rank. What the function returns is nobody's, as with torch."""
    program = _here[-1]
    program.fn(rank, *program.args)
