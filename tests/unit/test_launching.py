"""How a supervisor makes a worker process: a fork, or a new interpreter with a spare that waits."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.board_rows import Phase
from holdfast.transport import pickling
from holdfast.workers.board import Board
from holdfast.workers.job import CarriedJob, import_quietly
from holdfast.workers.launching import Forking, Identity, Newborn, Spawning
from waits import PATIENCE_S, wait_until

from .jobs import job

WHO = Identity(0, "DataLoader worker 0", (1, 7))


@contextlib.contextmanager
def a_board() -> Iterator[Board]:
    """(No fixture: pytest would keep its mapping until after we have looked for what is left.)"""
    board = Board.create(1)
    board.reset(0, 1)
    yield board
    board.close()


def end(born: Newborn) -> int:
    """Close a worker's socket, which ends it, and everything of it. Its exit status."""
    born.socket.close()
    born.process.join(PATIENCE_S)
    exitcode: int = born.process.exitcode
    born.process.close()
    born.traces.discard()
    return exitcode


# --- imports ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["raise ValueError", "import surely_not_there", "raise SystemExit(3)", "syntax error"])
def test_a_module_that_cannot_be_imported_is_the_workers_to_report(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor goes on, and has what it could get. A script without a guard may even exit."""
    (tmp_path / "holdfast_test_bad.py").write_text(body)
    (tmp_path / "holdfast_test_good.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        import_quietly(frozenset({"holdfast_test_bad", "holdfast_test_good", "holdfast_test_missing"}))
        assert "holdfast_test_good" in sys.modules
        assert "holdfast_test_bad" not in sys.modules
    finally:
        sys.modules.pop("holdfast_test_good", None)


# --- forks ------------------------------------------------------------------------------------------------------------


def test_a_forked_worker_is_who_it_was_told_to_be_and_ends_with_its_socket() -> None:
    """Named and numbered as torch's worker in its place; what is to be kept out of it is closed there."""
    says, told = os.pipe()
    secret = os.open(os.devnull, os.O_RDONLY)

    def introduce(worker_id: int) -> None:
        process: Any = multiprocessing.current_process()
        has_secret = Path(f"/proc/self/fd/{secret}").exists()
        os.write(told, repr((worker_id, process.name, process._identity, process.daemon, has_secret)).encode())

    with a_board() as board:
        launcher = Forking(CarriedJob(job(range(3), worker_init_fn=introduce)), board, None, signal.default_int_handler)
        launcher.warm_up()
        born = launcher.launch(WHO, [secret])
        assert select.select([says], [], [], PATIENCE_S)[0]
        assert os.read(says, 1000) == repr((0, "DataLoader worker 0", (1, 7), True, False)).encode()
        wait_until(lambda: board.doing(0).phase is Phase.IDLE, PATIENCE_S, "the worker's being ready")
        assert end(born) == 0
        launcher.close()
    for fd in (says, told, secret):
        os.close(fd)


# --- new interpreters -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def spawning(board: Board) -> Iterator[Spawning]:
    data, modules = pickling.dumps(job(range(3)), "")
    launcher = Spawning(CarriedJob(None, data, modules), board, "spawn")
    yield launcher
    spare = launcher._spare
    launcher.close()
    launcher.close()
    if spare is not None:
        spare.process.join(PATIENCE_S)
        assert spare.process.exitcode == -signal.SIGKILL
        spare.process.close()
    os.close(launcher._job._data.fd)  # type: ignore[union-attr]


def test_a_spare_becomes_the_next_worker_and_one_that_died_does_not() -> None:
    """It is told who it is when it is needed. There is one at a time, and none is left when the launcher is closed."""
    with a_board() as board, spawning(board) as launcher:
        launcher.warm_up()
        dead = launcher._spare
        assert dead is not None
        launcher.warm_up()
        assert launcher._spare is dead
        dead.process.kill()
        assert select.select([dead.process.sentinel], [], [], PATIENCE_S)[0]
        launcher.warm_up()
        born = launcher.launch(WHO, [])
        assert born.process.pid != dead.process.pid
        dead.process.join(PATIENCE_S)
        dead.process.close()
        launcher.warm_up()
        spare = launcher._spare
        wait_until(lambda: board.doing(0).phase is Phase.IDLE, PATIENCE_S, "the worker's being ready")
        assert end(born) == 0
        board.reset(0, 2)
        born = launcher.launch(WHO, [])
        assert born is spare
        wait_until(lambda: board.doing(0).phase is Phase.IDLE, PATIENCE_S, "the spare's being ready")
        assert end(born) == 0
        launcher.warm_up()
