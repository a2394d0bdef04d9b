"""A bell that wakes a thread that waits in a backend: rung by others, when there is something new for it to do.

    any thread: ring() ──► the thread that owns the backend: wait() returns ──► hush()

A pipe, because that is what every platform can wait for beside a process and a socket. Runs in: main process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import threading


class Bell:
    """Rung any number of times before it is hushed, it sounds once."""

    def __init__(self) -> None:
        self.connection, self._rope = multiprocessing.Pipe(duplex=False)
        # By who has it already, too: the collector may find the pool's last owner while its own thread hushes.
        self._lock = threading.RLock()
        self._sounds = False
        self._is_closed = False

    def fileno(self) -> int:
        return self.connection.fileno()

    def ring(self) -> None:
        """Harmless when it is closed."""
        with self._lock:
            if not self._sounds and not self._is_closed:
                with contextlib.suppress(OSError):
                    self._rope.send_bytes(b"")
                self._sounds = True  # after it: an interrupt in between may have it rung once more, but not never

    def hush(self) -> None:
        """What was rung for by now will be seen by who calls this."""
        with self._lock:
            while not self._is_closed and self.connection.poll():
                self.connection.recv_bytes()
            self._sounds = False

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self.connection.close()
            self._rope.close()
