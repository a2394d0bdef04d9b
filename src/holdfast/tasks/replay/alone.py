"""The sample in this very process, where a debugger can look at it: the limits of the run without its guards.

- memory_limit is one of the kernel (RLIMIT_DATA), as in a worker: what asks for more gets an exception.
- sample_timeout is an alarm: by default its signal raises where the sample hangs, if that is in Python. Under gdb the
  signal itself stops the process, also in native code.

What crashes takes this process with it, after faulthandler has said where.

Runs in: main process under pdb | a child process under gdb.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.tasks.measuring import status_bytes
from holdfast.tasks.replay import watched
from holdfast.tasks.replay.case import Limits
from holdfast.tasks.replay.guarded import Order

_HERE = Path(__file__).parent
_SLACK_BYTES = 64 << 20  # as a worker has: stacks of threads, and what an allocator keeps


class SampleTimeoutError(TimeoutError):
    """The sample took longer than sample_timeout: raised in the middle of it."""


def prepared(dataset: Any, order: Order) -> Callable[[], Any]:
    """What loads the sample when it is called. What comes before it is done by then, and outside of its limits: random
    numbers are seeded, and an iterable is at the element.
    """
    watched.seed_all(order.seed)
    if order.part is None:
        return partial(watched.fetch, dataset, order.index, in_batches=order.in_batches)
    elements = iter(dataset)
    for _ in range(order.part.first):
        next(elements)
    count = order.part.last + 1 - order.part.first
    return partial(next, elements) if count == 1 else lambda: list(islice(elements, count))


@contextlib.contextmanager
def limited(limits: Limits, *, raises: bool = True) -> Iterator[None]:
    """Under these limits, as long as the block lasts. `raises`: else the signal of the alarm does what it is set to."""
    with _memory(limits.memory_limit_bytes), _alarm(limits.sample_timeout_s, raises=raises):
        yield


@contextlib.contextmanager
def _memory(limit_bytes: int | None) -> Iterator[None]:
    data_bytes = status_bytes("VmData")
    if limit_bytes is None or data_bytes is None or sys.platform != "linux":
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = data_bytes + limit_bytes + _SLACK_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))  # a debugger needs memory too


@contextlib.contextmanager
def _alarm(timeout_s: float | None, *, raises: bool) -> Iterator[None]:
    if timeout_s is None or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(number: int, frame: object) -> None:
        raise SampleTimeoutError(f"sample_timeout={timeout_s:g} passed here")

    before = signal.signal(signal.SIGALRM, ring) if raises else None
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if raises:
            signal.signal(signal.SIGALRM, before)


def users_part(place: TracebackType | None) -> TracebackType | None:
    """The traceback without our own frames around the user's: those that led there, and the alarm that ended it."""
    while place is not None and place.tb_next is not None and _is_ours(place):
        place = place.tb_next
    last = place
    while last is not None and last.tb_next is not None and not _is_ours(last.tb_next):
        last = last.tb_next
    if last is not None:
        last.tb_next = None
    return place


def _is_ours(place: TracebackType) -> bool:
    return Path(place.tb_frame.f_code.co_filename).parent == _HERE
