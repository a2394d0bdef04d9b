"""The options of loaders as flags and as keys of a table: their names, and what each may be.

Checked with the loader's own words, before the script runs. A value comes as text from a flag and as whatever TOML has
from a table; both forms are taken.

Runs in: the command.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from holdfast.loader.skips import special_kind
from holdfast.memory import sizes
from holdfast.workers.arguments import check_choice, check_count, check_flag, check_seconds

ON_ERROR = ("raise", "skip", "replace")
RNG = ("worker", "sample")
NO_LIMIT = "none"
"""`max_skipped=None`: a flag that is None was not given, and TOML has no such value."""


def parse(name: str, value: Any) -> Any:
    """A value that the loader takes. ValueError, with the remedy, for any other."""
    return _PARSERS[name](name, value)


def check_together(values: Mapping[str, Any]) -> None:
    """What is wrong only because of another option. ValueError, with the remedy."""
    if values.get("skipped_file") is not None and values.get("on_error", "raise") == "raise":
        raise ValueError('skipped_file needs on_error "skip" or "replace": with "raise" no sample is ever passed over')


def unknown_key(name: str, known: list[str]) -> str:
    """What to say of a key that is none."""
    near = get_close_matches(name, known, n=1)
    return f"{name!r} is no option" + (f"; did you mean {near[0]!r}?" if near else f": there are {', '.join(known)}")


def _choice(*choices: str) -> Callable[[str, Any], Any]:
    def parse_choice(name: str, value: Any) -> Any:
        check_choice(name, value, choices)
        return value

    return parse_choice


def _count(name: str, value: Any) -> Any:
    number = _number(value)
    check_count(name, number)
    return number


def _positive(name: str, value: Any) -> Any:
    number = _number(value)
    check_count(name, number)
    if number == 0:
        raise ValueError(f"{name}={value!r} must be 1 or more")
    return number


def _seconds(name: str, value: Any) -> Any:
    number = _number(value)
    check_seconds(name, number)
    return number


def _count_or_share(name: str, value: Any) -> Any:
    if value in ("auto", NO_LIMIT):
        return value
    number = _number(value)
    is_count = isinstance(number, int) and not isinstance(number, bool) and number >= 0
    if not is_count and not (isinstance(number, float) and 0.0 <= number <= 1.0):
        raise ValueError(
            f"{name}={value!r} must be a whole number of samples, a share of the epoch from 0.0 to 1.0, "
            f'"auto" or "none"'
        )
    return number


def _size(name: str, value: Any) -> Any:
    return sizes.parse_bytes(name, _number(value))


def _budget(name: str, value: Any) -> Any:
    number = _number(value)
    sizes.parse_budget(name, number)
    return number  # a share stays one: the machine that counts is the one the loader runs on


def _path(name: str, value: Any) -> Any:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name}={value!r} must be the path of a file")
    path = Path(value).absolute()
    if not path.parent.is_dir():
        raise ValueError(f"{name}={value!r}: there is no directory {path.parent}. Make it first")
    if (kind := special_kind(path)) is not None:
        raise ValueError(f"{name}={value!r} is {kind}: name a regular file, or one that does not exist yet")
    return str(path)


def _exceptions(name: str, value: Any) -> Any:
    names = value if isinstance(value, list) else [part.strip() for part in str(value).split(",")]
    for each in names:
        kind = getattr(builtins, each, None) if isinstance(each, str) else None
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise ValueError(f"{name}: {each!r} is no exception of Python's own. Name such as OSError or TimeoutError")
    return names


def _flag(name: str, value: Any) -> Any:
    check_flag(name, value)
    return value


def _number(value: Any) -> Any:
    """A number, if the text is one; else what it was, for the check to refuse."""
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


_PARSERS: dict[str, Callable[[str, Any], Any]] = {
    "on_error": _choice(*ON_ERROR),
    "max_retries": _count,
    "retry_on": _exceptions,
    "max_skipped": _count_or_share,
    "max_restarts": _count,
    "sample_timeout": _seconds,
    "memory_limit": _size,
    "memory_budget": _budget,
    "recycle_after": _positive,
    "skipped_file": _path,
    "rng": _choice(*RNG),
    "record": _flag,
}
NAMES = tuple(_PARSERS)
