"""The record that a loader keeps of its run: what is in it after a crash, a kill, a copy, an epoch or three.

The file itself (bounds, torn lines, who may read it) is tested in unit/test_records_*.py.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import pickle
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from helpers import DiesAlways, Numbers, Program, Stream, run_program, worker_pids
from holdfast import DataLoader, HoldfastWarning, Incident, WorkerCrashed
from holdfast.loader.run import RunRecord
from holdfast.records import home as records_home
from holdfast.records import reader
from holdfast.records.limits import Limits
from holdfast.records.reader import Run
from holdfast.workers import stages

pytestmark = pytest.mark.timeout(120)

SECRET = "hunter2-4711"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of records for each test."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def runs() -> list[Run]:
    """All that were recorded, the oldest first."""
    gc.collect()  # a loader that raised may be part of a cycle
    return [*reader.all_runs()][::-1]


def the_run() -> Run:
    (run,) = runs()
    assert run.damaged_lines == 0
    return run


def test_a_run_with_a_crash_has_a_start_its_incidents_and_an_end() -> None:
    """What `loader.incidents` says, on disk; and each incident knows where it is written."""
    loader = DataLoader(DiesAlways(40, 17, "SIGSEGV"), 4, num_workers=2, on_error="skip")
    batches = list(loader)
    loader.close()
    run = the_run()
    facts = {"num_workers": 2, "start_method": "fork", "batch_size": 4, "dataset": "DiesAlways", "dataset_length": 40}
    assert run.start.items() >= {**facts, "rank": None, "world_size": None, "pid": os.getpid()}.items()
    assert [incident.id for incident in loader.incidents] == [f"{run.id}.1", f"{run.id}.2"]
    told = [(entry["number"], entry["cause"], entry["sample_index"], entry["done"]) for entry in run.incidents]
    assert told == [(1, "segmentation fault", 17, "retried"), (2, "segmentation fault", 17, "skipped")]
    assert [Incident.from_json(entry) for entry in run.incidents] == list(loader.incidents)
    assert run.end is not None
    counted = {"incidents": 2, "batches": 10, "samples": 39, "restarts": 2, "skipped": 1}
    assert run.end.items() >= counted.items()
    assert (sum(map(len, batches)), loader.stats().samples, loader.stats().skipped) == (39, 39, 1)


def test_an_error_carries_the_id_of_its_incident() -> None:
    """For whoever catches it, and looks the rest up."""
    with DataLoader(DiesAlways(8, 3, "exit"), 4, num_workers=1) as loader, pytest.raises(WorkerCrashed) as caught:
        list(loader)
    assert caught.value.incident is loader.incidents[-1]
    assert caught.value.incident.id == f"{the_run().id}.2"
    assert f"holdfast replay {the_run().id}.2   load this sample alone" in str(caught.value)
    assert str(caught.value).endswith(f"holdfast report {the_run().id}")


def test_after_a_kill_of_the_main_process_the_record_is_there_without_an_end(home: Path) -> None:
    """Nobody could write it: that is how it is told from a run that ended."""
    with Program("stay_in_epoch.py", "fork", "idle") as program:
        program.wait_for_lines("ready")
        assert the_run().is_alive
        program.process.kill()
        program.wait_until_nothing_is_left()
        assert program.wait() == -signal.SIGKILL
    run = the_run()
    assert (run.start["pid"], run.start["dataset"]) == (program.process.pid, "Stuck")
    assert (run.end, run.is_alive) == (None, False)


def test_at_the_end_of_the_interpreter_the_record_is_ended() -> None:
    """Of a loader that is still in use then."""
    run_program("leave_epoch.py", "fork", "end_of_script")
    run = the_run()
    assert run.end is not None
    assert run.end["batches"] > 0


@pytest.mark.parametrize(
    ("name", "value"), [("HOLDFAST_DISABLE", "1"), ("HOLDFAST_DIAGNOSIS", "0"), ("HOLDFAST_HOME", os.devnull)]
)
@pytest.mark.parametrize("workers", [0, 1])
def test_nothing_is_written_where_it_is_switched_off(
    monkeypatch: pytest.MonkeyPatch, home: Path, name: str, value: str, workers: int
) -> None:
    """For all loaders of a process, with workers or without."""
    monkeypatch.setenv(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HoldfastWarning)  # that it is disabled
        assert len(list(DataLoader(Numbers(8), 4, num_workers=workers))) == 2
    assert not home.exists()


def test_without_diagnosis_a_crash_is_still_got_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is less well explained, and says why."""
    monkeypatch.setenv("HOLDFAST_DIAGNOSIS", "0")
    with DataLoader(DiesAlways(40, 17, "exit"), 4, num_workers=2, on_error="skip") as loader:
        assert sum(map(len, loader)) == 39
    assert "HOLDFAST_DIAGNOSIS=0" in loader.incidents[0].evidence
    assert [incident.id for incident in loader.incidents] == ["", ""]


