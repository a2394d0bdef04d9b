"""What `holdfast scan` prints of an outcome: `cli/scan_tables.py`."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import pytest
from rich.console import Console

from holdfast.cli.scan_tables import plan_text, print_outcome
from holdfast.tasks.scan.findings import Bad, Ranked
from holdfast.tasks.scan.outcome import Outcome, Written

HOSTILE = "raised ValueError: [bold]x[/nonsense] \x1b[31m\x07\n<b>line two</b>"
BAD = (
    Bad((0, 17), "dataset exception", HOSTILE, where="photos.py:31 in __getitem__", incident="7f3a.1"),
    Bad((0, 40), "segmentation fault", "died of a segmentation fault", incident="7f3a.3"),
)
SEEN = Outcome(
    target="data:train",
    dataset="Photos",
    length=300,
    planned=300,
    before=0,
    loaded=298,
    bad=BAD,
    odd={(0, 150): "['\x1b[2J[red]'] is 1 x 8, not 3 x 8", (0, 151): "[1] is str, not int"},
    common=("[0] tensor float32 3 x 8", "[1] int"),
    retried={},
    slowest=(Ranked(2.0, (0, 9), False), Ranked(0.0005, (0, 0), True)),
    largest=(Ranked(3e6, (0, 8), False), Ranked(10, (0, 1), True)),
    nbytes=10**6,
    load_s=3.0,
    seconds=2.0,
    workers=2,
    written=Written("train.skipped.jsonl", {17: "x", 40: "y"}, 1),
)


def printed(outcome: Outcome, *, width: int = 80, is_terminal: bool = True, list_all: bool = False) -> str:
    """Without colours, so that only what is printed can be an order to the terminal."""
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=is_terminal, color_system=None, highlight=False)
    print_outcome(console, outcome, list_all=list_all)
    return file.getvalue()


def many(count: int) -> Outcome:
    bad = tuple(Bad((0, k), "hang", f"hung for more than {k} s", incident=f"7f3a.{k}") for k in range(count))
    return dataclasses.replace(SEEN, bad=bad, odd={}, written=None)


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_hostile_text_is_text(width: int, is_terminal: bool) -> None:
    """Neither markup nor control characters of an exception, or of a key of a dict, do anything."""
    text = printed(SEEN, width=width, is_terminal=is_terminal).replace("\x1b[1m", "").replace("\x1b[0m", "")
    text = text.replace("\x1b[1;31m", "").replace("\x1b[2m", "")
    assert [char for char in text if not char.isprintable() and char != "\n"] == []
    flat = "".join(text.split())
    assert "[bold]x[/nonsense]" in flat
    assert "<b>linetwo</b>" in flat
    assert "[red]" in flat


@pytest.mark.parametrize("width", [40, 80])
def test_on_a_narrow_terminal_no_line_is_wider(width: int) -> None:
    """But that which is to be pasted, which is not broken."""
    lines = printed(SEEN, width=width).splitlines()
    assert max(len(line) for line in lines if "DataLoader" not in line) <= width
    for words in ("17", "7f3a.1", "7f3a.3", "150", "2.9 MiB", "0.5 ms", "300 samples"):
        assert any(words in line for line in lines), words


def test_piped_a_row_is_a_line() -> None:
    """It is for grep."""
    (row,) = (line for line in printed(SEEN, is_terminal=False).splitlines() if line.strip().startswith("17 "))
    assert "photos.py:31 in __getitem__" in row
    assert "7f3a.1" in row


def test_few_bad_samples_are_listed_and_many_put_together() -> None:
    """Each with its incident; or how many of a kind, and the first of them, unless all are asked for."""
    assert printed(many(20)).count("7f3a.") == 20
    together = printed(many(21), width=120)
    assert together.count("7f3a.") == 0
    assert "hung for more than 0 s" in together
    assert printed(many(21), list_all=True).count("7f3a.") == 21


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "300 samples scanned: 2 bad and 2 odd, in 2 s, 150 samples/s; 976.6 KiB loaded."),
        ({}, "lists 2 samples; 1 that it had before can be loaded now."),
        ({}, "Odd samples are not in it; with --odd they are."),
        ({"bad": (), "odd": {}, "loaded": 300}, "300 samples scanned: all good, in"),
        ({"signal": 2, "written": None}, "300 of 300 samples scanned so far: 2 bad and 2 odd"),
        (
            {"bad": (), "odd": {}, "error": "cannot be pickled", "written": None},
            "298 of 300 samples scanned so far: none",
        ),
        ({"bad": (), "written": None}, "No skipped_file was written: all samples can be loaded. With --odd it lists"),
        ({"length": None, "planned": None, "written": None}, "17 of worker 0"),
        ({"length": None, "planned": None, "written": None}, "No skipped_file is written of an iterable dataset"),
        ({"retried": {(0, 3): "7f3a.9"}}, "1 sample came only at a second attempt."),
    ],
)
def test_the_end_sums_it_up(changes: dict[str, Any], words: str) -> None:
    """What was scanned, what was found, what was written."""
    assert words in " ".join(printed(dataclasses.replace(SEEN, **changes), width=200).split())


def test_where_others_have_nothing_in_common_nothing_is_said_of_them() -> None:
    """Samples may be of several kinds, and some of one kind odd."""
    assert "Others have" in printed(SEEN)
    assert "Others have" not in printed(dataclasses.replace(SEEN, common=()))


@dataclasses.dataclass
class Planned:
    dataset: str = "Photos"
    length: int | None = 3000
    planned: int | None = 3000
    before: int = 0
    workers: int = 2


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Planned(), "Scanning 3,000 samples of data:train (Photos) with 2 workers."),
        (Planned(planned=1, workers=1), "Scanning 1 sample of the 3,000 of data:train (Photos) with 1 worker."),
        (Planned(before=1200), "with 2 workers; 1,200 of them were scanned before."),
        (Planned(length=None, planned=None), "Scanning the elements of data:train"),
        (Planned(dataset="[red]\x1b[2J\n"), "data:train ([red] [2J ) with"),
    ],
)
def test_it_says_what_it_will_do(plan: Any, words: str) -> None:
    """Before the first sample."""
    assert words in plan_text(plan, "data:train").plain
