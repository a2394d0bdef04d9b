"""Epochs in which a signal handler raises inside `next()` once, at one line of ours after another.

Usage: interrupted_anywhere.py map | replace | skip | stream | unordered | persistent | portable points part
Runs in: a child of the test process.

No batch is ever wrong, whatever the user keeps. What cannot come any more is an error that says so, as often as it is
asked for, and a new iterator gives the whole epoch. Missing without an error may be the batch that was given out
already and was on its way to the caller: that nobody can mend.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any

import torch

from helpers import Stream, say
from holdfast import DataLoader

LENGTH, BATCH_SIZE, WORKERS = 32, 2, 2
BAD = frozenset({3, 4, 5, 16})
NEVER = 10**9


class Interrupted(Exception):
    """Raised by the handler."""


def raise_interrupted(*_: object) -> None:
    raise Interrupted


class Fields(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Samples of several tensors, each of which betrays its index. Those in BAD cannot be loaded, if there are any."""

    def __init__(self, bad: frozenset[int] = frozenset()) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if index in self.bad:
            raise ValueError(f"sample {index} is bad")
        return {name: torch.full((64,), index) for name in "abc"}


class Tracer:
    """Runs `next()` and has the signal come at the n-th line that holdfast runs there."""

    def __init__(self, at: int) -> None:
        self.lines = 0
        self._at = at
        self.was_clean: bool | None = None  # whether the iterator had given its batch out already
        self._iterator: Any = None

    def next(self, iterator: Any) -> Any:
        self._iterator = iterator
        if self.lines < self._at:
            sys.settrace(self._enter)
        try:
            return next(iterator)
        finally:
            sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._step if "holdfast" in frame.f_code.co_filename else None

    def _step(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            self.lines += 1
            if self.lines == self._at:
                sys.settrace(None)
                self.was_clean = self._iterator._is_clean
                signal.raise_signal(signal.SIGUSR1)
        return self._step


def make_loader(what: str) -> DataLoader[Any]:
    torch.manual_seed(0)
    options: dict[str, Any] = {"batch_size": BATCH_SIZE, "num_workers": WORKERS}
    if what == "stream":
        return DataLoader(Stream(LENGTH), **options)
    if what in ("skip", "replace"):
        return DataLoader(Fields(BAD), on_error=what, **options)
    if what == "portable":
        return DataLoader(Fields(), backend="portable", **options)
    return DataLoader(Fields(), in_order=what != "unordered", persistent_workers=what == "persistent", **options)


def numbers(batch: Any) -> list[int]:
    """What a batch says it is; the fields of one that is mixed up differ."""
    if isinstance(batch, torch.Tensor):
        return [int(number) for number in batch.flatten()]
    assert isinstance(batch, dict), batch
    said = {tuple(tensor.flatten().tolist()) for tensor in batch.values()}
    assert len(said) == 1, said
    return [int(number) for number in batch["a"][:, 0]]


def without_replaced(what: str, batches: list[list[int]]) -> list[list[int]]:
    """What stands for a bad sample depends on the epoch."""
    if what != "replace":
        return batches
    return [batch for k, batch in enumerate(batches) if BAD.isdisjoint(range(k * BATCH_SIZE, (k + 1) * BATCH_SIZE))]


def epoch(loader: DataLoader[Any], tracer: Tracer) -> tuple[list[Any], list[str]]:
    """All batches, kept, and what was raised beside the interrupt."""
    kept: list[Any] = []
    errors: list[str] = []
    iterator = iter(loader)
    while len(errors) < 2:  # what is raised for good is raised again
        try:
            kept.append(tracer.next(iterator))
        except StopIteration:
            break
        except Interrupted:
            continue
        except RuntimeError as error:
            errors.append(str(error))
    return kept, errors


def check_interrupt_at(what: str, at: int, expected: list[list[int]]) -> None:
    order = sorted if what == "unordered" else list
    with make_loader(what) as loader:
        tracer = Tracer(at)
        kept, errors = epoch(loader, tracer)
        came = order(map(numbers, kept))
        if errors:
            yielded = len(came) + bool(tracer.was_clean)
            said = f"interrupted inside next() at batch {yielded}: the batches so far are good; call iter() again"
            assert errors == [said, said], (at, errors)
            whole = [batch for batch in expected if batch in came] if what == "unordered" else expected[: len(came)]
            assert came == whole, (at, came)
        elif came != expected:  # one was given out, and cut short on its way to the caller
            assert tracer.was_clean, (at, came)
            assert any(came == expected[:k] + expected[k + 1 :] for k in range(len(expected))), (at, came)
        again = order(map(numbers, loader))
        assert without_replaced(what, again) == without_replaced(what, expected), at
        assert order(map(numbers, kept)) == came, at


def main(what: str, points: int, part: int) -> None:
    """Interrupts at that many lines; another part, at others."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGUSR1, raise_interrupted)
    order = sorted if what == "unordered" else list
    with make_loader(what) as loader:
        tracer = Tracer(NEVER)
        expected = order(map(numbers, epoch(loader, tracer)[0]))
    stride = max(1, tracer.lines // points)
    for at in range(1 + part * 7 % stride, tracer.lines, stride):
        check_interrupt_at(what, at, expected)
    say("done")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
