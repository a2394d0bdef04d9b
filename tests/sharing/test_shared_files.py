"""What is shared, in files: by value, so that it is plain data to whoever reads it."""

from __future__ import annotations

import io
import pickle
from typing import Any

import pytest
import torch

import holdfast


def saved(obj: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save({"x": obj}, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("data", [b"abc\xff", bytes(range(256)) * 10, torch.arange(3)], ids=["few", "bytes", "tensor"])
def test_what_torch_saves_of_bytes_and_tensors_it_loads(data: Any) -> None:
    """With `weights_only`, its default: nothing in the file but what plain bytes and tensors have in it."""
    loaded = torch.load(saved(holdfast.share(data)))["x"]
    assert type(loaded) is type(data)
    assert torch.equal(loaded, data) if isinstance(data, torch.Tensor) else loaded == data


@pytest.mark.parametrize("data", [[1, "a", 2.5], {"a": 1, "b": [2]}], ids=["list", "dict"])
def test_what_torch_saves_of_lists_and_dicts_is_loaded_as_the_page_says(data: Any) -> None:
    """A pickle can name a list of another type only as a call of `list`, and `weights_only` allows no calls: so save a
    plain one, or allow it when loading.
    """
    shared, plain = holdfast.share(data), type(data)
    with pytest.raises(pickle.UnpicklingError, match="Unsupported global"):
        torch.load(saved(shared))
    assert torch.load(saved(plain(shared))) == {"x": data}
    with torch.serialization.safe_globals([list, dict]):
        loaded = torch.load(saved(shared))
    assert type(loaded["x"]) is plain
    assert loaded == {"x": data}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_bytes_are_plain_bytes_in_every_protocol(protocol: int) -> None:
    """Also in the old ones, which have no bytes."""
    content = bytes(range(256)) * 10
    loaded = pickle.loads(pickle.dumps(holdfast.share(content), protocol))
    assert type(loaded) is bytes
    assert loaded == content
