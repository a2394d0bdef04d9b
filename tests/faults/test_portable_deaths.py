"""Workers of the portable backend that die, hang or raise: what is loaded again, what is passed over, what is said.

That nothing is left (processes, descriptors, names in /dev/shm, threads) is checked after every test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers import (
    PATIENCE_S,
    DiesAlways,
    DiesOnce,
    Numbers,
    Stream,
    die,
    wait_until,
    worker_pids,
)
from holdfast import DataLoader, WorkerCrashed, WorkerInitError, WorkerTimeout
from portably import BATCH_SIZE, BATCHES, LENGTH, Random, check_batch, portable, spare_of, whole

pytestmark = [pytest.mark.timeout(120), pytest.mark.long]


def test_an_epoch_survives_the_killing_of_each_worker() -> None:
    """Killed from outside, at different batches: every batch comes once, whole and in order, kept or not."""
    held = []
    with portable(Numbers(LENGTH)) as loader:
        iterator = iter(loader)
        for number, batch in enumerate(iterator):
            check_batch(batch, number)
            held.append(batch)
            if number in (10, 25):
                os.kill(worker_pids(iterator)[number % 2], signal.SIGKILL)
    assert len(held) == BATCHES
    for number, batch in enumerate(held):
        check_batch(batch, number)


def test_all_workers_and_the_spare_may_die_at_once() -> None:
    """Several times; finished batches are kept, the others are loaded again."""
    number = -1
    with portable(Numbers(LENGTH), num_workers=3, prefetch_factor=4) as loader:
        iterator = iter(loader)
        for number, batch in enumerate(iterator):
            check_batch(batch, number)
            if number in (15, 30):
                spare = iterator._backend._spare
                for pid in (*worker_pids(iterator), *([spare.pid] if spare else [])):
                    os.kill(pid, signal.SIGKILL)
    assert number == BATCHES - 1


def test_the_spare_takes_a_dead_workers_place() -> None:
    """No new process has to start first; and then there is another spare."""
    with portable(Numbers(LENGTH), num_workers=1) as loader:
        iterator = iter(loader)
        check_batch(next(iterator), 0)
        check_batch(next(iterator), 1)
        wait_until(lambda: spare_of(iterator), PATIENCE_S, "a spare")
        spare = spare_of(iterator)
        os.kill(worker_pids(iterator)[0], signal.SIGKILL)
        for number in range(2, 20):
            check_batch(next(iterator), number)
        assert worker_pids(iterator) == [spare]
        wait_until(lambda: spare_of(iterator), PATIENCE_S, "another spare")
        assert spare_of(iterator) != spare


def test_a_spare_that_becomes_a_worker_is_the_worker_torch_would_have() -> None:
    """Its id, seed and random numbers are those of the worker it replaces."""
    with portable(Random(), num_workers=1, batch_size=2) as loader:
        torch.manual_seed(3)
        expected = [batch.clone() for batch in loader]
        torch.manual_seed(3)
        iterator = iter(loader)
        assert torch.equal(next(iterator), expected[0])
        wait_until(lambda: spare_of(iterator), PATIENCE_S, "a spare")
        os.kill(worker_pids(iterator)[0], signal.SIGKILL)
        batches = [batch.clone() for batch in iterator]
    assert [batch[:, 2:].tolist() for batch in batches] == [batch[:, 2:].tolist() for batch in expected[1:]]


def test_a_sample_that_dies_once_is_loaded_again(tmp_path: Path) -> None:
    """As by the kernel's memory killer: the epoch is whole."""
    with portable(DiesOnce(LENGTH, 101, str(tmp_path / "died"))) as loader:
        assert whole(list(loader))
    assert (tmp_path / "died").exists()


@pytest.mark.parametrize("how", ["exit", "SIGSEGV"])
def test_a_sample_that_always_kills_its_worker_is_named_and_the_epoch_goes_on(how: str) -> None:
    """One WorkerCrashed names it, all other batches come."""
    results: list[torch.Tensor | RuntimeError] = []
    with portable(DiesAlways(LENGTH, 101, how)) as loader:
        iterator = iter(loader)
        while len(results) < BATCHES:
            try:
                results.append(next(iterator))
            except RuntimeError as error:
                results.append(error)
        assert next(iterator, None) is None
    for number, result in enumerate(results):
        if number == 101 // BATCH_SIZE:
            assert isinstance(result, WorkerCrashed)
            assert result.sample_index == 101
        else:
            assert isinstance(result, torch.Tensor), result
            check_batch(result, number)