@pytest.mark.parametrize("workers", [0, 1])
def test_with_record_false_nothing_is_written(home: Path, workers: int) -> None:
    """Of this loader. Its incidents have no id then."""
    loader = DataLoader(Raising(8), 4, num_workers=workers, on_error="skip", record=False)
    assert (loader.record, sum(map(len, loader))) == (False, 7)
    assert [incident.id for incident in loader.incidents] == [""]
    assert not home.exists()


def test_two_loaders_have_two_records() -> None:
    """Also at the same time, as for training and validation."""
    loaders = [DataLoader(Numbers(length), 4, num_workers=1) for length in (8, 16)]
    for _ in zip(*loaders, strict=False):
        pass
    assert [run.start["dataset_length"] for run in runs()] == [8, 16]


@pytest.mark.parametrize("persistent", [False, True])
def test_all_epochs_of_a_loader_are_one_run(persistent: bool) -> None:
    """With the same workers or with new ones."""
    loader = DataLoader(Numbers(8), 4, num_workers=1, persistent_workers=persistent)
    for _ in range(3):
        list(loader)
    assert the_run().end is None
    loader.close()
    run = the_run()
    assert run.end is not None
    assert (run.end["batches"], run.end["samples"]) == (6, 24)


def test_nothing_is_written_before_the_first_iterator_nor_by_a_loader_that_has_none(home: Path) -> None:
    """A loader may be made for its length only."""
    loader = DataLoader(Numbers(8), 4, num_workers=1)
    assert len(loader) == 2
    loader.close()
    assert not home.exists()


def test_a_loader_that_is_closed_and_used_again_begins_another_run() -> None:
    """What the loader has counted goes on; a record has what was counted in its run."""
    loader = DataLoader(Numbers(8), 4, num_workers=1)
    for _ in range(2):
        with loader:
            list(loader)
    assert [run.end["batches"] for run in runs() if run.end] == [2, 2]
    assert loader.stats().batches == 4


def test_a_run_lasts_as_long_as_an_iterator_does() -> None:
    """`iter(DataLoader(...))`: the loader is gone at once, and its run goes on."""
    iterator = iter(DataLoader(Numbers(8), 4, num_workers=1))
    next(iterator)
    assert the_run().end is None
    del iterator
    assert the_run().end is not None


def test_without_workers_there_is_a_record_too() -> None:
    """torch's own iterator counts nothing, and nothing is claimed of it; ours does."""
    list(DataLoader(Raising(8, bad=-1), 4))
    list(DataLoader(Raising(8), 4, on_error="skip"))
    torchs, ours = runs()
    assert torchs.end is not None
    assert ours.end is not None
    assert "batches" not in torchs.end
    assert (ours.end["batches"], ours.end["samples"], ours.end["skipped"]) == (2, 7, 1)
    assert [entry["sample_index"] for entry in ours.incidents] == [5]
    assert torchs.start["start_method"] is ours.start["start_method"] is None


def test_elements_of_an_iterable_are_counted_as_they_come() -> None:
    """The last batch of each worker is smaller than the others."""
    with DataLoader(Stream(11), 4, num_workers=2) as loader:
        assert sum(map(len, loader)) == loader.stats().samples == 11


