"""The pools that are measured, each behind the same two methods.

Runs in: main.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple


class Contender(NamedTuple):
    """One pool: all items as calls of their own, and one call."""

    map: Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
    call: Callable[[Callable[[Any], Any], Any], Any]


def _of_executor(executor: concurrent.futures.Executor) -> Contender:
    return Contender(executor.map, lambda fn, arg: executor.submit(fn, arg).result())


@contextlib.contextmanager
def ours(workers: int, method: str) -> Iterator[Contender]:
    import holdfast

    with holdfast.ProcessPoolExecutor(workers, multiprocessing.get_context(method)) as executor:
        yield _of_executor(executor)


@contextlib.contextmanager
def stock(workers: int, method: str) -> Iterator[Contender]:
    with concurrent.futures.ProcessPoolExecutor(workers, multiprocessing.get_context(method)) as executor:
        yield _of_executor(executor)


@contextlib.contextmanager
def loky(workers: int, method: str) -> Iterator[Contender]:
    """It starts its workers in a way of its own, whatever is asked for."""
    from loky import ProcessPoolExecutor

    executor = ProcessPoolExecutor(workers)
    try:
        yield _of_executor(executor)
    finally:
        executor.shutdown(kill_workers=True)


@contextlib.contextmanager
def plain(workers: int, method: str) -> Iterator[Contender]:
    with multiprocessing.get_context(method).Pool(workers) as pool:
        yield Contender(pool.imap, lambda fn, arg: pool.apply(fn, (arg,)))


CONTENDERS: dict[str, Callable[[int, str], contextlib.AbstractContextManager[Contender]]] = {
    "holdfast": ours,
    "concurrent.futures": stock,
    "loky": loky,
    "multiprocessing.Pool": plain,
}
