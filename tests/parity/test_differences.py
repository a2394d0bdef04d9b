"""Where holdfast differs from torch on purpose: what docs/compatibility.md says, line by line.

Each test asserts our behaviour; where it is cheap, also that torch's is still the other one.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, IterableDataset, Sampler
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from holdfast import DataLoader, NotPicklable, WorkerCrashed, WorkerInitError
from holdfast.testing import leaks_since, snapshot

from .datasets import MapDataset, as_list, same, vector
from .failures import FailingSampler, FailingSamplerIter, failing_init, failing_init_of_one
from .scenarios import Delivered, End, Raised, Scenario, run
from .streams import FailingIter
from .workers import Informed

PROGRAMS = Path(__file__).parent / "programs"
PROGRAM_DEADLINE_S = 60


def _events(dataset: Callable[[], Any], arguments: dict[str, Any], take: int | None = None) -> list[Any]:
    """What holdfast gives: numbers for batches, classes for errors, "end" for the end."""
    (epoch,) = run(DataLoader, Scenario("one", dataset, arguments, takes=(take,), asks_length=False)).epochs
    return [_short(event) for event in epoch]


def _short(event: Any) -> Any:
    if isinstance(event, Delivered):
        return event.batch.tolist() if isinstance(event.batch, torch.Tensor) else event.batch
    return event.kind if isinstance(event, Raised) else "end" if isinstance(event, End) else event


# --- batches ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [{}, {"collate_fn": as_list}, {"batch_size": None}], ids=str)
def test_delivered_tensors_are_not_shared(arguments: dict[str, Any]) -> None:
    """Their memory is a slot; torch's is a file of its own."""
    for loader_class, shared in ((TorchLoader, True), (DataLoader, False)):
        batch = next(iter(loader_class(MapDataset(vector), num_workers=1, **arguments)))
        tensor = batch[0] if isinstance(batch, list) else batch
        assert tensor.is_shared() is shared
        assert not tensor.is_pinned()


def test_a_delivered_tensor_can_be_moved_to_shared_memory() -> None:
    """share_memory_() works, and keeps the values."""
    batch = next(iter(DataLoader(MapDataset(vector), batch_size=2, num_workers=1)))
    expected = batch.clone()
    batch.share_memory_()
    assert batch.is_shared()
    assert torch.equal(batch, expected)


class Views(Dataset[Any]):
    """Rows of one large tensor."""

    def __init__(self) -> None:
        self.data = torch.arange(1_000_000.0).reshape(1000, 1000)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.data[index]


def test_only_the_part_of_a_storage_that_a_batch_refers_to_travels() -> None:
    """A row is 4 kB of a 4 MB storage; torch sends the 4 MB."""
    for row, expected in zip(DataLoader(Views(), batch_size=None, num_workers=1), Views().data, strict=False):
        assert torch.equal(row, expected)
        assert row.untyped_storage().nbytes() < 100_000


def test_a_batch_that_cannot_be_pickled_is_an_error_of_that_batch() -> None:
    """torch prints a traceback in the worker and waits for ever."""
    events = _events(lambda: range(8), {"batch_size": 2, "num_workers": 2, "collate_fn": _Unpicklable.collate})
    assert [event for event in events if not isinstance(event, type)] == [[0, 1], [4, 5], [6, 7], "end"]
    assert isinstance(events[1], type)
    assert issubclass(events[1], Exception)


class _Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("this object stays where it is")

    @staticmethod
    def collate(batch: list[int]) -> Any:
        return _Unpicklable() if 2 in batch else torch.tensor(batch)


def _non_leaf(batch: list[int]) -> Any:
    return torch.ones(1, requires_grad=True) * 2 if 2 in batch else torch.tensor(batch)


def test_a_tensor_inside_a_graph_is_an_error_of_that_batch() -> None:
    """Autograd does not cross processes: torch refuses to send it, in the worker, and waits for ever."""
    events = _events(lambda: range(8), {"batch_size": 2, "num_workers": 2, "collate_fn": _non_leaf})
    assert [event for event in events if not isinstance(event, type)] == [[0, 1], [4, 5], [6, 7], "end"]
    assert events[1] is RuntimeError


