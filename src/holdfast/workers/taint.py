"""Whether a freshly started supervisor may fork its workers.

Under spawn and forkserver the user was promised processes without a past. The supervisor imports torch and the user's
modules once and forks workers from that, which is as good as long as the imports left nothing behind that does not
survive a fork: a CUDA driver that was asked anything (`torch.cuda.is_available()` at import is enough), or threads.
A tainted supervisor starts every worker as a new interpreter instead.

Runs in: supervisor process.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from pathlib import Path


def native_threads() -> int:
    """How many threads this process has, Python's and libraries'."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def find_taint(threads_before: int) -> str | None:
    """Why this process must not be forked, in words, or None. `threads_before` the user's modules were imported."""
    if threading.active_count() > 1:
        names = ", ".join(thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
        return f"importing the dataset's modules started threads ({names})"
    if native_threads() > threads_before:
        return f"importing the dataset's modules started {native_threads() - threads_before} native threads"
    if "torch" in sys.modules and _forks_have_no_cuda():
        return "importing the dataset's modules initialised CUDA"
    return None


def _forks_have_no_cuda() -> bool:
    """Ask a fork: torch marks CUDA as unusable in it if this process has touched the driver."""
    import torch  # loaded already

    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os._exit(int(torch.cuda._is_in_bad_fork()))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0
