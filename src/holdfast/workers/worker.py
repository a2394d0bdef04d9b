"""The main loop of a worker: receive a unit, fetch, collate into the slot, send the header.

    orders from main ──► Worker.run ──► results to main

A worker knows nothing of restarts, of other workers, or of what becomes of a sample. It ends when its socket does, and
with its supervisor, whatever it is doing. Runs in: worker process.
"""

from __future__ import annotations

import ctypes
import dataclasses
import marshal
import os
import pickle
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.multiprocessing

from holdfast.transport import collate, layout
from holdfast.transport.segments import Handle, Segment
from holdfast.transport.writer import Area, SlotWriter, area_of
from holdfast.workers import messages
from holdfast.workers.board import PHASE, POSITION, UNIT, Board, Phase
from holdfast.workers.failures import Failure, capture
from holdfast.workers.fetch import IterableFetcher, MapFetcher, StreamEnded, make_fetcher
from holdfast.workers.job import CarriedJob, Job
from holdfast.workers.messages import Kind, Order, Result, SlotRef, Unit
from holdfast.workers.seeding import seed_datapipe, seed_worker, set_worker_info

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent dies; the parent must be single-threaded."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)  # it died before the call


def main(
    worker_id: int,
    job: CarriedJob,
    board: Board,
    sock: socket.socket,
    supervisor_pid: int,
    *,
    on_interrupt: Any = signal.default_int_handler,
) -> None:
    """The target of a worker process. SIGINT finds what a worker forked by torch would have."""
    from holdfast.workers.channel import Channel  # where there are such sockets

    die_with_parent(supervisor_pid)
    serve(Worker(worker_id, board, Channel(sock, blocking=True)), job, on_interrupt)


class OpenableJob(Protocol):
    """A job that has arrived in this process, however it travelled."""

    def open(self) -> Job: ...


def serve(worker: Worker, job: OpenableJob, on_interrupt: Any) -> None:
    """A worker's life."""
    try:
        signal.signal(signal.SIGINT, on_interrupt or signal.SIG_DFL)
        worker.start(job)
        worker.run()
        worker.end()
    except KeyboardInterrupt:
        pass  # the main process raises its own
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclasses.dataclass(slots=True)
class Outcome:
    """What came of a unit, until it has been laid out; then `value` is let go."""

    kind: Kind
    value: Any


class WorkerChannel(Protocol):
    """A worker's end of what it shares with the main process: messages, and handles of segments beside them."""

    def receive(self) -> tuple[bytes, list[Any]] | None:
        """The next order; None when there will be no more."""

    def send(self, data: bytes, handles: Sequence[Any] = ()) -> None:
        """Raises ConnectionError if the main process has hung up."""


