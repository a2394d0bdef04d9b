"""The random numbers of a worker, and what else torch sets up in one: exactly as torch does it.

Runs in: worker process.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
import torch.utils.data
from torch.utils.data._utils import worker as torch_worker

from holdfast.workers.job import Job


def seed_worker(base_seed: int, worker_id: int) -> None:
    """torch's seeds: `base_seed + worker_id` for torch and `random`, a hash of both for numpy."""
    seed = base_seed + worker_id
    random.seed(seed)
    torch.manual_seed(seed)
    np.random.seed(torch_worker._generate_state(base_seed, worker_id))  # type: ignore[no-untyped-call]


def set_worker_info(job: Job, worker_id: int) -> None:
    """What `torch.utils.data.get_worker_info()` gives in this process."""
    torch_worker._worker_info = torch_worker.WorkerInfo(
        id=worker_id, num_workers=job.num_workers, seed=job.base_seed + worker_id, dataset=job.dataset
    )


def seed_datapipe(dataset: Any, shared_seed: int | None) -> Any:
    """DataPipes draw their shuffles from a seed that all workers share."""
    if not isinstance(dataset, torch.utils.data.IterDataPipe):
        return dataset
    assert shared_seed is not None
    generator = torch.Generator()
    generator.manual_seed(shared_seed)
    return torch.utils.data.graph_settings.apply_random_seed(dataset, generator)
