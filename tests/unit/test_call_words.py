"""A diagnosis in the words of a pool: whatever was seen, nothing is said of datasets, samples or loaders."""

from __future__ import annotations

import re

import pytest

from holdfast.diagnosis import engine
from holdfast.diagnosis.call_words import for_calls
from holdfast.diagnosis.evidence import Confidence, Diagnosis
from holdfast.diagnosis.message import Account, render

from .evidence_seen import SEEN, Seen

OF_LOADERS = ("over memory_budget", "interrupted", "memory growth", "copy-on-write growth", "missing main guard")
"""Causes that no pool has: they come with arguments and watches that only a loader has."""
CAN_BE = [seen for seen in SEEN if seen.cause not in OF_LOADERS]


@pytest.mark.parametrize("seen", CAN_BE, ids=[f"{k}-{seen.cause}" for k, seen in enumerate(CAN_BE)])
def test_no_message_speaks_of_loading(seen: Seen) -> None:
    """The cause, the sentence, the advice: all are about a function that was called."""
    diagnosis = for_calls(engine.diagnose(seen.evidence), "ProcessPoolExecutor")
    account = Account(diagnosis, 1, 41822, "running decode('a.tif')", done="the worker was replaced", attempt=1)
    told = [line for line in render(account).splitlines() if not line.lstrip().startswith(("evidence", "where"))]
    about = "\n".join([diagnosis.cause, diagnosis.summary, diagnosis.because, *diagnosis.advice, told[0]])
    words = re.sub(r"my_dataset\.py|\w*[Dd]ataset\.__\w+__|__getitem__|failure before the first call", "", about)
    for never in ("DataLoader", "dataset", "sample", "worker_init_fn", "num_workers", "prefetch", "training loop"):
        assert never not in words


def test_an_argument_becomes_the_pools_own() -> None:
    """Those that do the same; what has no counterpart is left out."""
    advice = (
        "DataLoader(..., sample_timeout=...)   a longer one, where a sample may really take that long",
        'DataLoader(..., multiprocessing_context="spawn")   where the workers must use CUDA',
        "DataLoader(..., num_workers=0)   loads in this process, where a debugger sees it",
        "give what it waits for a timeout of its own",
    )
    told = for_calls(Diagnosis("hang", Confidence.CERTAIN, "hung", "because", advice=advice), "Pool")
    assert told.advice == (
        "Pool(..., timeout=...)   a longer one, where a call may really take that long",
        'Pool(..., mp_context=multiprocessing.get_context("spawn"))   where the workers must use CUDA',
        "give what it waits for a timeout of its own",
    )
