"""The geometry of the charts: everything within its frame, bounded, and as large as what it stands for."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.report import families
from holdfast.report.charts import panel, stages, timeline, usage
from holdfast.report.charts.scale import Scale, byte_ticks, number_ticks, time_ticks
from holdfast.report.lives import Life, Mark, Timeline, Worker
from holdfast.report.memory import MemoryUse, Series
from holdfast.report.pace import Pace, Rate

MIB = 1 << 20


def timeline_of(*workers: Worker, duration_s: float = 100.0) -> timeline.TimelineChart:
    return timeline.timeline_chart(Timeline(duration_s, workers, 0))


def pace_of(waited_share: float | None = 0.25, stages: tuple[float, ...] = (), rates: tuple[Rate, ...] = ()) -> Pace:
    named = tuple(zip(("fetch", "collate", "send"), stages, strict=True)) if stages else ()
    return Pace(10, 80, 1.0, waited_share, named, rates, ())


# -- axes --------------------------------------------------------------------------------------------------------------


@given(most=st.floats(0, 1e12), ticks=st.sampled_from([time_ticks, byte_ticks, number_ticks]))
def test_ticks_are_few_and_in_order(most: float, ticks: object) -> None:
    assert callable(ticks)
    made = ticks(Scale(most, 10.0, 910.0))
    assert 1 <= len(made) <= 8
    assert [tick.at for tick in made] == sorted(tick.at for tick in made)
    assert all(10 <= tick.at <= 910 and tick.label for tick in made)


@pytest.mark.parametrize(
    ("duration_s", "labels"),
    [
        (2.35, ["0 s", "0.5 s", "1 s", "1.5 s", "2 s"]),
        (60, ["0 s", "10 s", "20 s", "30 s", "40 s", "50 s", "1 min"]),
        (3 * 3600, ["0 s", "30 min", "1 h", "1 h 30 min", "2 h", "2 h 30 min", "3 h"]),
        (12 * 86400, ["0 s", "2 d", "4 d", "6 d", "8 d", "10 d", "12 d"]),
        (0, ["0"]),
    ],
)
def test_times_are_round(duration_s: float, labels: list[str]) -> None:
    assert [tick.label for tick in time_ticks(Scale(duration_s, 0, 900))] == labels


def test_sizes_are_in_powers_of_two() -> None:
    assert [tick.label for tick in byte_ticks(Scale(700 * MIB, 0, 90))] == ["0", "256 MiB", "512 MiB"]


def test_a_value_beyond_the_axis_lies_at_its_end() -> None:
    scale = Scale(10.0, 100.0, 200.0)
    assert [scale(value) for value in (-1, 0, 5, 10, 99)] == [100.0, 100.0, 150.0, 200.0, 200.0]
    assert Scale(0.0, 100.0, 200.0)(5) == 100.0


# -- workers -----------------------------------------------------------------------------------------------------------


def test_a_bar_is_as_long_as_its_process_lived() -> None:
    lives = (Life(0, 25, 1, "died"), Life(25, 100, 2, ""))
    (row,) = timeline_of(Worker(0, lives, ())).rows
    whole = timeline.WIDTH - timeline.LEFT - timeline.RIGHT
    first, second = row.bars
    assert first.width == pytest.approx(whole / 4, abs=2)
    assert (first.x, second.x) == (timeline.LEFT, timeline.LEFT + whole / 4)
    assert first.x + first.width < second.x, "a restart is a gap"
    assert (first.title, row.label) == ("pid 1, 0 s to 25 s, died", "worker 0")


def test_a_short_life_is_not_taken_for_the_long_one_after_it() -> None:
    """A worker that died twice at one moment, and then lived on."""
    lives = (Life(0, 50, 1, "died"), Life(50, 50, 2, "died"), Life(50, 100, 3, ""))
    (row,) = timeline_of(Worker(0, lives, ())).rows
    assert [bar.ended for bar in row.bars] == ["died", "died", ""]
    assert row.bars[1].width < 1


def test_ten_thousand_incidents_are_a_bounded_number_of_marks() -> None:
    """Those at one place are one, with their number: none is lost."""
    marks = tuple(Mark(n / 100, families.CRASH if n % 2 else families.HANG, n, "died") for n in range(10_000))
    lives = tuple(Life(n / 100, (n + 1) / 100, n, "died") for n in range(10_000))
    (row,) = timeline_of(Worker(0, lives, marks)).rows
    assert len(row.signs) < 250
    assert sum(sign.count for sign in row.signs) == 10_000
    assert len(row.bars) < 700


@given(
    marks=st.lists(
        st.builds(Mark, st.floats(0, 100), st.sampled_from(sorted(families.TITLES)), st.integers(1, 9), st.text())
    ),
    ends=st.lists(st.floats(0, 100)),
)
def test_everything_is_within_the_frame(marks: list[Mark], ends: list[float]) -> None:
    moments = [0.0, *sorted(ends), 100.0]
    lives = tuple(Life(a, b, None, "died") for a, b in pairwise(moments))
    chart = timeline_of(Worker(3, lives, tuple(marks)), Worker(None, (), tuple(marks)))
    for row in chart.rows:
        assert all(chart.left <= bar.x and bar.x + bar.width <= chart.right + 1 and bar.width > 0 for bar in row.bars)
        assert all(chart.left <= sign.x <= chart.right for sign in row.signs)
        assert timeline.BAR / 2 < row.y < chart.bottom
    assert {entry[0] for entry in chart.legend} == {mark.family for mark in marks}


def test_families_differ_in_shape() -> None:
    """Not in colour alone."""
    assert timeline.SHAPES.keys() == families.TITLES.keys()
    assert len(set(timeline.SHAPES.values())) == len(families.TITLES)


def test_a_run_of_no_duration_has_a_chart() -> None:
    (row,) = timeline_of(Worker(0, (Life(0, 0, 1, ""),), (Mark(0, "crash", 1, "x"),)), duration_s=0.0).rows
    assert row.bars[0].x == row.signs[0].x == timeline.LEFT


# -- memory and rate ---------------------------------------------------------------------------------------------------


def memory_of(peak: float, limit: float | None) -> MemoryUse:
    points = ((0.0, peak / 2, 1), (50.0, peak, 1), (50.0, peak / 2, 2), (60.0, peak / 2, 2), (100.0, peak, 3))
    return MemoryUse(5, limit, None, (Series("worker 0", points, peak, limit),), 0, None, peak)


def test_a_line_is_broken_where_a_process_was_replaced() -> None:
    (only,) = usage.memory_panels(memory_of(100.0 * MIB, None), 100.0)
    assert len(only.lines) == len(only.areas) == 2
    assert len(only.dots) == 1
    assert only.limit_y is None
    assert only.note == "peak 100.0 MiB"


def test_the_limit_is_a_line_above_what_was_taken() -> None:
    (only,) = usage.memory_panels(memory_of(100.0 * MIB, 150.0 * MIB), 100.0)
    assert only.limit_y is not None
    heights = [float(y) for line in only.lines for y in re.findall(r" (\d+\.?\d*)", line)]
    assert panel.TOP <= only.limit_y < min(heights)
    assert max(heights) <= panel.HEIGHT - panel.BOTTOM
    assert "of 150.0 MiB, its limit" in only.description


def test_a_limit_far_above_everything_is_told_and_not_drawn() -> None:
    """It would make a flat line of what was taken."""
    (only,) = usage.memory_panels(memory_of(100.0 * MIB, 4096.0 * MIB), 100.0)
    assert only.limit_y is None
    assert "of 4.0 GiB" in only.note


def test_rates_are_two_panels_or_none() -> None:
    rates = (Rate(5, 100.0, 0.5), Rate(10, 50.0, 0.1))
    first, second = usage.rate_panels(pace_of(rates=rates), 10.0)
    assert (first.title, second.title) == ("samples per second", "waiting for batches")
    assert usage.rate_panels(pace_of(rates=rates[:1]), 10.0) == ()


# -- stages ------------------------------------------------------------------------------------------------------------


def test_stages_fill_their_bar() -> None:
    workers, loop = stages.stage_bars(pace_of(0.25, (6.0, 3.0, 1.0)), 40.0)
    assert [part.width for part in workers.segments] == [576.0, 288.0, 96.0]
    assert [(part.name, part.share) for part in loop.segments] == [("wait", "25 %"), ("training", "75 %")]
    assert loop.segments[0].seconds == "10 s"


def test_what_is_not_known_has_no_bar() -> None:
    assert stages.stage_bars(pace_of(None), 40.0) == ()
    assert [bar.title for bar in stages.stage_bars(pace_of(0.5), 40.0)] == ["in the training loop"]
