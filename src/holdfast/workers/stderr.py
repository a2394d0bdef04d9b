"""What a worker writes to its stderr: still seen by the user, marked with the worker, and its last words kept.

    worker's fd 2 ──pipe──► supervisor ──► tail, for a diagnosis
                                      └──► the supervisor's own stderr, line by line: "[worker 1] free(): double free"

glibc and C++ say why they abort on that descriptor and nowhere else. The supervisor never blocks here: where its own
stderr takes nothing, the worker's pipe is left full, and the worker waits as it would have at that stderr itself.
Runs in: supervisor process (the relay), worker process (`redirect`).
"""

from __future__ import annotations

import os
import select
import sys

_TAIL_BYTES = 8 * 1024
_READ_BYTES = 64 * 1024
_PIECE_BYTES = select.PIPE_BUF  # as much as a pipe that is ready takes without blocking
_STDERR = 2
_LINE_ENDS = (b"\n", b"\r")
_LONGEST_LINE = 16 * 1024  # of a longer one the parts are passed on as they come
_LAST_READS = 2  # as much as a pipe holds, and what was under way


def redirect(pipe: int) -> None:
    """From now on, in this process, stderr is this pipe.

    A fork of a Jupyter kernel has a `sys.stderr` that sends messages to the notebook past every descriptor. Where the
    kernel shows what is written to its descriptor as well, the plain way is taken: what is said is marked, and kept.
    """
    os.dup2(pipe, _STDERR)
    os.close(pipe)
    if getattr(sys.stderr, "_original_stdstream_copy", None) is not None:  # ipykernel's, if it watches the descriptor
        sys.stderr = open(_STDERR, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115


class Relay:
    """The reading end of one worker's stderr. `fd` is to be polled while `wants_more`."""

    def __init__(self, fd: int, out: int = _STDERR) -> None:
        self.fd = fd
        self._mark = b"[spare worker] "
        self._out = out
        self._tail = b""
        self._line = b""  # begun, not ended
        self._is_marked = False  # a part of that line has been passed on
        self._pending = b""  # marked, not taken by our stderr yet
        self._has_ended = False
        os.set_blocking(fd, False)

    def name(self, who: str) -> None:
        """Whose it is, once that is known: "worker 1"."""
        self._mark = f"[{who}] ".encode()

    @property
    def wants_more(self) -> bool:
        return not self._pending and not self._has_ended

    def take_in(self) -> bool:
        """Read what there is, and pass on the lines that are whole. False if there is nothing."""
        try:
            data = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self._has_ended = not data
        self._tail = (self._tail + data)[-_TAIL_BYTES:]
        lines = (self._line + data).splitlines(keepends=True)
        self._line = lines.pop() if lines and not lines[-1].endswith(_LINE_ENDS) else b""
        for line in lines:
            self._pass_on(line)
            self._is_marked = False
        self.push(unfinished=len(self._line) > _LONGEST_LINE)
        return bool(data)

    def _pass_on(self, text: bytes) -> None:
        self._pending += text if self._is_marked else self._mark + text

    def push(self, *, unfinished: bool = False) -> None:
        """Write what waits; with `unfinished`, what is said of a line that has not ended as well."""
        if unfinished and self._line:
            self._pass_on(self._line)
            self._line, self._is_marked = b"", True
        while self._pending and _takes_more(self._out):
            try:
                written = os.write(self._out, self._pending[:_PIECE_BYTES])
            except BlockingIOError:
                return
            except OSError:
                written = len(self._pending)  # nobody can see it any more
            self._pending = self._pending[written:]

    def finish(self) -> str:
        """The worker has ended. Returns its last words, which are passed on too."""
        for _ in range(_LAST_READS):  # not up to its end: what the worker had started may keep the pipe open, and write
            if not self.take_in():
                break
        if self._line or self._is_marked:
            self._line += b"\n"  # the next one to speak begins a line of its own
        self.push(unfinished=True)
        os.close(self.fd)
        return self._tail.decode(errors="replace")


def _takes_more(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(0))
