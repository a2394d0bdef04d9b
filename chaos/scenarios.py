"""Random scenarios: a dataset, a loader, and how fast it is killed. The same name gives the same scenario.

Invariants: a unit takes at most `_LONGEST_UNIT_S`, and an iterable that must be run again at most `_LONGEST_REPLAY_S`,
so that there is progress between kills; all batches of a scenario fit into memory together.
Runs in: main.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from torch.utils.data import DataLoader, Dataset

import holdfast

from .datasets import (
    COLLATES,
    DRAWS,
    Elements,
    PermutedElements,
    Samples,
    SamplesInOneCall,
    SampleSpec,
    ShuffledElements,
    StatefulElements,
    drawing_init,
)

Kind = Literal["map", "map in one call", "iterable", "iterable with state", "shuffled iterable", "permuted iterable"]
_MAPS: tuple[Kind, ...] = ("map", "map in one call")
_RUN_AGAIN: tuple[Kind, ...] = ("iterable", "shuffled iterable", "permuted iterable")
_KINDS: tuple[Kind, ...] = (*_MAPS, *_MAPS, *_RUN_AGAIN, "iterable with state")

_LONGEST_UNIT_S = 0.06
_LONGEST_REPLAY_S = 0.08
_LARGEST_UNIT_BYTES = 2 << 20
_LARGEST_EPOCH_BYTES = 48 << 20
_EPOCH_S = 0.6
_MOST_TENSORS = 2000  # that are sent one by one: torch makes a file of each
_OVERHEAD_S = 4e-5  # of a sample that costs nothing


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that is decided before the first kill."""

    method: str
    seed: int
    number: int
    kind: Kind
    spec: SampleSpec
    length: int
    batch_size: int | None
    collate: str
    draws_in_init: bool
    shuffle: bool
    drop_last: bool
    num_workers: int
    prefetch_factor: int
    persistent: bool
    is_storm: bool
    """Kill all the time, also what is just recovering. Else one at a time, when the last is got over."""
    state_bytes: int
    leave_after: tuple[int | None, ...]
    """Of each epoch: after how many batches the training loop leaves it; None: at its end."""

    @property
    def capacity(self) -> int:
        """How many units are under way at once."""
        return self.num_workers * self.prefetch_factor

    @property
    def is_run_again(self) -> bool:
        """Whether a replaced worker has to run its iterable from the start: its gap is more than one unit."""
        return self.kind in _RUN_AGAIN

    @property
    def is_light(self) -> bool:
        """Whether all its epochs together are soon over: what the short run is made of."""
        samples = len(self.leave_after) * self.length
        return samples * (self.spec.sleep_s + self.spec.spin_s + _OVERHEAD_S) < 0.6 and len(self.leave_after) < 3

    @property
    def command(self) -> str:
        """What runs this scenario again."""
        return f"python -m chaos --methods {self.method} --seed {self.seed} --scenario {self.number}"

    def make_dataset(self) -> Dataset[Any]:
        """A new dataset, the same each time."""
        if self.kind == "iterable with state":
            return StatefulElements(self.spec, self.length, self.state_bytes)
        kinds: dict[Kind, type[Samples] | type[Elements]] = {
            "map": Samples,
            "map in one call": SamplesInOneCall,
            "iterable": Elements,
            "shuffled iterable": ShuffledElements,
            "permuted iterable": PermutedElements,
        }
        return kinds[self.kind](self.spec, self.length)

    def reference_loader(self, num_workers: int | None = None) -> DataLoader[Any]:
        """torch's own. Always forked: what it delivers does not depend on that, and it is quick."""
        workers = self.num_workers if num_workers is None else num_workers
        return DataLoader(self.make_dataset(), **self._arguments(workers, "fork"))

    def loader_under_test(self) -> holdfast.DataLoader[Any]:
        """Ours. Kills come from outside: no sample is ever to blame, and no number of them is too many."""
        if self.method == "portable":
            arguments = {**self._arguments(self.num_workers, None), "backend": "portable"}
        else:
            arguments = self._arguments(self.num_workers, self.method)
        return holdfast.DataLoader(self.make_dataset(), max_retries=1000, max_restarts=100_000, **arguments)

    def _arguments(self, num_workers: int, method: str | None) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "batch_size": self.batch_size,
            "collate_fn": COLLATES[self.collate],
            "worker_init_fn": drawing_init if self.draws_in_init else None,
            "drop_last": self.drop_last,
            "num_workers": num_workers,
        }
        if self.kind in _MAPS:
            arguments["shuffle"] = self.shuffle
        if num_workers:
            arguments["prefetch_factor"] = self.prefetch_factor
            arguments["persistent_workers"] = self.persistent
            arguments["multiprocessing_context"] = method
        return arguments


