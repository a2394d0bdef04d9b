"""The table of reproducers on real loaders: each cell's cause, confidence, sample and worker, and the error's words."""

from __future__ import annotations

import importlib
import os
import pickle
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Dataset

import striking
from helpers import Program
from holdfast import DataLoader
from holdfast.diagnosis import engine
from holdfast.diagnosis.native.crash_page import can_have_registers
from holdfast.errors import WorkerError
from holdfast.incident import Incident
from holdfast.records.reader import all_runs
from places import PLACES, nothing
from reproducers import ALL, INTERRUPTED, METHODS, NO_MAIN_GUARD, REPRODUCERS, Reproducer, cells
from striking import BAD, MoveInit, Strike, StrikeInit, StrikesWhenLoaded, Struck
from waits import PATIENCE_S

if not can_have_registers():
    pytest.skip("the table is of x86_64 Linux with glibc: elsewhere there is less evidence", allow_module_level=True)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def strike(row: Reproducer, tmp_path: Path) -> Iterator[Strike]:
    """What the row does, with all it needs."""
    with PLACES.get(row.name, nothing)(tmp_path) as args:
        yield Strike(row.how, args, os.getpid())


@pytest.mark.usefixtures("stops_count_soon")
@pytest.mark.parametrize(("row", "method"), list(cells()), ids=str)
def test_a_reproducer_is_diagnosed(
    row: Reproducer, method: str, strike: Strike, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cell of the table; and the error, which carries the incident, pickles whole and can be read."""
    with make_loader(row, method, strike, tmp_path, monkeypatch) as loader:
        error = epoch(loader)
        incident = loader.incidents[-1]
    check_incident(row, incident)
    check_error(row, error, incident)
    check_words(row, text_of(error, incident))
    check_sender(strike, incident)


def make_loader(
    row: Reproducer, method: str, strike: Strike, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> DataLoader[Any]:
    cargo: object = StrikesWhenLoaded(strike) if row.when == "unpickling" else None
    if row.when == "import":
        name = f"imported_by_{tmp_path.name}"
        striking.write_module(tmp_path, name, strike)
        monkeypatch.syspath_prepend(tmp_path)
        cargo = importlib.import_module(name).FromHere()
    init: Any = StrikeInit(strike) if row.when == "worker_init_fn" else None
    options: dict[str, Any] = {
        "worker_init_fn": MoveInit(*strike.args) if row.cause == "out of memory" else init,
        "multiprocessing_context": None if method == "portable" else method,
        "backend": "portable" if method == "portable" else None,
        "max_retries": 0,
        **row.options,
    }
    dataset = Struck(strike if row.when == "getitem" else None, cargo)
    return DataLoader(dataset, striking.BATCH_SIZE, num_workers=striking.NUM_WORKERS, **options)


def epoch(loader: DataLoader[Any]) -> Exception | None:
    """What an epoch raises."""
    try:
        for _ in loader:
            pass
    except Exception as error:
        return error.with_traceback(None)
    return None


def text_of(error: Exception | None, incident: Incident) -> str:
    """All that a user can read: the error with its notes, and the incident."""
    notes = getattr(error, "__notes__", ())
    return "\n".join([str(error), *notes, str(incident), incident.because, incident.evidence, *incident.advice])


def check_incident(row: Reproducer, incident: Incident) -> None:
    assert (incident.cause, incident.confidence) == (row.cause, row.confidence), incident
    assert incident.sample_index == (BAD if row.names_sample else None)
    assert incident.worker_id == row.worker_id
    assert incident.summary
    assert "\n" not in str(incident)
    assert Incident.from_json(incident.to_json()) == incident


def check_error(row: Reproducer, error: Exception | None, incident: Incident) -> None:
    assert (type(error).__name__ if error is not None else "") == row.error, error
    if error is None:
        return
    assert error.incident is incident
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.incident) == (type(error), str(error), incident)
    if isinstance(error, WorkerError):
        assert (again.worker_id, again.sample_index) == (error.worker_id, error.sample_index)
        assert error.worker_id == incident.worker_id
        check_shape(error)


def check_shape(error: WorkerError) -> None:
    """The first line stands alone."""
    first, empty, *rest = str(error).split("\n")
    assert re.match(r"worker 1 \(pid \d+\) \S.*\S$", first), first
    assert not first.endswith((":", ","))
    assert empty == ""
    assert [label for label in ("cause", "evidence", "done", "try") if f"  {label}  " not in "\n".join(rest)] == []


def check_words(row: Reproducer, text: str) -> None:
    assert [words for words in row.says if not any(each in text for each in words.split("|"))] == [], text
    if row.cause != "out of memory":
        assert "ended a process of the worker's memory cgroup" not in text


def check_sender(strike: Strike, incident: Incident) -> None:
    """Who sent the signal, where the kernel tells."""
    if strike.how == "be_sent" and strike.args[0] in ("SEGV", "TERM"):
        sender = Path(strike.args[1]).read_text().strip()
        assert f"process {sender} sent it SIG{strike.args[0]}" in incident.because


# -- in a program of its own: pytest has taken stderr away from this one -----------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["a double free", "an uncaught C++ exception"])
def test_last_words_are_seen_on_stderr_marked_with_the_worker(name: str, method: str, tmp_path: Path) -> None:
    """Those of glibc and C++, and what Python has written before; the incident has them too."""
    row = next(row for row in REPRODUCERS if row.name == name)
    with PLACES[name](tmp_path) as args, Program("last_words.py", *args, method) as program:
        assert program.wait(2 * PATIENCE_S) == 0
        program.wait_until_nothing_is_left()
        lines = program.stderr.splitlines()
        said = program.stdout
    assert said.startswith("abort\n")
    assert [words for words in row.says if words not in said] == []
    assert [line for line in lines if line and not line.startswith("[worker 1] ")] == []
    assert "[worker 1] decoding sample 1" in lines
    assert any(row.says[1] in line for line in lines)


@pytest.mark.parametrize("method", [method for method in METHODS if method not in NO_MAIN_GUARD.absent])
def test_a_script_without_a_main_guard_is_told_so(method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And the one record there is is the script's own: its echoes in new interpreters keep none."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    with Program("no_main_guard.py", method) as program:
        assert program.wait(2 * PATIENCE_S) == 0
        program.wait_until_nothing_is_left()
        said = NO_MAIN_GUARD.error, NO_MAIN_GUARD.cause, NO_MAIN_GUARD.confidence
        assert program.stdout.startswith("\n".join(said))
        assert "Traceback" not in program.stderr
        assert [words for words in NO_MAIN_GUARD.says if words not in program.stdout] == []
    (record,) = all_runs()
    assert record.incidents[-1]["cause"] == NO_MAIN_GUARD.cause


# -- in the main process -----------------------------------------------------------------------------------------------


class Raised(Exception):
    """By the handler."""


LATE = 5


class Late(Dataset[int]):
    """One sample comes only when the file is there."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> int:
        while index == LATE and not self.file.exists():
            time.sleep(0.005)
        return index


@pytest.mark.parametrize("method", METHODS)
def test_a_signal_handler_that_raises_kills_no_supervisor(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was killed, and the portable backend has no supervisor at all; every sample comes once."""
    context = None if method == "portable" else method
    backend = "portable" if method == "portable" else None
    raised, waits = tmp_path / "raised", threading.Event()

    def raise_once(*_: object) -> None:
        if waits.is_set() and not raised.exists():
            raised.touch()
            raise Raised

    before = signal.signal(signal.SIGALRM, raise_once)
    try:
        with DataLoader(Late(raised), 1, num_workers=2, multiprocessing_context=context, backend=backend) as loader:
            found = interrupted_epoch(loader, waits, monkeypatch)
            incident = loader.incidents[-1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert found == [*range(24)]
    assert (incident.cause, incident.confidence) == (INTERRUPTED.cause, INTERRUPTED.confidence)
    assert (incident.pid, incident.worker_id, incident.done) == (None, None, "restarted")
    check_words(INTERRUPTED, text_of(None, incident))


def interrupted_epoch(loader: DataLoader[Any], waits: threading.Event, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """All samples, with an exception of the handler in between: inside next(), which waits for the one that is late."""
    iterator: Any = iter(loader)
    found = [int(next(iterator)) for _ in range(LATE)]
    wait = iterator._backend.wait

    def say_and_wait(timeout_s: float) -> object:
        waits.set()
        return wait(timeout_s)

    monkeypatch.setattr(iterator._backend, "wait", say_and_wait)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    with pytest.raises(Raised):
        next(iterator)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return found + [int(batch) for batch in iterator]


# -- the table itself --------------------------------------------------------------------------------------------------


def test_every_cause_is_reproduced() -> None:
    """None is told of by reasoning alone."""
    assert {row.cause for row in ALL} == {cause.NAME for cause in engine.ALL}


def test_the_rows_have_names_of_their_own() -> None:
    assert len({row.name for row in ALL}) == len(ALL)
    assert PLACES.keys() <= {row.name for row in REPRODUCERS}
