"""A diagnosis in the words of who runs calls: no dataset, no sample, no argument that a pool does not have. Pure.

The causes speak of loading, because that is what workers mostly do. Standard library only. Runs in: main process.
"""

from __future__ import annotations

import dataclasses
import re

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
    (r"\bthe dataset (keeps of each sample|uses|opens|holds)\b", r"the function \1"),
    (r"\bunpickling the dataset\b", "unpickling"),
    (
        r"call the initializer\(0\), and .* in this process, before the loader is made",
        "call the initializer in this process",
    ),
    (r"\bsample\b", "call"),
    (r"\bsamples\b", "calls"),
    (r"\bbatches\b", "calls"),
    (r"\bdataset exception\b", "exception"),
)


def for_calls(diagnosis: Diagnosis, front: str) -> Diagnosis:
    """`front`: how the user makes what runs the calls: "ProcessPoolExecutor"."""
    told = [_advice(text, front) for text in diagnosis.advice]
    return dataclasses.replace(
        diagnosis,
        cause=_words(diagnosis.cause),
        summary=_words(diagnosis.summary),
        because=_words(diagnosis.because),
        advice=tuple(text for text in told if text),
    )


def _advice(text: str, front: str) -> str:
    """Empty where it is of no use here."""
    if not text.startswith(_LOADER):
        return _words(text)
    for ours, theirs in _ARGUMENTS.items():
        rest = text.removeprefix(_LOADER)
        if rest.startswith(ours):
            return f"{front}(..., {theirs}{_words(rest.removeprefix(ours))}"
    return ""


def _words(text: str) -> str:
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return text
