"""The one pickler: what travels by name, what by value, what is shared, and what cannot travel at all."""

from __future__ import annotations

import functools
import io
import multiprocessing
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from multiprocessing import context, popen_spawn_posix
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from holdfast.errors import NotPicklable
from holdfast.transport import pickling

SCRIPT = """
import threading
lock = threading.Lock()

class Dataset:
    def __init__(self, value): self.value = value
    def where(self): return __name__
    def locked(self): return lock.locked()

def collate(samples): return len(samples)

if __name__ == "__main__":
    class Guarded(Dataset):
        def who(self): return "guarded"
    half = lambda x: x / 2
"""


def run_as_main(monkeypatch: pytest.MonkeyPatch, path: Path, name: str) -> ModuleType:
    """Run the script as the main one, or import it as a spawned process does (`__mp_main__`, found as `__main__`)."""
    path.write_text(SCRIPT)
    module = ModuleType(name)
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "__main__", module)
    exec(compile(SCRIPT, str(path), "exec"), vars(module))
    for made in vars(module).values():
        if getattr(made, "__module__", None) == name:
            made.__module__ = "__main__"
    return module


@dataclass
class Holder:
    """Stands for a job: fields named like the loader's arguments."""

    dataset: Any = None
    collate_fn: Any = None


class Box:
    """A user's object with attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


# --- by name and by value -----------------------------------------------------------------------------------------


def test_what_a_module_defines_travels_by_name() -> None:
    """A class that can be imported is the very same class on the other side."""
    data, modules = pickling.dumps(Box(value=3), "dataset")
    assert type(pickle.loads(data)) is Box
    assert modules == {__name__}


def test_the_modules_that_a_pickle_needs_are_known() -> None:
    """So that a supervisor can import them once: those of classes and functions, not builtins or the main script."""
    _, modules = pickling.dumps([Box(value=Fraction(1, 2)), functools.partial(os.getpid), unpicklable], "dataset")
    assert {__name__, "fractions", "functools"} <= modules
    assert not modules & {"__main__", "__mp_main__", "builtins"}


def test_a_class_of_the_main_script_travels_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In the spawned process it is the class that the script defines there; by value its lock could not be sent."""
    main = run_as_main(monkeypatch, tmp_path / "train.py", "__main__")
    data, modules = pickling.dumps(Holder(main.Dataset(5), main.collate), "")
    there = run_as_main(monkeypatch, tmp_path / "train.py", "__mp_main__")
    loaded = pickle.loads(data)
    assert type(loaded.dataset) is there.Dataset
    assert loaded.dataset.value == 5
    assert loaded.dataset.where() == "__mp_main__"
    assert loaded.dataset.locked() is False
    assert loaded.collate_fn is there.collate
    assert "__main__" not in modules


