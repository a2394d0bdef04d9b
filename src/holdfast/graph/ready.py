"""Importing this module makes the kernels ready to run, for the usual types, in this process.

Whoever opens a job with a sampler in it imports it first: under spawn and forkserver that is the supervisor, from which
workers are forked. So numba and its machine code, some 120 MB, are there once, and not in every worker.

numba asks scipy, where it is installed, for linear algebra, and that starts threads: then nothing could be forked from
this process. It is made to do without them: workers compute on one thread anyway.

Runs in: supervisor; worker process of the portable backend.
"""

from __future__ import annotations

import gc
import multiprocessing
import os

import numpy as np

from holdfast.graph.sampling import HopSampler, Settings
from holdfast.graph.topology import Topology
from holdfast.graph.warming import compile_for

_THREADS = "OPENBLAS_NUM_THREADS"  # read when the library is loaded
_USUAL = Topology(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))


def restored(topology: Topology, settings: Settings) -> HopSampler:
    """What a pickled sampler is made with."""
    return HopSampler(topology, settings)


def _compile() -> None:
    before = os.environ.get(_THREADS)
    os.environ.setdefault(_THREADS, "1")
    try:
        compile_for(HopSampler(_USUAL, Settings(())))
    finally:
        if before is None:
            del os.environ[_THREADS]


_compile()
if multiprocessing.parent_process() is not None:  # not where the user's own objects come and go
    gc.freeze()  # numba's stay: a collection in a forked worker would copy every page they lie in
