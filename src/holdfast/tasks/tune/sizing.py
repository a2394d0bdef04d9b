"""Numbers as people write them: sizes and seconds that are round. Pure.

Sizes are decimal, as "4GB" means in `memory_limit`. Runs in: main process.
"""

from __future__ import annotations

import math

_MANTISSAS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
_UNITS = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
_SECONDS = (10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 450, 600, 900, 1200, 1800, 2700, 3600)
MEGABYTE = 10**6


def rounded_up(nbytes: float) -> int:
    """The next round size, and a megabyte at least."""
    return next(size for size in _round_sizes(nbytes) if size >= nbytes)


def rounded_down(nbytes: float) -> int:
    """The last round size that is no more; a megabyte at least."""
    return max((size for size in _round_sizes(nbytes) if size <= nbytes), default=MEGABYTE)


def _round_sizes(nbytes: float) -> list[int]:
    """Those about this size, in order. All are whole megabytes, but for 1.2, 1.5 and 2.5 of them."""
    power = max(0, math.floor(math.log10(max(nbytes, MEGABYTE) / MEGABYTE)))
    decades = range(max(0, power - 1), power + 3)
    return [int(mantissa * MEGABYTE * 10**decade) for decade in decades for mantissa in _MANTISSAS]


def written(nbytes: int) -> str:
    """As an argument: "1.5GB". What `memory_limit` makes of it is the same number."""
    for unit, name in _UNITS:
        if nbytes >= unit and nbytes % unit == 0:
            return f"{nbytes // unit}{name}"
        if nbytes >= unit and nbytes % (unit // 10) == 0:
            return f"{nbytes / unit:.1f}{name}"
    return f"{nbytes}B"


def rounded_up_s(value_s: float) -> int:
    """The next round number of seconds; past an hour, of hours."""
    return next((each for each in _SECONDS if each >= value_s), 3600 * math.ceil(value_s / 3600))
