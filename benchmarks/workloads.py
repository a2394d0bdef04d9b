"""The rows of the table: what is loaded, how, and how much faster than torch's loader it must be.

A row is one `Workload` in `WORKLOADS`; add one by calling `register`. Loader arguments go into `arguments` (for both
loaders) or `holdfast_arguments` (for ours alone). Datasets of the synthetic rows hand out the same tensor each time,
so that a sample costs nearly nothing and the row shows what the loader itself costs.

This module is imported by spawned workers: keep it light, and keep datasets and collate functions at module level.
Runs in: main and worker processes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, TensorDataset

ENDLESS = 100_000_000
"""Length of the synthetic datasets: a measured pass ends by the clock, not by the dataset."""

FLOOR = 1.0
"""No row may be slower than torch's loader, with any number of workers."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One row: a dataset, the arguments it is loaded with, and its targets as ratios to torch's loader."""

    name: str
    title: str
    make_dataset: Callable[[], Dataset[Any]]
    batch_size: int
    targets: Mapping[int, float] = field(default_factory=dict)
    """Least ratio by number of workers; `FLOOR` for the numbers not named."""
    collate_fn: Callable[[list[Any]], Any] | None = None
    shuffle: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)
    holdfast_arguments: Mapping[str, Any] = field(default_factory=dict)
    window: float = 1.0
    """Length of a measured pass, as a factor: slow rows need longer for enough batches."""
    note: str = ""

    def target(self, workers: int) -> float:
        """Return the least ratio to torch's loader with this many workers."""
        return self.targets.get(workers, FLOOR)


WORKLOADS: dict[str, Workload] = {}


def register(workload: Workload) -> Workload:
    """Add a row to the table, in the order of registration."""
    if workload.name in WORKLOADS:
        raise ValueError(f"a workload named {workload.name!r} exists")
    WORKLOADS[workload.name] = workload
    return workload


class SameTensor(Dataset[Any]):
    """The same tensor for every index, alone or under `fields` names of a dict."""

    def __init__(self, tensor: Tensor, fields: int = 0) -> None:
        self.tensor = tensor
        self.names = tuple(f"field{i}" for i in range(fields))

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> Any:
        return dict.fromkeys(self.names, self.tensor) if self.names else self.tensor


class TokenSequences(Dataset[tuple[Tensor, int]]):
    """Token ids of 16 to 256 tokens with a class label, as a text classifier is fed."""

    def __init__(self, count: int = 4096, vocabulary: int = 30_000) -> None:
        generator = torch.Generator().manual_seed(0)
        lengths = torch.randint(16, 257, (count,), generator=generator).tolist()
        self.sequences = [torch.randint(1, vocabulary, (length,), generator=generator) for length in lengths]

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.sequences[index % len(self.sequences)], index % 10


def pad_tokens(samples: list[tuple[Tensor, int]]) -> dict[str, Tensor]:
    """Pad to the longest sequence of the batch, with the mask and the labels."""
    lengths = torch.tensor([len(tokens) for tokens, _ in samples])
    ids = pad_sequence([tokens for tokens, _ in samples], batch_first=True)
    mask = torch.arange(ids.shape[1]).unsqueeze(0) < lengths.unsqueeze(1)
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([label for _, label in samples])}


class JpegImages(Dataset[tuple[Tensor, int]]):
    """JPEG files in memory, decoded, resized and normalised by each access, as an image classifier is fed."""

    def __init__(self, count: int = 64) -> None:
        generator = torch.Generator().manual_seed(0)
        self.files = [jpeg_file(generator) for _ in range(count)]

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        import numpy as np
        from PIL import Image

        with Image.open(io.BytesIO(self.files[index % len(self.files)])) as file:
            image = file.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return pixels.to(torch.float32).div_(255).sub_(0.45).div_(0.225), index % 1000


def jpeg_file(generator: torch.Generator) -> bytes:
    """Make a JPEG of 500x375 pixels: soft shapes with some grain, about as large as a photograph's."""
    from PIL import Image

    shapes = torch.rand((1, 3, 12, 16), generator=generator)
    picture = torch.nn.functional.interpolate(shapes, size=(375, 500), mode="bicubic").squeeze(0)
    grain = torch.randn(picture.shape, generator=generator) * 0.04
    pixels = ((picture + grain).clamp(0, 1) * 255).to(torch.uint8).permute(1, 2, 0).contiguous()
    output = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(output, "JPEG", quality=90)
    return output.getvalue()


def float_images() -> Dataset[Any]:
    """One image of 3x224x224 floats."""
    return SameTensor(torch.randn((3, 224, 224), generator=torch.Generator().manual_seed(0)))


def byte_images() -> Dataset[Any]:
    """One image of 3x224x224 bytes."""
    generator = torch.Generator().manual_seed(0)
    return SameTensor(torch.randint(0, 256, (3, 224, 224), generator=generator, dtype=torch.uint8))


def few_floats() -> Dataset[Any]:
    """16 floats."""
    return SameTensor(torch.randn(16, generator=torch.Generator().manual_seed(0)))


def dict_of_20() -> Dataset[Any]:
    """A dict of 20 tensors of 128 floats."""
    return SameTensor(torch.randn(128, generator=torch.Generator().manual_seed(0)), fields=20)


def distinct_rows() -> Dataset[Any]:
    """1 GB of distinct rows of 256 floats."""
    return TensorDataset(torch.rand((2**20, 256), generator=torch.Generator().manual_seed(0)))


register(Workload("images-f32", "float32 images 3x224x224, batch 64", float_images, 64, {2: 8.0}, window=1.5))
register(Workload("images-u8", "uint8 images 3x224x224, batch 64", byte_images, 64, {2: 8.0}))
register(Workload("floats", "16 floats, batch 256", few_floats, 256, {2: 4.0}))
register(Workload("dict", "dict of 20 tensors of 128 floats, batch 32", dict_of_20, 32, {2: 12.0}))
register(
    Workload(
        "tokens",
        "padded tokens, custom collate, batch 64",
        TokenSequences,
        64,
        {2: 3.0},
        collate_fn=pad_tokens,
    )
)
register(Workload("jpeg", "JPEG 500x375 to 224x224, Pillow, batch 32", JpegImages, 32, {2: 1.1}, window=2.0))
register(
    Workload(
        "rows",
        "TensorDataset of 1 GB, shuffled, batch 1024",
        distinct_rows,
        1024,
        shuffle=True,
        note="bound by its own indexing, row by row; what is gained is the transport",
    )
)
