"""The comparison itself: what must be found equal, and what must not. One that finds nothing proves nothing."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader

from .compare import differences
from .datasets import MapDataset, Point, Record, as_list, vector
from .scenarios import Delivered, End, Outcome, Raised, Scenario, outcome_differences, run
from .zoo import FAMILIES
from .zoo.tensors import Boxed, Tagged, quantized, ramp

pytestmark = [  # torch and numpy about the inputs: prototype, beta, matrix
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::PendingDeprecationWarning")
]
NO_OTHER_VARIANT = {
    *("zero-size", "zero-size, three dimensions", "zero-size leaf that requires grad", "sparse COO, empty", "meta"),
    *("torch.device", "bytes_", "numpy dtype", "None", "nan", "minus zero", "empty str", "lone surrogate", "long str"),
    *("long bytes", "bytearray", "Ellipsis", "Pattern", "class", "function", "builtin", "empty list", "empty tuple"),
    "empty dict",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_payload_equals_its_like_and_differs_from_another_variant(family: str, subtests: pytest.Subtests) -> None:
    """Two objects made the same way are the same; with other values they are not, whatever the kind."""
    for name, make in FAMILIES[family].items():
        with subtests.test(name):
            assert differences(make(1), make(1)) == []
            assert bool(differences(make(1), make(2))) == (name not in NO_OTHER_VARIANT)


def _tagged(value: object) -> Any:
    tensor: Any = ramp(1, 4).as_subclass(Tagged)
    tensor.tag = value
    return tensor


_one = ramp(1, 3)
_list: list[int] = []
_coo = {"indices": [[0, 0]], "values": [1.0, 2.0], "size": (2,)}

DIFFERENT: dict[str, Callable[[], tuple[Any, Any]]] = {
    "value": lambda: (torch.tensor([1.0]), torch.tensor([1.5])),
    "sign of zero": lambda: (torch.tensor([0.0]), torch.tensor([-0.0])),
    "dtype": lambda: (torch.tensor([1]), torch.tensor([1], dtype=torch.int32)),
    "shape": lambda: (torch.ones(2, 3), torch.ones(3, 2)),
    "strides": lambda: (torch.ones(2, 3), torch.ones(3, 2).t()),
    "strides of one row": lambda: (torch.ones(1, 3), torch.ones(3, 1).t()),
    "memory format": lambda: (ramp(1, 2, 3, 4, 5), ramp(1, 2, 3, 4, 5).to(memory_format=torch.channels_last)),
    "expanded": lambda: (torch.ones(1, 2).expand(3, 2), torch.ones(3, 2)),
    "requires_grad": lambda: (torch.ones(2), torch.ones(2, requires_grad=True)),
    "leaf": lambda: (torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True) * 1),
    "tensor class": lambda: (ramp(1, 2), ramp(1, 2).as_subclass(Tagged)),
    "tensor and Parameter": lambda: (ramp(1, 2), torch.nn.Parameter(ramp(1, 2), requires_grad=False)),
    "attribute of a subclass": lambda: (_tagged("a"), _tagged("b")),
    "missing attribute of a subclass": lambda: (ramp(1, 4).as_subclass(Tagged), _tagged("b")),
    "inside of a wrapper": lambda: (Boxed(ramp(1, 2)), Boxed(ramp(2, 2))),
    "conjugate bit": lambda: (torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j])),
    "conjugate value": lambda: (torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 2j])),
    "quantizer": lambda: (quantized(1), torch.quantize_per_tensor(ramp(1, 4), 0.25, 3, torch.quint8)),
    "layout": lambda: (torch.eye(2), torch.eye(2).to_sparse()),
    "coalesced": lambda: (torch.sparse_coo_tensor(**_coo), torch.sparse_coo_tensor(**_coo).coalesce()),
    "tensor and array": lambda: (torch.ones(2), np.ones(2, dtype=np.float32)),
    "tensor and list": lambda: (torch.ones(2), [1.0, 1.0]),
    "list and tuple": lambda: ([1], (1,)),
    "tuple and namedtuple": lambda: ((vector(1), 1), Point(vector(1), 1)),
    "dict and OrderedDict": lambda: ({"a": 1}, collections.OrderedDict(a=1)),
    "order of keys": lambda: ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "length": lambda: ([1, 2], [1, 2, 3]),
    "key": lambda: ({"a": 1}, {"b": 1}),
    "int and bool": lambda: (1, True),
    "int and float": lambda: (1, 1.0),
    "int and numpy int": lambda: (1, np.int64(1)),
    "float and -0.0": lambda: (0.0, -0.0),
    "nan and None": lambda: (float("nan"), None),
    "str and bytes": lambda: ("a", b"a"),
    "array dtype": lambda: (np.ones(2), np.ones(2, dtype=">f8")),
    "array order": lambda: (np.ones((2, 3)), np.asfortranarray(np.ones((2, 3)))),
    "array writable": lambda: (np.zeros(2), np.frombuffer(bytes(16))),
    "array mask": lambda: (np.ma.masked_array([1, 2], [0, 1]), np.ma.masked_array([1, 2], [1, 1])),
    "object in an array": lambda: (np.array([[1], None], dtype=object), np.array([[2], None], dtype=object)),
    "field of a record": lambda: (np.zeros(1, dtype=[("a", "i4")]), np.ones(1, dtype=[("a", "i4")])),
    "dataclass field": lambda: (Record(1, vector(1)), Record(1, vector(2))),
    "attribute": lambda: (types.SimpleNamespace(a=1), types.SimpleNamespace(a=2)),
    "missing attribute": lambda: (types.SimpleNamespace(a=1), types.SimpleNamespace()),
    "exception arguments": lambda: (ValueError(1), ValueError(2)),
    "function": lambda: (vector, as_list),
    "one list twice": lambda: ([_list, _list], [[], []]),
    "two lists": lambda: ([[], []], [_list, _list]),
    "one tensor twice": lambda: ([_one, _one], [ramp(1, 3), ramp(1, 3)]),
    "two tensors": lambda: ([ramp(1, 3), ramp(1, 3)], [_one, _one]),
    "shared storage": lambda: ([_one, _one.view(-1)], [ramp(1, 3), ramp(1, 3)]),
    "storage that should not be shared": lambda: ([ramp(1, 3), ramp(1, 3)], [_one, _one.view(-1)]),
    "place in a shared storage": lambda: ([_one, ramp(1, 3)[:2]], [_one, _one[:2]]),
    "split storage": lambda: (list(ramp(1, 4).chunk(2)), [part.clone() for part in ramp(1, 4).chunk(2)]),
    "array on a tensor's memory": lambda: ([_one.clone(), _one.clone().numpy()], [_one, _one.numpy()]),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_difference_is_found(name: str) -> None:
    """Everything that the module's docstring promises."""
    expected, actual = DIFFERENT[name]()
    assert differences(expected, actual) != []


