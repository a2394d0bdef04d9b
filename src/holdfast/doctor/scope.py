"""What the checks look at: this machine, as deep as was asked for, and what the dataset brought along.

Found out once, however many checks ask. Runs in: main process.
"""

from __future__ import annotations

import functools
import multiprocessing
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.cgroup_files import ROOT
from holdfast.diagnosis.native import mappings
from holdfast.doctor import libraries, torch_probe
from holdfast.doctor.libraries import Found
from holdfast.doctor.torch_probe import TorchProbe


def default_start_method() -> str:
    """What multiprocessing uses where nobody says. (To ask for it in so many words would settle it.)"""
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


@dataclass(frozen=True)
class Scope:
    deep: bool = False
    """Every library that is installed, and all of its code."""
    mapped: tuple[str, ...] = ()
    """Files that a process has mapped which has loaded samples of the dataset."""
    has_dataset: bool = False
    """Whether a dataset is looked at too: what it does tells more than what is installed."""
    start_method: str = field(default_factory=default_start_method)
    """How the loader will start its workers."""
    root: Path = field(default=ROOT)
    """For recorded trees."""

    @functools.cached_property
    def libraries(self) -> Found:
        """Those that are installed, and those that the dataset's process and this one have mapped."""
        own = (mapping.path for mapping in mappings.of_self())
        return libraries.find(self.deep, (*self.mapped, *own))

    @functools.cached_property
    def torch(self) -> TorchProbe:
        return torch_probe.probe()
