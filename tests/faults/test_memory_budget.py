"""memory_budget: where memory is short, less is loaded at once; nothing is lost, repeated or reordered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.utils.data

from holdfast import DataLoader, WorkerOutOfMemory
from hungry import DyingStream, Hungry, HungryThenBad, HungryTogether, Keeping, KeepingAndHungry, KeepingStream

pytestmark = pytest.mark.timeout(120)

METHODS = ["fork", "spawn", "forkserver", "portable"]
LENGTH = 12
ENDED_BEFORE_S = 60.0  # for samples whose worker is to be ended while they hold what they took


def how(method: str) -> dict[str, Any]:
    return {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}


def budget(method: str, megabytes: int) -> str:
    """A new interpreter with torch has up to 250 MB of its own, and each of four workers is one."""
    return f"{megabytes + (4 * 250 if method == 'portable' else 0)}MB"


@pytest.mark.parametrize("method", METHODS)
def test_four_workers_that_need_twice_the_budget_finish_an_epoch(method: str) -> None:
    """One after the other, as they fit; batches and random numbers are torch's."""
    torch.manual_seed(5)
    expected = [batch.tolist() for batch in torch.utils.data.DataLoader(Hungry(LENGTH, 1), 1, num_workers=4)]
    torch.manual_seed(5)
    with DataLoader(Hungry(LENGTH, 300), 1, num_workers=4, memory_budget=budget(method, 600), **how(method)) as loader:
        assert [batch.tolist() for batch in loader] == expected
        assert list(loader.incidents) == []


@pytest.mark.parametrize("method", METHODS)
def test_samples_that_need_more_than_those_before_are_loaded_again_alone(method: str, tmp_path: Path) -> None:
    """Nothing could be learned from the first ones: workers are ended, and no sample is blamed for it."""
    go = tmp_path / "go"
    dataset = HungryTogether(LENGTH, 400, 6, go, 2 if method == "portable" else ENDED_BEFORE_S)
    with DataLoader(
        dataset, 1, num_workers=4, memory_budget=budget(method, 600), max_retries=0, **how(method)
    ) as loader:
        iterator = iter(loader)
        go.touch()  # two samples that need more are with their workers: together they are over the budget
        assert [int(batch[0, 0]) for batch in iterator] == list(range(LENGTH))
        told = {(found.cause, found.done) for found in loader.incidents}
        assert told == {("over memory_budget", "retried")} or (method == "portable" and not told)
        assert loader.skipped_samples == []


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", [Keeping, KeepingStream])
def test_workers_that_keep_too_much_together_are_done_without(kind: Any, method: str) -> None:
    """Each keeps 250 MB, and only one fits: its batches go to another, or, of an iterable, come when there is room."""
    with DataLoader(
        kind(LENGTH, 250), 1, num_workers=3, memory_budget=budget(method, 400), max_retries=0, **how(method)
    ) as loader:
        found = [int(batch[0, 0]) for batch in loader]
        assert loader.skipped_samples == []
    assert sorted(found) == list(range(LENGTH))
    assert found == sorted(found) or kind is KeepingStream


@pytest.mark.long
def test_units_of_workers_that_were_let_go_for_another_are_loaded_all_the_same() -> None:
    """Workers that keep 70 MB each make room for one unit that is loaded alone, while units of theirs wait."""
    dataset = KeepingAndHungry(32, 70, 80, first=8)
    with DataLoader(dataset, 2, num_workers=4, memory_budget="240MB", max_retries=0) as loader:
        assert [int(value) for batch in loader for value in batch[:, 0]] == list(range(32))


def test_streams_that_have_ended_make_room_for_those_that_have_not() -> None:
    """Workers that persist keep what they have, and get no more: it is them that are let go."""
    with DataLoader(
        KeepingStream(LENGTH, 100), 1, num_workers=4, memory_budget="240MB", persistent_workers=True, max_retries=0
    ) as loader:
        for _ in range(2):
            assert sorted(int(batch[0, 0]) for batch in loader) == list(range(LENGTH))


def test_a_sample_that_fits_nowhere_ends_with_the_numbers() -> None:
    """Alone, and still too much."""
    with DataLoader(
        Hungry(4, 500, held_s=ENDED_BEFORE_S), 1, num_workers=2, memory_budget="200MB", max_retries=0
    ) as loader:
        with pytest.raises(WorkerOutOfMemory, match=r"memory_budget \(200 MB\)") as caught:
            list(loader)
        assert "of its own" in str(caught.value)
        assert caught.value.incident in list(loader.incidents)


