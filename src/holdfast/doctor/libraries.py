"""The native libraries that a loader may come to load: those of the packages that datasets use, or all there are.

    default     of packages that decode, read and compute for datasets; and what a process has mapped
    deep        every one in a directory that Python imports from

No library is loaded. Bounded in time: what was not reached is said. Runs in: main process.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_LIMIT_S = 5.0
_DEEP_LIMIT_S = 60.0
_LIBRARY = re.compile(r"\.so(\.\d+)*$")
_NOT_ENTERED = {"__pycache__", "node_modules", ".git"}

_PACKAGES = """
    torch torchvision torchaudio torchdata torchcodec numpy scipy pandas pillow pillow-simd opencv-python
    opencv-python-headless opencv-contrib-python opencv-contrib-python-headless av decord h5py lmdb netcdf4 tables
    pyarrow polars numcodecs blosc zstandard lz4 rasterio scikit-image scikit-learn soundfile tokenizers safetensors
    sentencepiece simplejpeg pyturbojpeg kornia-rs numba llvmlite torch-sparse torch-scatter pyg-lib dgl
"""
"""By the names that pip knows them by."""


@dataclass(frozen=True, slots=True)
class Library:
    path: str
    package: str = ""
    """What pip calls that which it belongs to; "" where nobody knows."""

    def __str__(self) -> str:
        return f"{Path(self.path).name} of {self.package}" if self.package else self.path


@dataclass(frozen=True, slots=True)
class Found:
    libraries: tuple[Library, ...]
    is_whole: bool = True
    """False: there was no time to look at all directories."""


def find(deep: bool, mapped: Iterable[str] = ()) -> Found:
    """Each file once, by its real path."""
    deadline = time.monotonic() + (_DEEP_LIMIT_S if deep else _LIMIT_S)
    found: dict[str, Library] = {}
    sources = (_installed(deep), (Library(path) for path in mapped if _is_library(path)))
    for source in sources:
        for library in source:
            if library is not None:
                found.setdefault(os.path.realpath(library.path), library)
            if time.monotonic() > deadline:
                return Found(tuple(found.values()), is_whole=False)
    return Found(tuple(found.values()))


def _is_library(path: str) -> bool:
    return _LIBRARY.search(path) is not None


def _installed(deep: bool) -> Iterator[Library | None]:
    """None: nothing yet, and a moment to look at the clock."""
    return _in_directories() if deep else _of_packages()


def _of_packages() -> Iterator[Library | None]:
    for name in _PACKAGES.split():
        try:
            files = metadata.distribution(name).files or ()
        except metadata.PackageNotFoundError:
            continue
        yield from (Library(str(file.locate()), name) for file in files if _is_library(file.name))


def _in_directories() -> Iterator[Library | None]:
    owners = metadata.packages_distributions()
    for directory in _directories():
        for folder, below, names in os.walk(directory):
            below[:] = [name for name in below if name not in _NOT_ENTERED]
            yield None
            for name in filter(_is_library, names):
                path = Path(folder, name)
                first = path.relative_to(directory).parts[0]
                package = owners.get(first.removesuffix(".libs").partition(".")[0], [""])[0]
                yield Library(str(path), package)


def _directories() -> Iterator[Path]:
    """Where Python imports from, but not the current directory by itself: all of the data may lie below it."""
    here = Path.cwd()
    for entry in dict.fromkeys(filter(None, sys.path)):
        path = Path(entry)
        if path.is_dir() and path.resolve() != here.resolve():
            yield path
