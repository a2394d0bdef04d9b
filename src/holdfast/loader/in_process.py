"""Loading without workers (`num_workers=0`), with our arguments honoured as far as one process can.

Samples are loaded by the workers' own code, so that they are tried again, skipped, replaced and seeded alike. A sample
that crashes or hangs takes this process with it. Runs in: main process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch.utils.data.graph_settings
from torch.utils.data import IterDataPipe, MapDataPipe
from torch.utils.data import dataloader as torch_loader
from torch.utils.data._utils import pin_memory as torch_pin

from holdfast.errors import TooManySkipped
from holdfast.incident import Incident
from holdfast.loader import losses
from holdfast.loader.bad_samples import BadSample, BadSamples, Fate
from holdfast.loader.interrupts import came_from_handler
from holdfast.loader.ledger import Blame, Ledger
from holdfast.loader.supply import ASKING, Supply
from holdfast.loader.units import UnitState
from holdfast.workers import messages, rng
from holdfast.workers.board import private_row
from holdfast.workers.failures import Failure, capture, rebuild
from holdfast.workers.fetch import MapFetcher
from holdfast.workers.job import Job
from holdfast.workers.losses import attach, incident_of
from holdfast.workers.messages import Epoch
from holdfast.workers.rng import GeneratorStates
from holdfast.workers.stages import WORTH_TIMING_NS, SlowSamples
from holdfast.workers.streams import IterableFetcher, StreamEnded

Result = TypeVar("Result")

_DONE = {"raise": "raised", "skip": "skipped", "replace": "replaced"}


class PlainIterator(torch_loader._SingleProcessDataLoaderIter):
    """torch's own, except that what a map-style dataset raises is never taken for the end of the data."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        if self._dataset_kind == torch_loader._DatasetKind.Map:
            self._dataset_fetcher: Any = _NeverAtAnEnd(self._dataset_fetcher)


class _NeverAtAnEnd:
    def __init__(self, fetcher: Any) -> None:
        self._fetcher = fetcher

    def fetch(self, indices: Any) -> Any:
        try:
            return self._fetcher.fetch(indices)
        except StopIteration as error:
            raise RuntimeError("the dataset's __getitem__ raised StopIteration") from error


