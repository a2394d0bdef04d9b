"""Shared tensors: what they were; a write to one stays in the process that made it."""

from __future__ import annotations

import copy
import io
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import torch

from holdfast import share
from holdfast.sharing.arrays import find_tensor, is_shared_tensor

pytestmark = pytest.mark.usefixtures("sharer_stopped")


def sent(obj: Any) -> Any:
    """What arrives of it, in this very process."""
    return pickle.loads(ForkingPickler.dumps(obj))


TENSORS = {
    "float32": torch.arange(6.0).reshape(2, 3),
    "bfloat16": torch.arange(6, dtype=torch.bfloat16),
    "float8": torch.arange(6.0).to(torch.float8_e4m3fn),
    "bool": torch.tensor([True, False]),
    "complex": torch.tensor([1 + 2j, 3j]),
    "conjugate": torch.tensor([1 + 2j, 3j]).conj(),
    "scalar": torch.tensor(3),
    "transposed": torch.arange(6).reshape(2, 3).T,
    "step": torch.arange(10)[::3],
    "expanded": torch.ones(1).expand(3, 4),
    "channels_last": torch.arange(72.0).reshape(2, 3, 3, 4).to(memory_format=torch.channels_last),
    "requires_grad": torch.ones(3, requires_grad=True),
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_shared_tensor_is_the_tensor(name: str) -> None:
    """Type, dtype, shape, strides as of a copy, gradient flag, elements; here and where it is sent."""
    tensor = TENSORS[name]
    shared = share(tensor)
    for one in (shared, sent(shared)):
        assert type(one) is torch.Tensor
        assert is_shared_tensor(one)
        assert (one.dtype, one.shape, one.requires_grad) == (tensor.dtype, tensor.shape, tensor.requires_grad)
        assert one.stride() == tensor.resolve_conj().clone().stride() or name in ("expanded", "step")
        assert torch.equal(one.to(torch.complex64), tensor.to(torch.complex64))


def test_a_storage_is_just_its_tensor() -> None:
    """So that `torch.save` writes the tensor, and not the segment."""
    shared = share({"a": torch.zeros(1000), "b": torch.zeros(10)})
    assert shared["b"].untyped_storage().nbytes() == 40
    file = io.BytesIO()
    torch.save(shared["b"], file)
    assert len(file.getvalue()) < 3000
    file.seek(0)
    assert torch.equal(torch.load(file), torch.zeros(10))


def test_a_write_works_and_what_was_written_is_what_is_sent() -> None:
    """The segment itself does not change. Who sends a tensor sends what it holds, as a private one again."""
    shared = share(torch.zeros(100_000))
    untouched = sent(shared)
    assert len(ForkingPickler.dumps(shared)) < 1000
    shared[5] = 1
    arrived = sent(shared)
    assert arrived[5] == 1
    assert not is_shared_tensor(arrived)
    assert find_tensor(shared) is None
    assert find_tensor(shared[50_000:]) is not None, "pages that were not written go as a handle"
    assert untouched[5] == 1, "one mapping in this process"


def test_views_travel_as_handles() -> None:
    """Slices, columns, steps, and what numpy and torch make of one another."""
    shared = share(torch.arange(10_000).reshape(100, 100))
    for view in (shared[3], shared[:, 5], shared[::7, 3:9], shared.T):
        assert len(ForkingPickler.dumps(view)) < 1000
        arrived = sent(view)
        assert torch.equal(arrived, view)
        assert is_shared_tensor(arrived)
    array = sent(shared.numpy())
    assert np.array_equal(array, shared.numpy())
    assert not array.flags.writeable


def test_tensors_that_are_not_shared_are_torchs_business() -> None:
    """As ever, also after something has been shared."""
    share(torch.zeros(3))
    tensor = torch.arange(5)
    assert torch.equal(sent(tensor), tensor)
    assert tensor.is_shared()


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_and_pickles_are_plain_tensors(make: Any) -> None:
    """By value to a file; a deep copy is one's own."""
    shared = share(torch.arange(10))
    made = make(shared)
    assert torch.equal(made, shared)
    assert is_shared_tensor(made) == (make is copy.copy)


def test_tensors_in_a_list_are_views() -> None:
    """Not copied when they are asked for; small ones too."""
    shared = share([{"x": torch.arange(1000.0), "y": torch.tensor([1, 2])}, torch.zeros(0)])
    assert shared[0]["x"].data_ptr() == shared[0]["x"].data_ptr()
    assert is_shared_tensor(shared[0]["x"])
    assert torch.equal(shared[0]["x"], torch.arange(1000.0))
    assert shared[0]["y"].tolist() == [1, 2]
    assert shared[1].shape == (0,)
    shared[0]["y"] += 1


def test_what_is_shared_is_returned_as_it_is() -> None:
    """Unless it has been written to: then what it holds is shared anew, for all."""
    shared = share(torch.zeros(5))
    assert share(shared) is shared
    shared += 1
    anew = share(shared)
    assert anew is not shared
    assert torch.equal(anew, shared)
    assert find_tensor(anew) is not None
    empty = torch.zeros(0)
    assert share(empty) is empty


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.ones(3).to_sparse(), "it is not a plain dense tensor on the CPU"),
        (torch.nn.Parameter(torch.ones(3)), "it is not a plain dense tensor on the CPU"),
        (torch.ones(3, device="meta"), "it is not a plain dense tensor on the CPU"),
        (torch.ones(3, requires_grad=True) * 2, r"it is part of a graph of autograd\n  try   share tensor.detach\(\)"),
    ],
)
def test_other_tensors_are_refused(tensor: Any, message: str) -> None:
    """With their path, and what to share in their place."""
    with pytest.raises(TypeError, match=rf"obj\['t'\] \(.*\) cannot be shared: {message}"):
        share({"t": tensor})
