"""A worker process of the portable backend, from its start until it is a worker: a recruit.

    started ──► imports ──► waits for an assignment ──► worker k (worker.py) ──► ends
                              └ the spare stays here until a worker dies

A recruit does not open the job before it is assigned: seeds and `get_worker_info()` must be right when the user's code
runs. It ends when the main process hangs up, and with the main process, whatever it is doing: a thread watches.
(Not while it is inside C code that holds the GIL: then as soon as that returns.)

Runs in: worker process.
"""

from __future__ import annotations

import marshal
import multiprocessing.process
import os
import threading
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.transport import names
from holdfast.transport.segments import Segment
from holdfast.workers import no_start
from holdfast.workers.board import Board
from holdfast.workers.descendants import end_own
from holdfast.workers.job import import_quietly
from holdfast.workers.messages import Order
from holdfast.workers.passing import PassedSegment
from holdfast.workers.pipes import WorkerEnd
from holdfast.workers.serving import serve
from holdfast.workers.shared_job import ArrivedJob, SharedJob
from holdfast.workers.start_methods import ignore_interrupts
from holdfast.workers.worker import Worker, do_nothing, learn_segment

if TYPE_CHECKING:
    from holdfast.workers.traces import TraceEnds  # not on Windows

_LOOK_S = 0.5
_PATIENCE_S = 2.0  # for a main process whose pipe has closed and that is still there
_AFTER_THE_USERS = -900  # multiprocessing has waited for its children by then
_ASSIGN = -1  # beside the orders that a worker knows


@dataclass(frozen=True)
class RecruitSpec:
    """Everything a recruit is told when it is started."""

    end: Any  # of the pipe: a Connection
    board: Board
    job: SharedJob | ArrivedJob  # the one becomes the other on the way
    segments: tuple[tuple[int, PassedSegment], ...]  # by number, all there are
    owner: str  # what the main process's names begin with
    serial: int
    main_pid: int
    traces: TraceEnds | None
    is_rank: bool


class Assignment(NamedTuple):
    """Which worker a recruit becomes, and the name and number that torch's would have."""

    worker_id: int
    name: str
    identity: tuple[int, ...]


def pack_assignment(assignment: Assignment) -> bytes:
    return marshal.dumps((_ASSIGN, *assignment))


def main(spec: RecruitSpec) -> None:
    """The target of a worker process."""
    look = spec.traces.install(is_forked=False) if spec.traces is not None else do_nothing
    on_interrupt = ignore_interrupts()  # a spare must outlive a Ctrl-C that the user catches
    try:
        threading.Thread(target=_go_with_main, args=(spec,), name="holdfast-watch", daemon=True).start()
    except RuntimeError:  # "can't start new thread"
        no_start.leave_refused()
    end = WorkerEnd(spec.end)
    segments = {number: passed.segment for number, passed in spec.segments}
    for segment in segments.values():
        segment.close_fd()
    assert isinstance(spec.job, ArrivedJob)
    if spec.is_rank:
        Finalize(None, end_own, exitpriority=_AFTER_THE_USERS)  # where no supervisor would
    try:
        end.say_read()
        import_quietly(spec.job.modules)
        assignment = _await_assignment(end, segments)
        if assignment is not None:
            _become(assignment)
            new_name = names.Namer(spec.owner, spec.serial)
            worker = Worker(assignment.worker_id, spec.board, end, segments, new_name, look=look)
            when_ready = spec.traces.install_handlers if spec.traces is not None else do_nothing
            serve(worker, spec.job, on_interrupt, when_ready=when_ready)
    except ConnectionError:
        pass  # the main process has hung up
    if end.was_cut_off and not spec.board.is_closing() and _main_is_gone(spec.main_pid, _PATIENCE_S):
        names.remove_all(f"{spec.owner}-")


def _await_assignment(end: WorkerEnd, segments: dict[int, Segment]) -> Assignment | None:
    """Learn of segments meanwhile, so that their names need not wait for this process. None: it is not needed."""
    while (received := end.receive()) is not None:
        message = marshal.loads(received[0])
        if message[0] == _ASSIGN:
            return Assignment(*message[1:])
        if message[0] == Order.SEGMENT:
            learn_segment(segments, message, [*received[1]])
        elif message[0] == Order.FORGET:
            for number in message[1]:
                segments.pop(number, None)
    return None


def _become(assignment: Assignment) -> None:
    process: Any = multiprocessing.process.current_process()
    process.name = assignment.name
    process._identity = assignment.identity


# -- the end of the main process ---------------------------------------------------------------------------------------


def _go_with_main(spec: RecruitSpec) -> None:
    while not _main_is_gone(spec.main_pid, _LOOK_S):
        pass
    names.remove_all(f"{spec.owner}-")
    if spec.is_rank:
        end_own()
    os._exit(1)


def _main_is_gone(main_pid: int, within_s: float) -> bool:
    """A fork of the main process may keep its end of the sentinel open: the parent's pid tells as well, on POSIX."""
    parent = multiprocessing.process.parent_process()
    assert parent is not None
    return bool(connection.wait([parent.sentinel], within_s)) or os.getppid() != main_pid
