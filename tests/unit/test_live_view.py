"""The rows of the live view: what they say, and that they fit."""

from __future__ import annotations

import datetime
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.report import live
from holdfast.report.live_model import make_picture
from holdfast.report.live_pictures import RunPicture
from holdfast.report.live_rows import Look
from unit.live_looks import START, STARTED, a_look, a_run, a_worker, an_incident

NOW = STARTED + 754.0
DOING = (
    {"doing": "loading", "sample": 107, "since_s": 12.4},
    {"doing": "collating", "sample": None, "batch": 82, "since_s": 0.03},
    {"doing": "waiting for work", "sample": None, "batch": None, "since_s": 1.2},
)


def picture(run_id: str = "7f3a", workers: int = 4, incidents: int = 2, **changes: object) -> RunPicture:
    """Of a run that goes on."""
    run = a_run(run_id, incidents=tuple(an_incident(number) for number in range(1, incidents + 1)))
    doing = itertools.cycle(DOING)
    made = tuple(
        a_worker(number, **one, limit_bytes=4_000_000_000, restarts=number % 2)
        for number, one in zip(range(workers), doing, strict=False)
    )
    look = {"workers": made, "restarts": 2, "skipped": 1} | changes
    older = a_look(run)
    return make_picture([older, a_look(run, at_s=10.0, batches=412, samples=3296, waited_s=11.1, **look)], NOW)


def plain(rows: list[object]) -> list[str]:
    return [str(row) for row in rows]


def test_a_run_on_eighty_columns() -> None:
    """All that there is to see of it."""
    assert plain(live.view(Look(80), [picture()])) == [
        "7f3a  train.py  ImageFolder  pid 41822                   running for 12 min 34 s",
        "  31.2 batches/s   250 samples/s   412 batches   2 restarts   1 skipped",
        "  training waited 81% of the last 10 s: the loader is the bottleneck",
        "  worker  doing                      for    rate  memory                restarts",
        "       0  loading sample 107        12 s     0/s  ━━──── 1.2 of 4 GB",
        "       1  collating batch 82      <0.1 s   2.0/s  ━━──── 1.2 of 4 GB           1",
        "       2  waiting for work         1.2 s          ━━──── 1.2 of 4 GB",
        "       3  loading sample 107        12 s          ━━──── 1.2 of 4 GB           1",
        "",
        f"  {local(1)}  7f3a.1  worker 1, sample 107 skipped: hung for more than 1 s",
        f"  {local(2)}  7f3a.2  worker 1, sample 107 skipped: hung for more than 1 s",
        "",
    ]


def local(second: int) -> str:
    """The time of day of an incident, where this test runs."""
    return f"{datetime.datetime.fromtimestamp(STARTED + second):%H:%M:%S}"


def test_a_run_on_forty_columns() -> None:
    """What matters most: the sample in hand, for how long, who waits, and what happened."""
    assert plain(live.view(Look(40, ascii_only=True), [picture(workers=2, incidents=1)])) == [
        "7f3a  train.py  ImageFolder",
        "  31.2 batches/s  2 restarts  1 skipped",
        "  training waited 81% of the last 10 s",
        "  the loader is the bottleneck",
        "   #  doing               for  memory",
        "   0  loading 107        12 s  1.1 GiB",
        "   1  collating batch… <0.1 s  1.1 GiB",
        "",
        "  7f3a.1  sample 107 skipped: hung for m",
        "",
    ]


@given(
    width=st.integers(1, 200),
    height=st.integers(1, 60),
    sizes=st.lists(st.tuples(st.integers(0, 80), st.integers(0, 12)), max_size=6),
    ascii_only=st.booleans(),
)
def test_a_screen_is_never_larger_than_the_terminal(
    width: int, height: int, sizes: list[tuple[int, int]], ascii_only: bool
) -> None:
    """Whatever runs, and however small the terminal: no row is folded, and none scrolls."""
    pictures = [picture(f"{number:04x}", *size) for number, size in enumerate(sizes)]
    rows = live.screen(Look(width, ascii_only), pictures, height, "12:31:07", "nothing\nat all")
    assert len(rows) <= height
    assert max((row.cell_len for row in rows), default=0) <= width
    assert not any("\n" in row.plain for row in rows)


def test_more_workers_than_rows_are_summed_up() -> None:
    """The last row says what they do, and which of them has been at it for long; incidents keep their place."""
    rows = plain(live.screen(Look(80), [picture(workers=64)], 24, "12:31:07"))
    assert len(rows) <= 24
    summed_up = next(row for row in rows if " more: " in row)
    assert "loading" in summed_up
    assert "for 12 s" in summed_up
    assert any("7f3a.2" in row for row in rows)


def test_more_runs_than_rows_are_counted() -> None:
    """Eight ranks on a small terminal: as many as fit, and how many there are more."""
    rows = plain(live.screen(Look(80), [picture(f"{rank:04x}") for rank in range(8)], 24, "12:31:07"))
    shown = sum("train.py" in row for row in rows)
    assert 1 <= shown < 8
    assert f"and {8 - shown} more runs: 'holdfast top RUN' shows one alone" in rows


@pytest.mark.parametrize("is_died", [False, True])
def test_a_run_that_is_over_names_its_report(is_died: bool) -> None:
    """How it ended, and the command that says more."""
    end = None if is_died else {"kind": "end", "time": STARTED + 75, "batches": 9}
    run = a_run(is_alive=False, end=end)
    said = "\n".join(plain(live.screen(Look(80), [make_picture([a_look(run), a_look(run)], NOW)], 24, "12:31:07")))
    assert ("its process died" if is_died else "ended after 1 min 15 s") in said
    assert "holdfast report 7f3a" in said
    assert "no loader runs now" in said


def test_nothing_that_runs_gets_a_hint() -> None:
    """Instead of an empty screen."""
    rows = plain(live.screen(Look(80), [], 24, "12:31:07", "Start a loader.\nOr wait."))
    assert rows[-2:] == ["Start a loader.", "Or wait."]


def test_calls_are_called_calls() -> None:
    """Of a pool or a map: no batch, no sample, and nobody who waits for them."""
    run = a_run(start={**START, "front": "holdfast.map", "dataset": None, "function": "convert"})
    workers = (a_worker(sample=None, batch=51),)
    look = a_look(run, at_s=1.0, samples=810, skipped=1, workers=workers)
    rows = plain(live.view(Look(80), [make_picture([a_look(run), look], NOW)]))
    assert rows[0].startswith("7f3a  train.py  holdfast.map  convert")
    assert rows[1] == "  10.0 calls/s   810 calls   1 failed"
    assert rows[3].split()[:4] == ["0", "running", "call", "51"]


def test_markup_in_a_record_is_text() -> None:
    """A dataset whose name looks like the markup of rich is shown by that name."""
    run = a_run(start={**START, "dataset": "[red]Photos[/red]", "script": "[/]x.py"})
    head = str(live.view(Look(80), [make_picture([a_look(run), a_look(run)], NOW)])[0])
    assert "[/]x.py  [red]Photos[/red]" in head


@pytest.mark.parametrize("time", [None, 0.0, -1e14, 1.8e12, 1e14])
def test_an_incident_of_no_time_is_shown_all_the_same(time: float | None) -> None:
    """A record may be of another version, which counts in milliseconds, say, or made by hand."""
    run = a_run(incidents=(an_incident(2, time=time),))
    rows = plain(live.view(Look(80), [make_picture([a_look(run), a_look(run)], NOW)]))
    assert any("7f3a.2" in row for row in rows)
