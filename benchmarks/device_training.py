"""A small convolutional network on a CUDA device: what it waits for, and what killed workers change.

The samples are random and so is what is done to them: with `rng="sample"` they are the same whatever happens to the
workers. Two runs are made at once, in processes of their own; one has its workers killed at random.
Runs in: main.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import holdfast

from .device_table import LOADERS, SHAPE, Row, dataset_of, epoch_of, make_loader, options_s

CLASSES = 10
NO_LOADER = "no loader"


class Augmented(Dataset[Any]):
    """A random image of a class, cut and turned at random: all of it drawn from the worker's generators."""

    def __init__(self, length: int = 100_000_000) -> None:
        self._length = length
        generator = torch.Generator().manual_seed(5)
        self._patterns = torch.randint(0, 160, (CLASSES, *SHAPE), generator=generator, dtype=torch.uint8)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        label = index % CLASSES
        image = self._patterns[label] + torch.randint(0, 96, SHAPE, dtype=torch.uint8)
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
        return image.roll(int(torch.randint(0, 32, ())), -2), label


class Net(nn.Module):
    """Three convolutions and a linear layer; nothing in it whose gradient depends on the order of threads."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = SHAPE[0]
        for width in (32, 64, 128):
            layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        self._features, self._classes = nn.Sequential(*layers), nn.Linear(channels, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self._classes(self._features(images).mean((2, 3)))
        return out


class Trainer:
    def __init__(self) -> None:
        torch.manual_seed(7)
        self._net = Net().cuda()
        self._optimizer = torch.optim.SGD(self._net.parameters(), lr=0.01, momentum=0.9)

    def step(self, images: Tensor, labels: Tensor) -> Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(self._net(images.float() / 255), labels)
        loss.backward()
        self._optimizer.step()
        return loss.detach()


# -- waiting ----------------------------------------------------------------------------------------------------------


def measure_steps(loader: DataLoader[Any] | None, batch_size: int, options: Any) -> dict[str, float]:
    """Steps that are waited for one by one: of each, the time inside next() and the copy. Without a loader: no data."""
    trainer, labels = Trainer(), torch.arange(batch_size, device="cuda") % CLASSES
    waited: list[float] = []
    took: list[float] = []
    same = torch.zeros((batch_size, *SHAPE), dtype=torch.uint8, device="cuda")
    with contextlib.nullcontext(itertools.repeat(same)) if loader is None else epoch_of(loader) as epoch:
        start = time.perf_counter()
        while (now := time.perf_counter() - start) < options.warm_up_s + options.window_s or len(took) < 20:
            began = time.perf_counter()
            images = next(epoch).to("cuda", non_blocking=True)
            here = time.perf_counter()
            trainer.step(images, labels)
            torch.cuda.synchronize()
            if now > options.warm_up_s:
                waited.append(here - began)
                took.append(time.perf_counter() - began)
    return {
        "waiting share": sum(waited) / sum(took),
        "waiting ms": median(waited) * 1e3,
        "step ms": sum(took) / len(took) * 1e3,
        "steps": len(took),
    }


def measure_waiting(notes: Any) -> None:
    """Stock with pin_memory, ours with pin_memory, ours with device=; interleaved. And the steps without any loader.

    What a loader costs is more than the time inside its next(): its threads take the interpreter from the training
    loop, its copies the bus. `beyond no loader` is all of it, as a share of the step.
    """
    options = notes.options
    names = (LOADERS[0], *LOADERS[2:])
    for batch in map(int, options.batch.split(",")):
        for workers in map(int, options.workers.split(",")):
            row = Row("uint8", batch, workers)
            found: dict[str, list[dict[str, float]]] = {name: [] for name in (*names, NO_LOADER)}
            for turn in range(options.rounds):
                if notes.left_s < len(found) * options_s(notes):
                    return
                ideal = measure_steps(None, batch, options)
                found[NO_LOADER].append(ideal)
                for k in range(len(names)):
                    name = names[(k + turn) % len(names)]
                    loader = make_loader(name, row, dataset_of(row.dtype))
                    steps = measure_steps(loader, batch, options)
                    found[name].append({**steps, "beyond no loader": 1 - ideal["step ms"] / steps["step ms"]})
            medians = {
                name: {key: median(each[key] for each in passes) for key in passes[0]} for name, passes in found.items()
            }
            notes.keep(row.title, medians)


# -- chaos ------------------------------------------------------------------------------------------------------------


def run_chaos(notes: Any) -> None:
    """Both runs at once; the losses of every step that both have made must be equal, bit for bit."""
    options = notes.options
    paths = {"undisturbed": options.out / "losses-undisturbed.json", "disturbed": options.out / "losses-disturbed.json"}
    seconds = max(5.0, min(options.chaos_s, notes.left_s - 60))
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    runs = {}
    for name, path in paths.items():
        command = [sys.executable, "-m", "benchmarks.device_training", name, str(path), str(seconds)]
        runs[name] = subprocess.Popen([*command, str(options.kill_every_s)], env=environment)
    for name, run in runs.items():
        notes.keep(f"{name} exit", run.wait(timeout=seconds + 120))
    losses = {name: json.loads(path.read_text()) for name, path in paths.items()}
    common = min(len(run["losses"]) for run in losses.values())
    differs = [k for k in range(common) if len({run["losses"][k] for run in losses.values()}) > 1]
    facts = {name: {key: value for key, value in run.items() if key != "losses"} for name, run in losses.items()}
    ends = [losses["disturbed"]["losses"][k] for k in (0, common - 1)]
    notes.keep("runs", facts)
    notes.keep("compared", {"steps": common, "different": len(differs), "first": differs[:1], "loss from, to": ends})


def train(name: str, path: Path, seconds: float, kill_every_s: float) -> None:
    """One run, in a process of its own."""
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.manual_seed(3)
    loader = holdfast.DataLoader(
        Augmented(),
        batch_size=64,
        num_workers=6,
        generator=torch.Generator().manual_seed(11),
        rng="sample",
        device="cuda",
        max_restarts=1_000_000,
    )
    killer = None
    if name == "disturbed":
        command = [sys.executable, "-m", "benchmarks.device_training", "killer", str(os.getpid()), str(seconds)]
        killer = subprocess.Popen([*command, str(kill_every_s)])
    trainer, losses, end = Trainer(), [], time.monotonic() + seconds
    longest_s = 0.0
    with loader:
        before = time.monotonic()
        for images, labels in loader:
            longest_s = max(longest_s, time.monotonic() - before) if losses else 0.0
            losses.append(trainer.step(images, labels))
            if len(losses) % 50 == 0:
                torch.cuda.synchronize()
            before = time.monotonic()
            if before > end:
                break
        stats = loader.stats()
        incidents = len(loader.incidents)
    if killer is not None:
        killer.terminate()
        killer.wait(30)
    found = {"seconds": seconds, "restarts": stats.restarts, "incidents": incidents, "longest wait s": longest_s}
    path.write_text(json.dumps({**found, "steps": len(losses), "losses": [loss.item() for loss in losses]}))


def kill_workers(pid: int, seconds: float, mean_pause_s: float) -> None:
    """Ends a worker now and then: what a child of the training process has started."""
    import psutil

    dice, end = random.Random(13), time.monotonic() + seconds
    training = psutil.Process(pid)
    while time.monotonic() < end:
        time.sleep(dice.expovariate(1 / mean_pause_s))
        try:
            workers = [worker for child in training.children() for worker in child.children()]
            if workers:
                dice.choice(workers).send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue


if __name__ == "__main__":
    if sys.argv[1] == "killer":
        kill_workers(int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
    else:
        train(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
