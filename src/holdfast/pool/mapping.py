"""`holdfast.map`: a function over items, in worker processes; results in order, failures as values.

    items ──a window of them under way──► ProcessPoolExecutor ──► results, in the order of the items

Never more than the window is taken from `items`, which may be endless. Runs in: main process.
"""

from __future__ import annotations

import itertools
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, overload

from holdfast.counted import MAP
from holdfast.incident import Incident, bounded_repr
from holdfast.pool.broken import BrokenPool
from holdfast.pool.executor import ProcessPoolExecutor
from holdfast.pool.progress import Bar, make_bar
from holdfast.pool.task import RAISED
from holdfast.workers.arguments import check_choice, check_flag
from holdfast.workers.crowding import warn_if_crowded
from holdfast.workers.failures import add_note

Item = TypeVar("Item")
Result = TypeVar("Result")
_DONE = {"raise": RAISED, "return": "returned", "skip": "skipped"}  # with an item that failed, as its incident says
ON_ERROR = tuple(_DONE)
_WINDOW = 8  # items under way, or done and not asked for, for each worker
_LOOK_S = 0.1
_NOT_YET = TimeoutError()


@dataclass(frozen=True, slots=True)
class FailedItem(Generic[Item]):
    """In the place of a result: the item that has none, and why."""

    index: int
    """Which one of the items it is, counted from 0."""
    item: Item
    exception: BaseException
    incident: Incident | None
    """What happened, on what evidence, and what to do about it."""


@overload
def map(
    fn: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    num_workers: int | None = ...,
    on_error: Literal["raise", "skip"] = ...,
    progress: bool = ...,
    timeout: float | None = ...,
    memory_limit: int | str | None = ...,
    max_retries: int = ...,
    initializer: Callable[..., object] | None = ...,
    initargs: tuple[Any, ...] = ...,
    mp_context: Any = ...,
    backend: str | None = ...,
    record: bool = ...,
) -> Iterator[Result]: ...


@overload
def map(
    fn: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    num_workers: int | None = ...,
    on_error: str,
    progress: bool = ...,
    timeout: float | None = ...,
    memory_limit: int | str | None = ...,
    max_retries: int = ...,
    initializer: Callable[..., object] | None = ...,
    initargs: tuple[Any, ...] = ...,
    mp_context: Any = ...,
    backend: str | None = ...,
    record: bool = ...,
) -> Iterator[Result | FailedItem[Item]]: ...


def map(
    fn: Callable[[Any], Any],
    items: Iterable[Any],
    *,
    num_workers: int | None = None,
    on_error: str = "raise",
    progress: bool = True,
    timeout: float | None = None,
    memory_limit: int | str | None = None,
    max_retries: int = 0,
    initializer: Callable[..., object] | None = None,
    initargs: tuple[Any, ...] = (),
    mp_context: Any = None,
    backend: str | None = None,
    record: bool = True,
) -> Iterator[Any]:
    """`fn(item)` for each item, in worker processes. An iterator over the results, in the order of the items.

    `on_error`: what becomes of an item whose call raised, died, hung or took too much memory: "raise" ends the iterator
    with its exception, "return" gives a `FailedItem` in its place, "skip" leaves it out. That no worker can be had is
    raised in any case. `progress`: a bar on stderr, or in the notebook, with rate, failures and restarts; nothing is
    shown where neither is there to see it. The other arguments are those of `ProcessPoolExecutor`. The workers are
    there while the iterator is, and no longer.
    """
    check_choice("on_error", on_error, ON_ERROR)
    check_flag("progress", progress)
    taken_from, count = iter(items), operator.length_hint(items)
    pool = ProcessPoolExecutor(
        num_workers,
        mp_context,
        initializer,
        initargs,
        timeout=timeout,
        memory_limit=memory_limit,
        max_retries=max_retries,
        backend=backend,
        record=record,
    )
    if num_workers is not None:
        warn_if_crowded(num_workers, "holdfast.map", torch_warns=False, stacklevel=2)
    pool.front = MAP
    pool.is_dropped_at_exit = True  # nobody is left to ask for a result
    return _results(pool, fn, taken_from, on_error, make_bar(count, is_wanted=progress))


def _results(
    pool: ProcessPoolExecutor, fn: Callable[[Any], Any], items: Iterator[Any], on_error: str, bar: Bar
) -> Iterator[Any]:
    window = _Window(pool, fn, items, _DONE[on_error])
    failed = 0
    is_finished = False
    try:
        for done in itertools.count():
            bar.show(done, failed, pool.restarts)
            under_way = window.next()
            if under_way is None:
                break
            while (error := under_way.error()) is _NOT_YET:
                bar.show(done, failed, pool.restarts)
            if error is None:
                yield under_way.future.result()
                continue
            failed += 1
            if isinstance(error, BrokenPool) and pool.is_broken:  # and not one of the function's own
                raise error  # there are no workers: that is no item's fault, and none would come
            if on_error == "return":
                yield under_way.failed(error)
            elif on_error == "raise":
                add_note(error, f"raised by item {under_way.index} of map: {bounded_repr(under_way.item)}")
                raise error
        is_finished = True
        bar.show(done, failed, pool.restarts)
    finally:
        bar.close()
        if is_finished:
            pool.shutdown()
        else:
            pool.terminate_workers()


@dataclass(slots=True)
class _UnderWay:
    """An item that a worker has, or had."""

    index: int
    item: Any
    future: Future[Any]

    def error(self) -> BaseException | None:
        """Once it is done; _NOT_YET if that takes longer than a moment."""
        try:
            return self.future.exception(timeout=_LOOK_S)
        except TimeoutError:
            return _NOT_YET

    def failed(self, error: BaseException) -> FailedItem[Any]:
        return FailedItem(self.index, self.item, error, getattr(error, "incident", None))


class _Window:
    """The items that have been taken and whose results have not been asked for."""

    def __init__(self, pool: ProcessPoolExecutor, fn: Any, items: Iterator[Any], on_failure: str) -> None:
        self._pool = pool
        self._fn = fn
        self._items: Iterator[tuple[int, Any]] | None = enumerate(items)
        self._on_failure = on_failure
        self._under_way: deque[_UnderWay] = deque()
        self._error: BaseException | None = None  # of the items' own iterator: raised in its place

    def next(self) -> _UnderWay | None:
        """The oldest, after more have been taken; None at the end."""
        while self._items is not None and len(self._under_way) < _WINDOW * self._pool.num_workers:
            self._take_one(self._items)
            if self._under_way and self._under_way[0].future.done():
                break  # what is there need not wait for items that may be slow to come
        if self._under_way:
            return self._under_way.popleft()
        if self._error is not None:
            raise self._error
        return None

    def _take_one(self, items: Iterator[tuple[int, Any]]) -> None:
        try:
            index, item = next(items)
        except StopIteration:
            self._items = None
        except Exception as error:
            self._items, self._error = None, error
        else:
            future = self._pool.submit_item(self._fn, item, self._on_failure)
            self._under_way.append(_UnderWay(index, item, future))
