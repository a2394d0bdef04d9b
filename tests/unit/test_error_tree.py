"""Everything holdfast raises: the tree as it is drawn, and errors that cross a process whole."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest

from holdfast import errors
from holdfast.errors import (
    HoldfastError,
    HoldfastWarning,
    InternalError,
    NotPicklable,
    SharedMemoryError,
    TooManyRestarts,
    TooManySkipped,
    WorkerCrashed,
    WorkerError,
    WorkerInitError,
    WorkerOutOfMemory,
    WorkerTimeout,
)

EXAMPLES: list[HoldfastError] = [
    HoldfastError("message"),
    WorkerError("message", worker_id=1, sample_index=17),
    WorkerCrashed("message", worker_id=0, sample_index=("key", 3)),
    WorkerTimeout("message", worker_id=0, sample_index=5),
    WorkerOutOfMemory("message", worker_id=2),
    WorkerInitError("message", worker_id=3),
    TooManyRestarts("message"),
    TooManySkipped("message"),
    SharedMemoryError("message"),
    NotPicklable("message", path="dataset.transform.fn"),
    InternalError("message"),
]


def classes() -> dict[str, type]:
    return {name: value for name, value in vars(errors).items() if isinstance(value, type)}


def drawn() -> dict[str, set[str]]:
    """Class and bases as in the picture in the module's docstring: from the parentheses, or from the indentation."""
    tree: dict[str, set[str]] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"( {4,})([A-Z]\w+)(?:\(([\w, ]+)\))?(?:\s{2,}.*)?$", line)
        if match is None:
            continue
        indent, name, bases = len(match[1]), match[2], match[3]
        while above and above[-1][0] >= indent:
            above.pop()
        tree[name] = set(bases.split(", ")) if bases else {above[-1][1]}
        above.append((indent, name))
    return tree


def test_the_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    """Every class, with its very bases."""
    assert drawn() == {name: {base.__name__ for base in kind.__bases__} for name, kind in classes().items()}


def test_every_error_is_a_holdfast_error() -> None:
    """One `except` catches all that is ours."""
    for kind in classes().values():
        assert issubclass(kind, HoldfastError | HoldfastWarning)


def test_handlers_written_for_torch_keep_working() -> None:
    """torch raises RuntimeError for a dead worker, pickle TypeError for what cannot be pickled."""
    assert issubclass(WorkerError, RuntimeError)
    assert issubclass(NotPicklable, TypeError)
    assert issubclass(HoldfastWarning, UserWarning)


def test_there_is_an_example_of_every_error() -> None:
    """So that the tests below speak of all of them."""
    assert {type(error) for error in EXAMPLES} == set(classes().values()) - {HoldfastWarning}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_error_pickles_whole(error: HoldfastError, protocol: int) -> None:
    """Type, message and attributes, by every protocol in use."""
    assert_same(pickle.loads(pickle.dumps(error, protocol)), error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_every_error_can_be_copied(error: HoldfastError) -> None:
    """copy and deepcopy go the same way as pickle."""
    assert_same(copy.copy(error), error)
    assert_same(copy.deepcopy(error), error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_notes_and_attributes_added_later_are_pickled_too(error: HoldfastError) -> None:
    """What was added on the way is not lost on the way."""
    error = copy.deepcopy(error)
    error.add_note("note")
    error.rank = 3  # type: ignore[attr-defined]
    got = pickle.loads(pickle.dumps(error))
    assert_same(got, error)
    assert got.__notes__ == ["note"]
    assert got.rank == 3


def assert_same(got: Any, expected: HoldfastError) -> None:
    assert type(got) is type(expected)
    assert got.args == expected.args
    assert str(got) == str(expected)
    assert vars(got) == vars(expected)


def test_a_subclass_of_the_users_pickles_with_its_attributes() -> None:
    """A library that builds on ours may derive from our errors."""
    got = pickle.loads(pickle.dumps(Derived("message", worker_id=2)))
    assert type(got) is Derived
    assert got.worker_id == 2


class Derived(WorkerCrashed):
    """Defined by somebody else."""


def test_facts_that_are_not_known_are_none() -> None:
    """Code may always ask for them."""
    error = WorkerCrashed("message")
    assert (error.worker_id, error.sample_index) == (None, None)
    assert NotPicklable("message").path == ""


def test_an_internal_error_says_whose_bug_it_is() -> None:
    """And what to do about it; once, however often it is pickled."""
    error = InternalError("the board is on fire")
    for _ in range(2):
        error = pickle.loads(pickle.dumps(error))
    assert str(error).startswith("the board is on fire\n")
    assert str(error).count("please report it") == 1
