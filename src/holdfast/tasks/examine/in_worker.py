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
        is_iterable=not hasattr(type(dataset), "__getitem__"),
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
    """In the place of a process that is being started."""

    def duplicate_for_child(self, fd: int) -> int:
        return fd


def take(load: Loads, target: str, index: int) -> Sample | Raised:
    """One sample of a map-style dataset."""
    dataset = _dataset(load, target)
    result: Sample | Raised = _described(lambda: _sample(index, lambda: dataset[index]))
    return result


def take_first(load: Loads, target: str, count: int) -> list[Sample] | Raised:
    """The first samples of an iterable dataset; each is compared with that of another iterator of the same dataset."""
    dataset = _dataset(load, target)
    result: list[Sample] | Raised = _described(lambda: list(_first_samples(dataset, count)))
    return result


def _first_samples(dataset: Any, count: int) -> Iterator[Sample]:
    for index in range(count):
        elements: list[Any] = [iter(dataset)]

        def element(at: int = index, fresh: list[Any] = elements) -> Any:
            iterator = fresh.pop() if fresh else iter(dataset)
            for _ in range(at):
                next(iterator)
            return next(iterator)

        try:
            yield _sample(index, element)
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


def _length(dataset: Any) -> tuple[int | None, str]:
    if not hasattr(type(dataset), "__len__"):
        return None, ""
    length = _described(lambda: len(dataset))
    return (None, length.what) if isinstance(length, Raised) else (length, "")


def _sample(index: int, load: Callable[[], Any]) -> Sample:
    first, seconds, peak_bytes = _measured(load)
    second, again_s, _ = _measured(load)
    differs_at = equality.difference(first, second)
    return Sample(
        index=index,
        what=one_line(equality.describe(first), 200),
        seconds=seconds,
        again_s=again_s,
        nbytes=equality.size(first),
        peak_bytes=peak_bytes,
        differs_at=one_line(differs_at or "", 120),
        differs_seeded=differs_at is not None and _differs_seeded(load),
        has_cuda=equality.has_cuda(first),
    )


def _differs_seeded(load: Callable[[], Any]) -> bool:
    _seed()
    first = load()
    _seed()
    return equality.difference(first, load()) is not None


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
