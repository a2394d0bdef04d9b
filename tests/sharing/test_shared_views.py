"""Views of shared tensors, sent as multiprocessing sends: they arrive as what they are, and stay where they are."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch

import holdfast
from holdfast.sharing.arrays import is_shared_tensor

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
