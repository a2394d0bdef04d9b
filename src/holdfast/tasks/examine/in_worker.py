"""What the worker does: make the dataset, pickle it, load samples of it, and say what that left behind.

Each is one call of the pool: what a call dies of is told of that step, and of that sample. The dataset is made again in
a new worker. What user code raises is described here, and comes back as data: it may not pickle.
Runs in: worker process.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.diagnosis import collect
from holdfast.diagnosis.native import mappings
from holdfast.diagnosis.wording import one_line
from holdfast.tasks.examine import equality
from holdfast.tasks.examine.seen import Around, Made, Pickled, Raised, Sample

Loads = Callable[[str], Any]
"""Finds MODULE:DATASET. What is wrong usage it raises without a cause, what user code raised as the cause."""

_SEED = 20_240_229
_GENERATORS = (("numpy.random", "Generator"), ("numpy.random", "RandomState"), ("torch", "Generator"))
_GENERATOR_DEPTH = 3
Which = int | range
"""The index of a sample, or how many of the first ones of an iterable dataset."""

_held: dict[Which, list[Any]] = {}  # the samples that were loaded last
_made: dict[str, Any] = {}  # by target: the dataset; and "open": what was open once it was made


def print_to_stderr() -> None:
    """At the worker's start: what the user's code prints is no data of ours."""
    os.dup2(2, 1)


def make(load: Loads, target: str) -> Made | Raised:
    """Import its module and make it, and look at what that left open or running."""
    open_before, threads_before, native_before = set(collect.open_files()), set(threading.enumerate()), _native()
    began = time.perf_counter()
    dataset = _dataset(load, target)
    if isinstance(dataset, Raised):
        return dataset
    took = time.perf_counter() - began
    started = [thread.name for thread in threading.enumerate() if thread not in threads_before]
    length, no_length = _length(dataset)
    return Made(
        type_name=type(dataset).__qualname__,
        is_iterable=_is_iterable(dataset),
        length=length,
        no_length=no_length,
        seconds=took,
        opened=tuple(one_line(path, 160) for path in collect.open_files() if path not in open_before),
        python_threads=tuple(one_line(name, 80) for name in started),
        native_threads=max(0, _native() - native_before - len(started)),
        has_cuda=_has_cuda(),
        modules=tuple(name for name in sys.modules if "." not in name),
        generators=tuple(_generators(dataset, "dataset", _GENERATOR_DEPTH)),
    )


def pickle_it(load: Loads, target: str) -> Pickled:
    """As it would be sent to workers that are new interpreters."""
    # There is no public name for it: a loader says so only once its workers start.
    from multiprocessing import context

    from holdfast.errors import NotPicklable
    from holdfast.transport.pickling import dumps

    dataset = _dataset(load, target)
    # Queues and locks can be sent while a process is being started, and only then.
    context.set_spawning_popen(_Popen())  # type: ignore[arg-type]
    try:
        return Pickled(len(dumps(dataset, "dataset")[0]))
    except NotPicklable as error:
        return Pickled(None, error.path, one_line(str(error).partition("\n")[0]))
    finally:
        context.set_spawning_popen(None)


class _Popen:
    """In the place of a process that is being started: descriptors are sent as their numbers."""

    DupFd = int

    def duplicate_for_child(self, fd: int) -> int:
        return fd


def take(load: Loads, target: str, which: Which) -> list[Sample] | Raised:
    """Load samples, and keep them to compare with."""
    dataset = _dataset(load, target)
    _held.clear()
    loaded: list[_Loaded] | Raised = _described(lambda: list(_loaded(dataset, which)))
    if isinstance(loaded, Raised):
        return loaded
    _held[which] = [one.value for one in loaded]
    return [
        Sample(
            index=one.index,
            what=one_line(equality.describe(one.value), 200),
            seconds=one.seconds,
            again_s=one.seconds,
            nbytes=equality.size(one.value),
            peak_bytes=one.peak_bytes,
            has_cuda=equality.has_cuda(one.value),
        )
        for one in loaded
    ]


def take_again(load: Loads, target: str, which: Which, samples: list[Sample]) -> list[Sample] | Raised:
    """The same samples, once more: do they differ?"""
    dataset = _dataset(load, target)
    loaded: list[_Loaded] | Raised = _described(lambda: list(_loaded(dataset, which)))
    if isinstance(loaded, Raised):
        return loaded
    return [
        replace(sample, again_s=one.seconds, differs_at=one_line(equality.difference(value, one.value) or "", 120))
        for sample, one, value in zip(samples, loaded, _held.get(which, ()), strict=False)
    ]


def take_seeded(load: Loads, target: str, which: Which, samples: list[Sample]) -> list[Sample] | Raised:
    """Twice more, with equal seeds: do they still differ?"""
    dataset = _dataset(load, target)
    twice: list[list[_Loaded]] | Raised = _described(lambda: [_seeded(dataset, which) for _ in range(2)])
    if isinstance(twice, Raised):
        return twice
    differ = [equality.difference(one.value, other.value) is not None for one, other in zip(*twice, strict=False)]
    return [replace(sample, differs_seeded=differs) for sample, differs in zip(samples, differ, strict=False)]


def _seeded(dataset: Any, which: Which) -> list[_Loaded]:
    _seed()
    return list(_loaded(dataset, which))


@dataclass(frozen=True, slots=True)
class _Loaded:
    index: int
    value: Any
    seconds: float
    peak_bytes: int | None


def _loaded(dataset: Any, which: Which) -> Iterator[_Loaded]:
    if isinstance(which, int):
        yield _Loaded(which, *_measured(lambda: dataset[which]))
        return
    iterator: Any = None

    def element() -> Any:
        nonlocal iterator
        iterator = iter(dataset) if iterator is None else iterator
        return next(iterator)

    for index in which:
        try:
            yield _Loaded(index, *_measured(element))
        except StopIteration:
            return


def look_around() -> Around:
    """After the last sample."""
    files = {mapping.path for mapping in mappings.of_self() if "x" in mapping.permissions and mapping.path[:1] == "/"}
    before = _made.get("open", ())
    return Around(
        tuple(sorted(files)), tuple(one_line(path, 160) for path in collect.open_files() if path not in before)
    )


def _dataset(load: Loads, target: str) -> Any:
    """The dataset; what its module or its maker raised. Wrong usage is raised."""
    if target not in _made:
        made = _described(lambda: load(target), passes_on=lambda error: error.__cause__ is None)
        if isinstance(made, Raised):
            return made
        _made[target] = made
        _made["open"] = set(collect.open_files())
    return _made[target]


def _described(call: Callable[[], Any], passes_on: Callable[[BaseException], bool] | None = None) -> Any:
    """What the call returns, or what it raised. `passes_on`: whether an Exception is none of the user's code."""
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if passes_on is not None and isinstance(error, Exception) and passes_on(error):
            raise
        original = error.__cause__ if passes_on is not None and error.__cause__ is not None else error
        frames = traceback.extract_tb(original.__traceback__)
        last = next((frame for frame in reversed(frames) if not frame.filename.startswith("<frozen")), None)
        where = f"{Path(last.filename).name}:{last.lineno} in {last.name}" if last is not None else ""
        return Raised(one_line(f"{type(original).__name__}: {_text(original)}".removesuffix(": ")), one_line(where))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def _is_iterable(dataset: Any) -> bool:
    """As a loader tells: torch's iterable datasets have a __getitem__, which raises."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dataset, torch.utils.data.IterableDataset):
        return True
    return not hasattr(type(dataset), "__getitem__")


def _length(dataset: Any) -> tuple[int | None, str]:
    if not hasattr(type(dataset), "__len__"):
        return None, ""
    length = _described(lambda: len(dataset))
    return (None, length.what) if isinstance(length, Raised) else (length, "")


def _seed() -> None:
    random.seed(_SEED)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(_SEED)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(_SEED)


def _measured(load: Callable[[], Any]) -> tuple[Any, float, int | None]:
    """What it gives, the seconds it took, and the most memory that it took beyond what was there."""
    before = _reset_peak()
    began = time.perf_counter()
    value = load()
    took = time.perf_counter() - began
    peak = _status_bytes("VmHWM")
    return value, took, None if before is None or peak is None else max(0, peak - before)


def _reset_peak() -> int | None:
    """Have the kernel measure the peak anew. Returns what is resident now; None where it cannot be told."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _status_bytes("VmRSS")


def _status_bytes(name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def _native() -> int:
    return collect.threads_of(os.getpid()) or 0


def _has_cuda() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def _generators(thing: Any, path: str, depth: int) -> Iterator[str]:
    kinds = tuple(getattr(sys.modules[module], name) for module, name in _GENERATORS if module in sys.modules)
    if isinstance(thing, (random.Random, *kinds)):
        yield path
    elif depth and isinstance(getattr(thing, "__dict__", None), dict) and not isinstance(thing, type):
        for name, part in list(vars(thing).items())[:50]:
            yield from _generators(part, f"{path}.{name}", depth - 1)
