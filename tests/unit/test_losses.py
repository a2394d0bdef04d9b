"""What is said of a lost worker: a first line that stands alone, the facts under it, and the error it becomes."""

from __future__ import annotations

import errno
import re
import signal
from typing import Any

import numpy as np
import pytest

from holdfast.board_rows import DOING, Phase
from holdfast.diagnosis.evidence import Evidence
from holdfast.diagnosis.message import LABELS
from holdfast.errors import TooManyRestarts, WorkerCrashed, WorkerError, WorkerInitError, WorkerTimeout
from holdfast.loader import losses
from holdfast.workers.backend import WorkerLost
from holdfast.workers.board import Doing
from holdfast.workers.failures import capture
from holdfast.workers.messages import ENDINGS, Reason


def lost(
    phase: Phase = Phase.FETCH,
    *,
    exitcode: int = -signal.SIGSEGV,
    position: int = 1,
    reason: Reason = Reason.EXITED,
    stack: str = "",
) -> WorkerLost:
    evidence = Evidence(ENDINGS[reason], exitcode, DOING[phase], "fork", python_stack=stack, pid=4711)
    unit = -1 if phase is Phase.STARTING else 8
    return WorkerLost(3, 4711, exitcode, Doing(phase, unit, position, 1), True, reason, evidence)


def given_up(lost: WorkerLost, indices: list[Any]) -> WorkerError:
    return losses.given_up(lost, indices, epoch=5, batch=8, deaths=2)


STACK = """\
Thread 0x1 (most recent call first):
  File "/my/data.py", line 7 in __getitem__
"""


ALL: dict[str, WorkerError] = {
    "sample": given_up(lost(), [10, 17, 12]),
    "hung": given_up(lost(reason=Reason.HUNG, stack=STACK), ["a", "b"]),
    "batch": given_up(lost(Phase.COLLATE), [10, 17, 12]),
    "sending": given_up(lost(Phase.SEND), [10, 17, 12]),
    "batch of an iterable": given_up(lost(Phase.COLLATE), []),
    "starting": losses.died_starting(lost(Phase.STARTING, exitcode=1), 3),
    "killed starting": losses.died_starting(lost(Phase.STARTING, exitcode=-signal.SIGKILL), 3),
    "idle": losses.died_idle(lost(Phase.IDLE, exitcode=-signal.SIGKILL), 3),
    "stream": losses.stream_lost(lost(), 40),
}


@pytest.mark.parametrize("error", ALL.values(), ids=ALL)
def test_the_first_line_stands_alone(error: WorkerError) -> None:
    """Who and what happened, in one line that is a sentence; every other line is a fact with its name."""
    first, *others = str(error).split("\n")
    assert re.match(r"worker 3 \(pid 4711\) (was |hung |exited |died )", first)
    assert len(first) < 300
    assert "  " not in first
    assert others.pop(0) == ""
    for line in others:
        assert line[:13].strip() in (*LABELS, "")
        assert line[:2].isspace()
        assert line[13:].strip()


@pytest.mark.parametrize("error", ALL.values(), ids=ALL)
def test_the_worker_is_data_too(error: WorkerError) -> None:
    """A handler need not parse the text."""
    assert error.worker_id == 3


def test_a_sample_that_crashed_is_named_with_its_worker_and_its_batch() -> None:
    """And with the others of the batch, how often it was tried, and what to do next."""
    first, *others = str(ALL["sample"]).split("\n")
    assert type(ALL["sample"]) is WorkerCrashed
    assert ALL["sample"].sample_index == 17
    assert first == "worker 3 (pid 4711) died of a segmentation fault while loading sample 17"
    assert "  where      dataset[17], epoch 5, batch 8, attempt 2 of 2" in others
    assert "             lost with it, of the same batch: samples 10, 12" in others
    assert any("loader.dataset[17]" in line for line in others)
    assert any('on_error="skip"' in line for line in others)


