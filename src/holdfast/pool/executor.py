"""`ProcessPoolExecutor`: the interface of the standard library's, over workers that are replaced when they die.

    executor.submit(fn, *args) ──► Task ──► Dispatcher (its thread) ──► workers
    executor.options(timeout=5).submit(...)     the same workers, another limit for these calls

Runs in: main process.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from holdfast.counted import POOL
from holdfast.cpus import available_cpus
from holdfast.incident import Incidents
from holdfast.pool import at_exit
from holdfast.pool.dispatcher import Dispatcher
from holdfast.pool.task import RAISED, Chunk, Limits, Task
from holdfast.workers import backends
from holdfast.workers.arguments import check_flag
from holdfast.workers.calling import Initializer
from holdfast.workers.calls import Calls
from holdfast.workers.job import Calling, Job, job_of_calls
from holdfast.workers.limits import raise_descriptor_limit
from holdfast.workers.run import RunOfCalls

P = ParamSpec("P")
T = TypeVar("T")
_MAX_RESTARTS = 3  # of one worker within a minute, outside any call


class _Mapping(Executor):
    """`map`, by the `submit` of whatever class this is: one of the user's may have its own."""

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """With a `chunksize`, so many items are one call, of so many times the pool's `timeout`. `buffersize` is
        Python 3.14's.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        newer: dict[str, Any] = {} if buffersize is None else {"buffersize": buffersize}
        if chunksize == 1:
            return super().map(fn, *iterables, timeout=timeout, **newer)
        chunks = _chunks(zip(*iterables, strict=False), chunksize)
        return _flat(super().map(Chunk(fn), chunks, timeout=timeout, **newer))


class ProcessPoolExecutor(_Mapping):
    """As `concurrent.futures.ProcessPoolExecutor`, and:

    - a worker that dies fails the call it was running, with `WorkerCrashed` and what killed it, and no other;
    - `timeout`: seconds one call may take; past it its worker is ended, and the call fails with `WorkerTimeout`;
    - `memory_limit`: private memory of one worker beyond its start, as bytes or "4GB";
    - `max_retries`: further attempts for a call that cost its worker, or was over its time;
    - `record`: whether to keep a record of this run on disk, as a loader does;
    - arrays and tensors travel through shared memory. Those in arguments are views: do not keep them, or say `copy()`.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: Any = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
        timeout: float | None = None,
        memory_limit: int | str | None = None,
        max_retries: int = 0,
        backend: str | None = None,
        record: bool = True,
    ) -> None:
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        _check_max_tasks(max_tasks_per_child)
        check_flag("record", record)
        backends.check_name(backend)
        backends.check_context(backend, mp_context)
        self._max_workers = max_workers or available_cpus()
        self._mp_context = mp_context
        self._init = None if initializer is None else Initializer(initializer, initargs)
        self._max_tasks_per_child = max_tasks_per_child
        self._limits = Limits(timeout, max_retries, memory_limit)
        self._backend = backend
        self._is_recorded = record
        self.front = POOL  # what users call it, in messages
        self._lock = threading.Lock()
        self._dispatcher: Dispatcher | None = None
        self._is_shut_down = False
        self.is_dropped_at_exit = False  # True: what is not done when the interpreter ends is not waited for
        self._owner_pid = os.getpid()

    # -- the standard library's ------------------------------------------------------------------------------------

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._submit(self._limits, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Finish what was submitted, or, with `cancel_futures`, what has begun; then end all workers.

        A call that does not end is waited for unless it has a `timeout`. The end of the workers takes a few seconds at
        most, whatever they do.
        """
        dispatcher = self._shut_down()
        if dispatcher is None:
            return
        dispatcher.close(cancels=cancel_futures)
        if wait:
            dispatcher.join()

    def terminate_workers(self) -> None:
        """End the workers now, whatever they do: what has begun fails, what has not is cancelled. As Python 3.14's."""
        dispatcher = self._shut_down()
        if dispatcher is not None:
            dispatcher.abort()
            dispatcher.join()

    kill_workers = terminate_workers

    def _shut_down(self) -> Dispatcher | None:
        """From now on nothing can be submitted. None: there is nothing to end, or not for this process to end."""
        if os.getpid() != self._owner_pid:
            return None
        with self._lock:
            self._is_shut_down = True
            return self._dispatcher

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Wait for everything, as the standard library does; but after an interrupt for nothing: it was to stop."""
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.terminate_workers()
            return
        try:
            self.shutdown()
        except KeyboardInterrupt:  # it came while we waited
            self.terminate_workers()
            raise

    # -- ours ------------------------------------------------------------------------------------------------------

    def options(self, **changes: Any) -> Options:
        """The same pool with another `timeout`, `memory_limit` or `max_retries` for what is submitted through this.

        A `memory_limit` is then for each call, beyond what its worker has when it begins.
        """
        return Options(self, dataclasses.replace(self._limits, **changes))

    def submit_item(self, fn: Callable[[Any], Any], item: Any, on_failure: str) -> Future[Any]:
        """As `submit`, for who does not always raise what comes of it: see `Task.on_failure`."""
        return self._submit(self._limits, fn, (item,), {}, on_failure)

    @property
    def num_workers(self) -> int:
        return self._max_workers

    @property
    def incidents(self) -> Incidents:
        """Every worker that was lost, in order: bounded, the first and the last thousand, and counts."""
        return self._dispatcher.incidents if self._dispatcher is not None else Incidents()

    @property
    def restarts(self) -> int:
        """Worker processes that were lost and replaced."""
        return self._dispatcher.restarts if self._dispatcher is not None else 0

    @property
    def is_broken(self) -> bool:
        """Whether there are no workers, and none can be had."""
        return self._dispatcher is not None and self._dispatcher.broken is not None

    def _submit(
        self, limits: Limits, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], on_failure: str = RAISED
    ) -> Future[Any]:
        span = len(args[0]) if type(fn) is Chunk else 1
        task = Task(
            fn=fn,
            args=args,
            kwargs=kwargs,
            future=Future(),
            limit_ms=limits.limit_ms(span),
            limit_bytes=limits.limit_bytes_beside(self._limits),
            max_retries=limits.max_retries,
            on_failure=on_failure,
        )
        self._check_owner()
        with self._lock:
            self._check_open()
            if self._dispatcher is None:
                self._dispatcher = self._start(fn)
            self._dispatcher.add(task)
        return task.future

    def _check_open(self) -> None:
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if at_exit.is_over():
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    def _check_owner(self) -> None:
        """Before the lock is asked for: who forks the workers has it, and in them nobody would ever give it back."""
        if os.getpid() != self._owner_pid:
            raise RuntimeError("this pool belongs to the process it was made in; make one in the forked process")

    def _start(self, fn: Any) -> Dispatcher:
        raise_descriptor_limit()
        calls = Calls(self._make_job(fn), self._mp_context, self._backend)
        run = RunOfCalls(self.front, is_recorded=self._is_recorded)
        dispatcher = Dispatcher(calls, self._max_workers, _MAX_RESTARTS, self.front, run)
        dispatcher.is_dropped_at_exit = self.is_dropped_at_exit
        dispatcher.start(fn.fn if isinstance(fn, Chunk) else fn)
        weakref.finalize(self, _close, dispatcher, os.getpid()).atexit = False
        return dispatcher

    def _make_job(self, fn: Any) -> Job:
        """`fn`: the first of what it will be asked for. What that needs is imported once, for all workers."""
        return job_of_calls(
            Calling("pool worker", self.front, imports=_modules_of(fn)),
            self._max_workers,
            init=self._init,
            timeout_s=self._limits.timeout,
            memory_limit=self._limits.limit_bytes or None,
            max_restarts=_MAX_RESTARTS,
            recycle_after=self._max_tasks_per_child,
        )


class Options(_Mapping):
    """A pool, with limits of their own for the calls that are submitted here."""

    def __init__(self, pool: ProcessPoolExecutor, limits: Limits) -> None:
        self._pool = pool
        self._limits = limits

    def options(self, **changes: Any) -> Options:
        return Options(self._pool, dataclasses.replace(self._limits, **changes))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._pool._submit(self._limits, fn, args, kwargs)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        results = super().map(fn, *iterables, timeout=timeout, chunksize=chunksize, buffersize=buffersize)
        return _with(self, results)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(wait, cancel_futures=cancel_futures)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.__exit__(kind, error, at)


def _chunks(items: Iterator[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    while chunk := list(itertools.islice(items, size)):
        yield chunk


def _flat(chunks: Iterator[list[Any]]) -> Iterator[Any]:
    """A generator, as what is mapped without chunks is: closed, it cancels what has not begun."""
    for results in chunks:
        yield from results


def _with(submitter: Executor, results: Iterator[T]) -> Iterator[T]:
    """As long as somebody asks for them there is one who submits more: Python 3.14, with a `buffersize`, refers to it
    weakly, and takes its end for that of the items.
    """
    yield from results
    del submitter


def _modules_of(fn: Any) -> tuple[str, ...]:
    """What a worker has to import for a function, as far as that can be told."""
    while isinstance(fn, Chunk | functools.partial):
        fn = fn.fn if isinstance(fn, Chunk) else fn.func
    module = getattr(fn, "__module__", None)
    return (module,) if isinstance(module, str) and module not in ("__main__", "__mp_main__") else ()


def _close(dispatcher: Dispatcher, owner_pid: int) -> None:
    """The pool is garbage: what was submitted is done, then its workers end."""
    if os.getpid() == owner_pid:
        dispatcher.close()


def _check_max_tasks(value: object) -> None:
    if value is None:
        return
    if not isinstance(value, int):
        raise TypeError("max_tasks_per_child must be an integer")
    if value <= 0:
        raise ValueError("max_tasks_per_child must be >= 1")
