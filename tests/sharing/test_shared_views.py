"""Views of shared tensors, sent as multiprocessing sends: they arrive as what they are, and stay where they are."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch

import holdfast
from holdfast.sharing.arrays import is_shared_tensor
from waits import PATIENCE_S

pytestmark = pytest.mark.usefixtures("sharer_stopped")

HANDLE_BYTES = 1000  # a handle is smaller, whatever it is of


def sent(obj: Any) -> Any:
    """What arrives of it, in this very process."""
    return pickle.loads(ForkingPickler.dumps(obj))


LAZY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "conj": lambda x: x.conj(),
    "adjoint": lambda x: x.mH,
    "imag of conj": lambda x: x.conj().imag,
    "neg of conj": lambda x: torch._neg_view(x.conj()),
    "with gradient": lambda x: x.conj().requires_grad_(),
}


@pytest.mark.parametrize("is_written", [False, True], ids=["as shared", "written to"])
@pytest.mark.parametrize("name", LAZY)
def test_a_conjugate_or_negative_view_has_its_numbers_where_it_arrives(name: str, is_written: bool) -> None:
    """torch keeps such a view as a bit beside the memory: a handle says it too."""
    shared = holdfast.share(torch.tensor([[1 + 2j, 3 - 4j], [5j, -6]]).repeat(500, 2))
    if is_written:
        shared[0, 0] = 9 - 9j
    view = LAZY[name](shared)
    arrived = sent(view)
    assert is_shared_tensor(arrived) is not is_written
    assert (arrived.dtype, arrived.shape, arrived.requires_grad) == (view.dtype, view.shape, view.requires_grad)
    assert arrived.is_leaf
    assert torch.equal(arrived.detach().resolve_conj().resolve_neg(), view.detach().resolve_conj().resolve_neg())
    assert is_written or len(ForkingPickler.dumps(view)) < HANDLE_BYTES


# -- what torch would move into shared memory of its own ---------------------------------------------------------------


class Marked(torch.Tensor):
    """A subclass that is its memory and no more."""


def first_element(obj: Any) -> torch.Tensor:
    """As a view, so that a write to it is one to the memory of whatever it is of."""
    if isinstance(obj, torch.UntypedStorage):
        return torch.empty(0).set_(obj, 0, (), ())
    tensor = obj.weight if isinstance(obj, torch.nn.Module) else obj
    return tensor.detach()[(0,) * tensor.ndim]


# What is made of a shared tensor of 100 times 1000.
MADE: dict[str, Callable[[torch.Tensor], Any]] = {
    "parameter": torch.nn.Parameter,
    "frozen parameter": lambda x: torch.nn.Parameter(x, requires_grad=False),
    "embedding": torch.nn.Embedding.from_pretrained,
    "expanded": lambda x: x.expand(3, 100, 1000),
    "subclass": lambda x: x.as_subclass(Marked),
    "part of a subclass": lambda x: x[::7, :900].as_subclass(Marked),
    "storage": lambda x: x.untyped_storage(),
}


@pytest.mark.parametrize("is_written", [False, True], ids=["as shared", "written to"])
@pytest.mark.parametrize("name", MADE)
def test_whatever_is_made_of_a_shared_tensor_leaves_it_where_it_is(name: str, is_written: bool) -> None:
    """torch's own way is to move the memory elsewhere, where all processes write to it. It goes as a handle; what
    was written to, by value.
    """
    shared = holdfast.share(torch.zeros(100, 1000))
    if is_written:
        shared[0, 0] = 5
    made, address, array = MADE[name](shared), shared.data_ptr(), shared.numpy()
    pickled = ForkingPickler.dumps(made)
    arrived = pickle.loads(pickled)
    assert not shared.is_shared()
    assert shared.data_ptr() == address == array.ctypes.data
    assert type(arrived) is type(made)
    assert getattr(arrived, "requires_grad", None) == getattr(made, "requires_grad", None)
    first = first_element(arrived)
    assert first.item() == (5 if is_written else 0)
    assert not first.is_shared()
    assert is_shared_tensor(first) is not is_written
    assert is_written or len(pickled) < 2 * HANDLE_BYTES


def test_a_view_of_nothing_leaves_it_where_it_is() -> None:
    """A tensor without elements has a storage all the same."""
    shared = holdfast.share(torch.zeros(100, 1000))
    assert sent(shared[:0]).shape == (0, 1000)
    assert not shared.is_shared()


def _write_first(obj: Any, answers: Any) -> None:
    first_element(obj).fill_(77)
    answers.put(first_element(obj).item())


@pytest.mark.parametrize("method", ["spawn"])
@pytest.mark.parametrize("name", ["embedding", "expanded", "subclass"])
def test_what_a_process_writes_to_it_stays_there(name: str, method: str) -> None:
    """As of a tensor that is sent as it is."""
    context = multiprocessing.get_context(method)
    answers = context.SimpleQueue()
    shared = holdfast.share(torch.zeros(100, 1000))
    process = context.Process(target=_write_first, args=(MADE[name](shared), answers))
    process.start()
    assert answers.get() == 77
    process.join(PATIENCE_S)
    process.close()
    answers.close()
    assert shared[0, 0] == 0
