"""Into a GPU: how fast, what a training loop waits for, and what killed workers change. Needs a CUDA device.

    python -m benchmarks.device --part bus,table --out FOLDER --budget-s 540

Parts, each for itself or several, one after the other, within the budget:
    bus        the ceiling: one large pinned copy; registering memory, and letting it go
    table      GB/s into the device: both loaders, with and without pinning, and ours with device=
    depth      ours with device=, by how many batches are copied, and loaded, ahead
    profile    where the main thread's time goes, per batch
    training   a small convolutional network on uint8 images: the share of its steps spent waiting for data
    chaos      the same network, workers killed at random, against an undisturbed run: the loss curves must be equal

Every part writes FOLDER/PART.json as it goes, so that what a time limit cuts off leaves the rest.
Runs in: main.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import device_table, device_training

PARTS: dict[str, Callable[..., Any]] = {
    "bus": device_table.measure_bus,
    "table": device_table.measure_table,
    "depth": device_table.measure_depth,
    "profile": device_table.profile,
    "training": device_training.measure_waiting,
    "chaos": device_training.run_chaos,
}


class Notes:
    """What a part has found so far, on disk after each finding; and how much time is left."""

    def __init__(self, path: Path, options: argparse.Namespace, end_s: float) -> None:
        self.options, self._path, self._end_s = options, path, end_s
        self._found: dict[str, Any] = {"machine": describe_machine(), "options": vars(options)}

    @property
    def left_s(self) -> float:
        return self._end_s - time.monotonic()

    def keep(self, name: str, value: Any) -> None:
        self._found[name] = value
        self._path.write_text(json.dumps(self._found, indent=1, default=str))
        self.say(f"{name}: {json.dumps(value, default=str)}")

    def say(self, line: str) -> None:
        print(line if len(line) < 400 else f"{line[:400]} ...", flush=True)


def describe_machine() -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d"),
        "gpu": torch.cuda.get_device_name(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "kernel": platform.release(),
    }


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", default="bus,table", help=f"one or more of {','.join(PARTS)}")
    parser.add_argument("--out", type=Path, default=Path("build/device"))
    parser.add_argument("--budget-s", type=float, default=540.0, help="no new measurement is begun past this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--window-s", type=float, default=1.5, help="of one measurement")
    parser.add_argument("--warm-up-s", type=float, default=1.5, help="before each measurement")
    parser.add_argument("--workers", default="4,12")
    parser.add_argument("--batch", default="64,256")
    parser.add_argument("--dtypes", default="float32,uint8")
    parser.add_argument("--chaos-s", type=float, default=300.0)
    parser.add_argument("--kill-every-s", type=float, default=0.5)
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    if not torch.cuda.is_available():
        sys.exit("there is no CUDA device")
    options.out.mkdir(parents=True, exist_ok=True)
    end_s = time.monotonic() + options.budget_s
    for part in options.part.split(","):
        print(f"== {part}", flush=True)
        PARTS[part](Notes(options.out / f"{part}.json", options, end_s))


if __name__ == "__main__":
    main()