class InProcessIterator(torch_loader._SingleProcessDataLoaderIter):
    """One epoch in this process."""

    def __init__(self, loader: Any) -> None:
        # Not torch's own class: it asks an iterable for an iterator, and the one that is used would be a second.
        torch_loader._BaseDataLoaderIter.__init__(self, loader)
        if self._timeout != 0:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
        if isinstance(self._dataset, IterDataPipe | MapDataPipe):
            torch.utils.data.graph_settings.apply_sharding(self._dataset, self._world_size, self._rank)
        self._ledger: Ledger = loader._ledger
        self._policy = self._ledger.policy
        self._ledger.take_seed(int(self._base_seed))
        self._ledger.epoch += 1
        self._is_iterable = self._dataset_kind == torch_loader._DatasetKind.Iterable
        self._bad = BadSamples(self._ledger)
        counted = (self._dataset,) if self._is_iterable else (loader.sampler, self._index_sampler)
        self._bad.begin_epoch(self._ledger.epoch, self._ledger.seed, self._policy.count_samples(*counted))
        self._supply = self._bad.supply = Supply(self._sampler_iter, auto_collation=self._auto_collation)
        self._generators = GeneratorStates() if self._policy.rng == "sample" else None
        self._fetcher = fetcher = self._make_fetcher()
        self._bad.count_elements = (lambda: fetcher.elements) if isinstance(fetcher, IterableFetcher) else None
        self._made: list[tuple[Any, int]] = []  # the batch that is to be given out, and how many samples it has
        self._broken: BaseException | None = None
        self._batch = -1
        self._slow = SlowSamples()

    def _make_fetcher(self) -> MapFetcher | IterableFetcher:
        seed = rng.mix(self._ledger.seed, self._ledger.epoch) if self._policy.rng == "sample" else None
        job = Job(
            dataset=self._dataset,
            collate_fn=self._collate_fn,
            worker_init_fn=None,
            is_iterable=self._is_iterable,
            auto_collation=self._auto_collation,
            drop_last=self._drop_last,
            base_seed=int(self._base_seed),
            num_workers=0,
            epoch=Epoch(None, seed),
            care=self._policy.care,
            sample_timeout_s=None,
            max_restarts=self._policy.max_restarts,
            has_been_ready=True,
        )
        if self._is_iterable:
            return IterableFetcher(job, private_row(), self._where, worker_id=0)
        return MapFetcher(job, private_row(), self._where)

    def _where(self, doing: str) -> str:
        return f"raised in this process, batch {self._batch}, {doing}"

    def _next_data(self) -> Any:
        """The next batch that has anything in it."""
        self._ledger.run.tick(time.monotonic())
        try:
            if not self._made:
                self._made.append(self._make_batch())
        except StopIteration:
            self._end_if_too_many(self._bad.check_delivered)
            self._ledger.notices.say()
            raise
        self._ledger.notices.say()  # a warning may be an error: then the batch is given out by the next call
        batch, samples = self._made.pop()
        self._ledger.counters.batches += 1
        self._ledger.counters.samples += samples
        return self._pinned(batch)

    def _make_batch(self) -> tuple[Any, int]:
        while True:
            if self._broken is not None:
                raise self._broken.with_traceback(None)
            state = self._next_unit()
            batch, fate = self._load_apart(state)
            if fate is None:
                return batch, state.samples
            if fate is Fate.RAISE:
                raise self._error or self._ledger.no_substitute(self._batch)

    def _next_unit(self) -> UnitState:
        try:
            state = self._supply.peek()
        except Exception as error:
            if not came_from_handler(error):
                self._supply.taken()
                self._ledger.note(losses.incident_of_own(error, ASKING, epoch=self._bad.epoch))
            raise
        self._supply.taken()
        if state is None:
            raise StopIteration
        self._batch += 1
        self._error: BaseException | None = None
        return state

    def _load_apart(self, state: UnitState) -> tuple[Any, Fate | None]:
        """The training program's own random numbers, and the sampler's, are not to be touched."""
        if self._generators is None:
            return self._load(state)
        outside = self._generators.read()
        try:
            return self._load(state)
        finally:
            self._generators.restore(outside)

    def _load(self, state: UnitState) -> tuple[Any, Fate | None]:
        """A batch, or what becomes of the unit."""
        return self._end_if_too_many(self._load_unit, state)

    def _load_unit(self, state: UnitState) -> tuple[Any, Fate | None]:
        fate: Fate | None = Fate.AGAIN if self._is_iterable else self._bad.screen(self._batch, state)
        batch = None
        while fate is Fate.AGAIN:
            samples = self._fetch(state)
            fate = self._judge(state, is_empty=samples is None or (self._auto_collation and not samples))
            if fate is None:
                batch, fate = self._collate(state, samples)
        return batch, fate

    def _end_if_too_many(self, step: Callable[..., Result], *args: Any) -> Result:
        try:
            return step(*args)
        except TooManySkipped as error:
            error.incident = self._ledger.last_incident
            self._broken = error  # raised by every later next() as well, as with workers
            raise

    def _fetch(self, state: UnitState) -> Any:
        self._first_element = self._fetcher.elements
        began_ns = time.monotonic_ns()
        try:
            samples = self._fetcher.fetch(state.indices, state.places)
        except StreamEnded:
            raise StopIteration from None
        except Exception as error:
            attach(error, self._note(capture(error, ""), "raised"))
            raise
        self._take_time(state, time.monotonic_ns() - began_ns)
        if self._is_iterable:
            state.samples = self._fetcher.elements - self._first_element
        return samples

    def _take_time(self, state: UnitState, fetch_ns: int) -> None:
        counters, fetcher = self._ledger.counters, self._fetcher
        counters.add_stages(fetch_ns, 0)
        fetcher.is_timed = fetch_ns > WORTH_TIMING_NS * max(1, state.samples)
        slow = self._slow.news(fetcher.times) if fetcher.times else ()
        for position, nanoseconds in slow:
            index = (0, position) if self._is_iterable else state.listed[position]
            counters.slowest.saw(index, nanoseconds / 1e9, None, self._bad.epoch)

    def _judge(self, state: UnitState, *, is_empty: bool) -> Fate | None:
        """What becomes of the unit, given the samples that could not be loaded; None: the rest is a batch."""
        bad = self._fetcher.bad
        if not bad:
            return None
        listed = [] if self._is_iterable else state.listed
        done = "raised"
        try:
            fate = self._pass_over(state, [sample for sample in bad if not sample.loaded], is_empty=is_empty)
            if fate is not Fate.RAISE:
                done = "skipped" if fate is Fate.VOID else _DONE[self._policy.on_error]
        finally:
            for sample in bad:
                index = (0, sample.position) if self._is_iterable else _index(listed, sample.position)
                self._note(Failure(*sample.failure), "retried" if sample.loaded else done, sample_index=index)
        return fate

    def _pass_over(self, state: UnitState, lost: Sequence[messages.BadSample], *, is_empty: bool) -> Fate | None:
        if not lost:
            return None
        given_up = [BadSample(bad.position, losses.raised(Failure(*bad.failure))) for bad in lost]
        self._error = rebuild(Failure(*lost[0].failure))
        if not self._is_iterable and self._policy.on_error == "replace":
            return self._bad.give_up(self._batch, state, given_up)
        state.samples -= len(lost)
        if self._is_iterable:
            for sample in given_up:
                self._bad.note_element(self._batch, (0, sample.position), sample)
        else:
            self._bad.note_skipped(self._batch, state, given_up)
        return Fate.VOID if is_empty else None

    def _collate(self, state: UnitState, samples: Any) -> tuple[Any, Fate | None]:
        retries, failed = self._policy.max_retries if self._policy.care.passes_over else 0, None
        while True:
            try:
                if self._fetcher.sample_seed is not None:
                    rng.seed_collate(self._fetcher.sample_seed, self._fetcher.first_place)
                began_ns = time.monotonic_ns()
                batch = self._collate_fn(samples)
                self._ledger.counters.add_stages(0, time.monotonic_ns() - began_ns)
                if failed is not None:
                    self._note(failed, "retried", phase="collating")
                return batch, None
            except Exception as error:
                if not self._policy.care.may_pass_over(error):
                    attach(error, self._note(capture(error, ""), "raised", phase="collating"))
                    raise
                self._error = error
            retries -= 1
            if retries < 0:
                return None, self._give_up_batch(state)
            failed = capture(self._error, "")

    def _give_up_batch(self, state: UnitState) -> Fate:
        assert self._error is not None
        cause, failure = f"{type(self._error).__name__}: {self._error}", capture(self._error, "")
        if not self._is_iterable:
            done = "raised"
            try:
                fate = self._bad.give_up_batch(self._batch, state, f"its batch: {cause}")
                done = "raised" if fate is Fate.RAISE else _DONE[self._policy.on_error]
            finally:  # also when it was one too many
                self._note(failure, done, phase="collating")
            return fate
        self._note(failure, "skipped", phase="collating")
        for place in range(self._first_element, self._fetcher.elements):
            self._bad.note_element(self._batch, (0, place), BadSample(place, f"its batch: {cause}", Blame.NOBODY))
        return Fate.VOID

    def _pinned(self, batch: Any) -> Any:
        if not self._pin_memory:
            return batch
        return torch_pin.pin_memory(batch, self._pin_memory_device)  # type: ignore[no-untyped-call]

    def _note(self, failure: Failure, done: str, *, phase: str = "loading", sample_index: Any = None) -> Incident:
        where = {"epoch": self._bad.epoch, "batch": self._batch, "sample_index": sample_index}
        noted = incident_of(failure, done, phase=phase, **where)
        self._ledger.note(noted)
        return noted


def _index(listed: Sequence[Any], position: int) -> Any:
    return listed[position] if position >= 0 else None
