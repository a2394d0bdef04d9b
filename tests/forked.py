"""A question asked in a fork of the test process.

Runs in: the test process, and forks of it.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

_YES, _NO, _RAISED = 20, 21, 22


def holds_in_a_fork(check: Callable[[], object]) -> bool:
    """Whether it is true there. What it raises there is printed, and fails here."""
    pid = os.fork()
    if pid == 0:
        status = _RAISED
        try:
            status = _YES if check() else _NO
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, ended = os.waitpid(pid, 0)
    status = os.waitstatus_to_exitcode(ended)
    assert status in (_YES, _NO), f"the fork ended with {status}"
    return status == _YES
