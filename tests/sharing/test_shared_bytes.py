"""Shared bytes answer as bytes do, and loaders treat them as such."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils.pin_memory import pin_memory

import holdfast
from shared_datasets import Calling, load

CONTENT = b"hello world, hello. " * 3 + bytes(range(20))
BOUNDS = (None, 0, 1, 7, -5, -60, len(CONTENT), -len(CONTENT), 1000, -1000)
SUBS = (b"hello", b"o", b"", b"\0", b".", b"absent", bytearray(b"wor"), memoryview(b"ld"), CONTENT, 0, ord("w"), 255)


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """What it returns, or raises."""
    try:
        return function(*arguments)
    except (TypeError, ValueError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", ["find", "index", "count"])
def test_searching_is_that_of_bytes(name: str) -> None:
    """From any place to any other, negative ones too; for a part, or for one byte by its number."""
    shared = holdfast.share(CONTENT)
    for sub, start, stop in itertools.product(SUBS, BOUNDS, BOUNDS):
        expected = outcome(getattr(CONTENT, name), sub, start, stop)
        assert outcome(getattr(shared, name), sub, start, stop) == expected, (sub, start, stop)


@pytest.mark.parametrize("name", ["find", "index", "count", "__contains__"])
def test_what_cannot_be_in_bytes_is_not_looked_for(name: str) -> None:
    """An error as of bytes, and not "not found"."""
    shared = holdfast.share(CONTENT)
    for sub in ("hello", None, 1.5):
        with pytest.raises(TypeError):
            getattr(shared, name)(sub)
    assert outcome(shared.find, 256)[0] is ValueError


def test_shared_bytes_are_looked_for_in_shared_bytes() -> None:
    """As bytes are in bytes."""
    shared, part = holdfast.share(CONTENT), holdfast.share(b"world")
    assert (shared.find(part), shared.count(part), part in shared) == (6, 3, True)


@pytest.mark.parametrize("name", ["startswith", "endswith"])
def test_beginning_and_end_are_those_of_bytes(name: str) -> None:
    """One, or one of several."""
    shared = holdfast.share(CONTENT)
    for part in (b"", b"hello", CONTENT, CONTENT + b"x", CONTENT[-2:], (b"x", b"hello"), (b"x", CONTENT[-3:]), ()):
        assert getattr(shared, name)(part) is getattr(CONTENT, name)(part), part
    with pytest.raises(TypeError):
        getattr(shared, name)("hello")


def test_collated_and_pinned_they_stay_what_they_are() -> None:
    """As bytes do; a sequence would become a tensor of each place, and a list of numbers."""
    shared = holdfast.share(b"abcd")
    assert default_collate([shared, shared]) == [b"abcd", b"abcd"]
    assert default_collate([{"raw": shared, "label": 1}])["raw"] == [b"abcd"]
    assert pin_memory(shared) is shared


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_loader_collates_them_as_bytes(method: str) -> None:
    """Also in a process that has them from elsewhere."""
    batches = list(load(Calling(holdfast.share(b"abcd"), _raw, length=4), method, batch_size=2))
    assert [batch[0] for batch in batches] == [(b"abcd", b"abcd")] * 2
    assert torch.equal(batches[1][1], torch.tensor([2, 3]))


def _raw(data: Any, index: int) -> Any:
    return data, index
