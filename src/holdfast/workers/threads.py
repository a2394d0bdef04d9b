"""One thread in a worker for each native library that would have as many as the machine has cores.

torch's loader sets torch's own number to one in each worker. It does not know the BLAS that numpy brings, which then
has one thread for each core, in each worker. A library that the user has told how many (`OPENBLAS_NUM_THREADS=4`) is
left alone, and `worker_init_fn` runs later: what it sets, counts.

    main, before it forks: look()          which libraries there are: milliseconds, once
    supervisor: limit()                    its workers, forks of it, inherit the numbers and do nothing
    each worker: limit()                   the same; all there is to do for a new interpreter, nothing for a fork

Not by forked workers alone: after a fork OpenBLAS starts all its threads before it hears that there is to be one.
Runs in: main | supervisor | worker process.
"""

from __future__ import annotations

import contextlib
from typing import Any

from threadpoolctl import ThreadpoolController

from holdfast import options
from holdfast.diagnosis.native.loads import LibraryWatch

_watch = LibraryWatch()
_found: list[Any] | None = None


def look() -> list[Any]:
    """The libraries in this process that have threads of their own, as threadpoolctl knows them.

    Looked for again only if a library was loaded since.
    """
    global _found  # noqa: PLW0603  (what a process has loaded is a fact of the process)
    if _watch.changed() or _found is None:
        _found = ThreadpoolController().lib_controllers
    return _found


def limit() -> None:
    """One thread for each, from now on, and in every fork of this process."""
    for library in look():
        if options.threads_of(library.internal_api) is None and library.num_threads != 1:
            with contextlib.suppress(Exception):  # a library that cannot be told is no reason to have no worker
                library.set_num_threads(1)
