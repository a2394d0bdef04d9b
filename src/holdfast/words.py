"""Words for numbers: counts, sizes, times, shares. Pure.

Standard library only. Runs in: wherever something is said.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

_PARTS = ((3600, 60, "min", 1, "s"), (86400, 3600, "h", 60, "min"), (math.inf, 86400, "d", 3600, "h"))
_BINARY = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


# -- counts ------------------------------------------------------------------------------------------------------------


def plural(number: int, noun: str) -> str:
    """ "1 sample", "2,000 batches", "0 libraries"."""
    return f"{number:,} {noun if number == 1 else _many(noun)}"


def _many(noun: str) -> str:
    if noun.endswith(("s", "ch")):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"


def rate(per_s: float) -> str:
    """In a second: "1,250", "35.2", "0.041"."""
    return f"{per_s:.3g}" if per_s < 100 else f"{per_s:,.0f}"


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


def listed(words: list[str]) -> str:
    """ "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


# -- sizes -------------------------------------------------------------------------------------------------------------


def size(nbytes: float) -> str:
    """ "512 bytes", "1.5 GiB"."""
    value, unit = float(nbytes), 0
    while abs(value) >= 1024 and unit < len(_BINARY) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} bytes" if unit == 0 else f"{value:.1f} {_BINARY[unit]}"


def decimal_size(nbytes: float) -> str:
    """In the units that a user writes limits in: "1.24 GB", "86 MB"."""
    for unit, name in _DECIMAL:
        if nbytes >= unit:
            return f"{_three_digits(nbytes / unit)} {name}"
    return f"{nbytes:.0f} bytes"


def limit(nbytes: float) -> str:
    """The size of a limit as a user may have written it: "4 GB" and not "3.7 GiB"."""
    for unit, name in _DECIMAL[:3]:
        if nbytes >= unit and nbytes % (unit // 1000) == 0:
            return f"{nbytes / unit:g} {name}"
    return size(nbytes)


# -- times -------------------------------------------------------------------------------------------------------------


def seconds(value: float) -> str:
    """ "3 s", "0.25 s": whatever it is, in seconds."""
    return f"{_three_digits(value)} s"


def took(value_s: float) -> str:
    """Of what was measured: "3.14 s", "12.3 ms", "4 µs"."""
    if value_s >= 1:
        return seconds(value_s)
    return f"{_three_digits(1e3 * value_s)} ms" if value_s >= 1e-3 else f"{_three_digits(1e6 * value_s)} µs"


def duration(value_s: float) -> str:
    """Of what may have gone on for days: "250 ms", "12 s", "3 min 5 s", "2 h", "4 d 3 h"."""
    if value_s < 0.001:
        return "0 s" if value_s <= 0 else f"{value_s * 1e6:.0f} µs"
    if value_s < 1:
        return f"{value_s * 1000:.0f} ms"
    if value_s < 60:
        return f"{value_s:.1f} s" if value_s < 10 else f"{value_s:.0f} s"
    for below_s, unit_s, unit, part_s, part in _PARTS:
        if value_s < below_s:
            units, rest_s = divmod(round(value_s / part_s) * part_s, unit_s)
            return f"{units:,} {unit} {rest_s // part_s} {part}" if rest_s else f"{units:,} {unit}"
    return "for ever"


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


def _three_digits(value: float) -> str:
    """At least: "0.25", "12.3", "4321"; and never "1e+03", as 999.9 is in Python's own."""
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
