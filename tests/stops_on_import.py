"""A module whose import stops the process, by a signal, where a marker says so: once, and the marker is gone.

Runs in: the test process (no marker yet), and the supervisors that it starts.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from helpers import Numbers

MARKER = "HOLDFAST_TEST_STOPS_ON_IMPORT"


class FromSuchModule(Numbers):
    """A dataset that cannot be had without the import."""


if (_path := os.environ.get(MARKER)) and (_marker := Path(_path)).exists():
    _marker.unlink()
    os.kill(os.getpid(), signal.SIGSTOP)
