"""Any batch that goes into a slot comes out of it equal: types, values, dtypes, shapes, strides and aliases."""

from __future__ import annotations

import dataclasses
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.transport.slots import SlotPool

from .one_process import travel

NUMBERS = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
)
FLOAT8 = tuple(
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)
)

PICKLED = tuple(set(NUMBERS) - {torch.uint16, torch.uint32, torch.uint64})
"""Those that torch itself can pickle in a tensor of a subclass."""

Pair = namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass
class Record:
    name: Any
    value: Any


class Tagged(torch.Tensor):
    """A tensor subclass."""


# --- what goes in -------------------------------------------------------------------------------------------------


@st.composite
def plain_tensors(draw: st.DrawFn) -> torch.Tensor:
    """A contiguous tensor with a storage of its own and random bytes in it."""
    dtype = draw(st.sampled_from(NUMBERS + FLOAT8))
    shape = draw(st.lists(st.integers(0, 6), max_size=3))
    count = int(np.prod(shape, dtype=int))
    if dtype is torch.bool:
        values = draw(st.lists(st.booleans(), min_size=count, max_size=count))
        return torch.tensor(values, dtype=torch.bool).reshape(shape)
    data = bytearray(draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize)))
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(data, dtype=torch.uint8).clone().view(dtype).reshape(shape)


def _flipped_strides(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.permute(list(reversed(range(tensor.dim()))))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8).reshape(-1)


VIEWS = {
    "itself": lambda tensor: tensor,
    "transposed": _flipped_strides,
    "every second": lambda tensor: tensor[::2] if tensor.dim() else tensor,
    "from the second on": lambda tensor: tensor[1:] if tensor.dim() else tensor,
    "a column": lambda tensor: tensor[..., -1:] if tensor.dim() else tensor,
    "expanded": lambda tensor: tensor.unsqueeze(0).expand(3, *tensor.shape),
    "flat": lambda tensor: tensor.reshape(-1),
    "bytes": lambda tensor: tensor.view(torch.uint8) if tensor.dim() and tensor.stride(-1) == 1 else tensor,
    "some bytes": lambda tensor: _bytes(tensor)[3:] if tensor.dim() and tensor.stride(-1) == 1 else tensor,
    "empty": lambda tensor: tensor[:0] if tensor.dim() else tensor,
    "one element": lambda tensor: tensor.reshape(-1)[-1:],
    "no dimension": lambda tensor: tensor.reshape(-1)[0] if tensor.numel() else tensor,
    "odd strides": lambda tensor: tensor.unsqueeze(0).as_strided((1, *tensor.shape), (7, *tensor.stride())),
}
PARTICULAR = {
    "requires grad": lambda tensor: tensor.detach().clone().requires_grad_(tensor.is_floating_point()),
    "a view that requires grad": lambda tensor: tensor.detach().requires_grad_(tensor.is_floating_point()),
    "parameter": lambda tensor: torch.nn.Parameter(tensor.detach(), requires_grad=tensor.is_floating_point()),
    "subclass": lambda tensor: tensor.detach().as_subclass(Tagged) if tensor.dtype in PICKLED else tensor,
    "conjugate": lambda tensor: tensor.conj() if tensor.is_complex() else tensor,
    "with an attribute": lambda tensor: _with_attribute(tensor.detach()) if tensor.dtype in PICKLED else tensor,
    "storage": lambda tensor: tensor.untyped_storage(),
}


def _with_attribute(tensor: torch.Tensor) -> torch.Tensor:
    tensor.mark = "attribute"  # type: ignore[attr-defined]
    return tensor


@st.composite
def families(draw: st.DrawFn) -> list[torch.Tensor]:
    """Views of one storage."""
    base = draw(plain_tensors())
    return [VIEWS[name](base) for name in draw(st.lists(st.sampled_from(sorted(VIEWS)), min_size=1, max_size=4))]


@st.composite
def odd_families(draw: st.DrawFn) -> list[Any]:
    """Views of one storage, and things on it that are no plain tensors."""
    members: list[Any] = draw(families())
    names = draw(st.lists(st.sampled_from(sorted(PARTICULAR)), min_size=1, max_size=2))
    added = [PARTICULAR[name](draw(st.sampled_from(members))) for name in names]
    return draw(st.permutations([*members, *added]))


ARRAY_DTYPES = ("?", "u1", "<i2", ">i4", "<i8", "<f2", "<f4", ">f8", "<c16", "<M8[ns]", "<m8[s]", "S5", "<U3", "V7")


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    dtype = np.dtype(draw(st.sampled_from((*ARRAY_DTYPES, "O", "<i4,<f8"))))
    shape = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 5, 40]), max_size=3)))
    values = np.arange(int(np.prod(shape, dtype=int)))
    if dtype.kind == "V":
        array = np.zeros(shape, dtype)
        array.reshape(-1).view(np.uint8)[:] = np.arange(array.nbytes) % 251
    else:
        array = (values % 2 if dtype.kind == "?" else values).astype(dtype).reshape(shape)
    how = draw(st.sampled_from(["C", "F", "backwards", "every second", "read-only"]))
    if how == "F":
        return np.asfortranarray(array)
    if how == "read-only":
        array.flags.writeable = False
    if how in ("backwards", "every second") and array.ndim:
        return array[:: -1 if how == "backwards" else 2]
    return array


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.binary(max_size=5) | st.builds(bytes, st.just(4000)),
    st.sampled_from([torch.float32, torch.Size([2, 3]), np.float32(1.5), np.int64(7), Record, Ellipsis]),
    arrays(),
    families(),
    odd_families(),
)


