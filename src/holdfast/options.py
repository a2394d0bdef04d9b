"""The environment variables that holdfast reads, all of them, and what they mean.

Read at the moment of use, so that a test or a notebook can change them between loaders.
Standard library only. Runs in: main | supervisor | worker process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

DISABLE = "HOLDFAST_DISABLE"
BACKEND = "HOLDFAST_BACKEND"
HOME = "HOLDFAST_HOME"
DIAGNOSIS = "HOLDFAST_DIAGNOSIS"
GROWTH = "HOLDFAST_GROWTH"
TARGET = "HOLDFAST_TARGET"
COMMAND = "HOLDFAST_COMMAND"
RUN = "HOLDFAST_RUN"
LAUNCH = "HOLDFAST_LAUNCH"

# Of other libraries, by what threadpoolctl calls them: what tells each how many threads to have, the first that is set.
_THREADS_OF = {
    "blis": ("BLIS_NUM_THREADS", "OMP_NUM_THREADS"),
    "flexiblas": ("FLEXIBLAS_NUM_THREADS", "OMP_NUM_THREADS"),
    "mkl": ("MKL_NUM_THREADS", "OMP_NUM_THREADS"),
    "openblas": ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"),
    "openmp": ("OMP_NUM_THREADS",),
}

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


def growth() -> str:
    """`HOLDFAST_GROWTH=tracemalloc` or `types`: a worker that grows says which lines, or which types, hold the memory.

    Both make it slower: only to look for a leak. `HOLDFAST_GROWTH=0`: growth is not watched, to measure its cost.
    """
    return os.environ.get(GROWTH, "").strip().lower() or "1"


def watches_growth() -> bool:
    """Whether workers watch their own growth, as they do unless somebody measures what watching costs."""
    return diagnoses() and growth() not in _OFF


def target() -> str | None:
    """`HOLDFAST_TARGET=MODULE:DATASET`: how the command line found the dataset, for `holdfast replay` to find it again.

    Set by the commands that were told.
    """
    return os.environ.get(TARGET, "").strip() or None


def command() -> str | None:
    """`HOLDFAST_COMMAND=scan`: the command of ours that loads for its own sake, so that nobody trains with the batches.

    Set by that command.
    """
    return os.environ.get(COMMAND, "").strip() or None


@contextlib.contextmanager
def told(target: str, command: str = "") -> Iterator[None]:
    """Loaders that begin meanwhile write down where their dataset is found, and which command of ours loads it."""
    before = {name: os.environ.get(name) for name in (TARGET, COMMAND)}
    os.environ.update({TARGET: target, COMMAND: command})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def run_settings() -> str | None:
    """`HOLDFAST_RUN`: what `holdfast run` was told, for the script and for every Python that the script starts.

    Set by that command, and read by nobody else.
    """
    return os.environ.get(RUN) or None


def launch() -> str | None:
    """`HOLDFAST_LAUNCH`: which `holdfast run` a process belongs to, so that its records can be told from others."""
    return os.environ.get(LAUNCH, "").strip() or None


def world_size() -> int | None:
    """`WORLD_SIZE`: how many ranks train together, as `torchrun` and others tell each of them; None: nobody said."""
    said = os.environ.get("WORLD_SIZE", "").strip()
    return int(said) if said.isdecimal() else None


def threads_of(library: str) -> int | None:
    """How many threads the user has told a native library to have, such as `OPENBLAS_NUM_THREADS=4`; None: nothing."""
    for name in _THREADS_OF.get(library, ()):
        first = os.environ.get(name, "").partition(",")[0].strip()  # OpenMP's may list one for each level
        if first.isdecimal() and int(first) > 0:
            return int(first)
    return None


def threads_per_worker() -> int:
    """How many threads a native library in a worker may have: one, or the most that the user has told one to have."""
    return max(threads_of(library) or 1 for library in _THREADS_OF)