def test_what_is_under_the_main_guard_travels_by_value(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The spawned process does not run those lines: the class comes along, on top of the base it does find."""
    main = run_as_main(monkeypatch, tmp_path / "train.py", "__main__")
    data, _ = pickling.dumps([main.Guarded(5), main.half], "")
    monkeypatch.setattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", {})  # as in another process
    there = run_as_main(monkeypatch, tmp_path / "train.py", "__mp_main__")
    assert not hasattr(there, "Guarded")
    guarded, half = pickle.loads(data)
    assert guarded.who() == "guarded"
    assert isinstance(guarded, there.Dataset)
    assert half(3) == 1.5


def test_a_class_of_a_notebook_travels_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no file to import: everything comes along."""
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec("class Cell:\n    def __getitem__(self, index): return index + offset\noffset = 10", vars(main))
    data, _ = pickling.dumps(main.Cell(), "dataset")
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    assert pickle.loads(data)[5] == 15


def test_lambdas_and_local_classes_travel_by_value() -> None:
    """Wherever they are made."""
    offset = 10

    class Local:
        def __getitem__(self, index: int) -> int:
            return index + offset

    dataset, function = pickle.loads(pickling.dumps([Local(), lambda x: x * offset], "dataset")[0])
    assert dataset[5] == 15
    assert function(2) == 20


# --- shared things ------------------------------------------------------------------------------------------------


class Start:
    """Stands for the start of a process, inside which descriptors and locks may be pickled."""

    def __init__(self) -> None:
        self.fds: list[int] = []

    def DupFd(self, fd: int) -> Any:  # noqa: N802  (multiprocessing's name)
        self.fds.append(os.dup(fd))
        return popen_spawn_posix._DupFd(self.fds[-1])

    def duplicate_for_child(self, fd: int) -> int:
        return fd


@pytest.fixture
def _starting() -> Iterator[None]:
    context.set_spawning_popen(Start())
    yield
    context.set_spawning_popen(None)


@pytest.mark.usefixtures("_starting")
def test_a_shared_tensor_stays_shared() -> None:
    """The pickle holds a descriptor, not the bytes, and what one side writes the other reads."""
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(1 << 20).share_memory_()
    data, _ = pickling.dumps(Box(tensor=tensor, transform=lambda x: x), "dataset")
    assert len(data) < 10_000
    loaded = pickle.loads(data)
    loaded.tensor[7] = 5
    assert tensor[7] == 5


@pytest.mark.usefixtures("_starting")
def test_an_ordinary_tensor_is_moved_to_shared_memory_as_torch_does() -> None:
    """Many workers, one copy: also inside an object of a class that travels by value."""
    torch = pytest.importorskip("torch")
    tensor = torch.arange(1 << 18)

    class Local:
        def __init__(self) -> None:
            self.tensor = tensor

    data, _ = pickling.dumps(Local(), "dataset")
    assert len(data) < 10_000
    assert torch.equal(pickle.loads(data).tensor, tensor)
    assert tensor.is_shared()


@pytest.mark.usefixtures("_starting")
def test_what_multiprocessing_shares_can_be_sent_while_a_process_starts() -> None:
    """Locks, events and queues in a dataset stay the same ones: what one side does the other sees."""
    spawn = multiprocessing.get_context("spawn")
    here = Box(lock=spawn.Lock(), event=spawn.Event(), queue=spawn.SimpleQueue())
    there = pickle.loads(pickling.dumps(here, "dataset")[0])
    there.queue.put("hello")
    there.event.set()
    assert here.queue.get() == "hello"
    assert here.event.is_set()
    with there.lock:
        assert not here.lock.acquire(block=False)


# --- what cannot travel -------------------------------------------------------------------------------------------


def unpicklable() -> Any:
    return threading.Lock()


def holds_in_a_cell(value: Any) -> Callable[[], Any]:
    return lambda: value


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda bad: Holder(dataset=bad), "dataset"),
        (lambda bad: Holder(dataset=Box(transform=Box(fn=bad))), "dataset.transform.fn"),
        (lambda bad: Holder(dataset=Box(items=[1, 2, {"key": (0, bad)}])), "dataset.items[2]['key'][1]"),
        (lambda bad: Holder(collate_fn=holds_in_a_cell(bad)), "collate_fn.value"),
        (lambda bad: Holder(collate_fn=holds_in_a_cell(Box(a=bad))), "collate_fn.value.a"),
        (lambda bad: Holder(dataset=Box(partial=functools.partial(print, bad))), "dataset.partial"),
        (lambda bad: Holder(dataset=Box(fine=1, also=[bad, bad])), "dataset.also[0]"),
    ],
)
def test_what_cannot_be_pickled_is_named_by_its_path(make: Callable[[Any], Holder], path: str) -> None:
    """The attribute, the index or the variable that holds it, from the loader's argument on."""
    with pytest.raises(NotPicklable) as caught:
        pickling.dumps(make(unpicklable()), "")
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path} cannot be sent to the workers: ")
    assert isinstance(caught.value, TypeError)
    assert caught.value.__cause__ is not None


def test_the_message_says_what_it_is_why_not_and_what_to_do() -> None:
    """One glance: type, reason, and two ways out."""
    with pytest.raises(NotPicklable) as caught:
        pickling.dumps(Box(lock=unpicklable()), "dataset")
    message = str(caught.value)
    assert "dataset.lock cannot be sent to the workers: _thread.lock object cannot be pickled" in message
    assert "cannot pickle '_thread.lock' object" in message
    assert "worker_init_fn" in message
    assert 'multiprocessing_context="fork"' in message


def test_a_function_is_described_by_its_place() -> None:
    """`lambda at train.py:31`."""
    function = lambda: None  # noqa: E731
    line = function.__code__.co_firstlineno
    assert pickling.describe(function) == f"lambda at {__file__}:{line}"
    assert pickling.describe(unpicklable).startswith(f"function unpicklable at {__file__}:")
    assert pickling.describe(io.StringIO()) == "_io.StringIO object"


def test_a_lock_outside_the_start_of_a_process_is_named_too() -> None:
    """multiprocessing refuses with a RuntimeError: the path says which lock."""
    lock = multiprocessing.get_context("spawn").Lock()
    with pytest.raises(NotPicklable) as caught:
        pickling.dumps(Holder(dataset=Box(lock=lock)), "")
    assert caught.value.path.startswith("dataset.lock")


def test_a_structure_that_contains_itself_is_no_trap() -> None:
    """The search for the culprit ends."""
    box = Box(lock=unpicklable())
    box.itself = box
    box.items = [box]
    with pytest.raises(NotPicklable) as caught:
        pickling.dumps(Holder(dataset=box), "")
    assert caught.value.path.startswith("dataset.")


def test_a_function_with_a_variable_that_was_never_set_is_no_trap() -> None:
    """An empty cell holds nothing that could be the culprit."""

    def outer() -> Callable[[], Any]:
        def inner() -> Any:
            return absent, lock

        lock = unpicklable()
        if not lock:
            absent = None
        return inner

    with pytest.raises(NotPicklable) as caught:
        pickling.dumps(Holder(collate_fn=outer()), "")
    assert caught.value.path == "collate_fn.lock"


def test_an_exception_while_pickling_is_the_cause() -> None:
    """What the user's own __reduce__ raised is not lost."""
    with pytest.raises(NotPicklable) as caught:
        pickling.dumps(Box(bad=Refuses()), "dataset")
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.path == "dataset.bad"


class Refuses:
    def __reduce__(self) -> tuple[Any, ...]:
        raise KeyError("I will not")
