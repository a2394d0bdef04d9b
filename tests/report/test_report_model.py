"""The model of a report: what is told of a record, whatever is in it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.diagnosis import engine
from holdfast.report import families, html, losses
from holdfast.report.data import data
from holdfast.report.incidents import MOST_GROUPS, MOST_MEMBERS, split_evidence
from holdfast.report.lives import MOST_ROWS
from holdfast.report.memory import MOST_POINTS, MOST_SERIES
from holdfast.report.model import Report, report_of
from holdfast.report.text import text
from made_records import MIB, STACK, end, full_run, incident, reading, run_of, skipped, start, worker
from record_strategies import anything

jsonschema = pytest.importorskip("jsonschema")
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "report.json").read_text())


def told(folder: Path, *lines: dict[str, Any], torn: bytes = b"") -> Report:
    return report_of(run_of(folder, *lines, torn=torn))


# -- the top -----------------------------------------------------------------------------------------------------------


def test_a_run_without_incidents_is_well(tmp_path: Path) -> None:
    report = told(tmp_path, start(), end())
    assert (report.headline.title, report.headline.outcome, report.headline.is_healthy) == (
        "All went well",
        "finished",
        True,
    )
    assert report.headline.remedies == ()
    assert report.headline.story[0].words == "DataLoader over Photos: 188 samples in 24 batches, 1 min."


def test_what_was_lost_is_in_the_title(tmp_path: Path) -> None:
    report = told(tmp_path, *full_run())
    assert report.headline.title == "The run came through 3 incidents; 2 samples were left out"
    assert not report.headline.is_healthy
    story = [each.words for each in report.headline.story]
    assert "Worker 1 died of a segmentation fault while loading sample 70, twice: retried, then skipped." in story
    assert "1 worker was lost, and restarted at once." in story


def test_nothing_lost_is_said_too(tmp_path: Path) -> None:
    report = told(tmp_path, start(), incident(done="retried"), end(restarts=1))
    assert report.headline.title == "The run came through 1 incident; nothing was lost"


def test_an_error_that_was_raised_is_the_title(tmp_path: Path) -> None:
    """And its remedy comes first, however often something else happened."""
    hangs = [incident(n, n, cause="hang", summary="hung", advice=["give it a timeout"]) for n in range(1, 5)]
    report = told(tmp_path, start(), *hangs, incident(5, 9, done="raised"), end())
    assert report.headline.title == (
        "An error reached the training loop: worker 1 died of a segmentation fault while loading sample 70"
    )
    assert [remedy.words for remedy in report.headline.remedies] == ["update libjpeg", "give it a timeout"]


def test_a_record_without_an_end_was_cut_short(tmp_path: Path) -> None:
    report = told(tmp_path, start(), reading(5), reading(10))
    assert report.headline.title == "Cut short after 10 s: the record has no end"
    assert not report.headline.is_healthy
    assert "or it still runs on somewhere" in report.headline.story[1].words
    assert report.headline.remedies[0].command.startswith("dmesg")


def test_restarts_since_the_last_reading_are_counted(tmp_path: Path) -> None:
    """Of a run that was killed they are lines of their own."""
    noted = [worker(at_s, 1, "started", "restart") for at_s in (6, 7)]
    report = told(tmp_path, start(), reading(5), *noted)
    assert report.restarts == 2
    assert "2 workers were lost, and restarted at once." in [each.words for each in report.headline.story]


def test_a_run_that_goes_on_is_told_so(tmp_path: Path) -> None:
    run = run_of(tmp_path, start(), reading(5))
    report = report_of(dataclasses.replace(run, is_alive=True))
    assert report.headline.title.startswith("Running for ")
    assert report.headline.title.endswith(", no incident so far")
    assert report.headline.is_healthy


def test_a_loader_that_keeps_training_waiting_is_told_so(tmp_path: Path) -> None:
    report = told(tmp_path, start(target="data:photos"), end(10.0, waited_s=5.0))
    assert report.headline.story[-1].words == (
        "The training loop spent 50 % of the time waiting: the loader is the bottleneck."
    )
    assert report.headline.remedies[0].command == "holdfast tune data:photos"
    assert report.headline.is_healthy


def test_of_a_scan_no_waiting_is_told(tmp_path: Path) -> None:
    """It does nothing but wait: nobody trains. Where the workers' time went is told all the same."""
    lines = start(command="scan"), reading(5), reading(9), end(10.0, waited_s=9.0, stages={"fetch_s": 8.0})
    report = told(tmp_path, *lines)
    page, plain = html.page(report), text(report)
    for said in (page, plain):
        assert "bottleneck" not in said
        assert "training" not in said.partition("<style>")[0] + said.partition("</style>")[2]
        assert "8.0 s" in said
    assert (report.pace.waited_share, report.headline.remedies) == (None, ())