def test_a_sample_in_the_record_can_be_replayed_by_its_id() -> None:
    """The command loads it alone; another shows the whole run. Without a record neither could."""
    told = str(losses.given_up(lost(), [10, 17, 12], 5, 8, 2, incident_id="7f3a.2"))
    assert "             holdfast replay 7f3a.2   load this sample alone, under the same limits" in told
    assert told.endswith("\n  report     holdfast report 7f3a")
    assert "loader.dataset[17]" not in told
    assert "holdfast re" not in str(ALL["sample"])


def test_a_sample_that_hung_comes_with_its_stack() -> None:
    """Where it was is said, and the frames are among the evidence."""
    assert type(ALL["hung"]) is WorkerTimeout
    assert str(ALL["hung"]).startswith("worker 3 (pid 4711) hung while loading sample 'b'\n")
    assert "data.py:7 in __getitem__" in str(ALL["hung"])


@pytest.mark.parametrize(("what", "doing"), [("batch", "collating"), ("sending", "sending")])
def test_a_batch_that_could_not_be_made_lists_its_samples(what: str, doing: str) -> None:
    """No single one is to blame."""
    first = str(ALL[what]).split("\n", 1)[0]
    assert first == f"worker 3 (pid 4711) died of a segmentation fault while {doing} the samples [10, 17, 12]"
    assert ALL[what].sample_index is None


def test_a_batch_of_an_iterable_has_no_indices_to_list() -> None:
    """Its elements have none."""
    first = str(ALL["batch of an iterable"]).split("\n", 1)[0]
    assert first == "worker 3 (pid 4711) died of a segmentation fault while collating a batch of the iterable dataset"


def test_a_long_list_of_samples_is_cut() -> None:
    """A batch of ten thousand does not fill the screen."""
    assert len(str(given_up(lost(Phase.COLLATE), [*range(10_000)]))) < 3000
    assert len(str(given_up(lost(), [*range(10_000)]))) < 3000


class NotShown:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("phase", [Phase.FETCH, Phase.COLLATE])
def test_indices_that_cannot_be_shown_do_not_hide_what_happened(phase: Phase) -> None:
    assert "died of a segmentation fault" in str(given_up(lost(phase), [NotShown(), NotShown()]))


def test_indices_that_do_not_compare_are_told_apart_by_their_place() -> None:
    """An array as an index, which is neither equal nor unequal to another."""
    error = given_up(lost(), [np.arange(3), np.arange(2), np.arange(4)])
    assert np.array_equal(error.sample_index, np.arange(2))  # type: ignore[arg-type]
    assert "samples array([0, 1, 2]), array([0, 1, 2, 3])" in str(error)


def test_a_worker_that_never_was_ready_says_where_to_look() -> None:
    """The dataset's loading, or worker_init_fn."""
    assert type(ALL["starting"]) is WorkerInitError
    assert str(ALL["starting"]).startswith("worker 3 (pid 4711) exited with status 1 before its first sample\n")
    assert "worker_init_fn" in str(ALL["starting"])


def test_a_worker_that_was_killed_before_it_was_ready_says_how_often() -> None:
    """It has no fault of its own: the next may be spared."""
    error = ALL["killed starting"]
    assert type(error) is TooManyRestarts
    assert str(error).startswith("worker 3 (pid 4711) was killed by SIGKILL before its first sample\n")
    assert "3 times in a row, as max_restarts=3 allows" in str(error)


def test_a_worker_that_dies_between_samples_says_how_often() -> None:
    """With the argument that allowed it."""
    assert type(ALL["idle"]) is TooManyRestarts
    assert str(ALL["idle"]).startswith("worker 3 (pid 4711) was killed by SIGKILL while waiting for work\n")
    assert "3 times within a minute, as max_restarts=3 allows" in str(ALL["idle"])


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_has_its_words(phase: Phase) -> None:
    """Also those in which a worker is seldom lost."""
    assert re.search(" while | before its first sample", str(losses.died_idle(lost(phase), 3)).split("\n")[0])
    assert losses.incident(lost(phase), [1, 2], "restarted").phase


