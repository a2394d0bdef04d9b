"""A run as data: kills survived and gaps per kill, by start method and sort of kill.

Runs in: main.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from .gaps import Gap, Spread, gaps_by_sort, sort_of, spread
from .training import Outcome

AIM_S = 0.05
"""For a worker killed under fork, one at a time: p95 of the gap above the time that the lost unit takes."""

SHORT_S = 0.01
"""A unit that takes less does not blur what a kill costs."""


@dataclass(slots=True)
class Line:
    """One start method and sort of kill. `survived` counts kills in scenarios that delivered what torch does."""

    method: str
    sort: str
    survived: int = 0
    not_survived: int = 0
    gaps: list[Gap] = field(default_factory=list)
    calm: list[float] = field(default_factory=list)

    @property
    def gap(self) -> Spread | None:
        """Seconds between two deliveries."""
        return spread(gap.gap_s for gap in self.gaps)

    @property
    def above(self) -> Spread | None:
        """The same, without the time that the lost unit takes to load."""
        return spread(gap.above_s for gap in self.gaps)

    @property
    def unit(self) -> Spread | None:
        """Seconds that the lost units take to load."""
        return spread(gap.unit_s for gap in self.gaps)


@dataclass(slots=True)
class Report:
    """All scenarios of a run."""

    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def failures(self) -> list[Outcome]:
        """The scenarios that went wrong."""
        return [outcome for outcome in self.outcomes if outcome.failure is not None]

    def lines(self) -> list[Line]:
        """By method, in the order of the run, and sort."""
        lines: dict[tuple[str, str], Line] = {}
        for outcome in self.outcomes:
            for sort, line in _lines_of(outcome).items():
                total = lines.setdefault((outcome.scenario.method, sort), Line(outcome.scenario.method, sort))
                total.survived += line.survived
                total.not_survived += line.not_survived
                total.gaps += line.gaps
                total.calm += line.calm
        methods = list(dict.fromkeys(outcome.scenario.method for outcome in self.outcomes))
        return sorted(lines.values(), key=lambda line: (methods.index(line.method), line.sort))

    def aim(self) -> tuple[float, bool] | None:
        """The figure that has an aim, and whether it is met; None if there was no such kill."""
        above = spread(gap.above_s for gap in self._forked_workers())
        return None if above is None else (above.p95, above.p95 < AIM_S)

    def above_short_units(self) -> Spread | None:
        """The same gaps where units are short: what had been done of the lost one before the kill is lost as well, and
        a loop that was waiting for it had waited for that, too.
        """
        return spread(gap.above_s for gap in self._forked_workers() if gap.unit_s < SHORT_S)

    def _forked_workers(self) -> list[Gap]:
        return [gap for line in self.lines() if (line.method, line.sort) == ("fork", "worker") for gap in line.gaps]


def _lines_of(outcome: Outcome) -> dict[str, Line]:
    again = ", iterable run again" if outcome.scenario.is_run_again else ""
    storm = ", in a storm" if outcome.scenario.is_storm else ""

    def name(sort: str) -> str:
        return sort + (again if sort in {"worker", "supervisor"} else "") + storm

    scenario = outcome.scenario
    gaps = gaps_by_sort(outcome.kills, outcome.epochs, scenario.capacity, outcome.unit_s)
    lines: dict[str, Line] = {}
    for sort, count in Counter(map(sort_of, outcome.kills)).items():
        line = lines[name(sort)] = Line(scenario.method, name(sort), calm=outcome.calm, gaps=gaps.get(sort, []))
        line.survived, line.not_survived = (count, 0) if outcome.failure is None else (0, count)
    return lines


def as_json(report: Report) -> dict[str, Any]:
    """Plain data: the lines, and every scenario with its kills."""
    aim = report.aim()
    short = report.above_short_units()
    return {
        "lines": [_line_as_json(line) for line in report.lines()],
        "aim": None if aim is None else {"worker_fork_p95_above_s": aim[0], "limit_s": AIM_S, "met": aim[1]},
        "worker_fork_above_short_units_s": short and asdict(short),
        "scenarios": [_outcome_as_json(outcome) for outcome in report.outcomes],
    }


def _line_as_json(line: Line) -> dict[str, Any]:
    figures = {"gap_s": line.gap, "unit_s": line.unit, "above_s": line.above, "calm_interval_s": spread(line.calm)}
    return {
        "method": line.method,
        "sort": line.sort,
        "survived": line.survived,
        "not_survived": line.not_survived,
        "measured": len(line.gaps),
        **{name: figure and asdict(figure) for name, figure in figures.items()},
    }


def _outcome_as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        **asdict(outcome.scenario),
        "passes": outcome.passes,
        "batches": outcome.batches,
        "unit_s": outcome.unit_s,
        "wall_s": outcome.wall_s,
        "failure": outcome.failure,
        "kills": [asdict(kill) for kill in outcome.kills],
    }