@pytest.mark.parametrize("workers", [0, 1])
def test_readings_are_taken_while_batches_are_asked_for(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    """Rates, and the memory of each worker."""
    begin = RunRecord.open
    monkeypatch.setattr(RunRecord, "open", lambda facts: begin(facts, Limits(interval_s=1e-6)))
    with DataLoader(Raising(400, bad=-1), 4, num_workers=workers, rng="sample") as loader:
        iterator = iter(loader)
        pids = worker_pids(iterator) if workers else []
        assert len(list(iterator)) == 100
    readings = the_run().readings
    assert [entry["batches"] for entry in readings] == sorted(entry["batches"] for entry in readings)
    last = readings[-1]
    assert last["samples"] == 4 * last["batches"] > 0
    assert [worker[0] for worker in last["workers"]] == pids
    assert all(resident > 1 << 20 for _, resident, _, _ in last["workers"])
    assert last["main"][0] > 1 << 20


SLOW_S = 0.5
"""Longer than a busy machine makes others wait, mostly."""


class Slow(Dataset[torch.Tensor]):
    """Sample 33 takes half a second, the others a millisecond."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(SLOW_S if index == 33 else 0.001)
        return torch.tensor(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_where_the_time_went_and_the_slowest_samples_are_told(workers: int) -> None:
    """By `stats()`, and by the last line, with workers or without; over epochs whose workers are others."""
    loader = DataLoader(Slow(), 4, num_workers=workers, rng="sample")
    for _ in range(2):
        list(loader)
    stats = loader.stats()
    loader.close()
    assert stats.stages.fetch_s > 2 * SLOW_S
    assert stats.stages.collate_s > 0
    assert (stats.stages.send_s > 0) == bool(workers)
    assert (stats.slowest[0].index, len(stats.slowest)) == (33, 10)
    assert stats.slowest[0].seconds >= SLOW_S
    assert (stats.slowest[0].worker_id is None) == (not workers)
    end = the_run().end
    assert end is not None
    assert end["stages"]["fetch_s"] == pytest.approx(stats.stages.fetch_s, abs=0.001)
    assert [one[0] for one in end["slowest"]] == [one.index for one in stats.slowest]


def test_the_first_batch_of_a_later_epoch_is_timed_too() -> None:
    """A worker that goes on knows from the epoch before that its samples take long."""
    with DataLoader(Slow(), 4, sampler=range(32, 44), num_workers=1, persistent_workers=True) as loader:
        for _ in range(2):
            list(loader)
        assert 33 in [one.index for one in loader.stats().slowest]


def test_tiny_samples_are_not_timed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would cost more than they do. (What is tiny is said here: a busy machine may make any sample take long.)"""
    monkeypatch.setattr(stages, "WORTH_TIMING_NS", 10**12)
    with DataLoader(Numbers(400), 40, num_workers=1) as loader:
        list(loader)
        assert loader.stats().slowest == ()
        assert loader.stats().stages.fetch_s > 0


def test_a_copy_of_a_loader_at_work_has_its_counts_and_not_its_workers() -> None:
    """What is measured by the workers goes on with the one that has them."""
    with DataLoader(Numbers(64), 4, num_workers=1) as loader:
        iterator = iter(loader)
        next(iterator)
        other = pickle.loads(pickle.dumps(loader))
        assert (other.stats().batches, other.stats().memory.workers_bytes) == (1, ())
        [nbytes] = loader.stats().memory.workers_bytes
        assert nbytes > 1 << 20
        del iterator


def test_what_was_skipped_and_which_workers_came_and_went_is_in_the_record() -> None:
    """Each sample with its reason; each process with why it started and ended, over two epochs."""
    loader = DataLoader(DiesAlways(16, 5, "exit"), 4, num_workers=1, on_error="replace", memory_limit="8GB")
    for _ in range(2):
        list(loader)
    loader.close()
    run = the_run()
    assert (run.start["on_error"], run.start["memory_limit_bytes"]) == ("replace", 8 * 10**9)
    told = [(one["epoch"], one["index"], one["replaced_by"]) for one in run.skipped]
    assert told == [(one.epoch, one.index, one.replaced_by) for one in loader.skipped_samples]
    assert [index for _, index, _ in told] == [5, 5]
    lives = [(one["event"], one["why"]) for one in run.workers]
    first = [("started", "first"), ("ended", "died"), ("started", "restart"), ("ended", "died"), ("started", "restart")]
    assert lives == [*first, ("ended", "done"), ("started", "epoch"), ("ended", "done")]
    assert len({one["pid"] for one in run.workers}) == 4


def test_a_worker_that_is_recycled_is_told_from_one_that_died() -> None:
    """It was to end, and another took its place."""
    with DataLoader(Numbers(32), 4, num_workers=1, recycle_after=4) as loader:
        list(loader)
    lives = [(one["event"], one["why"]) for one in the_run().workers]
    assert lives[:3] == [("started", "first"), ("ended", "recycled"), ("started", "recycled")]


# --- what is not in it --------------------------------------------------------------------------------------------


class Raising(Dataset[torch.Tensor]):
    """Sample i is i; one of them raises."""

    def __init__(self, length: int, bad: int = 5) -> None:
        self.length, self.bad = length, bad

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.bad:
            raise ValueError("bad")
        return torch.tensor(index)


class Secretive:
    """An index that holds a sample, and shows it."""

    def __repr__(self) -> str:
        return SECRET


class SecretSamples(Dataset[str]):
    def __init__(self) -> None:
        self.secret = SECRET

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: Any) -> str:
        if isinstance(index, Secretive):
            os.kill(os.getpid(), signal.SIGKILL)
        return self.secret


