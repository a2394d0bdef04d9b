"""A terminal taken over for a while: rows that change are written, the others stay as they are.

    enter ──► alternate screen, no cursor, keys at once ──► paint(rows) ... ──► leave: as it was before

Invariants: a paint is one write, and clears nothing that stays; so nothing flickers, and little goes over a slow line.
However this ends (a key, Ctrl-C, a signal, an error), the terminal is as it was. Ctrl-Z gives it back until `fg`.
Plain VT sequences: no mouse, no terminfo.

Runs in: main process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

try:
    import termios
    import tty
except ImportError:  # as on Windows
    _HAS_TERMINALS = False
else:
    _HAS_TERMINALS = True

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_CLEAR, _CLEAR_TO_END_OF_ROW = "\x1b[2J", "\x1b[K"
_SLICE_S = 0.1
"""Between two looks at the size of the terminal."""
_ESCAPE = b"\x1b"  # how the arrow keys begin, and all that is no character
_DEFAULT_SIZE = os.terminal_size((80, 24))


@contextlib.contextmanager
def taken_over(console: Console) -> Iterator[Screen]:
    """Have the terminal to paint on."""
    screen = Screen(console)
    with _signals(screen):
        try:
            screen.enter()
            yield screen
        finally:
            screen.leave()


class Screen:
    """Rows on a terminal, and the keys that are pressed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._keyboard = Keyboard()
        self._painted: list[str] = []
        self._painted_size = _DEFAULT_SIZE
        self._is_blank = True  # whatever was painted: also by the paint that a signal interrupts

    def enter(self) -> None:
        self._keyboard.take()
        self._write(_ENTER)
        self._is_blank = True

    def leave(self) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone
            self._write(_LEAVE)
        self._keyboard.give_back()

    @property
    def size(self) -> os.terminal_size:
        """As it is now; not what COLUMNS said when the shell was started."""
        with contextlib.suppress(OSError, ValueError):
            size = os.get_terminal_size(self._console.file.fileno())
            return size if size.columns > 0 and size.lines > 0 else _DEFAULT_SIZE
        return _DEFAULT_SIZE

    def paint(self, rows: Sequence[Text]) -> None:
        """Show these rows, and nothing else. A row is not wider than the terminal."""
        size = self.size
        parts = []
        if self._is_blank or size != self._painted_size:
            self._is_blank = False
            self._painted, self._painted_size = [], size
            parts.append(_CLEAR)
        lines = [self._line(row, size.columns) for row in rows[: size.lines]]
        gone = [_CLEAR_TO_END_OF_ROW] * (len(self._painted) - len(lines))
        for number, line in enumerate([*lines, *gone]):
            if number >= len(self._painted) or line != self._painted[number]:
                parts.append(f"\x1b[{number + 1};1H{line}")
        self._painted = lines
        if parts:
            self._write("".join(parts))

    def wait_for_key(self, seconds: float) -> str:
        """The keys that were pressed, as soon as one is; empty when the time is over, or there is need to paint."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0 and self.size == self._painted_size and not self._is_blank:
            pressed = self._keyboard.pressed_within(min(left_s, _SLICE_S))
            if pressed:
                return pressed
        return ""

    def _line(self, row: Text, columns: int) -> str:
        with self._console.capture() as written:
            self._console.print(row, end="", soft_wrap=True)
        # In the last column the cursor stays on the last character: clearing from there would take that one away.
        return written.get() + (_CLEAR_TO_END_OF_ROW if row.cell_len < columns else "")

    def _write(self, text: str) -> None:
        encoding = self._console.encoding
        self._console.file.write(text.encode(encoding, "replace").decode(encoding))
        self._console.file.flush()


class Keyboard:
    """Keys without Enter, and without showing them. Does nothing where there is no keyboard, as behind a pipe."""

    def __init__(self) -> None:
        self._fd = _terminal_of(sys.stdin)
        self._before: list[Any] = []

    def take(self) -> None:
        if self._fd is not None:
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)

    def give_back(self) -> None:
        if self._fd is not None and self._before:
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def pressed_within(self, seconds: float) -> str:
        if self._fd is None:
            time.sleep(seconds)
            return ""
        is_there, _, _ = select.select([self._fd], [], [], seconds)
        if not is_there:
            return ""
        pressed = os.read(self._fd, 64)
        if not pressed:  # the terminal is gone: from now on there is always nothing to read
            self._fd = None
        return "" if pressed[:1] == _ESCAPE else pressed.decode("ascii", "ignore")


def _terminal_of(stream: Any) -> int | None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return stream.fileno() if _HAS_TERMINALS and os.isatty(stream.fileno()) else None
    return None


@contextlib.contextmanager
def _signals(screen: Screen) -> Iterator[None]:
    """SIGTERM and a line that breaks end this in order. Ctrl-Z: the terminal is given back before this stops."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    def stop(number: int, frame: object) -> None:
        screen.leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        screen.enter()

    handlers = {"SIGTERM": end, "SIGHUP": end, "SIGTSTP": stop}
    numbers = {getattr(signal, name): handler for name, handler in handlers.items() if hasattr(signal, name)}
    before = {number: signal.signal(number, handler) for number, handler in numbers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