class Worker:
    """The state of one life of one worker."""

    def __init__(
        self,
        worker_id: int,
        board: Board,
        channel: WorkerChannel,
        segments: dict[int, Segment] | None = None,
        new_name: Callable[[], str] | None = None,
    ) -> None:
        self._id = worker_id
        self._row = board.row(worker_id)
        self._channel = channel
        self._segments = segments if segments is not None else {}
        self._areas: dict[SlotRef, Area] = {}
        self._writer = SlotWriter(new_name)
        self._job: Job | None = None
        self._fetcher: MapFetcher | IterableFetcher | None = None
        self._init_failure: Failure | None = None
        self._ended = False  # the iterable is exhausted for this epoch

    # -- before the first unit -------------------------------------------------------------------------------------

    def start(self, carried: OpenableJob) -> None:
        """Everything torch does before a worker's first batch. An exception is kept and raised as every batch."""
        _name_thread()
        torch.set_num_threads(1)
        collate.install(self._writer)
        try:
            job = carried.open()
            seed_worker(job.base_seed, self._id)
            self._job = job = dataclasses.replace(job, dataset=seed_datapipe(job.dataset, job.shared_seed))
            set_worker_info(job, self._id)
            if job.worker_init_fn is not None:
                job.worker_init_fn(self._id)
            self._fetcher = make_fetcher(job, self._row)
        except Exception as error:
            self._init_failure = capture(error, f"raised while {self._who()} was starting")
        self._row[PHASE] = Phase.IDLE

    # -- the loop --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        handlers: dict[int, Callable[[tuple[Any, ...], list[Handle]], None]] = {
            Order.UNIT: lambda message, _: self._load(messages.unpack_unit(message)),
            Order.SEGMENT: self._learn_segment,
            Order.FORGET: self._forget_segments,
            Order.RESUME: self._resume,
        }
        while (received := self._channel.receive()) is not None:
            data, handles = received
            message = marshal.loads(data)
            try:
                handlers[message[0]](message, handles)
            except ConnectionError:
                return  # the main process has closed
            self._row[PHASE] = Phase.IDLE

    def end(self) -> None:
        self._row[PHASE] = Phase.ENDING

    def _learn_segment(self, message: tuple[Any, ...], handles: list[Handle]) -> None:
        learn_segment(self._segments, message, handles)

    def _forget_segments(self, message: tuple[Any, ...], _: list[Handle]) -> None:
        for number in message[1]:
            self._segments.pop(number, None)
            self._areas = {ref: area for ref, area in self._areas.items() if ref[0] != number}

    def _resume(self, message: tuple[Any, ...], _: list[Handle]) -> None:
        """A new epoch: as in torch, workers are not seeded again, and an iterable starts anew."""
        self._ended = False
        job = self._job
        if job is None or self._init_failure is not None:
            return
        try:
            self._job = job = dataclasses.replace(job, dataset=seed_datapipe(job.dataset, message[1]))
            self._fetcher = make_fetcher(job, self._row)
        except Exception as error:
            self._init_failure = capture(error, f"raised while {self._who()} was starting an epoch")

    def _load(self, unit: Unit) -> None:
        self._row[PHASE] = (
            Phase.FETCH
        )  # before the unit: who reads the unit first never sees a new one and an old phase
        self._row[UNIT] = unit.unit
        if self._ended:
            return  # the main process knows by now, or will with the message under way
        self._writer.begin(self._area(unit.slot))
        self._writer.begin_fetch()
        outcome = self._fetch(unit)
        self._row[PHASE] = Phase.SEND
        try:
            self._send(unit, outcome)
        except ConnectionError:
            raise
        except Exception as error:
            # what the user's code made cannot be pickled, or does not fit into memory
            outcome = Outcome(Kind.FAILURE, tuple(capture(error, self._where(unit, "sending the batch"))))
            self._writer.start_over(self._area(unit.slot))
            self._send(unit, outcome)
        finally:
            self._writer.end()

    def _fetch(self, unit: Unit) -> Outcome:
        """A batch, a failure, or the end of the stream."""
        outcome = self._try_to_fetch(unit)
        if outcome.kind is not Kind.BATCH:
            self._writer.start_over(self._area(unit.slot))
        return outcome

    def _try_to_fetch(self, unit: Unit) -> Outcome:
        if self._init_failure is not None:
            return Outcome(Kind.FAILURE, tuple(self._init_failure))
        assert self._fetcher is not None
        assert self._job is not None
        doing = "reading its indices"
        try:
            indices = pickle.loads(self._indices(unit))
            try:
                samples = self._fetcher.fetch(indices)
            except Exception:
                doing = _sample(self._job, indices, self._row[POSITION])
                raise
            doing = "collate_fn"
            self._row[PHASE] = Phase.COLLATE
            self._writer.begin_collate()
            return Outcome(Kind.BATCH, self._job.collate_fn(samples))
        except StreamEnded:
            self._ended = True
            return Outcome(Kind.END, None)
        except Exception as error:
            return Outcome(Kind.FAILURE, tuple(capture(error, self._where(unit, doing))))

    def _send(self, unit: Unit, outcome: Outcome) -> None:
        writer = self._writer
        writer.accepts_tensors = False
        packed = layout.encode(outcome.value, writer)
        outcome.value = None  # let go, so that what is still alive is what the user's code keeps
        used, spilled = tuple(writer.used_bytes()), tuple(writer.spilled_bytes())
        result = Result(int(outcome.kind), unit.unit, unit.attempt, writer.is_kept(), used, spilled, packed)
        self._channel.send(messages.pack_result(result), writer.spilled_handles())

    # -- small things ----------------------------------------------------------------------------------------------

    def _indices(self, unit: Unit) -> bytes | memoryview:
        if isinstance(unit.indices, bytes):
            return unit.indices
        segment, offset, nbytes = unit.indices
        return self._segments[segment].view[offset : offset + nbytes]

    def _area(self, ref: SlotRef) -> Area:
        area = self._areas.get(ref)
        if area is None:
            segment, offset, nbytes = ref
            area = self._areas[ref] = area_of(self._segments[segment].view[offset : offset + nbytes])
        return area

    def _who(self) -> str:
        return f"DataLoader worker process {self._id} (pid {os.getpid()})"

    def _where(self, unit: Unit, doing: str) -> str:
        """One line for the user: which worker, which batch, which sample."""
        return f"raised in {self._who()}, batch {unit.unit}, {doing}"


def learn_segment(segments: dict[int, Segment], message: tuple[Any, ...], handles: list[Handle]) -> None:
    _, number, nbytes = message
    segments[number] = segment = Segment(handles[0], nbytes)
    segment.close_fd()


def _sample(job: Job | None, indices: Any, position: int) -> str:
    if job is None or job.is_iterable:
        return f"element {position} of the batch" if position >= 0 else "next(dataset)"
    if not job.auto_collation:
        return f"dataset[{indices!r}]"
    return f"dataset[{indices[position]!r}]" if position >= 0 else f"dataset.__getitems__({indices!r:.200})"


def _name_thread() -> None:
    """torch names its workers' threads, where it can; tools that list threads know the name."""
    set_name = getattr(torch.multiprocessing, "_set_thread_name", None)
    if set_name is not None:
        set_name("pt_data_worker")
