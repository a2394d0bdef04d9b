"""What the log says of incidents: one useful line, then few.

Runs in: the test process, and forks of it.
"""

from __future__ import annotations

import copy
import gc
import logging
import pickle

import pytest

from forked import holds_in_a_fork
from holdfast.incident import Incident
from holdfast.incident_log import IncidentLog, takes_warnings

DIED = Incident("killed by another process", "retried", worker_id=1, summary="was killed by SIGKILL")
HUNG = Incident("hang", "skipped", worker_id=0, summary="hung")


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> IncidentLog:
    caplog.set_level(logging.DEBUG, "holdfast")
    return IncidentLog("DataLoader")


def test_the_first_is_a_warning_that_can_be_read(log: IncidentLog, caplog: pytest.LogCaptureFixture) -> None:
    """By whoever has `logging.basicConfig()` and nothing more: which worker, what happened, what was done."""
    log.note(DIED)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    said = "incident: DataLoader: worker 1 was killed by SIGKILL: retried; more of this cause are only counted"
    assert record.getMessage() == said


def test_the_event_has_a_name_and_facts(log: IncidentLog, caplog: pytest.LogCaptureFixture) -> None:
    """For programs that read logs: the format is always the same, the incident itself is there."""
    log.note(DIED)
    log.note(HUNG)
    assert {record.msg for record in caplog.records} == {"incident: %s: %s%s%s"}
    facts = vars(caplog.records[0])
    assert (facts["incident"], facts["front"], facts["count"]) == (DIED, "DataLoader", 1)


def test_the_number_in_the_record_is_named(log: IncidentLog, caplog: pytest.LogCaptureFixture) -> None:
    incident = Incident("hang", "skipped", summary="hung")
    incident.identify("7f3a.2")
    log.note(incident)
    assert "(7f3a.2)" in caplog.text


def test_further_ones_are_counted_and_not_told(log: IncidentLog, caplog: pytest.LogCaptureFixture) -> None:
    """Of a thousand bad samples, five lines: the first, three sums, and one at the end."""
    for _ in range(1234):
        log.note(DIED)
    log.end()
    first, *sums = warnings_in(caplog)
    assert first.startswith("incident: ")
    assert sums == [
        "incidents so far: DataLoader: 10 (killed by another process: 10)",
        "incidents so far: DataLoader: 100 (killed by another process: 100)",
        "incidents so far: DataLoader: 1000 (killed by another process: 1000)",
        "incidents in all: DataLoader: 1234 (killed by another process: 1234)",
    ]
    assert len(caplog.records) == 1234 + len(sums)  # the rest is there for who wants to debug


def test_the_first_of_each_cause_is_told(log: IncidentLog, caplog: pytest.LogCaptureFixture) -> None:
    """A worker that is killed is news, however many samples have hung before."""
    for _ in range(5):
        log.note(HUNG)
    log.note(DIED)
    log.end()
    assert [line.partition(";")[0] for line in warnings_in(caplog)] == [
        "incident: DataLoader: worker 0 hung: skipped",
        "incident: DataLoader: worker 1 was killed by SIGKILL: retried",
        "incidents in all: DataLoader: 6 (hang: 5, killed by another process: 1)",
    ]


def test_nothing_is_summed_up_that_has_been_told(log: IncidentLog, caplog: pytest.LogCaptureFixture) -> None:
    log.note(DIED)
    log.note(HUNG)
    log.end()
    log.end()
    assert len(warnings_in(caplog)) == 2


def test_what_comes_after_the_end_is_told_anew(log: IncidentLog, caplog: pytest.LogCaptureFixture) -> None:
    """A loader that is used again after `close()`."""
    log.note(DIED)
    log.end()
    log.note(DIED)
    assert len(warnings_in(caplog)) == 2


def test_it_is_summed_up_when_nobody_closes(caplog: pytest.LogCaptureFixture) -> None:
    """Most loaders are never closed: they are garbage at some time."""
    log = IncidentLog("DataLoader")
    for _ in range(3):
        log.note(DIED)
    del log
    gc.collect()
    assert warnings_in(caplog)[-1] == "incidents in all: DataLoader: 3 (killed by another process: 3)"


def test_a_copy_has_told_nothing_yet(log: IncidentLog, caplog: pytest.LogCaptureFixture) -> None:
    log.note(DIED)
    for other in (copy.deepcopy(log), pickle.loads(pickle.dumps(log))):
        other.note(DIED)
    assert len(warnings_in(caplog)) == 3


def test_a_forked_child_sums_up_nothing(log: IncidentLog, caplog: pytest.LogCaptureFixture) -> None:
    """What its parent's loader has met is its parent's to tell."""
    for _ in range(3):
        log.note(DIED)
    told = len(caplog.records)
    assert holds_in_a_fork(lambda: log.end() is None and len(caplog.records) == told)


class Raises(logging.Handler):
    """Logs to somewhere that cannot be reached."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ConnectionError("no such host")


def test_a_handler_that_raises_costs_nothing(log: IncidentLog, capfd: pytest.CaptureFixture[str]) -> None:
    """No batch is lost for the sake of a line in a log; what the handler raised is shown."""
    handler = Raises()
    logging.getLogger("holdfast").addHandler(handler)
    try:
        log.note(DIED)
    finally:
        logging.getLogger("holdfast").removeHandler(handler)
    assert "ConnectionError: no such host" in capfd.readouterr().err


# --- whether anybody hears it -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handler", "logger_level", "propagates", "is_heard"),
    [
        (None, logging.NOTSET, True, False),
        (logging.NullHandler(), logging.NOTSET, True, False),
        (logging.StreamHandler(), logging.NOTSET, True, True),
        (logging.StreamHandler(), logging.ERROR, True, False),
        (logging.StreamHandler(), logging.NOTSET, False, False),
    ],
)
def test_a_handler_above_the_logger_counts_if_it_gets_warnings(
    handler: logging.Handler | None, logger_level: int, propagates: bool, is_heard: bool
) -> None:
    """Neither Python's last resort, which prints without being asked, nor a handler that does nothing is one."""
    above, logger = logging.Logger("above"), logging.Logger("logger", logger_level)
    logger.parent, logger.propagate = above, propagates
    above.handlers = [handler] if handler is not None else []
    assert takes_warnings(logger) is is_heard


def test_a_handler_for_errors_alone_is_not_one_for_warnings() -> None:
    """As `basicConfig(level=logging.ERROR)` sets it up, on the handler or on the root."""
    logger, handler = logging.Logger("logger"), logging.StreamHandler()
    handler.setLevel(logging.ERROR)
    logger.addHandler(handler)
    assert not takes_warnings(logger)
    handler.setLevel(logging.WARNING)
    assert takes_warnings(logger)


def test_pytest_is_a_handler() -> None:
    """So the tests of this project see log lines, and no warnings."""
    assert takes_warnings(logging.getLogger("holdfast"))
