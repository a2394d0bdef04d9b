"""A SEQPACKET socket between two processes: whole messages, descriptors beside them, and no blocking in a send.

No message is ever torn, so a kill at any instruction hurts nobody else. A send that does not fit into the socket's
buffer waits in an outbox until the poller says there is room.

Runs in: main | supervisor | worker process.
"""

from __future__ import annotations

import array
import contextlib
import os
import select
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any

MAX_MESSAGE = 64 * 1024
_MAX_FDS = 64
_BUFFER = 1 << 20
_IN_A_FILE = b"the message is in the last descriptor"
_FD_SPACE = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)


def is_readable(source: Any) -> bool:
    """Whether a descriptor, or what has one, has something to say. (`select` knows the first 1024 only.)"""
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(0))


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends with roomy buffers."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    return ends


# Sockets of the main process. Of an iterator in a garbage cycle the collector might otherwise close them before it
# calls the iterator's `__del__`, which then could not say goodbye; and a forked supervisor, which has a copy of each,
# would not notice.
_open: set[socket.socket] = set()


class Channel:
    """One end of a pair. `blocking` for a worker, which has nothing else to do; the main process never blocks."""

    def __init__(self, sock: socket.socket, *, blocking: bool) -> None:
        sock.setblocking(blocking)
        self._sock = sock
        if not blocking:
            _open.add(sock)
        self._outbox: deque[tuple[bytes, tuple[int, ...]]] = deque()

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def has_unsent(self) -> bool:
        return bool(self._outbox)

    def send(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Send now or, if the socket is full, later. Raises OSError if the other end is gone."""
        if not self._outbox:
            try:
                self._send(data, fds)
                return
            except BlockingIOError:
                pass
        # descriptors are kept as duplicates: their owner may close them before there is room
        self._outbox.append((data, tuple(os.dup(fd) for fd in fds)))

    def send_whole(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """The same for data of any length, for a receiver that knows of it."""
        if len(data) <= MAX_MESSAGE:
            self.send(data, fds)
            return
        file = os.memfd_create("holdfast-letter", os.MFD_CLOEXEC)
        try:
            with os.fdopen(file, "wb", closefd=False) as letter:
                letter.write(data)
            self.send(_IN_A_FILE, (*fds, file))
        finally:
            os.close(file)

    def receive_whole(self) -> tuple[bytes, list[int]] | None:
        """What `send_whole` sent."""
        received = self.receive()
        if received is None or received[0] != _IN_A_FILE:
            return received
        *fds, file = received[1]
        with os.fdopen(file, "rb") as letter:
            letter.seek(0)
            return letter.read(), fds

    def flush(self) -> None:
        """Send what waits, as far as there is room."""
        while self._outbox:
            data, fds = self._outbox[0]
            try:
                self._send(data, fds)
            except BlockingIOError:
                return
            self._outbox.popleft()
            _close_all(fds)

    def receive(self) -> tuple[bytes, list[int]] | None:
        """One message and its descriptors; None when the other end is gone. BlockingIOError when nothing is there."""
        try:
            data, ancillary = self._receive()
        except ConnectionResetError:
            # It died with our messages unread. The error comes once, before what it had sent: that is still there.
            data, ancillary = self._receive()
        if not data:
            return None
        return data, _descriptors(ancillary) if ancillary else []

    def _receive(self) -> tuple[bytes, list[tuple[int, int, bytes]]]:
        data, ancillary, _, _ = self._sock.recvmsg(MAX_MESSAGE, _FD_SPACE, socket.MSG_CMSG_CLOEXEC)
        return data, ancillary

    def shutdown(self) -> None:
        """End the conversation for every process that holds a copy of this end (a fork may have made some)."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def end_sending(self) -> None:
        """Tell the other end that no more will come, and go on receiving."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for _, fds in self._outbox:
            _close_all(fds)
        self._outbox.clear()
        self._sock.close()
        _open.discard(self._sock)

    def _send(self, data: bytes, fds: Sequence[int]) -> None:
        if fds:
            socket.send_fds(self._sock, [data], list(fds))
        else:
            self._sock.send(data)


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
