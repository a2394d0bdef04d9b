"""Which slots may still be read by a process that was forked while they were in use.

A fork shares our mappings with the child. A batch that the child holds must keep its bytes although this process may
drop it and reuse the slot. So every fork gets a guard: a pipe whose writing end only the child keeps. While it is
open, some process may still read; it closes by itself when the child, and whatever it forked, has exited or exec'ed.

    before fork         pipe made, slots in use are marked
    parent, after       closes the writing end
    child, after        closes the reading end, keeps the writing end for its life

Runs in: main process (the hooks run around every fork of it).
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import weakref
from collections.abc import Iterable
from typing import Protocol


class ForkGuard:
    """One fork of this process. `passed()` once no process that inherited its memory is left."""

    def __init__(self) -> None:
        self._passed = False
        self._ends: list[tuple[int, int]] = []  # reader and writer, or nothing any more
        with contextlib.suppress(OSError):  # out of descriptors: then this fork is taken to live for ever
            self._ends.append(os.pipe())  # both close on exec

    def keep_reader(self) -> None:
        if self._ends:
            os.close(self._ends[0][1])

    def keep_writer(self) -> None:
        self._close_reader()  # the writing end stays open until this process ends or execs

    def passed(self) -> bool:
        for reader, _ in list(self._ends):
            if _hung_up(reader):
                self._passed = True
                self._close_reader()
        return self._passed

    def _close_reader(self) -> None:
        with contextlib.suppress(IndexError):  # (popping is atomic: two pools, in two threads, may share a guard)
            os.close(self._ends.pop()[0])

    def __del__(self) -> None:
        self._close_reader()


def _hung_up(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


class Guarded(Protocol):
    """What can be in use while a fork happens: a pool of slots."""

    def in_use(self) -> bool: ...

    def guard_with(self, guard: ForkGuard) -> None: ...

    def drop_passed_guards(self) -> None: ...


_pools: list[weakref.ref[Guarded]] = []
_forking = threading.local()
_hooked: list[bool] = []


def watch(pool: Guarded) -> None:
    """From now on every fork marks what `pool` has in use."""
    if not hasattr(os, "register_at_fork"):
        return  # Windows: there is no fork
    if not _hooked:
        _hooked.append(True)
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
    _pools.append(weakref.ref(pool, _forget))


def _forget(ref: weakref.ref[Guarded]) -> None:
    with contextlib.suppress(ValueError):  # a forked child has forgotten all
        _pools.remove(ref)


def _all_pools() -> list[Guarded]:
    """Those alive. (A WeakSet cannot be copied while another thread adds to it; a list can.)"""
    return [pool for ref in list(_pools) if (pool := ref()) is not None]


def drop_passed_guards() -> None:
    """Close what watched forks that are over. Worth calling when processes of ours have ended."""
    for pool in _all_pools():
        pool.drop_passed_guards()


def _before() -> None:
    _forking.guard = None
    busy = [pool for pool in _all_pools() if pool.in_use()]
    if busy:
        _forking.guard = guard = ForkGuard()
        _mark(busy, guard)


def _mark(pools: Iterable[Guarded], guard: ForkGuard) -> None:
    for pool in pools:
        pool.guard_with(guard)


def _in_parent() -> None:
    guard: ForkGuard | None = _forking.guard
    if guard is not None:
        guard.keep_reader()
        _forking.guard = None


def _in_child() -> None:
    guard: ForkGuard | None = _forking.guard
    if guard is not None:
        guard.keep_writer()
        _forking.guard = None
    _pools.clear()
