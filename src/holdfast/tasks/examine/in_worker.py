"""What the worker does before it loads samples, and after: make the dataset, pickle it, say what that left behind.

Each is one call of the pool: what a call dies of is told of that step. The dataset is made again in a new worker.
Runs in: worker process.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from holdfast.diagnosis import collect
from holdfast.diagnosis.native import mappings
from holdfast.diagnosis.wording import one_line
from holdfast.tasks.examine.seen import Around, Made, Pickled, Raised
from holdfast.tasks.examine.user_code import Loads, described, find, needed, was_open

_GENERATORS = (("numpy.random", "Generator"), ("numpy.random", "RandomState"), ("torch", "Generator"))
_GENERATOR_DEPTH = 3


def print_to_stderr() -> None:
    """At the worker's start: what the user's code prints is no data of ours."""
    os.dup2(2, 1)


def make(load: Loads, target: str) -> Made | Raised:
    """Import its module and make it, and look at what that left open or running."""
    open_before, threads_before, native_before = set(collect.open_files()), set(threading.enumerate()), _native()
    began = time.perf_counter()
    dataset = find(load, target)
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

    dataset = needed(load, target)
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


def look_around() -> Around:
    """After the last sample."""
    files = {mapping.path for mapping in mappings.of_self() if "x" in mapping.permissions and mapping.path[:1] == "/"}
    opened = tuple(one_line(path, 160) for path in collect.open_files() if not was_open(path))
    return Around(tuple(sorted(files)), opened)


def _is_iterable(dataset: Any) -> bool:
    """As a loader tells: torch's iterable datasets have a __getitem__, which raises."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dataset, torch.utils.data.IterableDataset):
        return True
    return not hasattr(type(dataset), "__getitem__")


def _length(dataset: Any) -> tuple[int | None, str]:
    if not hasattr(type(dataset), "__len__"):
        return None, ""
    length = described(lambda: len(dataset))
    return (None, length.what) if isinstance(length, Raised) else (length, "")


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
