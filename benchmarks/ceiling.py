"""The ceiling: bare collate into one warm buffer, in one process per core, with no transport and no consumer.

Each process reads samples as a loader's worker does and stacks them into the same memory again and again. No loader
can be faster on this machine. A custom collate function is called as it is: what it allocates is its own affair.
Runs in: main (`ceiling_rate`) and processes of its own (`_run`).
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle, islice
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, Dataset, RandomSampler, SequentialSampler, default_collate

from .workloads import Workload

START_S = 60.0
WARM_UP_BATCHES = 4
INDEX_BATCHES = 256


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def ceiling_rate(workload: Workload, dataset: Dataset[Any], window_s: float) -> tuple[int, float]:
    """Return batches made by all cores together, and the time they took."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(cores())
    pipes = [context.Pipe(duplex=False) for _ in range(cores())]
    processes = [
        context.Process(target=_run, args=(workload, dataset, window_s, barrier, sender), daemon=True)
        for _, sender in pipes
    ]
    for process in processes:
        process.start()
    try:
        counts = [_receive(reader, START_S + window_s) for reader, _ in pipes]
    finally:
        for process in processes:
            process.kill()
            process.join()
    rate = sum(batches / wall_s for batches, wall_s in counts)
    return sum(batches for batches, _ in counts), sum(batches for batches, _ in counts) / rate


def _receive(reader: Connection, limit_s: float) -> tuple[int, float]:
    if not reader.poll(limit_s):
        raise TimeoutError("a process of the ceiling gave no result")
    count: tuple[int, float] = reader.recv()
    return count


def _run(workload: Workload, dataset: Dataset[Any], window_s: float, barrier: Barrier, sender: Connection) -> None:
    torch.set_num_threads(1)
    batches = _index_batches(workload, dataset)
    make = _batch_maker(workload, dataset, next(batches))
    for _ in range(WARM_UP_BATCHES):
        make(next(batches))
    barrier.wait(START_S)
    count = 0
    start = now = time.perf_counter()
    while now - start < window_s:
        make(next(batches))
        count += 1
        now = time.perf_counter()
    sender.send((count, now - start))


def _index_batches(workload: Workload, dataset: Any) -> Iterator[list[int]]:
    """Yield index lists made beforehand: a worker is handed them, it does not draw them."""
    sampler = RandomSampler(dataset) if workload.shuffle else SequentialSampler(dataset)
    return cycle(list(islice(BatchSampler(sampler, workload.batch_size, drop_last=True), INDEX_BATCHES)))


def _batch_maker(workload: Workload, dataset: Any, first: list[int]) -> Callable[[list[int]], object]:
    """Return the function that loads and collates one batch."""
    collate = workload.collate_fn
    if collate is not None:
        return lambda indices: collate([dataset[index] for index in indices])
    buffer = default_collate([dataset[index] for index in first])
    return lambda indices: fill(buffer, [dataset[index] for index in indices])


def fill(buffer: Any, samples: list[Any]) -> None:
    """Collate samples into a batch of the same shape, in place."""
    if isinstance(samples[0], Tensor):
        torch.stack(samples, 0, out=buffer)
    elif isinstance(samples[0], Mapping):
        for key, part in buffer.items():
            fill(part, [sample[key] for sample in samples])
    elif isinstance(samples[0], tuple):
        for position, part in enumerate(buffer):
            fill(part, [sample[position] for sample in samples])
    else:
        buffer.copy_(torch.tensor(samples))
