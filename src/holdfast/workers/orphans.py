"""What workers have started and left behind: ended with the supervisor, which the kernel makes its new parent.

Without that a process whose parent dies goes to init, and nobody knows any more where it came from.
Linux only. Runs in: supervisor process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_WITHIN_S = 0.7  # the main process waits a little longer than this for a supervisor that ends
_LOOK_EVERY_S = 0.005


def adopt() -> None:
    """From now on every descendant whose parent ends becomes a child of this process."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_all() -> None:
    """Kill all children; theirs become ours, and are next. Bounded, whatever they do."""
    deadline = time.monotonic() + _WITHIN_S
    this = psutil.Process()
    while time.monotonic() < deadline:
        children = this.children()
        if not children:
            return
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.kill()
        time.sleep(_LOOK_EVERY_S)
        _reap()


def _reap() -> None:
    """A child that has ended and is not waited for would be counted again."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