def test_neither_samples_nor_environment_are_in_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor the repr of an index that is an object."""
    monkeypatch.setenv("API_TOKEN", SECRET)
    loader = DataLoader(SecretSamples(), 1, sampler=[0, Secretive(), 2], num_workers=1, on_error="skip")
    assert [*loader] == [[SECRET], [SECRET]]
    loader.close()
    run = the_run()
    assert SECRET not in run.path.read_text()
    assert {entry["sample_index"] for entry in run.incidents} == {"<Secretive>"}


# --- where it cannot be written, and who does not write ---------------------------------------------------------------


def test_a_home_that_cannot_be_written_is_warned_of_once_and_training_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file in its place: what permissions forbid, root may."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(records_home, "_has_warned", False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", HoldfastWarning)
        for _ in range(2):
            with DataLoader(Raising(8), 4, num_workers=1, on_error="skip") as loader:
                assert [sum(map(len, loader)) for _ in range(2)] == [7, 7]
            assert [incident.id for incident in loader.incidents] == [""]
    assert [str(one.message).split(",")[0] for one in said] == ["this run is not recorded"]


class Nested(Dataset[int]):
    """Its samples come from a loader in the worker."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return sum(len(batch) for batch in DataLoader(Numbers(8), 4))


def test_a_loader_in_a_worker_writes_nothing() -> None:
    """One run, one record."""
    with DataLoader(Nested(), 2, num_workers=2) as loader:
        assert [batch.tolist() for batch in loader] == [[8, 8], [8, 8]]
    assert the_run().start["dataset"] == "Nested"


def _pickled(loader: Any) -> Any:
    return pickle.loads(pickle.dumps(loader))


@pytest.mark.parametrize("copied", [_pickled, copy.deepcopy])
def test_a_copy_of_a_loader_has_a_run_of_its_own(copied: Callable[[Any], Any]) -> None:
    """Begun when it is used; the record of the first is not its own."""
    first = DataLoader(Numbers(8), 4, num_workers=1)
    list(first)
    second = copied(first)
    assert len(runs()) == 1
    list(second)
    second.close()
    assert [run.end is not None for run in runs()] == [False, True]
    first.close()
    assert all(run.end is not None for run in runs())


def test_a_forked_child_writes_nothing_into_the_record() -> None:
    """Its copy of the loader knows no record, and ends none."""
    loader = DataLoader(Numbers(8), 4, num_workers=1)
    list(loader)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            loader._ledger.note(Incident("hang", "restarted"))
            loader.close()
        os._exit(0)
    os.waitpid(child, 0)
    run = the_run()
    assert (run.incidents, run.end, run.is_alive) == ((), None, True)