def test_a_lost_stream_says_how_much_came() -> None:
    """And that the other workers go on."""
    assert type(ALL["stream"]) is WorkerCrashed
    assert "ends after 40 elements" in str(ALL["stream"])


@pytest.mark.parametrize(
    ("reason", "exitcode", "said"),
    [
        (Reason.HUNG, -9, "hung"),
        (Reason.STOPPED, -9, "was stopped by a signal and not continued"),
        (Reason.EXITED, 0, "exited with status 0"),
        (Reason.EXITED, 77, "exited with status 77"),
        (Reason.EXITED, -11, "died of a segmentation fault"),
        (Reason.EXITED, -50, "was killed by signal 50"),
    ],
)
def test_how_a_process_ended_is_said_in_a_few_words(reason: Reason, exitcode: int, said: str) -> None:
    """A kill that was ours is not reported as one."""
    assert losses.how(lost(reason=reason, exitcode=exitcode)) == said


@pytest.mark.parametrize(
    ("reason", "exitcode", "expected"),
    [
        *((Reason.EXITED, -number, True) for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)),
        *((Reason.EXITED, -number, False) for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL)),
        (Reason.EXITED, 9, False),
        (Reason.EXITED, 0, False),
        (Reason.HUNG, -signal.SIGKILL, False),
        (Reason.STOPPED, -signal.SIGKILL, False),
    ],
)
def test_a_kill_from_outside_is_told_from_the_samples_own_doing(reason: Reason, exitcode: int, expected: bool) -> None:
    """An exit status 9 is not signal 9, and the kill of a hung worker is ours. A sample that is given up for a stop was
    stopped twice.
    """
    assert losses.is_from_outside(lost(reason=reason, exitcode=exitcode)) is expected


@pytest.mark.parametrize(
    ("indices", "phase", "index"),
    [
        ([10, 17], Phase.FETCH, 17),
        ([10, 17], Phase.COLLATE, None),
        (None, Phase.FETCH, None),
        ([10], Phase.FETCH, None),
    ],
)
def test_an_incident_names_the_sample_that_was_in_hand(indices: Any, phase: Phase, index: Any) -> None:
    """If one was. Batch and epoch are as given."""
    incident = losses.incident(lost(phase, stack=STACK), indices, "retried", epoch=1, batch=8, attempt=2)
    assert (incident.cause, incident.done) == ("segmentation fault", "retried")
    assert (incident.worker_id, incident.pid) == (3, 4711)
    assert incident.evidence.startswith("SIGSEGV")
    assert STACK.strip() in incident.evidence
    assert incident.sample_index == index
    assert (incident.epoch, incident.batch, incident.attempt) == (1, 8, 2)


class Custom(Exception):
    """With a module in its name."""


def noted(error: Exception) -> Exception:
    error.add_note("look at the header\nof the file")
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("bad header"), "ValueError: bad header"),
        (ValueError("bad\nheader"), "ValueError: bad"),
        (ValueError(), "ValueError"),
        (noted(ValueError("bad header")), "ValueError: bad header"),
        (Custom("mine"), f"{__name__}.Custom: mine"),
        (KeyError("k"), "KeyError: 'k'"),
        (ExceptionGroup("many", [ValueError("one")]), "ExceptionGroup"),
    ],
    ids=repr,
)
def test_an_exception_is_told_in_one_line(error: Exception, said: str) -> None:
    """Its type and the first line of its text, whatever notes and further lines come after."""
    assert losses.raised(capture(error, "")) == said


def test_of_an_exception_with_a_cause_the_last_is_told() -> None:
    """That which was raised."""
    error = ValueError("outer")
    error.__cause__ = ValueError("inner")
    assert losses.raised(capture(error, "")) == "ValueError: outer"