@pytest.mark.parametrize(
    ("front", "function", "words_of_it"),
    [("holdfast.map", "square", "holdfast.map of square: 6 calls, 1 min."), ("holdfast.spawn", "main", "6 ranks")],
)
def test_a_run_of_calls_has_calls(front: str, function: str, words_of_it: str, tmp_path: Path) -> None:
    """A pool has no samples, and a group has ranks."""
    of_calls = start(front=front, function=function, dataset=None, batch_size=None)
    report = told(tmp_path, of_calls, incident(sample_index=None), end(samples=6, batches=0, skipped=1))
    assert words_of_it in report.headline.story[0].words
    assert report.headline.title.endswith("1 call failed" if "map" in front else "1 rank failed")


# -- what is left of a record ------------------------------------------------------------------------------------------


def test_an_empty_file_is_told_so(tmp_path: Path) -> None:
    report = told(tmp_path)
    assert (report.headline.outcome, report.headline.is_healthy) == ("unreadable", False)


def test_damaged_lines_are_said(tmp_path: Path) -> None:
    """A torn last line is no reason to say nothing; it is one to say that there was more."""
    report = told(tmp_path, start(), incident(), torn=b'{"kind":"end","inc')
    assert report.warnings == ("1 line of the record could not be read, and went unheeded.",)
    assert report.incidents.total == 1
    assert not told(tmp_path, start(), end(), torn=b"\xff\xfe").headline.is_healthy


def test_a_newer_version_is_said(tmp_path: Path) -> None:
    """What can be shown is shown."""
    report = told(tmp_path, start(version=9, holdfast_version="3.0"), end())
    assert "newer version of holdfast (3.0)" in report.warnings[0]
    assert not report.headline.is_healthy
    assert report.pace.samples == 188


def test_without_its_first_line_a_record_is_told_as_far_as_it_goes(tmp_path: Path) -> None:
    report = told(tmp_path, incident(1, 3.0), reading(5.0), end(9.0))
    assert "first line of the record could not be read" in report.warnings[0]
    assert report.duration_s == 6.0
    assert report.incidents.groups[0].first_at_s == 0.0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(anything(), max_size=6))
