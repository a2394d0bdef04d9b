"""numba, where it is needed: how kernels are compiled, kept on disk, and what is said where it is not installed.

A kernel is compiled when it is first called with new types. `NeighborLoader` does that in the main process, before any
worker is there: forked workers inherit the machine code, others read it from numba's cache on disk. That cache is
written by renaming whole files, and is good for one CPU model and one version of the source: processes that write or
read it at the same time do not disturb each other. Where no folder for it is writable, every new interpreter compiles.
(While these files are worked on: numba looks only at the file that a kernel is in. After a change to what is inlined
into kernels of other files, remove `graph/__pycache__`.)

Runs in: main process, worker process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

try:
    import numba
except ImportError as error:
    raise ImportError(
        "neighbour sampling needs numba, which is not installed\n"
        "  try   pip install 'torch-holdfast[graph]'   or   pip install numba"
    ) from error


def kernel(function: F) -> F:
    """Compile to machine code that does not hold the GIL."""
    try:
        compiled: Any = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder to keep it in
        compiled = numba.njit(nogil=True)(function)
    return cast(F, compiled)


def inline(function: F) -> F:
    """The same for a part of kernels."""
    return cast(F, numba.njit(inline="always")(function))
