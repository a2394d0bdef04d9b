"""Scans with real workers, without the command line around them: what is found, what is written, what is left."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from cli import scanned
from holdfast import DataLoader, HoldfastWarning
from holdfast.tasks.scan.findings import Findings
from holdfast.tasks.scan.interrupts import interruptible
from holdfast.tasks.scan.measured import measured_elements
from holdfast.tasks.scan.outcome import Outcome
from holdfast.tasks.scan.session import Plan, Refused, Request, run


class Quiet:
    """A watcher that does nothing, or `on_move` at each move."""

    def __init__(self, on_move: Callable[[Findings], None] = lambda findings: None) -> None:
        self.moved = on_move

    def started(self) -> None: ...

    def ended(self) -> None: ...


def interrupt_after(samples: int, number: signal.Signals = signal.SIGINT) -> Callable[[Plan], Quiet]:
    """A watcher that interrupts the scan once so many were loaded, again and again, as somebody does who is impatient.

    Not at a bad sample: until the loader has noted it as well it is in doubt, and would be loaded again.
    """

    def move(findings: Findings) -> None:
        if findings.loaded >= samples:
            signal.raise_signal(number)

    return lambda plan: Quiet(move)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a scan of this test writes."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def scan(dataset: Any, begin: Callable[[Plan], Quiet] = lambda plan: Quiet(), **asked: Any) -> Outcome:
    with interruptible():
        return run(dataset, Request("data:train", **{"workers": 2, "timeout_s": 30.0} | asked), begin)


def entries(path: Path = Path("train.skipped.jsonl")) -> dict[int, str]:
    return {line["index"]: line["reason"] for line in map(json.loads, path.read_text().splitlines()[1:])}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_scan_of_good_samples_writes_nothing(own_folder: Path) -> None:
    """No file, no progress file: there is nothing to say."""
    outcome = scan(scanned.good)
    assert (outcome.loaded, outcome.bad, outcome.odd, outcome.written) == (60, (), {}, None)
    assert outcome.common == ("tensor float32 4",)
    assert names(own_folder) == set()


def test_a_dataset_without_samples_is_all_good() -> None:
    """Nothing is loaded, and nothing is wrong."""
    outcome = scan([])
    assert (outcome.loaded, outcome.planned, outcome.is_finished) == (0, 0, True)


def test_many_crashes_do_not_end_a_scan(own_folder: Path) -> None:
    """Sixteen samples that end their worker, twice each, and as many that raise: each is listed.

    The loader then takes the file, and meets none of them.
    """
    outcome = scan(scanned.many)
    assert [bad.place[1] for bad in outcome.bad] == [k for k in range(48) if k % 3 != 2]
    assert {bad.cause for bad in outcome.bad} == {"dataset exception", "exit by user code"}
    assert set(entries()) == {k for k in range(48) if k % 3 != 2}
    with DataLoader(scanned.many, 8, num_workers=2, on_error="skip", skipped_file="train.skipped.jsonl") as loader:
        with pytest.warns(HoldfastWarning, match=r"^32 samples listed in skipped_file='train\.skipped\.jsonl'"):
            came = [int(index) for batch in loader for index in batch]
        assert came == list(range(2, 48, 3))
        assert loader.incidents.total == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_scan_is_continued(number: signal.Signals, own_folder: Path, tmp_path: Path) -> None:
    """What was loaded before is not loaded again, and what was found before is told in the end."""
    dataset = scanned.Steady(200, str(tmp_path))
    first = scan(dataset, interrupt_after(60, number))
    assert (first.signal, first.is_finished) == (number, False)
    assert names(own_folder) == {"train.skipped.jsonl.scan", "train.skipped.jsonl.new"}
    loaded = [*map(int, (tmp_path / "loaded").read_text().split())]
    second = scan(dataset)
    again = [*map(int, (tmp_path / "loaded").read_text().split())][len(loaded) :]
    assert second.is_finished
    assert second.before == first.loaded + len(first.bad) >= 60
    assert [bad.place[1] for bad in second.bad] == [25, 75, 125, 175]
    assert len(again) == 200 - second.before
    assert set(loaded) | set(again) == set(range(200))
    assert names(own_folder) == {"train.skipped.jsonl"}
    assert set(entries()) == {25, 75, 125, 175}


def test_again_starts_over(tmp_path: Path) -> None:
    """Every sample is loaded once more."""
    dataset = scanned.Steady(80, str(tmp_path))
    scan(dataset, interrupt_after(40))
    (tmp_path / "loaded").unlink()
    outcome = scan(dataset, again=True)
    assert outcome.before == 0
    assert sorted(map(int, (tmp_path / "loaded").read_text().split())) == list(range(80))


@pytest.mark.parametrize("changed", [{"sample": 9}, {"sample": 20, "seed": 1}])
def test_only_the_same_scan_is_continued(changed: dict[str, int]) -> None:
    """With other options it is refused, with what differs and what to do, and nothing is lost."""
    scan(scanned.Steady(80), interrupt_after(5), sample=20)
    with pytest.raises(Refused, match=r"cannot be continued: it is of a scan with s.*--again"):
        scan(scanned.Steady(80), **changed)
    assert scan(scanned.Steady(80), sample=20).before >= 5


def test_a_random_part_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    """`--sample N` loads N samples, each once."""

    def loaded(seed: int) -> list[int]:
        (tmp_path / "loaded").unlink(missing_ok=True)
        outcome = scan(scanned.Steady(300, str(tmp_path)), sample=30, seed=seed)
        assert (outcome.planned, outcome.loaded + len(outcome.bad)) == (30, 30)
        return sorted(map(int, (tmp_path / "loaded").read_text().split()))

    assert loaded(1) == loaded(1) != loaded(2)


def test_a_part_keeps_what_the_file_says_of_the_rest() -> None:
    """Only what was loaded now, and could be, is no longer listed."""
    text = '{"holdfast":"skipped samples","version":1,"dataset_length":60}\n{"index":%d,"reason":"bad once"}\n'
    Path("train.skipped.jsonl").write_text(text % 7)
    left_out = scan(scanned.good, sample=1, seed=0)
    assert left_out.slowest[0].place != (0, 7)
    assert entries() == {7: "bad once"}
    whole = scan(scanned.good)
    assert whole.written is not None
    assert (whole.written.load_now, entries()) == (1, {})


def test_odd_samples_are_in_the_file_if_asked_for() -> None:
    """By default it lists those that cannot be loaded."""
    dataset = [[1.0, 2.0]] * 40 + [[1.0]] + [[1.0, 2.0]] * 10
    assert scan(dataset).written is None
    outcome = scan(dataset, odd=True)
    assert outcome.odd == {(0, 40): "the sample is 1, not 2"}
    assert entries() == {40: "odd: the sample is 1, not 2"}


def test_a_sample_whose_worker_was_killed_from_outside_gets_a_second_look(tmp_path: Path) -> None:
    """It is not to blame: it is loaded again, alone, and then is good; that it was lost at first is told."""
    (tmp_path / "times").mkdir()
    outcome = scan(scanned.KilledTwice(tmp_path / "times"))
    assert (outcome.loaded, outcome.bad) == (12, ())
    assert [*outcome.retried] == [(0, 5)]
    assert outcome.written is None


def test_a_dataset_that_loads_lists_is_scanned_one_by_one() -> None:
    """So that it is known which sample it is."""
    outcome = scan(type("Both", (scanned.Listed,), {"__getitem__": None})())
    assert [bad.place[1] for bad in outcome.bad] == [3]
    assert outcome.loaded == 9


@pytest.mark.parametrize(
    ("dataset", "asked", "words"),
    [
        (scanned.lengthless, {}, "does not say how many samples it has"),
        (scanned.elements, {"sample": 5}, "--sample needs indices"),
        (scanned.elements, {"odd": True}, "--odd needs indices"),
        (scanned.elements, {"skipped_file": Path("x")}, "--skipped-file needs indices"),
        (scanned.good, {"memory_limit": "much"}, "--memory-limit='much' must be"),
        (scanned.good, {"skipped_file": Path("no/where")}, "no/where.scan cannot be written"),
        (scanned.good, {"skipped_file": Path()}, "it is a directory"),
    ],
)
def test_what_cannot_be_scanned_is_refused(dataset: Any, asked: dict[str, Any], words: str, own_folder: Path) -> None:
    """With the argument and the remedy, before anything is loaded."""
    with pytest.raises(Refused) as refused:
        scan(dataset, **asked)
    assert words in str(refused.value)
    assert names(own_folder) == set()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("index,label\n1,cat\n", "it is not a file of skipped samples. Name another"),
        (
            '{"holdfast":"skipped samples","version":1,"dataset_length":9}\n',
            "of a dataset of 9 samples, .* with --again",
        ),
    ],
)
def test_a_file_of_something_else_is_not_replaced(text: str, words: str) -> None:
    """Neither the user's data, nor what was found in another dataset."""
    Path("data.csv").write_text(text)
    with pytest.raises(Refused, match=words):
        scan(scanned.good, skipped_file=Path("data.csv"))
    assert Path("data.csv").read_text() == text


