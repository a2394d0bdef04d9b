"""Whether an exception was raised by a signal handler of the user's: then it is meant for him, and for nobody between.

Standard library only. Runs in: main process.
"""

from __future__ import annotations

import functools
import signal
import traceback
from types import CodeType
from typing import Any


def have_raised(error: BaseException) -> bool:
    """Whether one that is written in Python is in the traceback."""
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    passed = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
    return not handlers.isdisjoint(passed)


def _code_of(handler: Any) -> CodeType | None:
    """Of a handler written in Python: a function, a method, a partial of one, or an object that can be called."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not hasattr(handler, "__code__"):
        handler = vars(type(handler)).get("__call__")
    code = getattr(handler, "__code__", None)
    return code if isinstance(code, CodeType) else None
