"""The main loop of a worker: receive a unit, fetch, collate into the slot, send the header. A unit of a pool is a call.

    orders from main ──► Worker.run ──► results to main

A worker knows nothing of restarts, of other workers, or of what becomes of a sample. It ends when its socket does.
Runs in: worker process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import marshal
import multiprocessing.process
import operator
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
import torch.multiprocessing
from torch.utils.data import default_collate, default_convert

from holdfast import options
from holdfast.board_rows import ATTEMPT, BORN_BYTES, CUT_OFF, LEAVE, PHASE, POSITION, SPAN, START_BYTES, UNIT, Phase
from holdfast.diagnosis import descriptors
from holdfast.memory import readings
from holdfast.transport import collate, layout
from holdfast.transport.segments import Handle, Segment
from holdfast.transport.writer import Area, SlotWriter, area_of
from holdfast.workers import limits, messages, rng
from holdfast.workers.board import Board
from holdfast.workers.calling import Caller
from holdfast.workers.failures import Failure, capture
from holdfast.workers.fetch import MapFetcher
from holdfast.workers.growing import Grown, GrowthWatch
from holdfast.workers.job import Calling, Job
from holdfast.workers.messages import Aside, BadSample, Epoch, Kind, Order, Progress, Result, SlotRef, Unit
from holdfast.workers.meter import Meter
from holdfast.workers.rng import GeneratorStates, States
from holdfast.workers.run import be_quiet
from holdfast.workers.seeding import seed_datapipe, seed_worker, set_worker_info
from holdfast.workers.stages import SlowSamples, Stages
from holdfast.workers.streams import IterableFetcher, StreamEnded
from holdfast.workers.threads import limit as limit_threads

_INLINE_ASIDE = 40 * 1024


def let_trainer_go_first() -> None:
    """Be a batch job to the kernel: woken by an order, it does not take the core of the process that gave it.

    With small samples that happened at every other batch, and the other cores had nothing to do meanwhile. A worker's
    share of the machine is the same as before.
    """
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def do_nothing() -> None:
    pass


class OpenableJob(Protocol):
    """A job that has arrived in this process, however it travelled."""

    def open(self) -> Job: ...


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

    def fileno(self) -> int: ...


class Worker:
    """The state of one life of one worker."""

    def __init__(
        self,
        worker_id: int,
        board: Board,
        channel: WorkerChannel,
        segments: dict[int, Segment] | None = None,
        new_name: Callable[[], str] | None = None,
        *,
        look: Callable[[], None] = do_nothing,
    ) -> None:
        """`look` is called before each unit."""
        self._id = worker_id
        self._look = look
        self._row = board.row(worker_id)
        self._stages = Stages(board, worker_id)
        self._slow = SlowSamples()
        self._channel = channel
        self._segments = segments if segments is not None else {}
        self._areas: dict[SlotRef, Area] = {}
        self._writer = SlotWriter(new_name)
        self._unit = -1  # in hand
        self._units_done = 0
        self._samples_done = 0
        self._meter: Meter | None = None
        self._growth_watch: GrowthWatch | None = None
        self._job: Job | None = None
        self._fetcher: MapFetcher | IterableFetcher | None = None
        self._generators: GeneratorStates | None = None
        self._at_epoch_start: States = {}
        self._init_failure: Failure | None = None
        self._ended = False  # the iterable is exhausted for this epoch
        self._caller: Caller | None = None  # of a job whose units are calls
        self._exit_status: object = None  # of what its last call raised
        self._who = f"DataLoader worker process {worker_id} (pid {os.getpid()})"

    # -- before the first unit -------------------------------------------------------------------------------------

    def start(self, carried: OpenableJob) -> None:
        """Everything torch does before a worker's first batch. An exception is kept and raised as every batch."""
        _name_thread()
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        with self._keep_failure("was starting"):
            job = carried.open()
            if not job.has_ranks:
                let_trainer_go_first()
            if job.limits_threads:
                limit_threads()
            if job.calling is None:
                job = self._prepare_to_load(job)
            else:
                self._prepare_to_call(job, job.calling, threads)
            self._job = job
            if job.worker_init_fn is not None:
                job.worker_init_fn(self._id)
            if self._caller is None:
                self._generators = GeneratorStates()
            self._limit_memory(job.care.memory_limit)
            self._watch_memory(job)
        self._stages.wait()
        self._row[PHASE] = Phase.IDLE

    def _prepare_to_load(self, job: Job) -> Job:
        collate.install(self._writer)
        seed_worker(job.base_seed, self._id)
        job = _seeded(job, job.epoch)
        set_worker_info(job, self._id)
        return job

    def _prepare_to_call(self, job: Job, calling: Calling, threads: int) -> None:
        """No daemon, as in the standard library's pool: it may have children of its own. `threads`: torch's own."""
        process: Any = multiprocessing.process.current_process()
        process._config["daemon"] = calling.is_daemonic
        torch.set_num_threads(calling.threads or threads)
        if calling.is_seeded:
            seed_worker(job.base_seed, self._id)
        if not calling.is_rank:
            be_quiet()
        self._who = f"{calling.who} {self._id} (pid {os.getpid()})"
        self._caller = Caller(self._row, self._segments)

    def _watch_memory(self, job: Job) -> None:
        if not (job.memory_budget is job.most_growth is job.care.memory_limit is None):
            self._meter = Meter(self._row, forgets_peaks=job.memory_budget is not None)
        if job.most_growth is not None:
            self._growth_watch = GrowthWatch(job.most_growth, int(self._row[BORN_BYTES]), options.growth())

    def _limit_memory(self, limit_bytes: int | None) -> None:
        """From here on: what it has by now, of the dataset and of worker_init_fn, does not count."""
        start_bytes = readings.anonymous_bytes("self")
        if start_bytes is not None:
            self._row[START_BYTES] = start_bytes
            if limit_bytes is not None:
                limits.limit_memory(limit_bytes, start_bytes)

    @contextlib.contextmanager
    def _keep_failure(self, when: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._init_failure = capture(error, f"raised while {self._who} {when}")

    def _begin_epoch(self, progress: Progress | None = None) -> None:
        """Make the fetcher; an iterable's iterator, which may run the user's code, is made with it."""
        if self._job is None or self._generators is None or self._init_failure is not None:
            return
        self._row[PHASE] = Phase.STARTING
        is_timed = self._fetcher is not None and self._fetcher.is_timed  # as the last batch of the epoch before says
        with self._keep_failure("was starting an epoch"):
            if not self._job.is_iterable:
                self._fetcher = MapFetcher(self._job, self._row, self._where)
            else:
                self._fetcher = self._open_stream(self._job, self._generators, progress)
            self._fetcher.is_timed = is_timed

    def _open_stream(self, job: Job, generators: GeneratorStates, progress: Progress | None) -> IterableFetcher:
        progress = progress or Progress({}, {})
        self._at_epoch_start = generators.read()
        if progress.has_ended:  # not run again, nor from its state: that may be one of a new start by now
            fetcher = IterableFetcher(dataclasses.replace(job, dataset=()), self._row, self._where, worker_id=self._id)
            fetcher.units, fetcher.elements = progress.units, progress.elements
            return fetcher
        fetcher = IterableFetcher(job, self._row, self._where, worker_id=self._id, state=progress.stream_state)
        if progress.stream_state:
            fetcher.units, fetcher.elements = progress.state_units, progress.state_elements
            generators.restore(progress.at_state or {})
        fetcher.run_up_to(progress, None if _draws_nothing(job.collate_fn) else job.collate_fn)
        return fetcher

    # -- the loop --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        line = _file_behind(self._channel.fileno())
        try:
            self._obey()
        except OSError:
            if line == _file_behind(self._channel.fileno()):
                raise
            # The user's code has closed what it had not opened: nothing can be said but on the board.
            self._row[CUT_OFF] = 1
            raise SystemExit(1) from None

    def _obey(self) -> None:
        handlers: dict[int, Callable[[tuple[Any, ...], list[Handle]], None]] = {
            Order.UNIT: lambda message, _: self._load(messages.unpack_unit(message)),
            Order.SEGMENT: self._learn_segment,
            Order.FORGET: self._forget_segments,
            Order.RESUME: self._resume,
            Order.RESTORE: self._restore,
        }
        while (received := self._channel.receive()) is not None:
            data, handles = received
            message = marshal.loads(data)
            if message[0] == Order.UNIT and self._row[LEAVE]:
                return  # between two units: what was ordered by now is for who comes after
            try:
                handlers[message[0]](message, handles)
            except ConnectionError:
                return  # the main process has closed
            self._row[PHASE] = Phase.IDLE

    def end(self) -> None:
        """A rank ends as a process of its own would: in its own time, and with a status that tells how its call did."""
        if self._meter is not None:
            self._meter.close()
        if self._job is None or not self._job.has_ranks:
            self._row[PHASE] = Phase.ENDING
        elif self._exit_status is not None:
            raise SystemExit(self._exit_status)

    def _learn_segment(self, message: tuple[Any, ...], handles: list[Handle]) -> None:
        learn_segment(self._segments, message, handles)

    def _forget_segments(self, message: tuple[Any, ...], _: list[Handle]) -> None:
        for number in message[1]:
            self._segments.pop(number, None)
            self._areas = {ref: area for ref, area in self._areas.items() if ref[0] != number}

    def _resume(self, message: tuple[Any, ...], _: list[Handle]) -> None:
        """A new epoch: as in torch, workers are not seeded again, and an iterable starts anew."""
        self._ended = False
        self._enter(Epoch(*message[1:]))
        self._begin_epoch()

    def _restore(self, message: tuple[Any, ...], _: list[Handle]) -> None:
        """Take up what a lost worker had begun, before the first unit."""
        epoch, progress = messages.unpack_progress(self._bytes_at(message[1]))
        self._enter(epoch)
        if self._generators is None:
            return
        if not progress.units:
            self._generators.restore(progress.generators)
            self._begin_epoch(progress)  # what it draws has not been told yet: it is drawn again, and counts
        else:
            self._generators.restore(progress.at_epoch_start)
            self._begin_epoch(progress)
            self._generators.restore(progress.generators)

    def _enter(self, epoch: Epoch) -> None:
        if self._job is not None and self._init_failure is None:
            with self._keep_failure("was starting an epoch"):
                self._job = _seeded(self._job, epoch)

    # -- one unit --------------------------------------------------------------------------------------------------

    def _load(self, unit: Unit) -> None:
        if self._fetcher is None and self._caller is None:
            self._begin_epoch()
        row, stages = self._row, self._stages
        stages.begin()
        # before the unit: who reads the unit first never sees a new one with an old phase, or an old unit's position
        row[PHASE], row[POSITION] = Phase.FETCH, -1
        row[UNIT] = self._unit = unit.unit
        if self._ended:
            return  # the main process knows by now, or will with the message under way
        self._look()
        self._writer.begin(self._area(unit.slot))
        self._writer.begin_fetch()
        outcome = self._fetch(unit)
        self._units_done += 1
        if self._job is not None and self._units_done == self._job.recycle_after:
            row[LEAVE] = 1
        stages.send()
        row[PHASE] = Phase.SEND
        try:
            self._send(unit, outcome)
        except ConnectionError:
            raise
        except Exception as error:
            # what the user's code made cannot be pickled, or does not fit into memory
            failure = capture(error, self._where_sending())._replace(phase=int(Phase.SEND))
            outcome = self._unless_it_keeps_too_much(Outcome(self._bad_batch(error), tuple(failure)))
            self._writer.start_over(self._area(unit.slot))
            self._send(unit, outcome)
        finally:
            self._writer.end()

    def _fetch(self, unit: Unit) -> Outcome:
        """A batch, a failure, or the end of the stream."""
        outcome = self._try_to_fetch(unit) if self._caller is None else self._try_to_call(unit, self._caller)
        outcome = self._unless_it_keeps_too_much(outcome)
        if outcome.kind is not Kind.BATCH:
            self._writer.start_over(self._area(unit.slot))
        return outcome

    def _unless_it_keeps_too_much(self, outcome: Outcome) -> Outcome:
        """Where memory was refused, and this life keeps some since earlier units: it leaves, and the next one tells
        whether it was the sample. (One that has finished nothing keeps nothing, so that this comes to an end.)

        An iterable that would have to be run again would keep the same again.
        """
        if not limits.kept_bytes() or (isinstance(self._fetcher, IterableFetcher) and not self._fetcher.knows_state):
            return outcome
        failures = [Failure(*outcome.value)] if outcome.kind in (Kind.FAILURE, Kind.BAD_BATCH) else []
        for bad in self._fetcher.bad if self._fetcher is not None else ():
            if not bad.loaded:
                failures.append(Failure(*bad.failure)._replace(position=bad.position))
        refusal = next((failure for failure in failures if failure.is_refusal), None)
        if refusal is None:
            return outcome
        self._row[LEAVE] = 1
        # A call is run again only if its caller says so: it has failed, but the next one finds another worker.
        return outcome if self._caller is not None else Outcome(Kind.AGAIN, tuple(refusal))

    def _try_to_fetch(self, unit: Unit) -> Outcome:
        if self._init_failure is not None:
            return Outcome(Kind.FAILURE, tuple(self._init_failure))
        assert self._fetcher is not None
        assert self._job is not None
        doing = "reading its indices"
        try:
            pickled, places = self._request(unit)
            self._stages.keep_indices(unit.unit, pickled)
            indices = pickle.loads(pickled)
            try:
                samples = self._fetcher.fetch(indices, places, one_by_one=unit.one_by_one)
            except Exception:
                doing = _sample(self._job, indices, self._row[POSITION])
                raise
        except StreamEnded:
            self._ended = True
            return Outcome(Kind.END, None)
        except Exception as error:
            failure = capture(error, self._where(doing))._replace(phase=int(Phase.FETCH), position=self._position())
            return Outcome(Kind.FAILURE, tuple(failure))
        if self._is_incomplete(samples):
            return Outcome(Kind.BAD_SAMPLES, None)
        return self._collate(samples, unit)

    def _try_to_call(self, unit: Unit, caller: Caller) -> Outcome:
        """What the call returns or raises: also what would end a process that is not a worker."""
        if self._init_failure is not None:
            return Outcome(Kind.FAILURE, tuple(self._init_failure))
        if caller.is_taken_back(unit.unit):
            return Outcome(Kind.TAKEN_BACK, None)
        try:
            return Outcome(Kind.BATCH, caller.run(self._request(unit)[0]))
        except BaseException as error:
            self._exit_status = _exit_status_of(error)
            failure = capture(error, f"raised in {self._who}")._replace(phase=int(Phase.FETCH), position=0)
            return Outcome(Kind.FAILURE, tuple(failure))

    def _request(self, unit: Unit) -> tuple[bytes, tuple[int, ...]]:
        """The unit's indices, pickled, and their places in the epoch."""
        if isinstance(unit.indices, bytes):
            return unit.indices, unit.places
        return messages.unpack_request(self._bytes_at(unit.indices))

    def _is_incomplete(self, samples: Any) -> bool:
        """Whether what was passed over leaves no batch, or one that the main process will have to fill."""
        assert self._fetcher is not None
        assert self._job is not None
        if not any(not bad.loaded for bad in self._fetcher.bad):
            return False
        if self._job.care.on_error == "replace" and not self._job.is_iterable:
            return True
        return not samples if self._job.auto_collation else samples is None

    def _collate(self, samples: Any, unit: Unit) -> Outcome:
        assert self._job is not None
        assert self._fetcher is not None
        # (`__getitems__` may return anything, also what has no length)
        self._row[SPAN] = span = operator.length_hint(samples, 1) if self._job.auto_collation else 1
        self._fetcher.is_timed = self._stages.collate(span)
        self._row[PHASE] = Phase.COLLATE
        retries = self._job.care.max_retries if self._job.care.passes_over else 0
        for attempt in itertools.count(1):
            self._writer.begin_collate()
            try:
                return Outcome(Kind.BATCH, self._call_collate(samples))
            except Exception as error:
                failure = capture(error, self._where("collate_fn"))._replace(phase=int(Phase.COLLATE))
                if attempt > retries:
                    return Outcome(self._bad_batch(error), tuple(failure))
            self._fetcher.bad.append(BadSample(-1, attempt, tuple(failure), loaded=True))
            self._row[ATTEMPT] += 1
            self._writer.start_over(self._area(unit.slot))
        raise AssertionError("unreachable")

    def _call_collate(self, samples: Any) -> Any:
        assert self._job is not None
        assert self._fetcher is not None
        if self._fetcher.sample_seed is not None:
            rng.seed_collate(self._fetcher.sample_seed, self._fetcher.first_place)
        return self._job.collate_fn(samples)

    def _bad_batch(self, error: Exception) -> Kind:
        return Kind.BAD_BATCH if self._job is not None and self._job.care.may_pass_over(error) else Kind.FAILURE

    def _send(self, unit: Unit, outcome: Outcome) -> None:
        writer = self._writer
        writer.accepts_tensors = False
        packed = layout.encode(outcome.value, writer)
        outcome.value = None  # let go, so that what is still alive is what the user's code keeps
        said = self._aside(self._look_at_memory()) if outcome.kind is not Kind.AGAIN else b""  # nothing was done
        aside = said if len(said) <= _INLINE_ASIDE else writer.write(said)
        used, spilled = tuple(writer.used_bytes()), tuple(writer.spilled_bytes())
        result = Result(int(outcome.kind), unit.unit, unit.attempt, writer.is_kept(), used, spilled, packed, aside)
        data, handles = messages.pack_result(result), writer.spilled_handles()
        self._stages.done()
        self._row[PHASE] = Phase.HAND_OVER  # no deadline runs: a main process in a long step may leave no room
        self._channel.send(data, handles)

    def _look_at_memory(self) -> Grown | None:
        """Before the header goes: who reads that may read of the memory as well. Something to be said of growth."""
        self._samples_done += max(1, self._row[SPAN])
        kept = self._meter.end_unit() if self._meter is not None else None
        if kept is None:
            return None
        limits.note_kept(kept)
        if self._growth_watch is None:
            return None
        grown = self._growth_watch.saw(self._samples_done, kept)
        if self._growth_watch.is_to_leave:
            self._row[LEAVE] = 1
        return grown

    def _aside(self, grown: Grown | None) -> bytes:
        """What else is to be said; nothing, as long as no random number was drawn and nothing went wrong."""
        if self._caller is not None:
            return self._caller.aside()
        if self._generators is None or self._fetcher is None:
            return b""
        generators, bad, times = self._generators.changes(), self._fetcher.bad, self._fetcher.times
        slow = self._slow.news(times) if times else ()
        if isinstance(self._fetcher, IterableFetcher):
            stream = self._fetcher
            at_start, self._at_epoch_start = self._at_epoch_start, {}
            # If this worker is about to leave, or may be refused memory because of what it keeps, its successor should
            # not have to run anything again.
            state = stream.due_state(is_needed=bool(self._row[LEAVE] or limits.kept_bytes()))
            counts, cut, has_ended = (stream.units, stream.elements, state), stream.cut, stream.has_ended
        elif generators or bad or slow or grown is not None:
            at_start, counts, cut, has_ended = {}, (0, 0, b""), -1, False
        else:
            return b""
        trouble = tuple(map(tuple, bad)), tuple(grown or ()), cut
        return messages.pack_aside(Aside(generators, at_start, *counts, *trouble, slow, has_ended))

    # -- small things ----------------------------------------------------------------------------------------------

    def _bytes_at(self, place: bytes | SlotRef) -> bytes | memoryview:
        if isinstance(place, bytes):
            return place
        segment, offset, nbytes = place
        return self._segments[segment].view[offset : offset + nbytes]

    def _area(self, ref: SlotRef) -> Area:
        area = self._areas.get(ref)
        if area is None:
            segment, offset, nbytes = ref
            area = self._areas[ref] = area_of(self._segments[segment].view[offset : offset + nbytes])
        return area

    def _position(self) -> int:
        """Of the sample in hand: in its unit, or of an iterable, in the worker's stream."""
        if isinstance(self._fetcher, IterableFetcher):
            return self._fetcher.elements - 1
        return int(self._row[POSITION])

    def _where_sending(self) -> str:
        if self._caller is not None:
            return f"raised in {self._who}, sending what the call returned"
        return self._where("sending the batch")

    def _where(self, doing: str) -> str:
        """One line for the user: which worker, which batch, which sample."""
        return f"raised in {self._who}, batch {self._unit}, {doing}"


def _file_behind(fd: int) -> tuple[int, int] | None:
    """What a descriptor stands for; None where it is closed, or no descriptor but a handle of Windows."""
    if os.name != "posix":
        return None
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _exit_status_of(error: BaseException) -> object:
    """What a process that runs one function ends with: as multiprocessing has it, and torch's spawn."""
    if isinstance(error, SystemExit):
        return error.code
    return None if isinstance(error, KeyboardInterrupt) else 1


def _seeded(job: Job, epoch: Epoch) -> Job:
    return dataclasses.replace(job, dataset=seed_datapipe(job.dataset, epoch.shared_seed), epoch=epoch)


def _draws_nothing(collate_fn: Any) -> bool:
    """Whether the function is known to draw no random numbers: then it need not run again with an iterable."""
    return collate_fn in (default_collate, default_convert)


def learn_segment(segments: dict[int, Segment], message: tuple[Any, ...], handles: list[Handle]) -> None:
    _, number, nbytes = message
    if not handles:
        said = f"a batch's memory could not be received: {os.strerror(errno.EMFILE)} ({descriptors.held()})"
        raise OSError(errno.EMFILE, said)
    segments[number] = segment = Segment(handles[0], nbytes)
    segment.close_fd()


def _sample(job: Job | None, indices: Any, position: int) -> str:
    if job is None or job.is_iterable:
        return f"element {position} of the batch" if position >= 0 else "next(dataset)"
    try:
        if not job.auto_collation:
            return f"dataset[{indices!r:.200}]"
        # (not by its place: a batch sampler may give whatever can be iterated)
        return f"dataset[{list(indices)[position]!r}]" if position >= 0 else f"dataset.__getitems__({indices!r:.200})"
    except Exception:  # what can be neither iterated again nor shown must not hide the user's exception
        return f"sample {position} of the batch"


def _name_thread() -> None:
    """torch names its workers' threads, where it can; tools that list threads know the name."""
    set_name = getattr(torch.multiprocessing, "_set_thread_name", None)
    if set_name is not None:
        set_name("pt_data_worker")
