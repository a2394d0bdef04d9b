"""What is tried again and how often, what is never passed over, and when it is too much."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, SequentialSampler, default_collate

from faulty import Fault
from helpers import PATIENCE_S, Numbers, wait_until, worker_pids
from holdfast import DataLoader, TooManyRestarts, TooManySkipped, WorkerCrashed
from holdfast.diagnosis import inquiry
from holdfast.diagnosis.evidence import Diagnosis, Evidence
from records import Asked, AskedStream, Calls, flat, has_finished, stubborn

pytestmark = pytest.mark.timeout(90)

LENGTH = 12
BAD = 5
PLAIN: dict[str, Any] = {"batch_size": 2, "num_workers": 2}
OFFLINE = OSError(errno.EIO, "the file server is away")


# -- retry_on ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", [Asked, AskedStream])
def test_an_error_of_retry_on_that_goes_away_costs_nothing(kind: Any, num_workers: int, tmp_path: Path) -> None:
    """The sample is asked for again, and is in its place; the incident says so."""
    dataset = kind(LENGTH, Calls(tmp_path / "calls"), {BAD: OFFLINE}, times=2)
    with DataLoader(dataset, 2, num_workers=num_workers, retry_on=(OSError,), max_retries=2) as loader:
        assert sorted(flat(loader)) == list(range(LENGTH))
        incident, *others = loader.incidents
        assert (incident.done, others, loader.skipped_samples) == ("retried", [], [])
        assert "OSError" in incident.summary
    assert Calls(tmp_path / "calls").counts()[str(BAD)] == 3


@pytest.mark.parametrize("max_retries", [0, 1, 3])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_of_retry_on_is_tried_max_retries_times_more(
    max_retries: int, num_workers: int, tmp_path: Path
) -> None:
    """Then it is handled as on_error says."""
    dataset = Asked(LENGTH, Calls(tmp_path / "calls"), {BAD: OFFLINE})
    options: dict[str, Any] = {"num_workers": num_workers, "retry_on": (OSError,), "max_retries": max_retries}
    with DataLoader(dataset, 2, **options) as loader, pytest.raises(OSError, match="file server"):
        list(loader)
    assert dataset.calls.counts()[str(BAD)] == 1 + max_retries


def test_an_error_that_is_not_of_retry_on_is_not_tried_again(tmp_path: Path) -> None:
    """ValueError is not OSError."""
    dataset = Asked(LENGTH, Calls(tmp_path / "calls"), {BAD: ValueError("broken")})
    with DataLoader(dataset, **PLAIN, retry_on=(OSError,), max_retries=3, on_error="skip") as loader:
        assert flat(loader) == [index for index in range(LENGTH) if index != BAD]
    assert dataset.calls.counts()[str(BAD)] == 1


@pytest.mark.parametrize("max_retries", [0, 1, 2])
def test_a_sample_that_kills_its_worker_is_tried_max_retries_times_more(max_retries: int, tmp_path: Path) -> None:
    """So many attempts, so many incidents, then it is skipped."""
    dataset = _Deadly(LENGTH, Calls(tmp_path / "calls"))
    with DataLoader(dataset, **PLAIN, on_error="skip", max_retries=max_retries) as loader:
        assert flat(loader) == [index for index in range(LENGTH) if index != BAD]
        assert [incident.done for incident in loader.incidents] == ["retried"] * max_retries + ["skipped"]
        assert {incident.sample_index for incident in loader.incidents} == {BAD}
    assert dataset.calls.counts()[str(BAD)] == 1 + max_retries


class _Deadly(Asked):
    def __init__(self, length: int, calls: Calls) -> None:
        super().__init__(length, calls, {})

    def __getitem__(self, index: int) -> torch.Tensor:
        sample = super().__getitem__(index)
        if index == BAD:
            os.kill(os.getpid(), signal.SIGSEGV)
        return sample


# -- errors that are nobody's sample -----------------------------------------------------------------------------------

PROGRAMMING_ERRORS = [kind("not the sample") for kind in (MemoryError, ImportError, NameError, NotImplementedError)]


@pytest.mark.parametrize("error", PROGRAMMING_ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_errors_of_machine_and_program_are_raised_under_every_setting(
    error: Exception, on_error: Any, num_workers: int, tmp_path: Path
) -> None:
    """Nothing is passed over because of them; the iterator goes on with the next batch."""
    dataset = Asked(LENGTH, Calls(tmp_path / "calls"), {BAD: error})
    with DataLoader(dataset, 2, num_workers=num_workers, on_error=on_error) as loader:
        outcomes = stubborn(iter(loader))
        assert loader.skipped_samples == []
    assert type(outcomes[BAD // 2]) is type(error)
    del outcomes[BAD // 2]
    assert outcomes == [[index, index + 1] for index in range(0, LENGTH, 2) if index != BAD - 1]


@pytest.mark.parametrize("error", PROGRAMMING_ERRORS, ids=lambda error: type(error).__name__)
def test_errors_of_machine_and_program_may_be_listed_in_retry_on(error: Exception, tmp_path: Path) -> None:
    """Then they are treated as any other: tried again, and skipped."""
    dataset = Asked(LENGTH, Calls(tmp_path / "calls"), {BAD: error})
    with DataLoader(dataset, **PLAIN, on_error="skip", retry_on=(type(error),)) as loader:
        assert flat(loader) == [index for index in range(LENGTH) if index != BAD]
    assert dataset.calls.counts()[str(BAD)] == 2


@pytest.mark.parametrize("num_workers", [0, 2])
def test_stop_iteration_from_a_sample_does_not_end_the_epoch(num_workers: int, tmp_path: Path) -> None:
    """It is a RuntimeError of that sample: skipped, and the rest is delivered."""
    dataset = Asked(LENGTH, Calls(tmp_path / "calls"), {BAD: StopIteration()})
    with DataLoader(dataset, 2, num_workers=num_workers, on_error="skip") as loader:
        assert flat(loader) == [index for index in range(LENGTH) if index != BAD]
        assert "StopIteration" in loader.skipped_samples[0].reason


# -- collate_fn --------------------------------------------------------------------------------------------------------


class _Collate:
    def __init__(self, fault: Fault, calls: Calls) -> None:
        self.fault, self.calls = fault, calls

    def __call__(self, samples: list[torch.Tensor]) -> torch.Tensor:
        batch: torch.Tensor = default_collate(samples)
        if BAD in batch:
            self.calls.note("collate")
            self.fault.strike()
        return batch


@pytest.mark.parametrize("how", ["exception", "SIGSEGV", "os._exit"])
@pytest.mark.parametrize("max_retries", [0, 2])
def test_a_batch_that_cannot_be_collated_is_retried_and_then_listed_whole(
    how: str, max_retries: int, tmp_path: Path
) -> None:
    """All its samples are skipped, with the reason; none of them is known to be bad, so the next epoch tries again."""
    collate = _Collate(Fault(how, False, tmp_path / "struck", os.getpid()), Calls(tmp_path / "calls"))
    dataset = Asked(LENGTH, Calls(tmp_path / "samples"), {})
    with DataLoader(dataset, 4, num_workers=2, collate_fn=collate, on_error="skip", max_retries=max_retries) as loader:
        for epoch in (1, 2):
            assert flat(loader) == [0, 1, 2, 3, 8, 9, 10, 11]
            assert [sample.index for sample in loader.skipped_samples] == epoch * [4, 5, 6, 7]
            assert collate.calls.counts()["collate"] == epoch * (1 + max_retries)
        assert all("batch" in sample.reason for sample in loader.skipped_samples)


def test_a_batch_that_cannot_be_collated_is_replaced_whole(tmp_path: Path) -> None:
    """Sizes and counts stay the same."""
    collate = _Collate(Fault("exception", False, tmp_path / "struck", os.getpid()), Calls(tmp_path / "calls"))
    with DataLoader(Numbers(LENGTH, 1), 4, num_workers=2, collate_fn=collate, on_error="replace") as loader:
        delivered = flat(loader)
    assert len(delivered) == LENGTH
    assert delivered[:4] + delivered[8:] == [0, 1, 2, 3, 8, 9, 10, 11]
    assert not {4, 5, 6, 7} & set(delivered[4:8])


class _DiesOfLists(Numbers):
    """Each sample can be loaded alone; the batch of sample 5 ends the process that loads it."""

    def __getitem__(self, index: Any) -> torch.Tensor:
        if len(index) > 1 and BAD in index:
            os._exit(3)
        return torch.tensor(index)


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_a_batch_that_kills_only_as_a_whole_is_one_bad_batch(on_error: Any) -> None:
    """batch_size=None, and a list of indices for each: after each was loaded alone it is not tried for ever."""
    sampler = BatchSampler(SequentialSampler(range(LENGTH)), 4, drop_last=False)
    dataset = _DiesOfLists(LENGTH)
    with DataLoader(dataset, None, sampler=sampler, num_workers=2, on_error=on_error) as loader:
        outcomes = stubborn(iter(loader))
        listed = [sample.index for sample in loader.skipped_samples]
    assert (outcomes[0], outcomes[-1]) == ([0, 1, 2, 3], [8, 9, 10, 11])
    assert listed == ([] if on_error == "raise" else [4, 5, 6, 7])
    if on_error == "skip":
        assert len(outcomes) == 2
    elif on_error == "raise":
        assert isinstance(outcomes[1], WorkerCrashed)
        assert "[4, 5, 6, 7]" in str(outcomes[1])
    else:
        assert len(outcomes[1]) == 4
        assert not {4, 5, 6, 7} & set(outcomes[1])


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_large_batch_without_its_bad_samples_reaches_its_worker(on_error: Any) -> None:
    """Each sample has a place of its own then, and ten thousand places are more than a message takes."""
    with DataLoader(_Large(20_000), 10_000, num_workers=1, on_error=on_error) as loader:
        for _ in range(2):  # in the second it is known to be bad
            sizes = [len(batch) for batch in loader]
            assert sizes == [10_000 - (on_error == "skip"), 10_000]
        assert list({incident.sample_index for incident in loader.incidents}) == [BAD]


class _Large(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == BAD:
            raise ValueError("broken")
        return torch.tensor(index)


# -- too much ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(("max_skipped", "allowed"), [(2, 2), (0, 0), (0.25, 3), (0.0, 0), (1.0, LENGTH - 1)])
def test_more_than_max_skipped_is_too_many(
    max_skipped: int | float, allowed: int, num_workers: int, tmp_path: Path
) -> None:
    """A number, or a share of the epoch: so many are passed over, one more ends the epoch. Each epoch counts anew."""
    for count, is_too_many in [(allowed, False), (allowed + 1, True)]:
        errors: dict[int, BaseException] = {index: ValueError("broken") for index in range(min(count, LENGTH))}
        dataset = Asked(LENGTH, Calls(tmp_path / "calls"), errors)
        with DataLoader(dataset, 3, num_workers=num_workers, on_error="skip", max_skipped=max_skipped) as loader:
            if is_too_many and count <= LENGTH:
                with pytest.raises(TooManySkipped, match=r"max_skipped"):
                    list(loader)
            else:
                for _ in range(2):
                    assert flat(loader) == list(range(len(errors), LENGTH))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", [Asked, AskedStream])
def test_after_too_many_every_later_next_says_so(kind: Any, num_workers: int, tmp_path: Path) -> None:
    """Nobody can go on by accident with an epoch that is over; the next epoch counts anew."""
    dataset = kind(LENGTH, Calls(tmp_path / "calls"), {0: ValueError("broken")})
    with DataLoader(dataset, 2, num_workers=num_workers, on_error="skip", max_skipped=0) as loader:
        iterator = iter(loader)
        for _ in range(3):
            with pytest.raises(TooManySkipped, match=r"^1 sample of") as caught:
                next(iterator)
        assert caught.value.incident is loader.incidents[-1]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("where", ["sample", "batch"])
def test_the_one_that_was_too_many_is_an_incident_as_well(where: str, num_workers: int) -> None:
    dataset = Numbers(6, 1) if where == "batch" else _RaisesAtOnce()
    collate_fn = _refuse if where == "batch" else None
    with (
        DataLoader(
            dataset, 2, num_workers=num_workers, collate_fn=collate_fn, on_error="skip", max_skipped=0, max_retries=0
        ) as loader,
        pytest.raises(TooManySkipped) as caught,
    ):
        list(loader)
    assert caught.value.incident is loader.incidents[-1]
    assert "ValueError" in loader.incidents[-1].summary + loader.incidents[-1].because


def test_a_worker_that_died_of_one_too_many_is_an_incident_as_well() -> None:
    with (
        DataLoader(_DiesAtOnce(), 2, num_workers=1, on_error="skip", max_skipped=0, max_retries=0) as loader,
        pytest.raises(TooManySkipped) as caught,
    ):
        list(loader)
    assert caught.value.incident is loader.incidents[-1]
    assert loader.incidents[-1].sample_index == 0


def test_persistent_workers_that_were_given_up_are_new_in_the_next_epoch() -> None:
    """As without `persistent_workers`: an epoch that had too many does not spoil the next."""
    sampler = [0, 1, 2]
    options: dict[str, Any] = {"on_error": "skip", "max_skipped": 0, "persistent_workers": True}
    with DataLoader(_RaisesAtOnce(), 2, sampler=sampler, num_workers=1, **options) as loader:
        with pytest.raises(TooManySkipped):
            list(loader)
        sampler.remove(0)
        assert flat(loader) == flat(loader) == [1, 2]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_samples_that_can_be_loaded_alone_but_not_together_leave_an_incident(num_workers: int) -> None:
    with DataLoader(_OnlyAlone(4, 1), 2, num_workers=num_workers, on_error="skip") as loader:
        assert flat(loader) == list(range(4))
    assert [(incident.done, incident.sample_index, incident.batch) for incident in loader.incidents] == [
        ("retried", None, 0),
        ("retried", None, 1),
    ]
    assert not loader.skipped_samples


class _OnlyAlone(Numbers):
    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        if len(indices) > 1:
            raise ValueError("one at a time")
        return [self[index] for index in indices]


def _refuse(samples: Any) -> Any:
    raise ValueError("no batch")


class _RaisesAtOnce(Numbers):
    def __init__(self) -> None:
        super().__init__(6, 1)

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 0:
            raise ValueError("broken")
        return super().__getitem__(index)


class _DiesAtOnce(Numbers):
    def __init__(self) -> None:
        super().__init__(6, 1)

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 0:
            os._exit(3)
        return super().__getitem__(index)


@pytest.mark.parametrize("max_restarts", [0, 2])
def test_more_deaths_between_samples_than_max_restarts_are_too_many(max_restarts: int) -> None:
    """Killed while it waits for work: so often it is restarted, and the epoch is whole; once more is too much."""
    with DataLoader(Numbers(10_000, 1), 1, num_workers=1, max_restarts=max_restarts) as loader:
        iterator = iter(loader)
        index = -1
        for _ in range(max_restarts):
            index = _kill_the_idle_worker(iterator, loader, index)
        assert len(loader.incidents) == max_restarts
        with pytest.raises(TooManyRestarts, match=f"max_restarts={max_restarts}"):
            _kill_the_idle_worker(iterator, loader, index)
        with pytest.raises(TooManyRestarts):  # by this and every later next()
            next(iterator)


def _kill_the_idle_worker(iterator: Any, loader: DataLoader[torch.Tensor], index: int) -> int:
    """Kill it when it has done what it was given, and read until that was noticed. Returns the last sample read."""
    index += 1
    assert int(next(iterator)) == index
    before = len(loader.incidents)
    wait_until(lambda: has_finished(iterator, 0), PATIENCE_S, "an idle worker")
    os.kill(worker_pids(iterator)[0], signal.SIGKILL)
    while len(loader.incidents) == before:
        index += 1
        assert int(next(iterator)) == index
    return index


@pytest.mark.long
@pytest.mark.usefixtures("stops_count_soon")
def test_a_worker_that_is_stopped_again_and_again_ends_in_an_error(tmp_path: Path) -> None:
    """The first stop is nobody's doing, and counts against max_restarts, which is 0 here."""
    fault = Fault("SIGSTOP", False, tmp_path / "struck", os.getpid())
    loader = DataLoader(_Struck(fault), **PLAIN, max_restarts=0, on_error="skip")
    with loader, pytest.raises(TooManyRestarts):
        list(loader)


