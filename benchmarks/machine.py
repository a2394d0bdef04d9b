"""Facts about the machine that a reader needs to place the figures; never its name.

Runs in: main.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import torch

from .ceiling import cores


@dataclass(frozen=True, slots=True)
class Machine:
    """Cores, CPU, versions, and how busy the machine was before the run."""

    cores: int
    cpu: str
    system: str
    python: str
    torch: str
    load: float

    def __str__(self) -> str:
        """Return the facts in one line."""
        return f"{self.cores} cores ({self.cpu}), {self.system}, Python {self.python}, torch {self.torch}"


def machine_facts() -> Machine:
    """Read the facts."""
    system = f"{platform.system()} {platform.machine()}"
    return Machine(cores(), _cpu_model(), system, platform.python_version(), torch.__version__, os.getloadavg()[0])


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown CPU"
