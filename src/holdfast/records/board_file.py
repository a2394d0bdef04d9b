"""The status board of another process, found among its open files and read as a file.

A board is looked for in every file of the process that could be one, and not where the process once said it was: a
descriptor may be another file by now. It is one if it says so, has the length that it must have, is of the run that is
wanted, and its iterator is not closed. Of several, as of an epoch within an epoch, the newest counts.

Linux only: elsewhere nothing is found. Runs in: wherever records are read.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from typing import Self

from holdfast import board_rows
from holdfast.board_rows import CELLS, INDEX_AREA, ROW_BYTES

_ROW = struct.Struct(f"={CELLS}q")
_NAMES = ("/memfd:holdfast", "/dev/shm/holdfast-")
_MOST_WORKERS = 4096
_TRIES = 3


class BoardFile:
    """What a board said at one moment."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        main = self.main_row()
        self.num_workers = main[board_rows.NUM_WORKERS]
        self.token = main[board_rows.TOKEN]
        self.began_ns = main[board_rows.BEGAN_NS]
        self.has_ended = main[board_rows.HAS_ENDED] != 0

    @classmethod
    def parse(cls, data: bytes) -> Self | None:
        """None: that is no board, or not a whole one."""
        if len(data) < ROW_BYTES or _ROW.unpack_from(data)[board_rows.BOARD_MAGIC] != board_rows.MAGIC:
            return None
        board = cls(data)
        is_whole = 0 < board.num_workers <= _MOST_WORKERS and len(data) >= board_rows.used_bytes(board.num_workers)
        return board if is_whole else None

    def main_row(self) -> tuple[int, ...]:
        return _ROW.unpack_from(self._data)

    def row(self, worker_id: int) -> tuple[int, ...]:
        return _ROW.unpack_from(self._data, board_rows.row_at(worker_id))

    def indices(self, worker_id: int) -> tuple[int, bytes]:
        """Which unit they are of, and their pickle, as far as it was kept."""
        unit, pickled = INDEX_AREA.unpack_from(self._data, board_rows.indices_at(worker_id, self.num_workers))
        return unit, pickled


def find(pid: int, token: int) -> BoardFile | None:
    """The board that a process has of a run; None if it has none, or may not be looked at."""
    boards = (board for board in _boards_of(pid) if board.token == token and not board.has_ended)
    return max(boards, key=lambda board: board.began_ns, default=None)


def _boards_of(pid: int) -> Iterator[BoardFile]:
    seen: set[tuple[int, int]] = set()
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208  (only the names are wanted)
    except OSError:
        return
    for number in numbers:
        board = _read(f"/proc/{pid}/fd/{number}", seen)
        if board is not None:
            yield board


def _read(path: str, seen: set[tuple[int, int]]) -> BoardFile | None:
    """Only what is called as ours are is opened: to open a device or a pipe may do something."""
    try:
        if not os.readlink(path).startswith(_NAMES):  # noqa: PTH115  (it need not exist as a file)
            return None
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None
    try:
        return _read_whole(fd, seen)
    except OSError:
        return None
    finally:
        os.close(fd)


def _read_whole(fd: int, seen: set[tuple[int, int]]) -> BoardFile | None:
    status = os.fstat(fd)
    file = status.st_dev, status.st_ino
    if file in seen or not stat.S_ISREG(status.st_mode) or status.st_size > 2 * board_rows.used_bytes(_MOST_WORKERS):
        return None
    seen.add(file)
    head = os.pread(fd, ROW_BYTES, 0)
    if len(head) < ROW_BYTES or _ROW.unpack(head)[board_rows.BOARD_MAGIC] != board_rows.MAGIC:
        return None
    data = os.pread(fd, status.st_size, 0)
    for _ in range(_TRIES):  # what was being written when it was read is not the same again
        again = os.pread(fd, status.st_size, 0)
        if again == data:
            break
        data = again
    return BoardFile.parse(data)
