"""Our loader over the bad samples, in this process: nothing that a worker does can end it.

It is a run like any other: it has a record, which says how `holdfast replay` finds the dataset again.

Runs in: main process.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from holdfast import options
from holdfast.demo.faults import BATCH_SIZE, FAULTS, SAMPLES, STEP_S, TARGET, FaultySamples
from holdfast.demo.outcomes import FINISHED, Event, OurOutcome, Outcome, PassedOver, problems_of
from holdfast.loader.dataloader import DataLoader

PLANNED = [list(range(first, first + BATCH_SIZE)) for first in range(0, SAMPLES, BATCH_SIZE)]


def run_epoch(
    workers: int,
    on_error: Literal["skip", "replace"],
    sample_timeout_s: float,
    on_begin: Callable[[], None],
    on_batch: Callable[[Outcome], None],
) -> OurOutcome:
    """Run one epoch with every fault in it. `on_begin` is called once the processes are there, `on_batch` with each
    batch that comes.
    """
    epoch = Outcome()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, options.told(TARGET):
        dataset = FaultySamples(FAULTS, Path(folder))
        loader = DataLoader(
            dataset, BATCH_SIZE, num_workers=workers, on_error=on_error, sample_timeout=sample_timeout_s
        )._for_command()
        with loader:
            epoch.ended = _run(loader, epoch, on_begin, on_batch)
    epoch.seconds = time.perf_counter() - start
    passed_over = [PassedOver(one.index, one.reason, one.replaced_by) for one in loader.skipped_samples]
    events = [Event(one.sample_index, one.summary, one.done, one.id) for one in loader.incidents]
    return OurOutcome(epoch, events, passed_over, problems_of(epoch, PLANNED, passed_over))


def _run(
    loader: DataLoader[int], epoch: Outcome, on_begin: Callable[[], None], on_batch: Callable[[Outcome], None]
) -> str:
    try:
        batches = iter(loader)
        on_begin()
        for batch in batches:
            epoch.delivered.append(batch.tolist())
            on_batch(epoch)
            time.sleep(STEP_S)
    except Exception as error:  # the demo shows it: it is not to end with a traceback
        return f"{type(error).__name__}: {error}"
    return FINISHED
