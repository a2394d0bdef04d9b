"""Each check, with facts of machines that nobody here has: what it says, and that it says all of it."""

from __future__ import annotations

import pytest
from made_facts import ROWS, Row

from holdfast.doctor import examination
from holdfast.doctor.finding import Level, worst_first

FORBIDDEN = ("could be caused", "see the logs", "quarantine", "verdict", "heartbeat", "lease ")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_check_says_what_the_facts_mean(row: Row) -> None:
    """The worst level, and the words that a user needs."""
    findings = row.check.judge(row.facts)
    assert worst_first(findings)[0].level is row.level
    said = "\n".join("\n".join((one.what, *one.evidence, one.consequence, *one.remedy)) for one in findings)
    assert [words for words in row.words if words not in said] == []
    assert [words for words in FORBIDDEN if words in said] == []


def test_every_finding_has_all_its_parts() -> None:
    """What, evidence, consequence and remedy; of what is well one line, and nothing else."""
    for check, finding in [(row.check, finding) for row in ROWS for finding in row.check.judge(row.facts)]:
        assert finding.check == check.NAME
        assert finding.what
        assert "\n" not in finding.what + finding.consequence + "".join((*finding.evidence, *finding.remedy))
        parts = (finding.evidence, finding.consequence, finding.remedy)
        assert all(parts) if finding.level is not Level.OK else not any(parts)
        assert all((*finding.evidence, *finding.remedy))


@pytest.mark.parametrize("check", examination.ALL, ids=lambda check: check.NAME)
def test_each_check_has_facts_that_it_fires_on_and_some_that_it_does_not(check: examination.Check) -> None:
    """A check that is added without them is not tested."""
    levels = {row.level for row in ROWS if row.check is check}
    assert Level.OK in levels
    assert levels - {Level.OK}


def test_no_two_checks_have_one_name() -> None:
    names = [check.NAME for check in examination.ALL]
    assert sorted(set(names)) == sorted(names)
