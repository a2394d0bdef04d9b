"""Words for numbers: times, sizes, counts, shares. Pure.

Runs in: wherever records are read.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

_PARTS = ((3600, 60, "min", 1, "s"), (86400, 3600, "h", 60, "min"), (math.inf, 86400, "d", 3600, "h"))
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def duration(seconds: float) -> str:
    """ "250 ms", "12 s", "3 min 5 s", "2 h", "4 d 3 h"."""
    if seconds < 0.001:
        return "0 s" if seconds <= 0 else f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    for below_s, unit_s, unit, part_s, part in _PARTS:
        if seconds < below_s:
            units, rest_s = divmod(round(seconds / part_s) * part_s, unit_s)
            return f"{units:,} {unit} {rest_s // part_s} {part}" if rest_s else f"{units:,} {unit}"
    return "for ever"


def size(nbytes: float) -> str:
    """ "512 bytes", "1.5 GiB"."""
    value, unit = float(nbytes), 0
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} bytes" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def limit(nbytes: float) -> str:
    """The size of a limit as a user may have written it: "4 GB" and not "3.7 GiB"."""
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB")):
        if nbytes >= unit and nbytes % (unit // 1000) == 0:
            return f"{nbytes / unit:g} {name}"
    return size(nbytes)


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def times(number: int) -> str:
    """ "once", "twice", "3 times"."""
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def share(part: float, whole: float) -> str:
    """ "12 %"; one digit more where it is small, and never 0 % or 100 % of what is neither."""
    if whole <= 0 or part <= 0:
        return "0 %"
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "under 0.1 %"
    if percent < 10:
        return f"{percent:.1f} %"
    return f"{min(percent, 99.9):.1f} %" if 99 < percent < 100 else f"{percent:.0f} %"


def moment(time: float | None) -> str:
    """ "16 November 2026, 09:27:57 UTC"; empty where it is no time."""
    try:
        when = datetime.fromtimestamp(time or 0, UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return f"{when.day} {when:%B %Y, %H:%M:%S} UTC" if time else ""


def short_moment(time: float | None) -> str:
    """ "2026-11-16 09:27", of UTC."""
    try:
        return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M}" if time else ""
    except (ValueError, OverflowError, OSError):
        return ""


def listed(words: list[str]) -> str:
    """ "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
