"""What a shared list or dict says to a write: that it cannot be changed, and how to get one that can.

Runs in: any process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


def refusal(kind: str, plain: str) -> Callable[..., NoReturn]:
    """A method that refuses, for a shared `kind` whose changeable counterpart is made by `plain(...)`."""

    def refuse(self: Any, *args: Any, **keywords: Any) -> NoReturn:
        raise TypeError(
            f"a shared {kind} cannot be changed: other processes read the same memory\n"
            f"  try   own = {plain}(shared)   a {kind} of this process alone; holdfast.share(own) shares it anew"
        )

    return refuse
