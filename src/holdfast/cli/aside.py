"""While a dataset is imported or loaded, what it prints is talk: stdout is for a command's own data.

Descriptors are moved, and not `sys.stdout`: worker processes and native code write there too.

Runs in: main process.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

_STDOUT, _STDERR = 1, 2


@contextlib.contextmanager
def prints_go_to_stderr() -> Iterator[None]:
    """In this process and in those that it starts meanwhile."""
    sys.stdout.flush()
    kept = os.dup(_STDOUT)
    try:
        os.dup2(_STDERR, _STDOUT)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, _STDOUT)
        os.close(kept)
