"""The environment variables that holdfast reads, all of them, and what they mean.

Read at the moment of use, so that a test or a notebook can change them between loaders.
Standard library only. Runs in: main process.
"""

from __future__ import annotations

import os

DISABLE = "HOLDFAST_DISABLE"
BACKEND = "HOLDFAST_BACKEND"
HOME = "HOLDFAST_HOME"
DIAGNOSIS = "HOLDFAST_DIAGNOSIS"

_OFF = {"", "0", "false", "no", "off"}


def is_disabled() -> bool:
    """`HOLDFAST_DISABLE=1`: every loader uses torch's own iterator."""
    return os.environ.get(DISABLE, "").strip().lower() not in _OFF


def forced_backend() -> str | None:
    """`HOLDFAST_BACKEND=name`: the backend of every loader that does not name one itself."""
    return os.environ.get(BACKEND, "").strip() or None


def home() -> str | None:
    """`HOLDFAST_HOME=directory`: where records of runs are kept, in place of the user's state directory."""
    return os.environ.get(HOME, "").strip() or None


def diagnoses() -> bool:
    """`HOLDFAST_DIAGNOSIS=0`: nothing is kept of a worker but how it ended, and no record: to measure what that costs.

    Read by the process that starts the workers: under forkserver, as it was when the server was started.
    """
    return (os.environ.get(DIAGNOSIS, "").strip().lower() or "1") not in _OFF
