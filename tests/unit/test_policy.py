"""Our own arguments: what is right is kept, what is wrong is refused by name, with what to write instead."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.loader.policy import Policy
from holdfast.workers.attempts import Care

WRONG: list[tuple[str, Any, str]] = [
    ("on_error", "ignore", "'raise', 'skip', 'replace'"),
    ("on_error", None, "'raise', 'skip', 'replace'"),
    ("on_error", ["skip"], "'raise', 'skip', 'replace'"),
    ("rng", "samples", "'worker', 'sample'"),
    ("rng", 7, "'worker', 'sample'"),
    *(
        (name, value, "whole number, 0 or more")
        for name in ("max_retries", "max_restarts")
        for value in (-1, 1.0, "3", None, True)
    ),
    *(("sample_timeout", value, "number of seconds above 0, or None") for value in (0, -1, 0.0, "5", True)),
    ("sample_timeout", math.inf, "number of seconds above 0, or None"),
    ("sample_timeout", math.nan, "number of seconds above 0, or None"),
    *(("max_skipped", value, "share of the epoch from 0.0 to 1.0") for value in (-1, -0.1, 1.01, "1%", "none", True)),
    ("max_skipped", math.nan, "share of the epoch from 0.0 to 1.0"),
    *(("memory_limit", value, '"4GB"') for value in (0, -1, 1.5, True, "4", "4 gigs", "80%", "", "-1GB", "0GB")),
    *(("recycle_after", value, "batches, 1 or more, or None") for value in (0, -1, 1.0, "5", True)),
    *(("record", value, "True or False") for value in (None, 1, "no", "/data/records")),
    ("retry_on", "OSError", "(OSError, TimeoutError)"),
    ("retry_on", ("OSError",), "(OSError, TimeoutError)"),
    ("retry_on", OSError(), "(OSError, TimeoutError)"),
    ("retry_on", int, "(OSError, TimeoutError)"),
    ("retry_on", None, "(OSError, TimeoutError)"),
    ("retry_on", (OSError, KeyboardInterrupt), "(OSError, TimeoutError)"),
]


@pytest.mark.parametrize(("name", "value", "remedy"), WRONG, ids=lambda part: repr(part)[:40])
def test_a_wrong_value_is_refused_by_name_and_with_the_remedy(name: str, value: Any, remedy: str) -> None:
    """`name=value` as the user wrote it, and what is allowed."""
    with pytest.raises(ValueError, match="^" + re.escape(f"{name}={value!r} ")) as caught:
        Policy(**{name: value})
    assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("on_error", value) for value in ("raise", "skip", "replace")),
        *(("rng", value) for value in ("worker", "sample")),
        *((name, value) for name in ("max_retries", "max_restarts") for value in (0, 1, 100)),
        *(("sample_timeout", value) for value in (None, 0.001, 3, 1e9)),
        *(("max_skipped", value) for value in ("auto", None, 0, 5, 0.0, 0.5, 1.0)),
        *(("memory_limit", value) for value in (None, 1, 4 << 30, "4GB", "1.5 GiB", "512mb")),
        *(("recycle_after", value) for value in (None, 1, 1000)),
        *(("record", value) for value in (True, False)),
    ],
)
def test_what_is_allowed_is_kept_as_it_is(name: str, value: Any) -> None:
    """Every choice, and both ends of every range."""
    assert getattr(Policy(**{name: value}), name) is value


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ((), ()),
        (OSError, (OSError,)),
        ((OSError, TimeoutError), (OSError, TimeoutError)),
        ([OSError], (OSError,)),
        ({KeyError}, (KeyError,)),
    ],
)
def test_exception_types_come_alone_or_in_any_collection(given: Any, kept: tuple[type, ...]) -> None:
    """What `except` would not take, such as a list, is made a tuple."""
    assert Policy(retry_on=given).retry_on == kept


def test_without_arguments_all_is_as_in_torch() -> None:
    """Nothing is skipped, nothing is retried because it raised, nothing is timed, random numbers are the worker's."""
    policy = Policy()
    assert not policy.changes_loading
    assert policy.care == Care("raise", 1, ())
    policy.check_without_workers()
    policy.check_length(iter(()))


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        ({"on_error": "skip"}, True),
        ({"on_error": "replace"}, True),
        ({"retry_on": OSError}, True),
        ({"rng": "sample"}, True),
        ({"max_retries": 5}, False),
        ({"max_restarts": 0, "max_skipped": 3, "sample_timeout": 1}, False),
    ],
)
def test_what_changes_how_samples_are_loaded_without_workers(arguments: Any, changes: bool) -> None:
    """Where nothing does, torch's own iterator loads them."""
    assert Policy(**arguments).changes_loading is changes


def test_what_the_workers_must_know_goes_with_them() -> None:
    """The part of the arguments that is about loading one sample."""
    assert Policy("skip", 4, OSError).care == Care("skip", 4, (OSError,))  # type: ignore[arg-type]


def test_a_file_of_skipped_samples_needs_samples_that_are_skipped(tmp_path: Path) -> None:
    """With "raise" it would stay empty for ever, and the user would wonder why."""
    with pytest.raises(ValueError, match=r'^skipped_file needs on_error="skip" or "replace"'):
        Policy(skipped_file=tmp_path / "skipped.jsonl")
    assert Policy("skip", skipped_file=tmp_path / "skipped.jsonl").skipped_file == tmp_path / "skipped.jsonl"


def test_a_timeout_needs_workers() -> None:
    """Nobody can end a sample that hangs in this very process."""
    with pytest.raises(ValueError, match=r"^sample_timeout needs workers.*num_workers=1"):
        Policy(sample_timeout=1.0).check_without_workers()


class Unsized:
    """An iterable dataset, usually."""


class Sized:
    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize(
    ("max_skipped", "dataset", "is_refused"),
    [(0.1, Unsized, True), (3, Unsized, False), (None, Unsized, False), (0.1, Sized, False), (0, Sized, False)],
)
def test_a_share_of_the_epoch_needs_a_length(
    max_skipped: float | None, dataset: Callable[[], object], is_refused: bool
) -> None:
    """A number of samples does not."""
    policy = Policy(max_skipped=max_skipped)
    if not is_refused:
        policy.check_length(dataset())
        return
    with pytest.raises(ValueError, match=r"^max_skipped=0\.1 is a share.*use a number"):
        policy.check_length(dataset())
