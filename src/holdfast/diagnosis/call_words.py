"""A diagnosis in the words of who runs calls: no dataset, no sample, no argument that a pool does not have. Pure.

The causes speak of loading, because that is what workers mostly do. Standard library only. Runs in: main process.
"""

from __future__ import annotations

import dataclasses
import re

from holdfast.counted import POOL, SPAWN
from holdfast.diagnosis.evidence import Diagnosis

_LOADER = "DataLoader(..., "
_ARGUMENTS = {
    "sample_timeout=...)": "timeout=...)",
    "memory_limit=...)": "memory_limit=...)",
    'multiprocessing_context="spawn")': 'mp_context=multiprocessing.get_context("spawn"))',
    'multiprocessing_context="forkserver")': 'mp_context=multiprocessing.get_context("forkserver"))',
    'multiprocessing_context="fork")': 'mp_context=multiprocessing.get_context("fork"))',
    "recycle_after=1000)": "max_tasks_per_child=1000)",
}
"""Of the loader, and what does the same for calls. What is not listed has no counterpart."""

_CONTEXT = re.compile(r'mp_context=multiprocessing\.get_context\(("[a-z]+")\)')

_WORDS = (
    (r"a_script_that_loads_the_sample\.py", "a_script_that_makes_the_call.py"),
    (r"use fewer workers .*", "use fewer workers"),
    (r"use fewer workers or .*", "use fewer workers"),
    (r"\bthe code that loads the data\b", "the function"),
    (r"\bsample_timeout\b", "timeout"),
    (r"\bworker_init_fn\b", "the initializer"),
    (r"\bthe training loop\b", "the main process"),
    (r"correct the sample, or the code that cannot read it", "correct the function, or what it was called with"),
    (r"\bfrom the dataset, and move the batch in the main process: .*", "from the function"),
    (r"\bthe dataset's classes\b", "classes"),
    (r"\bthe dataset (keeps|uses|opens|holds)\b", r"the function \1"),
    (r"\bunpickling the dataset\b", "unpickling"),
    (
        r"call the initializer\(0\), and .* in this process, before the loader is made",
        "call the initializer in this process",
    ),
    (r"\bthat uses the loader\b", "that starts the workers"),
    (r"\bput what runs the training under\b", "put what the script does under"),
    (r"\bfor dataset, collate_fn or the initializer\b", "for the function or the initializer"),
    (r"\bsample\b", "call"),
    (r"\bsamples\b", "calls"),
    (r"\bbatches\b", "calls"),
    (r"\bbatch\b", "call"),
    (r"\bdataset exception\b", "exception"),
)


def for_calls(diagnosis: Diagnosis, front: str) -> Diagnosis:
    """`front`: POOL, MAP or SPAWN."""
    told = [_advice(text, front) for text in diagnosis.advice]
    return dataclasses.replace(
        diagnosis,
        cause=words(diagnosis.cause),
        summary=words(diagnosis.summary),
        because=words(diagnosis.because),
        advice=tuple(text for text in told if text),
    )


def _advice(text: str, front: str) -> str:
    """Empty where it is of no use here."""
    if not text.startswith(_LOADER):
        return words(text)
    rest = text.removeprefix(_LOADER)
    for ours, theirs in _ARGUMENTS.items():
        if rest.startswith(ours):
            return _of_front(front, f"{front}(..., {theirs}{words(rest.removeprefix(ours))}")
    return ""


def _of_front(front: str, text: str) -> str:
    """With the arguments that this one has."""
    if front != POOL and "max_tasks_per_child" in text:
        return ""
    return _CONTEXT.sub(r"start_method=\1", text) if front == SPAWN else text


def words(text: str) -> str:
    """Any text that speaks of loading, as one that speaks of calls."""
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return text