# --- errors -------------------------------------------------------------------------------------------------------


class TwoArguments(Exception):
    """Its constructor wants more than a message: torch makes it a RuntimeError."""

    def __init__(self, path: str, code: int) -> None:
        super().__init__(path, code)
        self.path = path
        self.code = code


class Unpicklable(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("this exception stays where it is")


def _local_error() -> Exception:
    class Local(ValueError):
        pass

    return Local("of a class inside a function")


def _chained() -> Exception:
    try:
        raise KeyError("inner")
    except KeyError as inner:
        error = ValueError("outer")
        error.__cause__ = inner
        return error


def _noted() -> Exception:
    error = ValueError("noted")
    error.add_note("by the dataset")
    return error


def _decode_error() -> Exception:
    return UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")


def _with_attributes() -> Exception:
    error = OSError(28, "No space left on device", "/data")
    error.retries = 3  # type: ignore[attr-defined]
    return error


ERRORS: dict[str, Callable[[], Exception]] = {
    "plain": lambda: ValueError("bad", 5),
    "two arguments": lambda: TwoArguments("/data/5", 17),
    "attributes": _with_attributes,
    "five arguments": _decode_error,
    "KeyError": lambda: KeyError(("a", 1)),
    "own notes": _noted,
    "chained": _chained,
    "group": lambda: ExceptionGroup("several", [ValueError(1), TypeError(2)]),
}


class Raising(Dataset[Any]):
    def __init__(self, error: str) -> None:
        self.error = error

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise ERRORS[self.error]()
        return index


def _caught(loader: Any) -> tuple[Exception, list[Any]]:
    """The one exception of an epoch, and all the batches."""
    iterator, batches, errors = iter(loader), [], []
    while True:
        try:
            batches.append(next(iterator).tolist())
        except StopIteration:
            (error,) = errors
            return error, batches
        except Exception as error:
            errors.append(error.with_traceback(None))


@pytest.mark.parametrize("name", ERRORS)
def test_an_exception_keeps_its_type_arguments_and_attributes(name: str) -> None:
    """And the iterator goes on."""
    original = ERRORS[name]()
    error, batches = _caught(DataLoader(Raising(name), batch_size=4, num_workers=2))
    assert batches == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert type(error) is type(original)
    assert repr(error.args) == repr(original.args)
    assert error.incident.worker_id == 1
    own = {key: value for key, value in vars(error).items() if key not in ("__notes__", "incident")}
    assert own == {key: value for key, value in vars(original).items() if key != "__notes__"}
    assert str(error) == str(original)
    assert pickle.loads(pickle.dumps(error)).args == error.args or name in {"two arguments", "group"}


@pytest.mark.parametrize("name", ERRORS)
def test_notes_name_the_sample_and_carry_the_traceback(name: str) -> None:
    """Dataset index, batch, worker id and pid; and the worker's traceback, with the line that raised."""
    loader = DataLoader(Raising(name), batch_size=4, num_workers=2, persistent_workers=True)
    error, _ = _caught(loader)
    assert loader._iterator is not None
    pid = loader._iterator._workers[1].pid
    notes = error.__notes__
    if name == "own notes":
        assert notes[0] == "by the dataset"
    where = [note for note in notes if str(pid) in note]
    assert len(where) == 1
    for fact in (r"dataset\[5\]", r"batch 1\b", r"worker (process )?1\b"):
        assert re.search(fact, where[0])
    assert any("Traceback" in note and "in __getitem__" in note and "raise ERRORS" in note for note in notes)


def test_an_exception_that_cannot_be_pickled_arrives_too() -> None:
    """By its type where the main process knows it, else as the nearest that it knows, with its text."""
    for make, kinds in ((lambda: Unpicklable("stays"), (Unpicklable,)), (_local_error, (ValueError, RuntimeError))):
        ERRORS["cannot be pickled"] = make
        try:
            error, batches = _caught(DataLoader(Raising("cannot be pickled"), batch_size=4, num_workers=2))
        finally:
            del ERRORS["cannot be pickled"]
        assert isinstance(error, kinds)
        assert str(make()) in str(error)
        assert batches == [[0, 1, 2, 3], [8, 9, 10, 11]]


class Ragged(Dataset[Any]):
    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return self.make(10 - index)


@pytest.mark.parametrize("make", [torch.ones, np.ones], ids=["tensors", "arrays"])
def test_samples_of_different_sizes_give_the_message_of_stack(make: Callable[[int], Any]) -> None:
    """As with num_workers=0."""
    texts = []
    for loader in (DataLoader(Ragged(make), 2, num_workers=2), TorchLoader(Ragged(make), 2)):
        with pytest.raises(RuntimeError) as caught:
            next(iter(loader))
        texts.append(str(caught.value))
        del caught
    assert texts[0] == texts[1]
    assert texts[0].startswith("stack expects each tensor to be equal size")


class Stopping(Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == 3:
            next(iter([]))
        return index


@pytest.mark.parametrize("arguments", [{"batch_size": 2}, {"batch_size": None, "collate_fn": same}], ids=str)
def test_stop_iteration_out_of_a_sample_is_a_runtime_error(arguments: dict[str, Any]) -> None:
    """In torch it ends the epoch, silently."""
    events = _events(Stopping, {"num_workers": 2, **arguments})
    assert events.count(RuntimeError) == 1
    assert events[-1] == "end"
    assert len(events) == (4 if arguments["batch_size"] else 8) + 1
    assert len(list(TorchLoader(Stopping(), **arguments))) < 4  # (its workers would take ten seconds to end)


@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_a_samplers_exception_comes_after_the_batches_before_it(prefetch: int) -> None:
    """At its own position, as with num_workers=0; then the sampler, a generator, has ended."""
    arguments = {"sampler": FailingSampler(), "num_workers": 2, "prefetch_factor": prefetch}
    assert _events(lambda: range(9), arguments) == [[0], [1], [2], ZeroDivisionError, "end"]


class Recovering(Sampler[int]):
    """Its iterator survives its exception."""

    def __init__(self) -> None:
        self.position = -1

    def __iter__(self) -> Recovering:
        self.position = -1
        return self

    def __next__(self) -> int:
        self.position += 1
        if self.position == 2:
            raise ZeroDivisionError("the sampler failed")
        if self.position >= 5:
            raise StopIteration
        return self.position


def test_after_a_samplers_exception_its_next_indices_follow() -> None:
    """Nothing is lost, before or after."""
    arguments = {"sampler": Recovering(), "num_workers": 2, "batch_size": None}
    assert _events(lambda: range(9), arguments) == [0, 1, ZeroDivisionError, 3, 4, "end"]


def test_a_sampler_that_fails_first_fails_in_iter() -> None:
    """As in torch."""
    for loader_class in (TorchLoader, DataLoader):
        loader = loader_class(range(9), sampler=FailingSamplerIter(), num_workers=2)
        with pytest.raises(ZeroDivisionError, match=r"^the sampler failed at once$"):
            iter(loader)


def stops_at_three(index: int) -> int:
    if index == 3:
        raise StopIteration
    return index


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_dataset_that_raises_stop_iteration_does_not_end_the_epoch(num_workers: int) -> None:
    """torch takes it for the end of the data, and loses the rest without a word."""
    arguments = {"num_workers": num_workers, "batch_size": 2}
    events = _events(lambda: MapDataset(stops_at_three, 8), arguments)
    assert events == [[0, 1], RuntimeError, [4, 5], [6, 7], "end"]


def fails_at_three(index: int) -> int:
    return index if index != 3 else 1 // 0


def test_an_exception_names_the_samples_that_are_lost_with_it() -> None:
    """Those of the same batch: every index is delivered, or listed."""
    iterator = iter(DataLoader(MapDataset(fails_at_three, 8), batch_size=4, num_workers=1))
    with pytest.raises(ZeroDivisionError) as raised:
        next(iterator)
    assert "lost with it, of the same batch: samples [0, 1, 2]" in raised.value.__notes__


def test_after_a_failed_worker_init_fn_every_batch_of_that_worker_raises_it() -> None:
    """torch raises it for the first batch, and UnboundLocalError for the others."""
    arguments = {"num_workers": 2, "batch_size": 2}
    everywhere = _events(lambda: range(8), {**arguments, "worker_init_fn": failing_init})
    assert everywhere == [ConnectionError] * 4 + ["end"]
    in_one = _events(lambda: range(8), {**arguments, "worker_init_fn": failing_init_of_one})
    assert in_one == [[0, 1], ConnectionError, [4, 5], ConnectionError, "end"]


def test_a_stream_that_cannot_start_raises_it_again_and_others_go_on() -> None:
    """Every batch of that worker raises the exception; the other worker's come in between, to their end."""
    events = _events(FailingIter, {"num_workers": 2}, take=8)
    assert events[::2] == [PermissionError] * 4
    assert events[1::2] == [[0], [1], [2], [3]]


# --- deaths -------------------------------------------------------------------------------------------------------


class DiesOnce(Informed):
    """The first worker that loads sample 5 dies."""

    def __init__(self, marker: Path) -> None:
        super().__init__(12)
        self.marker = marker

    def __getitem__(self, index: int) -> int:
        if index == 5 and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return index


class DiesAlways(Informed):
    def __getitem__(self, index: int) -> int:
        if index == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return index


def test_a_worker_that_dies_is_replaced_and_its_batches_come(tmp_path: Path) -> None:
    """Every batch once, in order."""
    events = _events(lambda: DiesOnce(tmp_path / "died"), {"batch_size": 2, "num_workers": 2})
    assert events == [[n, n + 1] for n in range(0, 12, 2)] + ["end"]
    assert (tmp_path / "died").exists()


def test_a_batch_that_kills_twice_raises_worker_crashed_and_the_next_follow() -> None:
    """WorkerCrashed is a RuntimeError, which is what torch raises."""
    events = _events(lambda: DiesAlways(12), {"batch_size": 2, "num_workers": 2})
    assert events == [[0, 1], [2, 3], WorkerCrashed, [6, 7], [8, 9], [10, 11], "end"]
    assert issubclass(WorkerCrashed, RuntimeError)


class DyingStream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[int]:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        for position in range(4):
            if info.id == 0 and position == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            yield 10 * info.id + position


def test_a_stream_whose_worker_dies_ends_with_worker_crashed_and_the_others_go_on() -> None:
    events = _events(DyingStream, {"num_workers": 2})
    assert events.count(WorkerCrashed) == 1
    delivered = [event[0] for event in events if isinstance(event, list)]
    assert [value for value in delivered if value >= 10] == [10, 11, 12, 13]
    assert [value for value in delivered if value < 10] == [0, 1]
    assert events[-1] == "end"


def _dies(worker_id: int) -> None:
    os._exit(3)


def test_a_death_before_the_first_sample_is_a_worker_init_error() -> None:
    """After one restart; it is a RuntimeError."""
    with pytest.raises(WorkerInitError):
        next(iter(DataLoader(range(4), num_workers=1, worker_init_fn=_dies)))
    assert issubclass(WorkerInitError, RuntimeError)


# --- processes, pickling, our own arguments -----------------------------------------------------------------------


def scheduling_policy(_: int) -> int:
    return os.sched_getscheduler(0)


class Policies(Dataset[int]):
    """The policy by which the kernel schedules the process that loads a sample."""

    __getitem__ = staticmethod(scheduling_policy)

    def __len__(self) -> int:
        return 2


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="this platform has no such policy")
def test_workers_are_batch_jobs_and_the_main_process_is_not() -> None:
    """A worker that is woken does not take the core from the training process; torch's may."""
    for loader_class, policy in ((TorchLoader, os.SCHED_OTHER), (DataLoader, os.SCHED_BATCH)):
        assert [batch.item() for batch in loader_class(Policies(), num_workers=1)] == [policy] * 2
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_workers_are_grandchildren_of_one_supervisor() -> None:
    """So that they can be replaced without forking this process again."""
    iterator = iter(DataLoader(range(4), num_workers=3))
    next(iterator)
    workers = [psutil.Process(worker.pid) for worker in iterator._workers]
    (supervisor,) = {worker.ppid() for worker in workers}
    assert psutil.Process(supervisor).ppid() == os.getpid()
    assert supervisor not in {worker.pid for worker in workers}
    assert {worker.pid for worker in workers}.isdisjoint(child.pid for child in multiprocessing.active_children())


def test_the_iterator_is_what_torchs_would_be_to_isinstance() -> None:
    iterator = iter(DataLoader(range(2), num_workers=1))
    assert isinstance(iterator, _MultiProcessingDataLoaderIter)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_functions_may_be_lambdas(method: str) -> None:
    """Under spawn torch cannot send them."""
    loader = DataLoader(
        MapDataset(lambda index: index + 1, 4),
        batch_size=2,
        num_workers=1,
        collate_fn=lambda batch: sum(batch) + 0,
        worker_init_fn=lambda worker_id: None,
        multiprocessing_context=method,
    )
    assert list(loader) == [3, 7]


def test_a_dataset_that_cannot_be_pickled_is_named_by_the_path_to_the_culprit() -> None:
    """NotPicklable is a TypeError."""
    dataset = MapDataset(same)
    dataset.inner = MapDataset(_Unpicklable())  # type: ignore[attr-defined, arg-type]
    with pytest.raises(NotPicklable, match=r"dataset\.inner\.function"):
        next(iter(DataLoader(dataset, num_workers=1, multiprocessing_context="spawn")))
    assert issubclass(NotPicklable, TypeError)


@pytest.mark.parametrize("value", ["teleport", "", 3], ids=repr)
def test_an_unknown_backend_is_a_value_error_that_names_the_argument(value: Any) -> None:
    with pytest.raises(ValueError, match="backend"):
        DataLoader(range(3), backend=value)


def test_backend_and_shuffle_are_kept_as_attributes() -> None:
    """Lightning rebuilds a loader from attributes named like the arguments."""
    loader = DataLoader(range(3), shuffle=True)
    assert (loader.backend, loader.shuffle) == (None, True)
    with pytest.raises(TypeError):
        DataLoader(range(3), 1, None, None, None, 0, None, False, False, 0, None, None, None, None)  # type: ignore[misc]


@pytest.mark.parametrize("persistent", [False, True], ids=["", "persistent"])
def test_close_ends_the_workers_now(persistent: bool) -> None:
    """Though the iterator lives; twice is no mistake; a new epoch starts new workers."""
    before = snapshot()
    loader = DataLoader(range(8), num_workers=2, persistent_workers=persistent)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    leaks = leaks_since(before)
    assert not leaks.processes, str(leaks)
    loader.close()
    assert [int(batch) for batch in loader] == list(range(8))
    loader.close()


def test_a_loader_is_a_context_manager() -> None:
    before = snapshot()
    with DataLoader(range(8), num_workers=2) as loader:
        iterator = iter(loader)
        assert int(next(iterator)) == 0
    leaks = leaks_since(before)
    assert not leaks.processes, str(leaks)


def test_holdfast_disable_gives_torchs_iterator_and_one_warning() -> None:
    """HOLDFAST_DISABLE=1, with our arguments ignored. The warning points at the line that asks for an iterator."""
    program = subprocess.run(
        [sys.executable, str(PROGRAMS / "disabled.py")],
        capture_output=True,
        text=True,
        timeout=PROGRAM_DEADLINE_S,
        env={**os.environ, "HOLDFAST_DISABLE": "1"},
        check=False,
    )
    assert (program.stderr, program.returncode) == ("", 0)
    said = json.loads(program.stdout)
    assert said["iterators"] == ["_MultiProcessingDataLoaderIter"] * 2
    assert said["batches"] == [[0, 1], [2, 3], [4, 5]]
    warned = [(kind, filename) for kind, text, filename in said["warnings"] if "will create" not in text]
    assert warned == [("HoldfastWarning", str(PROGRAMS / "disabled.py"))]
