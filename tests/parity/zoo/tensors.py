"""The payload zoo: tensors of every dtype and layout, and what is not plainly dense.

Runs in: the test process and the workers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pack_sequence

from .maker import Maker

DTYPES = [
    getattr(torch, name)
    for name in (
        *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
        *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"),
    )
    if hasattr(torch, name)
]


def of_dtype(dtype: torch.dtype) -> Maker:
    """All kinds of bits, by way of bytes: no dtype needs to know arithmetic for it."""

    def make(variant: int) -> torch.Tensor:
        high = 2 if dtype is torch.bool else 127
        count = 12 * torch.empty(0, dtype=dtype).element_size()
        generator = torch.Generator().manual_seed(variant)
        return torch.randint(high, (count,), dtype=torch.uint8, generator=generator).view(dtype).reshape(3, 4)

    return make


def ramp(variant: int, *shape: int) -> torch.Tensor:
    size = torch.Size(shape).numel()
    return torch.arange(variant * 1000, variant * 1000 + size, dtype=torch.float32).reshape(shape)


class Tagged(torch.Tensor):
    """A subclass with attributes."""


def tagged(variant: int) -> Tagged:
    tensor = ramp(variant, 4).as_subclass(Tagged)
    tensor.tag = f"tag {variant}"
    tensor.box = {"extra": ramp(variant, 2)}
    return tensor


class Boxed(torch.Tensor):
    """A wrapper subclass: its data is in another tensor."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Boxed:
        tensor = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        tensor.inner = inner
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def open_box(value: Any) -> Any:
            return value.inner if isinstance(value, Boxed) else value

        result = func(*torch.utils._pytree.tree_map(open_box, args), **(kwargs or {}))
        return cls(result) if isinstance(result, torch.Tensor) else result

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Boxed, (self.inner,)


def quantized(variant: int) -> torch.Tensor:
    return torch.quantize_per_tensor(ramp(variant % 2, 4), 0.5, 3, torch.quint8)


def quantized_per_channel(variant: int) -> torch.Tensor:
    scales, points = torch.tensor([0.1, 0.5]), torch.tensor([0, 3])
    return torch.quantize_per_channel(ramp(variant % 2, 2, 3), scales, points, 0, torch.qint8)


def module(variant: int) -> torch.nn.Module:
    found = torch.nn.Linear(2, 2)
    found.load_state_dict({"weight": ramp(variant, 2, 2), "bias": ramp(variant, 2)})
    return found


TENSORS: dict[str, Maker] = {str(dtype).removeprefix("torch."): of_dtype(dtype) for dtype in DTYPES}

LAYOUTS: dict[str, Maker] = {
    "zero-dimensional": lambda k: torch.tensor(k + 0.5),
    "one element": lambda k: torch.tensor([k]),
    "zero-size": lambda k: torch.empty(0),
    "zero-size, three dimensions": lambda k: torch.empty(3, 0, 2, dtype=torch.int16),
    "three bytes": lambda k: torch.tensor([k, 2, 3], dtype=torch.uint8),
    "large": lambda k: ramp(k, 100, 1001),
    "seven dimensions": lambda k: ramp(k, 1, 2, 1, 3, 1, 2, 1),
    "special values": lambda k: torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-45, float(k)]),
    "transposed": lambda k: ramp(k, 3, 4).t(),
    "permuted": lambda k: ramp(k, 2, 3, 4).permute(2, 0, 1),
    "every second": lambda k: ramp(k, 12)[::2],
    "a column": lambda k: ramp(k, 4, 5)[:, 2],
    "a row of a large tensor": lambda k: ramp(k, 1000, 8)[777],
    "a diagonal": lambda k: ramp(k, 4, 4).diagonal(),
    "expanded": lambda k: ramp(k, 1, 3).expand(4, 3),
    "expanded scalar": lambda k: torch.tensor(float(k)).expand(2, 5),
    "overlapping windows": lambda k: ramp(k, 8).unfold(0, 3, 1),
    "strided by hand": lambda k: ramp(k, 20).as_strided((3, 2), (5, 3), 2),
    "channels_last": lambda k: ramp(k, 2, 3, 4, 5).to(memory_format=torch.channels_last),
    "channels_last, one channel": lambda k: ramp(k, 2, 1, 4, 5).as_strided((2, 1, 4, 5), (20, 1, 5, 1)),
    "channels_last_3d": lambda k: ramp(k, 1, 2, 3, 2, 2).to(memory_format=torch.channels_last_3d),
    "view of another dtype": lambda k: ramp(k, 4).view(torch.int32),
    "real part": lambda k: torch.complex(ramp(k, 3), ramp(k + 1, 3)).real,
    "imaginary part": lambda k: torch.complex(ramp(k, 3), ramp(k + 1, 3)).imag,
    "leaf that requires grad": lambda k: ramp(k, 3).requires_grad_(),
    "strided leaf that requires grad": lambda k: ramp(k, 3, 2).t().requires_grad_(),
    "zero-size leaf that requires grad": lambda k: torch.empty(0, 2, requires_grad=True),
    "detached": lambda k: ramp(k, 3).requires_grad_().mul(2).detach(),
    "from numpy": lambda k: torch.from_numpy(np.arange(k, k + 4)),
    "in shared memory": lambda k: ramp(k, 5).share_memory_(),
}

