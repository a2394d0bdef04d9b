"""`holdfast.DataLoader`: torch's loader with another engine under it.

A real subclass: arguments, samplers, lengths, seeds and errors are torch's own code. It differs where an iterator with
workers is made. Every argument is kept as an attribute of its own name, which is how frameworks rebuild a loader.

Runs in: main process.
"""

from __future__ import annotations

import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Any, Literal, Self, TypeVar

import torch.utils.data
from torch.utils.data import Dataset, Sampler
from torch.utils.data.dataloader import _DatasetKind

from holdfast import options
from holdfast.device import placement
from holdfast.errors import HoldfastWarning
from holdfast.incident import Incidents
from holdfast.loader.iterator import LoaderIterator
from holdfast.loader.ledger import Ledger
from holdfast.loader.pinned import in_process_type, iterator_type
from holdfast.loader.policy import Policy
from holdfast.loader.run import count_ranks
from holdfast.loader.skips import SkippedSample
from holdfast.loader.stats import LoaderStats
from holdfast.workers import backends
from holdfast.workers.crowding import warn_if_crowded

T_co = TypeVar("T_co", covariant=True)


class _AskedByAccelerate:
    """`_is_accelerate_prepared`, which Accelerate reads before it makes a new loader of this one's arguments.

    Always False. Not a property: an attribute that is set on the instance takes precedence.
    """

    def __get__(self, loader: DataLoader[Any] | None, owner: type) -> bool:
        if loader is not None and not loader._disabled:
            _warn_made_anew()
        return False