def test_a_sample_that_is_loaded_alone_and_raises_then_is_replaced(tmp_path: Path) -> None:
    """The batch is loaded once more, with another in its place, and alone again: it must not be waited for in vain."""
    dataset = HungryThenBad(LENGTH, 400, 5, tmp_path / "tried", ENDED_BEFORE_S)
    with DataLoader(dataset, 2, num_workers=2, memory_budget="200MB", on_error="replace") as loader:
        found = [batch.flatten().tolist() for batch in loader]
        assert [len(batch) for batch in found] == [2] * (LENGTH // 2)
        assert [batch[0] for batch in found] == list(range(0, LENGTH, 2))
        assert [skipped.index for skipped in loader.skipped_samples] == [5]
        assert [found.cause for found in loader.incidents] == ["over memory_budget", "dataset exception"]


def test_with_skip_it_is_passed_over_and_not_written_down(tmp_path: Path) -> None:
    """It was the machine, or the budget, and not the sample by itself."""
    file = tmp_path / "skipped"
    with DataLoader(
        Hungry(4, 500, first=3, held_s=ENDED_BEFORE_S),
        1,
        num_workers=2,
        memory_budget="200MB",
        max_retries=0,
        on_error="skip",
        skipped_file=file,
    ) as loader:
        assert [int(batch[0, 0]) for batch in loader] == [0, 1, 2]
        assert [sample.index for sample in loader.skipped_samples] == [3]
    assert not file.exists() or "3" not in file.read_text()


def test_with_room_for_all_it_is_as_without() -> None:
    """The same batches, and as many workers as were asked for."""
    with DataLoader(Hungry(LENGTH, 1), 1, num_workers=3, memory_budget="100%") as loader:
        iterator = iter(loader)
        assert [int(next(iterator)[0, 0]) for _ in range(6)] == list(range(6))
        assert all(psutil.pid_exists(worker.pid) for worker in iterator._workers)
        assert [int(batch[0, 0]) for batch in iterator] == list(range(6, LENGTH))


@pytest.mark.parametrize("persistent", [False, True])
def test_another_epoch_begins_as_ever(persistent: bool) -> None:
    with DataLoader(
        Keeping(LENGTH, 250), 1, num_workers=3, memory_budget="400MB", persistent_workers=persistent
    ) as loader:
        for _ in range(3):
            assert [int(batch[0, 0]) for batch in loader] == list(range(LENGTH))


@pytest.mark.long
def test_an_epoch_that_is_left_early_hurts_nobody() -> None:
    """With what waits for memory still waiting."""
    loader = DataLoader(Hungry(LENGTH, 300), 1, num_workers=4, memory_budget="600MB", persistent_workers=True)
    with loader:
        for _ in range(2):
            iterator = iter(loader)
            assert int(next(iterator)[0, 0]) == 0
        assert [int(batch[0, 0]) for batch in loader] == list(range(LENGTH))


@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "portable"])
def test_an_iterable_is_run_again_alone_if_there_was_no_memory_for_it(method: str, tmp_path: Path) -> None:
    """What another worker keeps was in the way: that is nobody's fault, and counts against nothing."""
    dataset = DyingStream(LENGTH, 150, 150, tmp_path / "has died")
    megabytes = 200 if method == "fork" else 200 + 250  # see `budget`: of the one that is left
    with DataLoader(dataset, 1, num_workers=2, memory_budget=f"{megabytes}MB", max_restarts=1, **how(method)) as loader:
        assert sorted(int(batch[0, 0]) for batch in loader) == list(range(LENGTH))
        told = [(found.cause, found.phase) for found in loader.incidents]
        assert method == "portable" or ("over memory_budget", "running the iterable up to where it was") in told


def test_an_iterable_that_cannot_be_run_again_even_alone_ends_with_the_numbers(tmp_path: Path) -> None:
    """And the other worker goes on."""
    dataset = DyingStream(LENGTH, 500, 1, tmp_path / "has died", ENDED_BEFORE_S)
    found: list[int] = []
    with DataLoader(dataset, 1, num_workers=2, memory_budget="200MB", max_restarts=1) as loader:
        iterator = iter(loader)
        with pytest.raises(WorkerOutOfMemory, match=r"memory_budget \(200 MB\).*running the iterable up to") as caught:
            found.extend(int(batch[0, 0]) for batch in iterator)
        assert "ends after 3 elements" in str(caught.value)
        found += [int(batch[0, 0]) for batch in iterator]
    assert sorted(found) == sorted([0, 2, 4, *range(1, LENGTH, 2)])


@pytest.mark.long
def test_a_new_interpreter_that_has_loaded_nothing_makes_room_as_well() -> None:
    """Each has some 125 MB before its first sample: alone means without them."""
    dataset = KeepingAndHungry(16, 60, 150, first=2)
    with DataLoader(dataset, 1, num_workers=4, memory_budget="350MB", max_retries=0, backend="portable") as loader:
        assert [int(batch[0, 0]) for batch in loader] == list(range(16))
        assert loader.skipped_samples == []


@pytest.mark.long
def test_of_an_epoch_that_is_left_early_nothing_is_taken_from_the_next() -> None:
    """Units of an iterable that wait for memory, and for nobody any more, must not be loaded in the next epoch."""
    dataset = KeepingStream(48, 0)
    dataset.dataset = KeepingAndHungry(48, 70, 60, first=12)  # type: ignore[assignment]
    with DataLoader(dataset, 2, num_workers=4, memory_budget="240MB", persistent_workers=True) as loader:
        iterator = iter(loader)
        for _ in range(4):
            next(iterator)
        assert sorted(int(value) for batch in loader for value in batch[:, 0]) == list(range(48))