def test_an_incident_has_the_tail_of_stderr() -> None:
    """As the docs say of the record: what the library wrote before it crashed. Bounded."""
    tail = "x" * 9000 + "\ndecoder: frame 17 has no keyframe\n"
    evidence = Evidence(ENDINGS[Reason.EXITED], -11, "loading", "fork", python_stack=STACK, stderr_tail=tail)
    worker = WorkerLost(3, 4711, -11, Doing(Phase.FETCH, 8, 1, 1), True, Reason.EXITED, evidence)
    seen = losses.incident(worker, [10, 17], "restarted").evidence
    assert STACK.strip() in seen
    assert seen.endswith("decoder: frame 17 has no keyframe")
    assert "last on its stderr:\n" in seen
    assert len(seen) < 5000


def test_an_incident_does_not_list_all_that_was_loaded() -> None:
    """As faulthandler does below each stack, in thousands of characters if there is much."""
    listed = f"\n\nExtension modules: {', '.join(f'library.part_{k}' for k in range(500))} (total: 500)\n"
    evidence = Evidence(
        *(ENDINGS[Reason.EXITED], -11, "loading", "fork"),
        python_stack=STACK + listed,
        stderr_tail=f"decoder: no keyframe\nFatal Python error: Segmentation fault{listed}decoder: bye\n",
    )
    worker = WorkerLost(3, 4711, -11, Doing(Phase.FETCH, 8, 1, 1), True, Reason.EXITED, evidence)
    seen = losses.incident(worker, [10, 17], "restarted").evidence
    assert "library" not in seen
    assert STACK.strip() in seen
    assert seen.endswith("decoder: no keyframe\nFatal Python error: Segmentation fault\ndecoder: bye")


def test_a_timeout_of_torchs_is_an_incident() -> None:
    """It is not known that a worker hangs: how to find out is said."""
    incident = losses.incident_of_timeout(5.0, epoch=1)
    assert (incident.cause, incident.confidence, incident.epoch) == ("hang", "possible", 1)
    assert str(incident).startswith("loader had no batch within timeout=5 while waiting for a batch")
    assert "sample_timeout" in incident.advice[0]


def test_an_incident_has_the_time_of_the_death() -> None:
    """The training step may have taken minutes before anyone asked for the next batch."""
    evidence = Evidence(ENDINGS[Reason.EXITED], -9, "loading", "fork", seen_at=1700000000.5)
    worker = WorkerLost(3, 4711, -9, Doing(Phase.FETCH, 8, 1, 1), True, Reason.EXITED, evidence)
    assert losses.incident(worker, [10, 17], "restarted").time == 1700000000.5


def test_a_worker_that_begins_another_epoch_is_not_before_its_first_sample() -> None:
    """It has loaded those of the epochs before."""
    doing = Doing(Phase.STARTING, 8, -1, 1)
    evidence = Evidence(ENDINGS[Reason.EXITED], 3, doing.words, "fork")
    error = losses.died_starting(WorkerLost(3, 4711, 3, doing, False, Reason.EXITED, evidence), 3)
    assert str(error).startswith("worker 3 (pid 4711) exited with status 3 while beginning an epoch")
    assert "nothing was loaded" not in str(error)
    assert "dataset[0]" not in str(error)


def test_an_exception_for_want_of_descriptors_says_who_holds_them() -> None:
    """It is the exception that the user sees, not the incident."""
    held = "200 of 200: 190 files, of which 188 in /data/train; 6 pipes"
    raised = OSError(errno.EMFILE, "Too many open files")
    failure = capture(raised, "raised in worker 0")._replace(phase=int(Phase.FETCH), descriptors=held)
    losses.attach(raised, losses.incident_of(failure, "raised"))
    assert held in "\n".join(raised.__notes__)
