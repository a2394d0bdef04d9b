"""The message a user reads: a first line that stands alone, then where, cause, evidence, torch, done, try. Pure.

    worker 1 (pid 41822) died of an illegal instruction while loading sample 17

      where      dataset[17], epoch 0, batch 4, attempt 2 of 2
                 my_dataset.py:31 in __getitem__ -> libfast.so+0x1110 decode_block
      cause      vmovupd zmm0,[rdi] needs avx512f; this CPU has no avx512f (certain)
      evidence   SIGILL, ILL_ILLOPN at libfast.so+0x1110 decode_block
      torch      DataLoader worker (pid 41822) is killed by signal: Illegal instruction.
      done       the worker was restarted each time; its other batches are not affected
      try        rebuild libfast.so without avx512f (-march=x86-64-v3), or install a build for this CPU
                 holdfast replay 7f3a.2   load this sample alone, under the same limits
                 DataLoader(..., on_error="skip")   go on without it
      report     holdfast report 7f3a

No line is longer than WIDTH, none ends in a space, and a label without text is left out.
Standard library only. Runs in: main process.
"""

from __future__ import annotations

import re
import signal
import textwrap
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.diagnosis.engine import NOT_OF_THE_SAMPLE
from holdfast.diagnosis.evidence import Diagnosis
from holdfast.diagnosis.wording import one_line, printable
from holdfast.incident import Incident, bounded_repr

WIDTH = 120
LABELS = ("where", "cause", "evidence", "torch", "done", "try", "report")
_INDENT = "  "
_LABEL_WIDTH = 11
_MOST_LINES = 16
_LONGEST_TEXT = 600
_LONGEST_INDEX = 80
_STARTING = "starting"


@dataclass(frozen=True, slots=True)
class Account:
    """What is told of one loss: who, doing what, with which outcome. What is None or empty is not mentioned."""

    diagnosis: Diagnosis
    worker_id: int | None = None  # None: the supervisor
    pid: int | None = None
    phase: str = ""  # "loading", "collating", "starting"
    sample_index: Any = None
    epoch: int | None = None
    batch: int | None = None
    attempt: int | None = None
    attempts: int | None = None
    done: str = ""
    lost_with_it: tuple[Any, ...] = ()  # the other samples of a batch that is not delivered
    who: str = ""  # where it was no worker: "supervisor", "main process"
    seen_at: float | None = None  # time.time(); None: now
    incident_id: str = ""  # in the record of the run, "7f3a.2"; empty: it is in none
    in_torchs_words: str = ""  # what torch's loader says of a lost worker; empty for pools and ranks
    may_be_skipped: bool = True  # False where on_error has no say, as for ImportError and MemoryError


def render(account: Account) -> str:
    """The whole message."""
    lines = [first_line(account), ""]
    for label, texts in zip(LABELS, _texts(account), strict=True):
        lines += _column(label, texts)
    return "\n".join(lines)


def first_line(account: Account) -> str:
    """ "worker 1 (pid 41822) died of an illegal instruction while loading sample 17"."""
    who = account.who or ("supervisor" if account.worker_id is None else f"worker {account.worker_id}")
    pid = "" if account.pid is None else f" (pid {account.pid})"
    return one_line(f"{who}{pid} {one_line(account.diagnosis.summary, 300)}{_doing(account)}", 500)


def in_torchs_words(pid: int, exit_code: int) -> str:
    """The sentence of torch's loader for a worker that is gone: log matchers and search engines know it.

    Without what torch adds in some cases, which is advice.
    """
    if exit_code < 0:
        return f"DataLoader worker (pid {pid}) is killed by signal: {_description(-exit_code)}."
    if exit_code > 0:
        return f"DataLoader worker (pid {pid}) exited unexpectedly with exit code {exit_code}."
    return f"DataLoader worker (pid(s) {pid}) exited unexpectedly"


def _description(number: int) -> str:
    """ "Segmentation fault", as the C library has it."""
    try:
        return signal.strsignal(number) or f"Unknown signal {number}"
    except ValueError:
        return f"Unknown signal {number}"


