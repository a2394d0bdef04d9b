"""The two ends of a `multiprocessing.Pipe` between the main process and a worker, made so that main never blocks.

    message = (pieces read so far, data, names of segments) ──► pieces of at most 4 kB ──► pipe

- **Main never blocks in a send.** A pipe takes only so much that was not read, and multiprocessing's ends cannot be
  asked whether there is room. So main counts: what it sent and does not know to be read never exceeds what surely fits.
  The rest waits in an outbox. Every message says how much was read; a worker that has read much and said nothing says
  so.
- **Main never waits for the rest of a message.** A piece is written in one go, so a worker that is stopped or killed
  leaves whole pieces; a message of which pieces are missing is not there yet.
- **An interrupt inside a read or write** leaves an end that cannot be trusted any more: it says so (`is_torn`).

Runs in: main process (MainEnd), worker process (WorkerEnd).
"""

from __future__ import annotations

import contextlib
import marshal
import os
import socket
import sys
from collections import deque
from collections.abc import Sequence
from multiprocessing import connection
from typing import Any

from holdfast.transport import names

_PIECE = 4000
_MORE, _LAST, _END = b"\0", b"\1", b"\2"  # the first byte of a piece; _END is a message: there will be no more
_OVERHEAD = 1024  # what the system may take for a piece beside its bytes
_WANTED_BUFFER = 1 << 20
_SMALLEST_ROOM = 8192  # what a Windows pipe of multiprocessing's takes
_SPEAK_AFTER = 2048  # read and not said so: far less than any room, so that main never waits for nothing


def pair() -> tuple[Any, Any, int]:
    """Two connected ends, main's and the worker's, and how much surely fits between them."""
    ours, theirs = connection.Pipe(duplex=True)
    room = _SMALLEST_ROOM
    if sys.platform != "win32":
        room = max(room, min(_widen(ours), _widen(theirs)) // 4)
    return ours, theirs, room


def _widen(end: Any) -> int:
    """Ask for large buffers. What was given may be less."""
    with socket.socket(fileno=os.dup(end.fileno())) as sock:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, option, _WANTED_BUFFER)
        return min(sock.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF))


def _pieces(read: int, data: bytes, handles: Sequence[Any]) -> list[bytes]:
    message = marshal.dumps((read, data, tuple(handles)))
    if len(message) <= _PIECE:
        return [_LAST + message]
    parts = [message[at : at + _PIECE] for at in range(0, len(message), _PIECE)]
    return [*(_MORE + part for part in parts[:-1]), _LAST + parts[-1]]


def _cost(piece: bytes) -> int:
    return len(piece) + _OVERHEAD


_open: set[Any] = set()  # connections of the main process: for the reason that `channel.py` gives


class MainEnd:
    """The main process's end. Nothing here blocks."""

    def __init__(self, end: Any, room: int) -> None:
        self.connection = end
        _open.add(end)
        self.is_torn = False  # left in the middle of a read or write
        self.is_over = False  # the worker's end is closed, and everything it sent was read
        self.was_heard = False
        self._room = room
        self._outbox: deque[bytes] = deque()
        self._unread: deque[int] = deque()  # costs of pieces that were sent and may not have been read
        self._known_read = 0  # pieces
        self._queued = 0  # pieces
        self._read_here = 0  # pieces
        self._parts: list[bytes] = []

    @property
    def has_unsent(self) -> bool:
        return bool(self._outbox)

    def send(self, data: bytes, handles: Sequence[Any] = ()) -> int:
        """Send now or, if there may be no room, later. Returns what `has_read` wants to know."""
        pieces = _pieces(self._read_here, data, handles)
        self._queued += len(pieces)
        self._outbox.extend(pieces)
        self.flush()
        return self._queued

    def has_read(self, mark: int) -> bool:
        """Whether the worker has surely read, and dealt with, a message (one that it does not answer)."""
        return self._known_read >= mark

    def end_sending(self) -> None:
        """After what it has been sent, the worker is to end."""
        self._queued += 1
        self._outbox.append(_END)
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as there is room."""
        while self._outbox and not self.is_torn and not self.is_over:
            cost = _cost(self._outbox[0])
            if self._unread and sum(self._unread) + cost > self._room:
                return
            self.is_torn = True
            self._unread.append(cost)
            with contextlib.suppress(OSError):  # it is gone; that is noticed elsewhere
                self.connection.send_bytes(self._outbox.popleft())
            self.is_torn = False

    def has_news(self) -> bool:
        try:
            return not self.is_over and not self.is_torn and bool(self.connection.poll(0))
        except OSError:
            self.is_over = True
            return False

    def receive(self) -> tuple[bytes, list[str]] | None:
        """To be called when there are news. A message, if one is complete now and says something."""
        self.is_torn = True
        try:
            piece = self.connection.recv_bytes()
        except (EOFError, OSError):
            self.is_over, self.is_torn = True, False
            return None
        self.is_torn = False
        self.was_heard = True
        self._read_here += 1
        self._parts.append(piece[1:])
        if piece[:1] == _MORE:
            return None
        message, self._parts = b"".join(self._parts), []
        read, data, handles = marshal.loads(message)
        self._settle(read)
        return (data, list(handles)) if data else None

    def _settle(self, read: int) -> None:
        while self._known_read < read:
            self._known_read += 1
            self._unread.popleft()
        if self._outbox:
            self.flush()

    def close(self) -> None:
        """Hang up, also for a fork of this process that has a copy of this end."""
        if not self.connection.closed and sys.platform != "win32":
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.connection.fileno())) as sock:
                sock.shutdown(socket.SHUT_RDWR)
        self.is_over = True
        self.connection.close()
        _open.discard(self.connection)


class WorkerEnd:
    """A worker's end. It blocks: a worker has nothing else to do."""

    def __init__(self, end: Any) -> None:
        self._connection = end
        self.was_cut_off = False  # main has hung up without telling us to end
        self._read = 0  # pieces
        self._unsaid = 0  # cost of what was read since we last said something
        self._sent = 0  # pieces
        self._held: deque[tuple[int, list[object]]] = deque()  # segments of ours that main may not have opened yet

    def send(self, data: bytes, handles: Sequence[Any] = ()) -> None:
        """Raises ConnectionError if the main process has hung up."""
        holds = [names.hold(handle) for handle in handles]
        self._unsaid = 0
        try:
            for piece in _pieces(self._read, data, handles):
                self._connection.send_bytes(piece)
                self._sent += 1
        except ConnectionError:
            self.was_cut_off = True
            raise
        if holds:
            self._held.append((self._sent, holds))

    def fileno(self) -> int:
        return int(self._connection.fileno())

    def say_read(self) -> None:
        """Tell the main process how much was read, and that this process is there."""
        self.send(b"")

    def receive(self) -> tuple[bytes, list[str]] | None:
        """The next order; None when there will be no more."""
        parts = []
        try:
            while True:
                if self._unsaid >= _SPEAK_AFTER:
                    self.say_read()
                piece = self._connection.recv_bytes()
                self._read += 1
                self._unsaid += _cost(piece)
                if piece == _END:
                    return None
                parts.append(piece[1:])
                if piece[:1] == _LAST:
                    break
        except (EOFError, OSError):
            self.was_cut_off = True
            return None
        read, data, handles = marshal.loads(b"".join(parts))
        if handles:
            self._unsaid = _SPEAK_AFTER  # main waits to hear that they were opened
        while self._held and self._held[0][0] <= read:
            self._held.popleft()
        return data, list(handles)