# -- iterable datasets -------------------------------------------------------------------------------------------------


def test_an_iterable_is_scanned_to_its_end(own_folder: Path) -> None:
    """By all its workers, each its own part."""
    outcome = scan(scanned.elements)
    assert (outcome.loaded, outcome.bad, outcome.planned) == (60, (), None)
    assert names(own_folder) == set()


@pytest.mark.parametrize(("how", "cause"), [("raise", "dataset exception"), ("exit", "exit by user code")])
def test_where_a_part_of_an_iterable_breaks_off_is_told(how: str, cause: str) -> None:
    """A generator does not go on after an exception, nor past an element that ends its worker: the others do."""
    outcome = scan(scanned.Elements(40, how))
    assert [(bad.place, bad.cause) for bad in outcome.bad] == [((0, 20), cause)]
    assert "its part of the dataset ends here" in outcome.bad[0].because
    assert outcome.loaded == 20 + 30


def test_an_iterable_that_knows_its_state_is_begun_once() -> None:
    """To begin it may be to open files, or to take up what a state says."""
    dataset = scanned.Remembering()
    elements = iter(measured_elements(dataset, {}, {}))
    assert [element.position for element in elements if element is not None] == [0, 1, 2]
    assert dataset.begun == 1


@pytest.mark.long
def test_an_iterable_that_knows_its_state_is_continued_from_there(tmp_path: Path) -> None:
    """It is not run again from its start; an element that raised is told with its place."""
    dataset = scanned.Stateful(tmp_path)
    first = scan(dataset, interrupt_after(40), workers=1)
    assert [bad.place for bad in first.bad] == [(0, 30)]
    before = len((tmp_path / "loaded").read_text().split())
    second = scan(dataset, workers=1)
    again = [*map(int, (tmp_path / "loaded").read_text().split())][before:]
    assert (second.loaded, [bad.place for bad in second.bad]) == (59, [(0, 30)])
    assert again[0] > 0
    assert again[-1] == 59


def test_an_iterable_without_state_is_run_again_and_counted_once(own_folder: Path) -> None:
    """Continued by count: with the same number of workers only."""
    first = scan(scanned.elements, interrupt_after(20))
    assert 20 <= first.loaded < 60
    with pytest.raises(Refused, match="a scan with workers 2"):
        scan(scanned.elements, workers=3)
    second = scan(scanned.elements)
    assert (second.before, second.loaded) == (first.loaded, 60)
    assert names(own_folder) == set()
