"""Sizes as users write them: 4294967296, "4GB", "512MiB", "80%". Pure.

GB is a thousand million bytes and GiB is 1024 to the third, as the units mean. Standard library only.
Runs in: main process.
"""

from __future__ import annotations

import re

_UNITS = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE | re.ASCII)
_MOST = 1 << 62  # more than any machine has, and more than the kernel can be told
_SHARE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*", re.ASCII)


def parse_bytes(name: str, value: object) -> int:
    """A number of bytes. `name` is the argument that it was given as."""
    nbytes = _bytes_of(value)
    if nbytes is None:
        raise ValueError(f'{name}={value!r} must be a number of bytes above 0, or a size such as "4GB" or "512MiB"')
    return nbytes


def parse_budget(name: str, value: object) -> int | float:
    """A number of bytes (int), or a share of what there is (float, above 0 and up to 1)."""
    if isinstance(value, str) and (match := _SHARE.fullmatch(value)):
        share = float(match[1]) / 100
        if 0 < share <= 1:
            return share
        raise ValueError(f'{name}={value!r} must be above 0% and at most 100% of the memory there is, such as "80%"')
    nbytes = _bytes_of(value)
    if nbytes is None:
        raise ValueError(
            f'{name}={value!r} must be a number of bytes above 0, a size such as "16GB", or a share: "80%"'
        )
    return nbytes


def _bytes_of(value: object) -> int | None:
    """None: that is no size, or none that memory can have."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 1 <= value <= _MOST else None
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2].lower() not in _UNITS:
        return None
    nbytes = float(match[1]) * _UNITS[match[2].lower()]  # (infinite, with hundreds of digits)
    return int(nbytes) if 1 <= nbytes <= _MOST else None