def make_scenario(method: str, seed: int, number: int) -> Scenario:
    """Scenario `number` of a run."""
    choose = random.Random(zlib.crc32(f"{method} {seed} {number}".encode()))
    kind = choose.choice(_KINDS)
    draws = tuple(draw for draw in DRAWS if choose.random() < 0.6) or ("numpy",) if number % 2 else ()
    batch_size = choose.choice((1, 4, 4, 32, 256, 6000, None))
    spec = _choose_sample(choose, batch_size or 1, draws)
    num_workers = choose.choice((1, 2, 2, 3, 4))
    length = _choose_length(choose, kind, spec, batch_size or 1, num_workers)
    units = max(1, length // (batch_size or 1))
    collate = choose.choice(_collates(length, has_batches=batch_size is not None, draws=bool(draws)))
    leave = partial(_choose_leaving, choose, units)
    return Scenario(
        method=method,
        seed=seed,
        number=number,
        kind=kind,
        spec=spec,
        length=length,
        batch_size=batch_size,
        collate=collate,
        draws_in_init=bool(draws) and choose.random() < 0.3,
        shuffle=choose.random() < 0.5,
        drop_last=batch_size is not None and choose.random() < 0.3,
        num_workers=num_workers,
        prefetch_factor=choose.choice((1, 2, 2, 4)),
        persistent=choose.random() < 0.5,
        is_storm=choose.random() < 0.5,
        state_bytes=choose.choice((0, 0, 100_000)),
        leave_after=tuple(leave() for _ in range(choose.choice((1, 2, 3)))),
    )


def _collates(length: int, *, has_batches: bool, draws: bool) -> list[str]:
    names = ["default", "default"]
    if length <= _MOST_TENSORS:
        names.append("list")
    if has_batches and draws:
        names.append("drawing")
    return names


def _choose_sample(choose: random.Random, batch_size: int, draws: tuple[Any, ...]) -> SampleSpec:
    """Slow or fast, small or large, within what a unit may be."""
    sleep_s = choose.choice((0.0, 0.0, 0.0005, 0.002, 0.01))
    spin_s = choose.choice((0.0, 0.0, 0.0, 0.0005, 0.002))
    nbytes = choose.choice((8, 8, 1 << 10, 32 << 10, 512 << 10))
    if batch_size * (sleep_s + spin_s) > _LONGEST_UNIT_S:
        sleep_s = spin_s = 0.0
    if batch_size * nbytes > _LARGEST_UNIT_BYTES:
        nbytes = 8
    return SampleSpec(nbytes, sleep_s, spin_s, draws)


def _choose_length(choose: random.Random, kind: Kind, spec: SampleSpec, batch_size: int, num_workers: int) -> int:
    """As many samples as keep an epoch going for about a second, some more or less so that the last batch is odd."""
    sample_s = spec.sleep_s + spec.spin_s + _OVERHEAD_S
    longest = int((_LONGEST_REPLAY_S if kind in _RUN_AGAIN else _EPOCH_S) * num_workers / sample_s)
    units = min(2000, max(4 * num_workers, longest // batch_size))
    units = min(units, max(8, _LARGEST_EPOCH_BYTES // (batch_size * (spec.nbytes + 200))))
    return units * batch_size + choose.randrange(batch_size)


def _choose_leaving(choose: random.Random, units: int) -> int | None:
    return choose.randrange(1, units) if units > 1 and choose.random() < 0.3 else None
