"""Checks of arguments that several of our classes take: each says what is wrong with which.

Runs in: main process.
"""

from __future__ import annotations

import math


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(map(repr, choices))}")


def check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name}={value!r} must be a whole number, 0 or more")


def check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r} must be True or False")


def check_seconds(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, int | float) or isinstance(value, bool) or not (0 < value < math.inf):
        raise ValueError(f"{name}={value!r} must be a number of seconds above 0, or None for no limit")