def nested(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(children, max_size=4),
        st.tuples(children, children),
        st.dictionaries(st.text(max_size=3) | st.integers(), children, max_size=4),
        st.builds(Pair, children, children),
        st.builds(Record, children, children),
        st.dictionaries(st.text(max_size=3), children, max_size=3).map(OrderedDict),
    )


batches = st.recursive(leaves, nested, max_leaves=8)


# --- what comes out -----------------------------------------------------------------------------------------------


def parts(value: Any) -> Iterator[Any]:
    """Every leaf, in a fixed order."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from parts(item)
    elif isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        for item in value:
            yield from parts(item)
    elif isinstance(value, Record):
        yield from parts([value.name, value.value])
    else:
        yield value


def raw(tensor: torch.Tensor) -> bytes:
    """The elements' own bytes, so that NaNs and float8 compare as well."""
    plain = tensor.detach().as_subclass(torch.Tensor).resolve_conj()
    return bytes(torch.empty(plain.numel(), dtype=plain.dtype).copy_(plain.reshape(-1)).view(torch.uint8).numpy())


def strides(tensor: torch.Tensor) -> list[int]:
    """Those that say something: a dimension of one element is never stepped along."""
    if not tensor.numel():
        return []
    return [stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if n != 1]


def assert_same(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    if isinstance(expected, torch.Tensor):
        facts = ("dtype", "shape", "layout", "requires_grad", "is_leaf", "device")
        assert [getattr(got, fact) for fact in facts] == [getattr(expected, fact) for fact in facts]
        assert strides(got) == strides(expected)
        assert got.is_conj() == expected.is_conj()
        assert raw(got) == raw(expected)
        assert got.data_ptr() % got.element_size() == 0
        assert vars(got) == vars(expected)
    elif isinstance(expected, torch.UntypedStorage):
        assert bytes(got.tolist()) == bytes(expected.tolist())  # type: ignore[no-untyped-call]
    elif isinstance(expected, np.ndarray):
        assert got.dtype.newbyteorder("=") == expected.dtype.newbyteorder("=")
        assert got.shape == expected.shape
        assert got.tolist() == expected.tolist()
    else:
        assert got == expected


def assert_aliases_kept(got: list[Any], expected: list[Any]) -> None:
    """Tensors that shared a storage share one again, with the same distances between them; others do not."""
    tensors = [k for k, value in enumerate(expected) if isinstance(value, torch.Tensor) and value.numel()]
    for k in tensors:
        for other in tensors:
            together = _storage(expected[k]) == _storage(expected[other])
            assert (_storage(got[k]) == _storage(got[other])) == together
            if together:
                distance = expected[k].data_ptr() - expected[other].data_ptr()
                assert got[k].data_ptr() - got[other].data_ptr() == distance


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


@settings(max_examples=400)
@given(batch=batches)
def test_every_structure_comes_out_as_it_went_in(batch: Any) -> None:
    """Nested structures of tensors of all dtypes, strided, aliased and empty, arrays, and plain objects."""
    pool = SlotPool(warm_slots=2)
    with warnings.catch_warnings(action="ignore"):  # torch's own, about typed storages
        received = travel(batch, pool)
    got, expected = list(parts(received)), list(parts(batch))
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert_same(one, other)
    assert_aliases_kept(got, expected)
    pool.close()


@settings(max_examples=50)
@given(family=families())
def test_a_write_through_one_alias_is_seen_through_the_others(family: list[torch.Tensor]) -> None:
    """The user may write into a batch; what changes with it is what would have changed in the worker."""
    family = [tensor for tensor in family if tensor.numel() and tensor.dtype in NUMBERS]
    pool = SlotPool(warm_slots=2)
    received = travel(family, pool)
    for side in (family, received):
        if side:
            side[0].reshape(-1)[:1].fill_(1) if side[0].is_contiguous() else side[0][..., :1].zero_()
    for one, other in zip(received, family, strict=True):
        assert raw(one) == raw(other)
    pool.close()


@settings(max_examples=50)
@given(batches=st.lists(batches, min_size=2, max_size=4))
def test_batches_that_follow_each_other_do_not_disturb_those_that_are_kept(batches: list[Any]) -> None:
    """Every batch of a run is held to the end, through one pool."""
    pool = SlotPool(warm_slots=1)
    with warnings.catch_warnings(action="ignore"):
        received = [travel(batch, pool) for batch in batches]
    for got, expected in zip(received, batches, strict=True):
        for one, other in zip(parts(got), parts(expected), strict=True):
            assert_same(one, other)
    pool.close()