def test_persistent_workers_survive_a_kill_between_epochs() -> None:
    """A worker that dies while it is idle is replaced for the next epoch."""
    with portable(Numbers(LENGTH), persistent_workers=True) as loader:
        for epoch in range(3):
            assert whole(list(loader))
            os.kill(worker_pids(loader._iterator)[epoch % 2], signal.SIGKILL)


def die_in_init(worker_id: int) -> None:
    die("exit")


def fail_in_init(worker_id: int) -> None:
    raise LookupError("no luck")


def test_a_death_in_worker_init_fn_is_an_init_error() -> None:
    """At once: the next would die as well."""
    with portable(Numbers(LENGTH), worker_init_fn=die_in_init) as loader, pytest.raises(WorkerInitError):
        list(loader)


def test_an_exception_in_worker_init_fn_is_raised_as_it_is() -> None:
    """Its own type, as torch raises it."""
    with portable(Numbers(LENGTH), worker_init_fn=fail_in_init) as loader, pytest.raises(LookupError, match="no luck"):
        list(loader)


def test_a_script_without_a_main_guard_is_told_so(tmp_path: Path) -> None:
    """Its workers die on import: WorkerInitError, with the advice, and nothing hangs."""
    script = tmp_path / "unguarded.py"
    script.write_text(
        "from holdfast import DataLoader\n"
        "for batch in DataLoader(list(range(8)), num_workers=1, backend='portable'):\n"
        "    print(batch)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert "WorkerInitError" in done.stderr
    assert "if __name__ == '__main__':" in done.stderr.split("WorkerInitError")[-1]


class ForksOnce(Numbers):
    """Sample 0 leaves a child behind that outlives its worker, with copies of all its descriptors."""

    def __init__(self, length: int, file: Path) -> None:
        super().__init__(length)
        self.file = file

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 0 and not self.file.exists():
            child = os.fork()
            if child == 0:
                time.sleep(600)
                os._exit(0)
            self.file.write_text(str(child))
        return super().__getitem__(index)


def test_the_death_of_a_worker_is_noticed_although_its_child_lives_on(tmp_path: Path) -> None:
    """The child holds pipe and sentinel open: the process itself is looked at."""
    number = -1
    file = tmp_path / "child"
    try:
        with portable(ForksOnce(LENGTH, file), num_workers=1) as loader:
            iterator = iter(loader)
            for number, batch in enumerate(iterator):
                check_batch(batch, number)
                if number == 10:
                    os.kill(worker_pids(iterator)[0], signal.SIGKILL)
    finally:
        os.kill(int(file.read_text()), signal.SIGKILL)
    assert number == BATCHES - 1


# --- what becomes of samples --------------------------------------------------------------------------------------


BAD = 13
FEW = 32


class Bad(Numbers):
    """Sample BAD raises, exits or never comes."""

    def __init__(self, how: str) -> None:
        super().__init__(FEW)
        self.how = how

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == BAD and self.how == "raises":
            raise ValueError("bad header")
        if index == BAD and self.how == "exits":
            os._exit(3)
        while index == BAD:
            time.sleep(0.01)
        return super().__getitem__(index)


REASONS = {"raises": "ValueError: bad header", "exits": "exited with status 3", "hangs": "hung"}


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("how", list(REASONS))
def test_a_bad_sample_is_passed_over(how: str, on_error: str) -> None:
    """Once, after its attempts; the batch is smaller, or has another sample in its place; all others are whole."""
    with portable(Bad(how), on_error=on_error, max_retries=0, sample_timeout=1.5 if how == "hangs" else None) as loader:
        batches = list(loader)
        (skipped,) = loader.skipped_samples
    assert len(batches) == FEW // BATCH_SIZE
    for number, batch in enumerate(batches):
        if number != BAD // BATCH_SIZE:
            check_batch(batch, number)
    values = batches[BAD // BATCH_SIZE][:, 0].tolist()
    if on_error == "replace":
        assert values.pop(BAD % BATCH_SIZE) != BAD
    assert values == [12, 14, 15]
    assert skipped.index == BAD
    assert REASONS[how] in skipped.reason
    assert loader.incidents[-1].sample_index == BAD


def outcomes(loader: DataLoader[Any]) -> Iterator[Any]:
    """Batches and exceptions, to the end."""
    iterator = iter(loader)
    for _ in range(10 * LENGTH):
        try:
            yield next(iterator)
        except StopIteration:
            return
        except RuntimeError as error:
            yield error
    pytest.fail("the epoch does not end")


@pytest.mark.parametrize(("how", "kind"), [("exits", WorkerCrashed), ("hangs", WorkerTimeout)])
def test_the_sample_is_named_after_its_retries(how: str, kind: type[Exception]) -> None:
    """max_retries=1: a second worker is given for it, then it is raised, in its place."""
    with portable(Bad(how), sample_timeout=1.5) as loader:
        results = list(outcomes(loader))
        incidents = [(incident.done, incident.attempt, incident.sample_index) for incident in loader.incidents]
    (error,) = [result for result in results if isinstance(result, RuntimeError)]
    assert results.index(error) == BAD // BATCH_SIZE
    assert type(error) is kind
    assert error.sample_index == BAD  # type: ignore[attr-defined]
    assert f"while loading sample {BAD}" in str(error)
    assert incidents == [("retried", 1, BAD), ("raised", 2, BAD)]
    for number, batch in enumerate(results):
        if batch is not error:
            check_batch(batch, number)


SAMPLE_S, LIMIT_S, STEP_S = 0.4, 1.5, 1.8  # one sample takes less than the limit; a batch of them, and a step, more


class Slow(Numbers):
    """No sample takes long; a batch does, and so does the step before the next one."""

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(SAMPLE_S)
        return super().__getitem__(index)


def test_the_limit_is_for_one_sample_and_runs_while_we_wait() -> None:
    """Many samples in a row, and a long step of the main process, are no hang."""
    with portable(Slow(12), sample_timeout=LIMIT_S) as loader:
        for number, batch in enumerate(loader):
            check_batch(batch, number)
            time.sleep(STEP_S)
        assert not loader.incidents


# --- progress -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strike", [os.kill, None], ids=["killed", "started over"])
def test_random_numbers_go_on_as_torchs(strike: Any) -> None:
    """After a kill, and after everything was started over, samples draw what they would have drawn."""

    def epoch(kind: Any, **options: Any) -> Iterator[torch.Tensor]:
        torch.manual_seed(7)
        return iter(
            kind(Random(), batch_size=4, shuffle=True, num_workers=2, multiprocessing_context="spawn", **options)
        )

    theirs = [batch.clone() for batch in epoch(torch.utils.data.DataLoader)]
    ours = []
    iterator: Any = epoch(DataLoader, backend="portable")
    for batch in iterator:
        ours.append(batch)
        if len(ours) in (2, 6):
            if strike is not None:
                strike(worker_pids(iterator)[len(ours) // 4], signal.SIGKILL)
            else:
                iterator._backend.start_over()
    assert len(ours) == len(theirs)
    assert all(map(torch.equal, ours, theirs))


class RandomStream(Stream):
    """Its elements depend on the numbers drawn before them."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        for value in super().__iter__():
            yield torch.cat([value, torch.randint(1000, (2,))])


@pytest.mark.parametrize("dataset", [Stream(200), RandomStream(200)], ids=["plain", "random"])
def test_an_iterable_is_taken_up_where_its_killed_worker_was(dataset: Stream) -> None:
    """Nothing twice, nothing missing, and the same as without the kill."""
    expected, delivered = [], []
    with portable(dataset) as loader:
        torch.manual_seed(3)
        expected.extend(batch.tolist() for batch in loader)
        torch.manual_seed(3)
        iterator = iter(loader)
        for batch in iterator:
            delivered.append(batch.tolist())
            if len(delivered) in (3, 20):
                os.kill(worker_pids(iterator)[len(delivered) % 2], signal.SIGKILL)
        assert loader.stats().restarts >= 1
    assert delivered == expected


def test_an_epoch_goes_on_after_everything_was_started_over() -> None:
    """What was finished is kept, the rest is loaded again, in order."""
    with portable(Numbers(LENGTH), persistent_workers=True) as loader:
        for _ in range(2):
            iterator, number = iter(loader), -1
            for number, batch in enumerate(iterator):
                check_batch(batch, number)
                if number in (5, 6):
                    iterator._backend.start_over()
            assert number == BATCHES - 1