def test_no_record_makes_a_report_fail(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    """Any value in any field: a page, a text, and JSON by its schema come of it."""
    report = told(tmp_path, *lines)
    assert html.page(report).startswith("<!doctype html>")
    assert all(len(line) <= 80 for line in text(report).split("\n"))
    jsonschema.validate(json.loads(json.dumps(data(report), allow_nan=False)), SCHEMA)


# -- incidents ---------------------------------------------------------------------------------------------------------


def test_equal_incidents_are_folded(tmp_path: Path) -> None:
    """Equal but for the numbers in their words; and each is told when and where it was."""
    raised = [
        incident(n, n, cause="dataset exception", summary=f"raised ValueError: {n} channels", sample_index=n, pid=None)
        for n in range(1, 101)
    ]
    report = told(tmp_path, start(), *raised, incident(101, 50), end())
    first, second = report.incidents.groups
    assert (first.count, first.summary, len(first.samples)) == (100, "raised ValueError: 1 channels", 100)
    assert (first.first_at_s, first.last_at_s, first.done) == (1.0, 60.0, (("skipped", 100),))
    assert [member.id for member in first.members] == [f"7f3a.{n}" for n in range(1, MOST_MEMBERS + 1)]
    assert (second.number, second.count, second.cause) == (2, 1, "segmentation fault")


def test_other_words_places_and_causes_are_other_groups(tmp_path: Path) -> None:
    lines = [incident(1), incident(2, cause="abort"), incident(3, where="b.py:1"), incident(4, summary="died")]
    assert [group.count for group in told(tmp_path, start(), *lines, end()).incidents.groups] == [1, 1, 1, 1]


def test_more_kinds_than_a_page_holds_are_counted(tmp_path: Path) -> None:
    """The ones that came most often are told."""
    lines = [incident(n, summary="x" * n) for n in range(1, MOST_GROUPS + 51)]
    often = [incident(900 + n, summary="often") for n in range(3)]
    found = told(tmp_path, start(), *lines, *often, end()).incidents
    assert len(found.groups) == MOST_GROUPS
    assert found.groups[-1].summary == "often"
    assert found.not_shown == (("segmentation fault", 51),)
    assert found.total == MOST_GROUPS + 53


def test_those_that_the_record_counted_only_are_in_the_total(tmp_path: Path) -> None:
    report = told(tmp_path, start(), incident(), {"kind": "full"}, end(incidents_left_out={"hang": 7, "abort": 9}))
    assert (report.incidents.total, report.incidents.left_out) == (17, (("abort", 9), ("hang", 7)))
    assert "more incidents than a record keeps" in report.warnings[0]


def test_what_did_not_fit_into_the_record_is_said(tmp_path: Path) -> None:
    report = told(tmp_path, start(), end(readings_left_out=3, worker_lines_left_out=9))
    assert [warning.partition(": ")[2] for warning in report.warnings] == ["3 readings.", "9 lines on workers."]


def test_evidence_is_split_into_facts_and_stack() -> None:
    assert split_evidence(f"SIGSEGV\nat libc\n{STACK}") == (("SIGSEGV", "at libc"), STACK)
    assert split_evidence("exit status 3") == (("exit status 3",), "")
    assert split_evidence("") == ((), "")


def test_every_cause_has_a_family() -> None:
    """And those that are not of the sample are the same as the loader's."""
    names = {cause.NAME for cause in engine.ALL}
    assert {name for name in names if families.family_of(name) == families.OTHER} == {"unknown"}
    assert names == set(families._OF_CAUSE)
    assert families.NOT_OF_THE_SAMPLE == engine.NOT_OF_THE_SAMPLE


# -- workers, memory, time ---------------------------------------------------------------------------------------------


def test_lives_are_those_of_the_lines_on_workers(tmp_path: Path) -> None:
    first, second = told(tmp_path, *full_run()).timeline.workers
    assert [(life.from_s, life.to_s, life.ended) for life in first.lives] == [(0.0, 59.0, "done")]
    assert [(life.from_s, life.to_s, life.ended) for life in second.lives] == [
        (0.0, 20.0, "died"),
        (20.1, 59.0, "done"),
    ]
    assert (first.restarts, second.restarts) == (0, 1)
    assert [mark.family for mark in second.marks] == ["crash", "crash"]


def test_lives_of_an_older_record_are_those_of_the_processes_that_were_lost(tmp_path: Path) -> None:
    raised = incident(2, 8.0, cause="dataset exception", pid=None)
    grows = incident(3, 9.0, cause="memory growth")
    first, second = told(tmp_path, start(), incident(1, 5.0), raised, grows, end(10.0)).timeline.workers
    assert [(life.from_s, life.to_s) for life in first.lives] == [(0.0, 10.0)]
    assert [(life.from_s, life.to_s, life.ended) for life in second.lives] == [(0.0, 5.0, "died"), (5.0, 10.0, "")]


def test_a_start_without_the_end_before_it_ends_it(tmp_path: Path) -> None:
    lines = [worker(0, 0, "started", "first", 1), worker(5, 0, "started", "restart", 2)]
    (only,) = told(tmp_path, start(), *lines, end(9.0)).timeline.workers
    assert [(life.from_s, life.to_s, life.pid) for life in only.lives] == [(0.0, 5.0, 1), (5.0, 9.0, 2)]


def test_of_many_workers_those_with_incidents_are_shown(tmp_path: Path) -> None:
    timeline = told(tmp_path, start(num_workers=100), incident(worker_id=99), end()).timeline
    assert len(timeline.workers) == MOST_ROWS
    assert timeline.workers_not_shown == 100 - MOST_ROWS
    assert timeline.workers[-1].worker_id == 99


def test_what_no_worker_did_has_a_row_of_its_own(tmp_path: Path) -> None:
    lost = incident(cause="supervisor killed", worker_id=None, pid=1, sample_index=None)
    assert told(tmp_path, start(), lost, end()).timeline.workers[-1].worker_id is None


def test_memory_is_private_memory_against_its_limit(tmp_path: Path) -> None:
    memory = told(tmp_path, *full_run()).memory
    assert [one.name for one in memory.workers] == ["worker 0", "worker 1"]
    assert memory.workers[0].peak_bytes == 155 * MIB
    assert memory.workers[0].limit_bytes == 105 * MIB + 200_000_000
    assert memory.total_peak_bytes == 300 * MIB
    assert memory.main is not None
    assert memory.main.peak_bytes == 700 * MIB


def test_memory_of_an_older_record_is_by_process(tmp_path: Path) -> None:
    """Which has three items to a worker; where private memory is not known resident memory is told."""
    old = reading(5.0, workers=[[4801, 300, None], [4802, 300, 200]], main=None)
    memory = told(tmp_path, start(), old, end()).memory
    assert [(one.name, one.peak_bytes) for one in memory.workers] == [("process 4801", 300), ("process 4802", 200)]
    assert memory.limit_bytes is None
    assert memory.main is None


def test_thousands_of_readings_are_thinned_out_and_keep_their_peak(tmp_path: Path) -> None:
    readings = [reading(n, workers=[[k, 1, 9 if (n, k) == (777, 3) else 1, k] for k in range(40)]) for n in range(2000)]
    memory = told(tmp_path, start(), *readings, end(2000.0)).memory
    assert len(memory.workers) == MOST_SERIES
    assert memory.not_shown == 40 - MOST_SERIES
    assert all(len(one.points) <= MOST_POINTS + 1 for one in memory.workers)
    (peak,) = [point for one in memory.workers for point in one.points if point[1] == 9]
    assert peak == (777.0, 9.0, 3)


def test_time_is_told_by_stage_and_by_waiting(tmp_path: Path) -> None:
    pace = told(tmp_path, *full_run()).pace
    assert pace.stages == (("fetch", 82.5), ("collate", 13.75), ("send", 6.875))
    assert (pace.waited_s, pace.waited_share, pace.is_bottleneck) == (3.0, 0.05, False)
    assert [(slow.sample, slow.seconds) for slow in pace.slowest] == [("70", 1.5), ("b.jpg", 0.5)]
    assert {round(rate.samples_per_s) for rate in pace.rates} == {80}


def test_without_an_end_the_last_reading_counts(tmp_path: Path) -> None:
    pace = told(tmp_path, start(), reading(5.0), reading(10.0)).pace
    assert (pace.samples, pace.batches, pace.waited_s) == (800, 100, 1.0)
    assert pace.stages[0] == ("fetch", 15.0)


# -- what was passed over ----------------------------------------------------------------------------------------------


def test_what_was_skipped_is_a_table(tmp_path: Path) -> None:
    lost = told(tmp_path, *full_run()).losses
    assert [(one.sample, one.reason, one.replaced_by) for one in lost.skipped] == [
        ("70", "raised ValueError: bad", ""),
        ("107", "hung", "3"),
    ]
    assert lost.total == 2


def test_of_an_older_record_the_incidents_say_what_was_skipped(tmp_path: Path) -> None:
    lines = [incident(1, done="retried"), incident(2), incident(3, sample_index="b.jpg", done="replaced by 7")]
    lost = told(tmp_path, start(), *lines, end(skipped=5)).losses
    assert [(one.sample, one.replaced_by) for one in lost.skipped] == [("70", ""), ("b.jpg", "7")]
    assert lost.total == 5


def test_the_skipped_file_is_one_that_the_loader_takes(tmp_path: Path) -> None:
    """Without what the sample had no part in."""
    outside = incident(4, cause="out of memory", sample_index=9)
    lines = [skipped(70), skipped("b.jpg"), skipped(70), skipped(9)]
    made = told(tmp_path, start(), outside, *lines, end()).losses.skipped_file
    assert [json.loads(line) for line in made.splitlines()] == [
        {"holdfast": "skipped samples", "version": 1, "dataset_length": 192},
        {"index": 70, "reason": "raised ValueError: bad"},
        {"index": "b.jpg", "reason": "raised ValueError: bad"},
    ]


def test_no_cell_of_the_csv_is_a_formula(tmp_path: Path) -> None:
    lost = told(tmp_path, start(), skipped("=1+1", reason="@x"), skipped(-5, reason='a "b"\nc'), end()).losses
    assert losses.as_csv(lost).splitlines() == [
        "sample,epoch,reason,replaced_by,seconds_since_start",
        "'=1+1,0,'@x,,1.000",
        '-5,0,"a ""b"" c",,1.000',
    ]