def incident_of(account: Account, seen: str = "") -> Incident:
    """The same as an incident. `seen` is what is too long for a message: a traceback, the stacks of all threads."""
    diagnosis = account.diagnosis
    facts = [*diagnosis.evidence, *(f"ruled out, {text}" for text in diagnosis.ruled_out)]
    return Incident(
        cause=diagnosis.cause,
        done=account.done,
        worker_id=account.worker_id,
        pid=account.pid,
        phase=account.phase or None,
        sample_index=account.sample_index,
        epoch=account.epoch,
        batch=account.batch,
        attempt=account.attempt,
        confidence=str(diagnosis.confidence),
        summary=f"{account.who} {diagnosis.summary}" if account.who else diagnosis.summary,
        because=diagnosis.because,
        where=diagnosis.where,
        evidence="\n".join([*facts, seen]).strip(),
        advice=diagnosis.advice,
        time=time.time() if account.seen_at is None else account.seen_at,
    )


def _doing(account: Account) -> str:
    comma = "," if re.search("[:,`]", account.diagnosis.summary) else ""  # or "bad header while loading" was the error
    sample = "" if account.sample_index is None else f" sample {_index(account.sample_index)}"
    if account.phase == _STARTING:
        return f"{comma} before its first sample"
    if account.phase:
        return f"{comma} while {account.phase}{sample}"
    return f"{comma} with{sample}" if sample else ""


def _texts(account: Account) -> Iterator[list[str]]:
    """What stands beside each label, in their order."""
    diagnosis = account.diagnosis
    yield [_position(account), diagnosis.where]
    yield [f"{diagnosis.because} ({diagnosis.confidence})"]
    yield [*diagnosis.evidence, *(f"ruled out, {text}" for text in diagnosis.ruled_out)]
    yield [account.in_torchs_words]
    yield [account.done, _others(account)]
    yield [*diagnosis.advice, *_advice_on_sample(account)]
    yield [f"holdfast report {account.incident_id.rpartition('.')[0]}" if account.incident_id else ""]


def _position(account: Account) -> str:
    parts = [
        "" if account.sample_index is None else f"dataset[{_index(account.sample_index)}]",
        "" if account.epoch is None else f"epoch {account.epoch}",
        "" if account.batch is None else f"batch {account.batch}",
        "" if account.attempt is None else f"attempt {account.attempt}",
    ]
    of = "" if account.attempt is None or account.attempts is None else f" of {account.attempts}"
    return ", ".join(part for part in parts if part) + of


def _others(account: Account) -> str:
    if not account.lost_with_it:
        return ""
    indices = ", ".join(_index(index) for index in account.lost_with_it[:32])
    more = ", ..." if len(account.lost_with_it) > 32 else ""
    return f"lost with it, of the same batch: samples {indices}{more}"


def _advice_on_sample(account: Account) -> list[str]:
    """What can be done about the sample itself, unless it had no part in what happened."""
    if account.sample_index is None or account.diagnosis.cause in NOT_OF_THE_SAMPLE:
        return []
    alone = (
        f"loader.dataset[{_index(account.sample_index)}]   load this sample alone, in a Python that may crash or hang"
    )
    if account.incident_id:
        alone = f"holdfast replay {account.incident_id}   load this sample alone, under the same limits"
    skip = 'DataLoader(..., on_error="skip")   go on without it'
    return [alone, skip] if account.may_be_skipped else [alone]


def _column(label: str, texts: Iterable[str]) -> list[str]:
    width = WIDTH - len(_INDENT) - _LABEL_WIDTH
    lines = [line for text in texts for line in _wrapped(text, width)]
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], "..."]
    heads = [label, *[""] * len(lines)]
    return [f"{_INDENT}{head:<{_LABEL_WIDTH}}{line}" for head, line in zip(heads, lines, strict=False)]


def _wrapped(text: str, width: int) -> list[str]:
    """Runs of spaces stay: they set a remedy apart from what it does."""
    clean = printable(text).strip()
    if len(clean) > _LONGEST_TEXT:
        clean = f"{clean[: _LONGEST_TEXT - 3].rstrip()}..."
    return [line.rstrip() for line in textwrap.wrap(clean, width, break_on_hyphens=False)]


def _index(index: Any) -> str:
    return one_line(bounded_repr(index, 2 * _LONGEST_INDEX), _LONGEST_INDEX)
