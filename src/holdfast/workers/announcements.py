"""Which segments the worker processes know, and how long each needs its name.

Every process is told of a new segment at once, whether it will use it or not. When all have said that they opened it,
the name goes. A process that is started later inherits what was announced before (`known`).

Runs in: main process.
"""

from __future__ import annotations

from holdfast.transport import names
from holdfast.transport.slots import PooledSegment, SlotPool
from holdfast.workers import messages
from holdfast.workers.recruits import Recruit


class Announcements:
    """`recruits` is the backend's own list of every process there is."""

    def __init__(self, pool: SlotPool, recruits: list[Recruit]) -> None:
        self._pool = pool
        self._recruits = recruits
        self._known: dict[int, PooledSegment] = {}
        self._named: dict[str, dict[Recruit, int]] = {}  # whom a name was sent to, up to which mark in what it was sent

    def known(self) -> dict[int, PooledSegment]:
        """Segments, by number, for a process that is about to start."""
        self._forget_dropped()  # their descriptors are closed
        return self._known

    def announce(self, segment: PooledSegment) -> None:
        if self._pool.dropped_segments:
            self._forget_dropped()
        if segment.number in self._known:
            return
        marks = self._named[segment.name] = {}
        self._known[segment.number] = segment
        data = messages.pack_segment(segment.number, segment.nbytes)
        for recruit in self._recruits:
            marks[recruit] = recruit.line.send(data, [segment.name])

    def _forget_dropped(self) -> None:
        numbers = list(self._pool.dropped_segments)
        known = [number for number in numbers if self._known.pop(number, None) is not None]
        if known:
            for recruit in self._recruits:
                recruit.line.send(messages.pack_forget(known))
        del self._pool.dropped_segments[: len(numbers)]

    def remove_names(self) -> None:
        """Remove those that every process has opened. (The name of a dropped segment too stays that long.)"""
        for name, marks in list(self._named.items()):
            if all(recruit.line.has_read(mark) for recruit, mark in marks.items()):
                names.remove(name)
                del self._named[name]

    def lost(self, recruit: Recruit) -> None:
        """A process is gone, and opens nothing more."""
        for marks in self._named.values():
            marks.pop(recruit, None)

    def close(self) -> None:
        for name in self._named:
            names.remove(name)
        self._named.clear()
        self._known.clear()
