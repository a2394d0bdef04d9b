"""What the workers of a loader are told when they start: its arguments, and what was made of them.

Runs in: main process.
"""

from __future__ import annotations

import functools
from typing import Any

from torch.utils.data import IterDataPipe, MapDataPipe
from torch.utils.data import dataloader as torch_loader

from holdfast import options
from holdfast.loader import allowance
from holdfast.loader.ledger import Ledger
from holdfast.workers.job import Job
from holdfast.workers.messages import Epoch


def job_of_loader(
    iterator: torch_loader._MultiProcessingDataLoaderIter, ledger: Ledger, epoch: Epoch, budget: int | None
) -> Job:
    """`iterator` has taken over the loader's arguments, as torch's does. `budget`: memory_budget, in bytes."""
    policy, num_workers = ledger.policy, iterator._num_workers
    return Job(
        dataset=iterator._dataset,
        collate_fn=iterator._collate_fn,
        worker_init_fn=iterator._worker_init_fn,
        is_iterable=is_iterable(iterator),
        auto_collation=iterator._auto_collation,
        drop_last=iterator._drop_last,
        base_seed=int(iterator._base_seed),
        num_workers=num_workers,
        epoch=epoch,
        care=policy.care,
        sample_timeout_s=policy.sample_timeout,
        max_restarts=policy.max_restarts,
        has_been_ready=ledger.has_been_ready,
        recycle_after=policy.recycle_after,
        memory_budget=budget,
        most_growth=_most_growth(budget, num_workers, policy.care.memory_limit) if options.watches_growth() else None,
    )


def is_iterable(iterator: torch_loader._BaseDataLoaderIter) -> bool:
    return bool(iterator._dataset_kind == torch_loader._DatasetKind.Iterable)


def init_fn_of(iterator: torch_loader._BaseDataLoaderIter, init_fn: Any) -> Any:
    """DataPipes are divided among the workers before the user's own `worker_init_fn` is called."""
    if not isinstance(iterator._dataset, IterDataPipe | MapDataPipe):
        return init_fn
    return functools.partial(torch_loader._sharding_worker_init_fn, init_fn, iterator._world_size, iterator._rank)


def _most_growth(budget: int | None, num_workers: int, memory_limit: int | None) -> int:
    """What a worker that grows may take before it is replaced: half of its limit, or of its share of it all."""
    share = (budget or allowance.resolve(1.0)) // num_workers
    return min(share, memory_limit or share) // 2