EXOTIC: dict[str, Maker] = {
    "Parameter": lambda k: torch.nn.Parameter(ramp(k, 3)),
    "Parameter without grad": lambda k: torch.nn.Parameter(torch.arange(k, k + 3), requires_grad=False),
    "subclass": lambda k: ramp(k, 3).as_subclass(Tagged),
    "subclass with attributes": tagged,
    "subclass that requires grad": lambda k: ramp(k, 3).as_subclass(Tagged).requires_grad_(),
    "wrapper subclass": lambda k: Boxed(ramp(k, 3)),
    "sparse COO": lambda k: torch.diag(ramp(k, 3) + 1).to_sparse(),
    "sparse COO, not coalesced": lambda k: torch.sparse_coo_tensor([[0, 0, 2]], [1.0 + k, 2.0, 3.0], (4,)),
    "sparse COO, empty": lambda k: torch.sparse_coo_tensor(size=(2, 3)),
    "sparse COO, hybrid": lambda k: torch.sparse_coo_tensor([[0, 2]], ramp(k, 2, 3), (3, 3)),
    "sparse CSR": lambda k: torch.diag(ramp(k, 3) + 1).to_sparse_csr(),
    "sparse CSC": lambda k: torch.diag(ramp(k, 3) + 1).to_sparse_csc(),
    "sparse BSR": lambda k: torch.diag(ramp(k, 4) + 1).to_sparse_bsr((2, 2)),
    "sparse BSC": lambda k: torch.diag(ramp(k, 4) + 1).to_sparse_bsc((2, 2)),
    "nested, strided": lambda k: torch.nested.nested_tensor([ramp(k, 2), ramp(k, 3)]),
    "nested, strided, two dimensions": lambda k: torch.nested.nested_tensor([ramp(k, 2, 3), ramp(k, 1, 3)]),
    "nested, jagged": lambda k: torch.nested.nested_tensor([ramp(k, 2), ramp(k, 3)], layout=torch.jagged),
    "PackedSequence": lambda k: pack_sequence([ramp(k, 3, 2), ramp(k, 1, 2)]),
    "PackedSequence, unsorted": lambda k: pack_sequence([ramp(k, 1), ramp(k, 3)], enforce_sorted=False),
    "quantized": quantized,
    "quantized per channel": quantized_per_channel,
    "conjugate": lambda k: torch.complex(ramp(k, 3), ramp(k + 1, 3)).conj(),
    "negative bit": lambda k: torch.complex(ramp(k, 3), ramp(k + 1, 3)).conj().imag,
    "meta": lambda k: torch.empty(2, 3, device="meta"),
    "storage": lambda k: ramp(k, 3).untyped_storage(),
    "module": lambda k: (
        torch.nn.Linear(2, 2).requires_grad_(False).apply(lambda m: m.weight.fill_(k) + m.bias.fill_(k))
    ),
    "torch.Size": lambda k: torch.Size([k, 2]),
    "torch.dtype": lambda k: (torch.float16, torch.int8)[k % 2],
    "torch.device": lambda k: torch.device("cpu"),
}
