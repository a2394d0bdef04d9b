"""`holdfast.spawn`: `torch.multiprocessing.spawn`, with causes, limits, restarts, and from a notebook cell.

Runs in: main process.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal, overload

from holdfast.errors import HoldfastWarning
from holdfast.launch.group import GroupOptions, RankGroup
from holdfast.launch.program import Program
from holdfast.memory import sizes
from holdfast.workers import arguments

_START_METHODS = ("spawn", "fork", "forkserver")


@overload
def spawn(
    fn: Callable[..., object],
    args: tuple[Any, ...] = ...,
    nprocs: int = ...,
    join: Literal[True] = ...,
    daemon: bool = ...,
    start_method: str = ...,
    *,
    timeout: float | None = ...,
    memory_limit: int | str | None = ...,
    max_restarts: int = ...,
    grace_period: float = ...,
    backend: str | None = ...,
    record: bool = ...,
) -> None: ...
@overload
def spawn(
    fn: Callable[..., object],
    args: tuple[Any, ...] = ...,
    nprocs: int = ...,
    *,
    join: Literal[False],
    daemon: bool = ...,
    start_method: str = ...,
    timeout: float | None = ...,
    memory_limit: int | str | None = ...,
    max_restarts: int = ...,
    grace_period: float = ...,
    backend: str | None = ...,
    record: bool = ...,
) -> RankGroup: ...
def spawn(  # noqa: PLR0917  (torch's signature)
    fn: Callable[..., object],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
    *,
    timeout: float | None = None,
    memory_limit: int | str | None = None,
    max_restarts: int = 0,
    grace_period: float = 5.0,
    backend: str | None = None,
    record: bool = True,
) -> RankGroup | None:
    """Run `fn(rank, *args)` in `nprocs` processes. A drop-in for `torch.multiprocessing.spawn`.

    When one of them fails the others are ended, and its failure is raised: torch's `ProcessRaisedException` or
    `ProcessExitedException`, which say here which rank failed first, of what, how the others ended, and what each
    wrote last to its stderr. The function may be defined in a notebook cell, at a prompt, or be a lambda.

    Args:
        fn: the function. What it returns is dropped.
        args: what it gets after its rank. Queues, locks and shared tensors may be among it.
        nprocs: how many.
        join: False: do not wait, and return a `RankGroup`, which has torch's `join`, `processes` and `pids`.
        daemon: as of `multiprocessing`: ended with this process, and may have no children.
        start_method: "spawn", "forkserver", or "fork", with which nothing is pickled, and CUDA must not be in use here.
        timeout: seconds that a rank may take. Past it its stacks are taken, and it is ended.
        memory_limit: private memory of a rank beyond its start: bytes, or "4GB".
        max_restarts: how often the whole group is started again when a rank has failed.
        grace_period: seconds that ranks have to end after SIGTERM, before SIGKILL.
        backend: None: what fits this platform; "portable": what Windows and macOS get.
        record: whether to keep a record of this run on disk, as a loader does.
    """
    options = GroupOptions(
        nprocs=nprocs,
        daemon=daemon,
        start_method=start_method,
        timeout_s=timeout,
        memory_limit=None if memory_limit is None else sizes.parse_bytes("memory_limit", memory_limit),
        max_restarts=max_restarts,
        grace_s=grace_period,
        backend=backend,
        is_recorded=record,
    )
    _check(options)
    if nprocs == 0:
        warnings.warn("spawn(nprocs=0) runs nothing", HoldfastWarning, stacklevel=2)
    group = RankGroup(Program(fn, tuple(args)), options)
    if not join:
        group.attend()
        return group
    while not group.join():
        pass
    return None


def _check(options: GroupOptions) -> None:
    arguments.check_count("nprocs", options.nprocs)
    arguments.check_choice("start_method", options.start_method, _START_METHODS)
    arguments.check_seconds("timeout", options.timeout_s)
    arguments.check_flag("record", options.is_recorded)
    arguments.check_count("max_restarts", options.max_restarts)
    if options.grace_s:
        arguments.check_seconds("grace_period", options.grace_s)