class _Struck(Numbers):
    def __init__(self, fault: Fault) -> None:
        super().__init__(LENGTH, 1)
        self.fault = fault

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == BAD:
            self.fault.strike()
        return super().__getitem__(index)


def test_a_raised_batch_is_not_known_to_be_bad(tmp_path: Path) -> None:
    """With on_error="raise" the next epoch tries the sample again, and has it if it can be loaded by then."""
    fault = Fault("SIGSEGV", False, tmp_path / "struck", os.getpid())
    with DataLoader(_Struck(fault), **PLAIN) as loader:
        assert [type(outcome) for outcome in stubborn(iter(loader))].count(WorkerCrashed) == 1
        loader.dataset.fault = Fault("exception", True, tmp_path / "struck", os.getpid())
        assert flat(loader) == list(range(LENGTH))


# -- what killed it is found out while its replacement works -----------------------------------------------------------


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
@pytest.mark.parametrize("where", ["sample", "collate"])
def test_a_diagnosis_does_not_delay_the_replacement(
    where: str, on_error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends only when the replacement has loaded what its predecessor had left."""
    loaded = tmp_path / "loaded"
    waits: list[bool] = []

    def diagnose(evidence: Evidence) -> Diagnosis:
        wait_until(loaded.exists, PATIENCE_S, "the replacement to load")
        waits.append(True)
        return real(evidence)

    real = inquiry.diagnose
    monkeypatch.setattr(inquiry, "diagnose", diagnose)
    dataset, collate_fn = _LeavesMark(loaded, dies=where == "sample"), _die_of_two if where == "collate" else None
    options: dict[str, Any] = {"on_error": on_error, "max_retries": 0, "collate_fn": collate_fn}
    with DataLoader(dataset, 1, num_workers=1, prefetch_factor=8, **options) as loader:
        iterator = iter(loader)
        if on_error == "raise":
            assert [next(iterator).tolist(), next(iterator).tolist()] == [[[0]], [[1]]]
            with pytest.raises(WorkerCrashed) as caught:
                next(iterator)
            assert caught.value.incident is loader.incidents[-1]
        assert len(list(iterator)) == {"raise": 3, "skip": 5, "replace": 6}[on_error]
    assert waits


def test_an_interrupt_while_a_death_is_looked_into_loses_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, caught by the training program: the batch is then delivered as what killed it, with its incident."""
    interrupted: list[bool] = []

    def diagnose(evidence: Evidence) -> Diagnosis:
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        return real(evidence)

    real = inquiry.diagnose
    monkeypatch.setattr(inquiry, "diagnose", diagnose)
    delivered, crashes = [], []
    with DataLoader(_LeavesMark(tmp_path / "loaded", dies=True), 1, num_workers=1, max_retries=0) as loader:
        iterator = iter(loader)
        for _ in range(8):
            try:
                delivered += next(iterator).tolist()
            except WorkerCrashed as error:
                crashes.append(error)
            except KeyboardInterrupt:
                continue
            except StopIteration:
                break
    assert interrupted
    assert delivered == [[0], [1], [3], [4], [5]]
    (crash,) = crashes
    assert "exited with status 3 while loading sample 2" in str(crash)
    assert crash.incident in list(loader.incidents)


class _LeavesMark(Numbers):
    """Sample 2 is fatal where it `dies`; sample 3 leaves a file."""

    def __init__(self, mark: Path, *, dies: bool) -> None:
        super().__init__(6, 1)
        self.mark = mark
        self.dies = dies

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 2 and self.dies:
            os._exit(3)
        if index == 3:
            self.mark.touch()
        return super().__getitem__(index)


def _die_of_two(samples: list[torch.Tensor]) -> torch.Tensor:
    if samples[0] == 2:
        os._exit(3)
    return torch.stack(samples)
