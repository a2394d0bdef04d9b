"""What is raised where no workers can be had any more: the shape of all messages, and the cause that was found."""

from __future__ import annotations

import errno
import os
import re
import signal

import pytest

from holdfast.diagnosis.evidence import Ending, Evidence
from holdfast.diagnosis.message import LABELS, WIDTH
from holdfast.errors import TooManyRestarts, WorkerError, WorkerInitError
from holdfast.workers import giving_up, no_start
from holdfast.workers.backend import SupervisorLost

PRINTED = "Traceback (most recent call last):\n  File ...\nModuleNotFoundError: No module named 'fast'\n"
KILLED = SupervisorLost(Evidence(Ending.SUPERVISOR, -signal.SIGKILL, pid=7))
EMFILE = OSError(errno.EMFILE, "Too many open files")
EAGAIN = BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

ALL: dict[str, tuple[WorkerError, str, str]] = {
    "no progress": (giving_up.no_progress(KILLED, 4), "supervisor killed", "certain"),
    "no descriptors": (giving_up.no_descriptors(), "too many open files", "likely"),
    "no fork": (giving_up.cannot_start(EAGAIN, "x"), "failure before the first sample", "certain"),
    "no files": (giving_up.cannot_start(EMFILE, "x", 1), "too many open files", "certain"),
    "no guard": (no_start.error_of("supervisor", 7, 97, None), "missing main guard", "certain"),
    "script": (no_start.error_of("supervisor", 7, 1, None), "failure before the first sample", "certain"),
    "import": (no_start.error_of("worker 1", 7, 1, "fast", PRINTED), "failure before the first sample", "likely"),
    "crash": (no_start.error_of("supervisor", 7, -11, "fast"), "segmentation fault", "likely"),
    "silence": (no_start.error_of("supervisor", 7, None, "fast"), "failure before the first sample", "certain"),
}


@pytest.mark.parametrize("said", ALL.values(), ids=ALL)
def test_it_has_the_shape_of_every_message(said: tuple[WorkerError, str, str]) -> None:
    """Who, what, why and how sure, what was done and what to try; and the incident says the same."""
    error, cause, confidence = said
    first, empty, *lines = str(error).split("\n")
    assert re.match(r"((supervisor|main process|worker 1) \(pid \d+\)|no process could be) \S.*[^\s:]$", first)
    assert empty == ""
    assert all(len(line) <= WIDTH and line[:13].strip() in (*LABELS, "") for line in lines)
    labels = {line[2:13].strip() for line in lines}
    assert {"cause", "evidence", "done", "try"} <= labels
    assert "on stderr" not in str(error)
    assert error.incident is not None
    assert (error.incident.cause, error.incident.confidence) == (cause, confidence)
    assert error.incident.advice
    assert f"({confidence})" in "\n".join(lines)
    assert "\n" not in error.incident.because


def test_a_supervisor_that_is_killed_again_and_again_is_said_to_be() -> None:
    error = ALL["no progress"][0]
    assert type(error) is TooManyRestarts
    assert "supervisor (pid 7) was killed by SIGKILL" in str(error)
    assert "4 times in a row" in str(error)


def test_an_error_of_an_import_is_quoted_where_it_is_known() -> None:
    """Else it is said that it is not, and how to see it."""
    assert "ModuleNotFoundError: No module named 'fast'" in str(ALL["import"][0])
    script = str(ALL["script"][0])
    assert "not available: what it wrote to stderr" in script
    assert "run_name='__mp_main__'" in script


def test_the_main_process_is_named_where_it_has_no_descriptor_left() -> None:
    error = ALL["no descriptors"][0]
    assert type(error) is WorkerInitError
    assert str(error).startswith(f"main process (pid {os.getpid()}) had too many open files")
    assert ALL["no files"][0].worker_id == 1