def test_the_path_to_a_difference_is_named() -> None:
    found = differences({"a": [1, {"b": torch.tensor([1])}]}, {"a": [1, {"b": torch.tensor([2])}]})
    assert found == ["batch['a'][1]['b']: expected tensor([1]), got tensor([2])"]


# --- outcomes -----------------------------------------------------------------------------------------------------

PLAIN = Scenario("plain", lambda: MapDataset(vector), {"batch_size": 2, "num_workers": 2, "shuffle": True})


def _sabotaged(change: Callable[[Any, int], Any]) -> type[Any]:
    """A loader that changes each batch."""

    class Sabotaged(TorchLoader[Any]):
        def __iter__(self) -> Any:
            return (change(batch, number) for number, batch in enumerate(super().__iter__()))

    Sabotaged.__name__ = "DataLoader"
    return Sabotaged


def _lose(batch: Any, number: int) -> Any:
    if number == 2:
        raise ValueError("lost")
    return batch


SABOTAGE: dict[str, Callable[[Any, int], Any]] = {
    "another value": lambda batch, number: batch + (number == 3),
    "a batch lost": _lose,
    "another dtype": lambda batch, number: batch.double(),
    "another layout": lambda batch, number: batch.t().contiguous().t(),
    "another random state": lambda batch, number: batch + 0 * torch.rand(()),
}


