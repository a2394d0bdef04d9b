"""The fault table on real processes, each row against its contract. Every pair of values; all rows: make faults."""

from __future__ import annotations

import importlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from contract import ANY, Epoch, Noted, Outcome, Raised, Substitutes, expected
from faulty import (
    BATCH_SIZE,
    LENGTH,
    NUM_WORKERS,
    Collate,
    Fault,
    Generated,
    Init,
    Iterated,
    Map,
    MapOfMany,
    StrikesWhenLoaded,
    values_of,
    write_module,
)
from helpers import CLOSE_DEADLINE_S, PATIENCE_S, wait_until, wait_until_ended, worker_pids
from holdfast import DataLoader
from pairwise import pairs_of
from records import has_finished
from table import BEFORE_THE_FIRST_SAMPLE, Row, all_rows, some_rows

SAMPLE_TIMEOUT_S = 1.0
LIMIT = 3 * LENGTH
DATASETS = {"map": Map, "map of many": MapOfMany, "unbatched": Map, "iterator class": Iterated, "generator": Generated}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "row" in metafunc.fixturenames:
        rows = list(all_rows()) if metafunc.config.getoption("all_faults") else some_rows()
        metafunc.parametrize("row", rows, ids=map(str, rows))


@pytest.fixture(autouse=True)
def quiet_supervisor(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Of the workers something may be heard, of our own process nothing."""
    yield
    assert "supervisor" not in capfd.readouterr().err


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("stops_count_soon")
def test_a_fault_costs_what_the_contract_says(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is delivered, in which order, what is raised, noted and listed; the end is bounded, and nothing is left."""
    fault = Fault(row.how, row.is_once, tmp_path / "struck", os.getpid())
    loader = make_loader(row, fault, tmp_path, monkeypatch)
    for epoch, contract in enumerate(expected(row)):
        incidents, skipped = len(loader.incidents), len(loader.skipped_samples)
        outcomes = list(stubborn(row, loader, fault, strikes=epoch == 0))
        check_outcomes(outcomes, contract.outcomes)
        check_incidents(loader.incidents[incidents:], contract)
        check_skipped(loader.skipped_samples[skipped:], contract, outcomes)
    start = time.monotonic()
    loader.close()
    assert time.monotonic() - start < CLOSE_DEADLINE_S
    assert fault.has_struck(), "nobody was struck: this proves nothing"


def make_loader(row: Row, fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataLoader[Any]:
    cargo: object = StrikesWhenLoaded(fault) if row.when == "unpickling" else None
    if row.when == "import":
        name = f"imported_by_{tmp_path.name}"
        write_module(tmp_path, name, fault)
        monkeypatch.syspath_prepend(tmp_path)
        cargo = importlib.import_module(name).FromHere()
    return DataLoader(
        DATASETS[row.kind](fault, row.when, cargo),
        batch_size=None if row.kind == "unbatched" else BATCH_SIZE,
        num_workers=NUM_WORKERS,
        collate_fn=Collate(fault, row.when),
        worker_init_fn=Init(fault, row.when == "shutdown") if row.when in ("worker_init_fn", "shutdown") else None,
        multiprocessing_context=None if row.is_portable else row.method,
        persistent_workers=row.persistent,
        on_error=row.on_error,
        backend="portable" if row.is_portable else None,
        sample_timeout=SAMPLE_TIMEOUT_S if row.how == "endless loop" else None,
    )


# -- an epoch ----------------------------------------------------------------------------------------------------------


def stubborn(row: Row, loader: DataLoader[Any], fault: Fault, *, strikes: bool) -> Iterator[list[int] | Exception]:
    """One epoch of a user who goes on after every error; before the first sample, up to the first one."""
    iterator = iter(loader)
    units = LENGTH if row.kind == "unbatched" else LENGTH // BATCH_SIZE
    strikes_at = units - 1 if row.when == "end of epoch" else 1
    for number in range(LIMIT):
        if strikes and row.comes_from_outside and number == strikes_at:
            strike_from_outside(row, iterator, fault)
        try:
            yield values_of(next(iterator))
        except StopIteration:
            return
        except Exception as error:
            yield error.with_traceback(None)
            if row.when in BEFORE_THE_FIRST_SAMPLE:
                return
    raise AssertionError("the epoch does not end")


def strike_from_outside(row: Row, iterator: Any, fault: Fault) -> None:
    """Once the workers have finished all they were given: a signal to the last one, or to its supervisor."""
    pid = worker_pids(iterator)[-1]  # asked first: what waited for a worker to start is sent when it has
    wait_until(lambda: all(has_finished(iterator, worker) for worker in range(NUM_WORKERS)), PATIENCE_S, "idle workers")
    fault.mark.touch()
    if row.how == "supervisor killed":
        os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)
    else:
        os.kill(pid, signal.Signals[row.how])
    if row.how == "SIGSTOP":
        wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, PATIENCE_S, "a stopped worker")
    else:
        wait_until_ended([pid])


# -- what came of it ---------------------------------------------------------------------------------------------------


def check_outcomes(outcomes: list[list[int] | Exception], contract: list[Outcome]) -> None:
    assert len(outcomes) == len(contract), (outcomes, contract)
    for outcome, promised in zip(outcomes, contract, strict=True):
        if isinstance(promised, Raised):
            check_error(outcome, promised)
        elif isinstance(promised, Substitutes):
            assert isinstance(outcome, list), outcome
            assert len(outcome) == promised.count
            assert set(outcome) <= set(range(LENGTH)) - promised.never
        else:
            assert outcome == promised, (outcomes, contract)


def check_error(error: list[int] | Exception, promised: Raised) -> None:
    assert type(error) is promised.kind, error
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    for words in promised.says:
        assert words in text, text
    if promised.sample_index is not ANY:
        assert error.sample_index == promised.sample_index


def check_incidents(incidents: list[Any], contract: Epoch) -> None:
    if contract.may_note_anything or (contract.may_note_nothing and not incidents):
        return
    if contract.may_note_more:
        assert incidents, "nothing was noted"
        assert all(contract.incidents[0].words in seen_of(incident) for incident in incidents), incidents
        incidents = incidents[-1:]
    assert len(incidents) == len(contract.incidents), (incidents, contract.incidents)
    for incident, promised in zip(incidents, contract.incidents, strict=True):
        check_incident(incident, promised)


def seen_of(incident: Any) -> str:
    return f"{incident.summary}\n{incident.evidence}"


def check_incident(incident: Any, promised: Noted) -> None:
    assert promised.words in seen_of(incident), (incident, promised)
    assert incident.done.startswith(promised.done), (incident, promised)
    assert incident.phase == promised.phase, (incident, promised)
    if promised.sample_index is not ANY:
        assert incident.sample_index == promised.sample_index, (incident, promised)


def check_skipped(skipped: list[Any], contract: Epoch, outcomes: list[list[int] | Exception]) -> None:
    assert [sample.index for sample in skipped] == contract.skipped
    assert all(sample.reason for sample in skipped)
    substitutes = [sample.replaced_by for sample in skipped if sample.replaced_by is not None]
    places = [place for place, promised in enumerate(contract.outcomes) if isinstance(promised, Substitutes)]
    for place in places:
        assert outcomes[place] == substitutes, "what was delivered is not what was listed"


# -- the table itself --------------------------------------------------------------------------------------------------


def test_some_rows_have_every_pair_of_all() -> None:
    """`make test` leaves out no two values that go together in the whole table."""
    everything = {pair for row in all_rows() for pair in pairs_of(row)}
    assert {pair for row in some_rows() for pair in pairs_of(row)} == everything