class DataLoader(torch.utils.data.DataLoader[T_co]):
    """A drop-in for `torch.utils.data.DataLoader`. Arguments before `backend` are torch's, with torch's meaning.

    Args:
        on_error: what to do about a sample that cannot be loaded, however it fails: "raise" (as torch), "skip" (the
            batch is smaller), "replace" (by another sample, so that sizes and counts stay the same).
        max_retries: further attempts at a sample whose worker died or hung, or that raised one of `retry_on`.
        retry_on: exception types worth another attempt, after a while, such as `(OSError,)`.
        max_skipped: stop with `TooManySkipped` past so many samples of an epoch (int), or that share of it (float).
            "auto": past a tenth of it, and at least 10, not counting samples known to be bad before. None: never,
            unless not one sample of the epoch was delivered.
        max_restarts: deaths of one worker within a minute that are nobody's sample; past it, `TooManyRestarts`.
        sample_timeout: seconds one sample may take. Past it the worker is replaced, and the sample treated as above.
        memory_limit: private memory of one worker beyond its start: bytes, or "4GB". A sample that asks for more gets a
            `MemoryError`; what that cannot stop is ended. Either way the sample is treated as above.
        memory_budget: memory of workers and batches together: bytes, "16GB", or "80%" of the cgroup's limit or of the
            machine. Where it is short fewer batches are loaded ahead, and then by fewer workers.
        recycle_after: replace a worker after so many batches, between two: what it has leaked is gone with it.
        skipped_file: where bad samples are remembered between runs. They are not tried again.
        rng: "worker", torch's seeding; "sample": random numbers depend only on seed, epoch and position.
        device: where batches arrive: "cuda", "cuda:1", a `torch.device`. CUDA's are copied there ahead.
        prefetch_to_device: how many batches are copied ahead of the one that is asked for.
        backend: what runs the workers. None: what fits this platform. "portable": spawned processes and nothing that
            only Linux has, which is what Windows and macOS get.
        record: whether to keep a record of this run, in the user's state directory or `HOLDFAST_HOME`: when it began
            and ended, its incidents, a reading of rates and memory every few seconds. Nothing of any sample.
    """

    _is_accelerate_prepared = _AskedByAccelerate()

    def __init__(  # noqa: PLR0917  (torch's signature)
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        on_error: Literal["raise", "skip", "replace"] = "raise",
        max_retries: int = 1,
        retry_on: tuple[type[Exception], ...] = (),
        max_skipped: int | float | Literal["auto"] | None = "auto",
        max_restarts: int = 3,
        sample_timeout: float | None = None,
        memory_limit: int | str | None = None,
        memory_budget: int | str | None = None,
        recycle_after: int | None = None,
        skipped_file: str | os.PathLike[str] | None = None,
        rng: Literal["worker", "sample"] = "worker",
        device: str | int | torch.device | None = None,
        prefetch_to_device: int = 2,
        backend: str | None = None,
        record: bool = True,
    ) -> None:
        self._disabled = options.is_disabled()
        policy = Policy(
            on_error=on_error,
            max_retries=max_retries,
            retry_on=retry_on,
            max_skipped=max_skipped,
            max_restarts=max_restarts,
            sample_timeout=sample_timeout,
            memory_limit=memory_limit,
            memory_budget=memory_budget,
            recycle_after=recycle_after,
            skipped_file=skipped_file,
            rng=rng,
            record=record,
        )
        if not self._disabled:
            backends.check_name(backend)
            if num_workers == 0:
                policy.check_without_workers()
        self.device, self._device = device, placement.parse_device(device)
        self.prefetch_to_device = placement.check_ahead(prefetch_to_device)
        self.streams: list[Any] = []  # the user's: CUDA streams, beside the current one, that copy pinned batches
        self.on_error, self.max_retries, self.retry_on = on_error, max_retries, retry_on
        self.max_skipped, self.max_restarts, self.sample_timeout = max_skipped, max_restarts, sample_timeout
        self.memory_limit, self.memory_budget, self.recycle_after = memory_limit, memory_budget, recycle_after
        self.skipped_file, self.rng = skipped_file, rng
        self.backend, self.record = backend, record
        self.shuffle = shuffle
        self._iterators: weakref.WeakSet[LoaderIterator] = weakref.WeakSet()
        self._has_looked_at_ranks = False
        super().__init__(
            dataset,
            batch_size=batch_size,
            shuffle=shuffle,
            sampler=sampler,
            batch_sampler=batch_sampler,
            num_workers=num_workers,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            drop_last=drop_last,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            generator=generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        is_iterable = self._dataset_kind == _DatasetKind.Iterable
        if not self._disabled:
            backends.check_context(backend, self.multiprocessing_context)
            policy.check_length(dataset if is_iterable else self.sampler)
        self._ledger = Ledger(policy, dataset, reads_file=not self._disabled, is_iterable=is_iterable)
        self._counters = self._ledger.counters

    @property
    def incidents(self) -> Incidents:
        """Everything that went wrong so far, and what was done about it."""
        return self._ledger.incidents

    @property
    def skipped_samples(self) -> list[SkippedSample]:
        """The samples that were passed over so far: index, reason, and what was delivered in their place."""
        return list(self._ledger.skipped)

    def __iter__(self) -> Any:
        if isinstance(self._iterator, LoaderIterator) and not self._iterator.can_begin_epoch:
            self._iterator._shutdown_workers()
            self._iterator = None  # a new epoch has new workers
        return super().__iter__()

    def _get_iterator(self) -> Any:
        if self._disabled:
            _warn_disabled()
            return super()._get_iterator()
        self._warn_of_ranks()
        self._ledger.notices.say()
        if self.num_workers == 0:
            ours = self._ledger.policy.changes_loading
            self._ledger.run.begin(self, start_method=None, is_counted=ours)
            return in_process_type(self, ours=ours)(self)
        self.check_worker_number_rationality()
        warn_if_crowded(self.num_workers, "DataLoader", torch_warns=True, stacklevel=4)
        iterator = iterator_type(self)(self, backends.find(self.backend))
        self._iterators.add(iterator)
        return iterator

    def _warn_of_ranks(self) -> None:
        if self._ledger.policy.on_error != "skip" or self._has_looked_at_ranks:
            return
        self._has_looked_at_ranks = True
        samplers = (self.sampler, self.batch_sampler, getattr(self.batch_sampler, "sampler", None))
        number = max(1, options.world_size() or 1, count_ranks() or 1, *map(_replicas, samplers))
        if number > 1:
            self._ledger.notices.add(
                f'on_error="skip" with {number} ranks: a rank that skips a whole batch has fewer batches than the '
                f"others, which then wait for it until the collective's timeout. "
                f'Use on_error="replace", which keeps batches and their sizes equal on all ranks'
            )

    def _for_command(self) -> Self:
        """For our own commands, which report what they find: nothing is warned of, and an epoch may deliver nothing."""
        self._ledger.notices.is_for_command = True
        self._ledger.notices.due.clear()
        return self

    def stats(self) -> LoaderStats:
        """What happened so far, with workers: batches and samples delivered, time waited, workers replaced, where
        the time went, what memory the processes have now, and the slowest samples. `print` it to see a table.
        """
        pids: list[int] = []
        for iterator in list(self._iterators):
            iterator._count_new_interpreters()
            pids += iterator._worker_pids().values()
        return self._counters.read(pids)

    def close(self) -> None:
        """End the workers of every iterator of this loader, and its record. Batches already delivered stay valid."""
        try:
            for iterator in list(self._iterators):
                iterator._shutdown_workers()
        finally:
            self._ledger.end()
        self._iterator = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_iterators": None, "streams": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _iterators=weakref.WeakSet())


def _replicas(sampler: Any) -> int:
    """Of torch's DistributedSampler, and those that are like it: for how many ranks it divides the dataset."""
    number = getattr(sampler, "num_replicas", None)
    return number if isinstance(number, int) else 1


_warned: list[bool] = []


def _warn_disabled() -> None:
    if not _warned:
        _warned.append(True)
        message = (
            f"{options.DISABLE} is set: this process uses torch's own loader, and holdfast's arguments are ignored"
        )
        warnings.warn(message, HoldfastWarning, stacklevel=5)  # of who asks for an iterator, past torch and us


def _warn_made_anew() -> None:
    """Warn at the line that calls Accelerate. Do not warn if other code reads the attribute, as debuggers do, nor under
    `holdfast run`, where the loaders that Accelerate makes are ours.
    """
    frame: FrameType | None = sys._getframe(2)
    stacklevel = 3
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "accelerate":
        frame, stacklevel = frame.f_back, stacklevel + 1
    made = getattr(sys.modules.get("accelerate.data_loader"), "DataLoader", torch.utils.data.DataLoader)
    if stacklevel > 3 and not issubclass(made, DataLoader):
        message = (
            "Accelerate's prepare() makes a plain torch DataLoader of this one, without holdfast, whose arguments are "
            "ignored. Either start the script with `holdfast run train.py`, under which prepare() makes a holdfast "
            "loader with the options of that command, or do not pass the loader to prepare(): use "
            "DataLoader(..., device=accelerator.device), with sampler=DistributedSampler(dataset) for several processes"
        )
        warnings.warn(message, HoldfastWarning, stacklevel=stacklevel)