@pytest.mark.parametrize("name", SABOTAGE)
def test_a_loader_that_is_wrong_is_found_out(name: str) -> None:
    """The same scenario through torch's loader and through one that errs."""
    assert outcome_differences(run(TorchLoader, PLAIN), run(_sabotaged(SABOTAGE[name]), PLAIN), PLAIN) != []


def test_a_loader_that_is_right_is_not_accused() -> None:
    same = _sabotaged(lambda batch, number: batch)
    assert outcome_differences(run(TorchLoader, PLAIN), run(same, PLAIN), PLAIN) == []


WORKER_TEXT = (
    "Caught ValueError in DataLoader worker process 1.\nOriginal Traceback (most recent call last):\n"
    '  File "x.py", line 1, in f\nValueError: sample 5 is bad\n'
)
OUTCOMES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "type of an error": (
        {"epochs": [[Raised(ValueError, "a")]]},
        {"epochs": [[Raised(KeyError, "a")]]},
    ),
    "text of an error": ({"epochs": [[Raised(ValueError, "a")]]}, {"epochs": [[Raised(ValueError, "b")]]}),
    "text of a worker's error": (
        {"epochs": [[Raised(ValueError, WORKER_TEXT)]]},
        {"epochs": [[Raised(ValueError, "is bad")]]},
    ),
    "text of a worker's error lost": (
        {"epochs": [[Raised(ValueError, WORKER_TEXT)]]},
        {"epochs": [[Raised(ValueError, "")]]},
    ),
    "construction": ({"construction": Raised(ValueError, "a")}, {}),
    "length": ({"length": 3}, {"length": 4}),
    "attributes": ({"attributes": {"batch_size": 3}}, {"attributes": {"batch_size": None}}),
    "an epoch": ({"epochs": [[End()]]}, {"epochs": []}),
    "the end": ({"epochs": [[Delivered(1), End()]]}, {"epochs": [[Delivered(1)]]}),
    "order": ({"epochs": [[Delivered(1), Delivered(2)]]}, {"epochs": [[Delivered(2), Delivered(1)]]}),
    "a warning": ({"warnings": [(UserWarning, "a")]}, {}),
    "category of a warning": ({"warnings": [(UserWarning, "a")]}, {"warnings": [(FutureWarning, "a")]}),
    "count of warnings": ({"warnings": [(UserWarning, "a")]}, {"warnings": [(UserWarning, "a")] * 2}),
    "observations": ({"observations": [3]}, {"observations": [4]}),
    "random state": ({"random_after": [1]}, {"random_after": [2]}),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_different_outcome_is_found(name: str) -> None:
    expected, actual = OUTCOMES[name]
    assert outcome_differences(Outcome(**expected), Outcome(**actual), Scenario("any", list)) != []


def test_the_text_of_a_workers_error_may_be_the_exceptions_own() -> None:
    """torch puts the traceback into the message; holdfast puts it into a note."""
    expected = Outcome(epochs=[[Raised(ValueError, WORKER_TEXT)]])
    actual = Outcome(epochs=[[Raised(ValueError, "sample 5 is bad")]])
    assert outcome_differences(expected, actual, Scenario("any", list)) == []


def test_out_of_order_means_any_order_and_nothing_lost() -> None:
    scenario = Scenario("any", list, in_order=False)
    expected = Outcome(epochs=[[Delivered([1]), Delivered([2]), End()]])
    turned = Outcome(epochs=[[Delivered([2]), Delivered([1]), End()]])
    doubled = Outcome(epochs=[[Delivered([2]), Delivered([2]), End()]])
    assert outcome_differences(expected, turned, scenario) == []
    assert outcome_differences(expected, doubled, scenario) != []
