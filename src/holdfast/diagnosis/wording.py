"""Words for what is seen of a death: signals, their codes, growth. Numbers alone are said by `holdfast/words.py`. Pure.

Whatever comes from outside (stderr, messages of exceptions) goes through `one_line` before it is shown: one line,
bounded, no control characters. Standard library only. Runs in: main process.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from holdfast.diagnosis.evidence import MemoryReading
from holdfast.words import plural, seconds, size


def _number(name: str, on_linux: int) -> int:
    """A signal's number here, or on Linux where this platform has no such signal."""
    return int(getattr(signal, name, on_linux))


SIGHUP = _number("SIGHUP", 1)
SIGINT = _number("SIGINT", 2)
SIGQUIT = _number("SIGQUIT", 3)
SIGILL = _number("SIGILL", 4)
SIGTRAP = _number("SIGTRAP", 5)
SIGABRT = _number("SIGABRT", 6)
SIGBUS = _number("SIGBUS", 7)
SIGFPE = _number("SIGFPE", 8)
SIGKILL = _number("SIGKILL", 9)
SIGUSR1 = _number("SIGUSR1", 10)
SIGSEGV = _number("SIGSEGV", 11)
SIGUSR2 = _number("SIGUSR2", 12)
SIGPIPE = _number("SIGPIPE", 13)
SIGALRM = _number("SIGALRM", 14)
SIGTERM = _number("SIGTERM", 15)
SIGXCPU = _number("SIGXCPU", 24)
SIGXFSZ = _number("SIGXFSZ", 25)
SIGSYS = _number("SIGSYS", 31)

SI_TKILL = -6
SI_KERNEL = 0x80
BUS_ADRERR = 2
SEGV_ACCERR = 2

_SENT = {0: "SI_USER", -1: "SI_QUEUE", -2: "SI_TIMER", -6: "SI_TKILL", SI_KERNEL: "SI_KERNEL"}
_CODES = {
    SIGILL: "ILL_ILLOPC ILL_ILLOPN ILL_ILLADR ILL_ILLTRP ILL_PRVOPC ILL_PRVREG ILL_COPROC ILL_BADSTK",
    SIGFPE: "FPE_INTDIV FPE_INTOVF FPE_FLTDIV FPE_FLTOVF FPE_FLTUND FPE_FLTRES FPE_FLTINV FPE_FLTSUB",
    SIGSEGV: "SEGV_MAPERR SEGV_ACCERR SEGV_BNDERR SEGV_PKUERR",
    SIGBUS: "BUS_ADRALN BUS_ADRERR BUS_OBJERR BUS_MCEERR_AR BUS_MCEERR_AO",
    SIGTRAP: "TRAP_BRKPT TRAP_TRACE TRAP_BRANCH TRAP_HWBKPT",
}
_NAMES = {value: name for name, value in list(globals().items()) if re.fullmatch(r"SIG[A-Z0-9]+", name)}
_LONGEST = 300
_LEAST_GROWTH = 8 << 20  # what is less is no growth to speak of


def signal_name(number: int) -> str:
    """ "SIGILL", or "signal 40" for one without a name."""
    if number in _NAMES:
        return _NAMES[number]
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def code_name(number: int, code: int) -> str:
    """The name of a si_code, which depends on the signal: "SEGV_MAPERR"."""
    names = _CODES.get(number, "").split()
    if 1 <= code <= len(names):
        return names[code - 1]
    return _SENT.get(code, f"si_code {code}")


def growth(readings: Sequence[MemoryReading], at_start_bytes: int = 0) -> str:
    """How a worker's own memory went over its samples; "" where that is not known. The last reading may be 0.

    `at_start_bytes`: what it had at its birth, which for a fork is its parent's.
    """
    seen = [reading for reading in readings if reading.anonymous_bytes > 0]
    if not seen:
        return ""
    base = min(at_start_bytes, *(reading.anonymous_bytes for reading in seen))
    first, last = (reading.anonymous_bytes - base for reading in (seen[0], seen[-1]))
    above = " above its start" if base else ""
    if len(seen) == 1:
        return f"its own memory was {size(last)}{above}, {seconds(seen[0].seconds_before_end)} before the end"
    over = f"over {_samples(seen)} ({seconds(seen[0].seconds_before_end)})"
    if last >= 1.1 * first and last - first >= _LEAST_GROWTH:
        return f"its own memory grew from {size(first)} to {size(last)}{above} {over}"
    return f"its own memory did not grow {over}: {size(last)}{above}"


def _samples(readings: Sequence[MemoryReading]) -> str:
    """ "its last 4 samples", where all were of one batch: how many were between two others was not counted."""
    if len({reading.unit for reading in readings}) > 1:
        return "the samples of its last batches"
    positions = [reading.position for reading in readings]
    return f"its last {plural(max(positions) - min(positions) + 1, 'sample')}"


def one_line(text: str, longest: int = _LONGEST) -> str:
    """The text as a single line that is safe to print, cut where it is too long."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= longest else f"{line[: longest - 3].rstrip()}..."


def error_line(error: BaseException) -> str:
    """ "ValueError: not a photo"; its type alone where it says nothing, or fails to."""
    try:
        text = str(error)
    except Exception:  # it is the user's, and may be of any class
        text = ""
    return one_line(f"{type(error).__name__}: {text}".removesuffix(": "))


def printable(text: str) -> str:
    """With a space for whatever a terminal would take for an order."""
    return "".join(char if char.isprintable() else " " for char in text)


def file_name(path: str) -> str:
    """The last part of a path of any platform, without " (deleted)" of /proc."""
    return re.split(r"[/\\]", path.removesuffix(" (deleted)"))[-1]
