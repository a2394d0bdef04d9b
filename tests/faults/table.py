"""The fault table: when x how x how often x start method x dataset kind x persistent workers x on_error.

Every combination is a row, unless a rule below says, with its reason, that it cannot be. What must come of a row is
computed in `contract.py`. "Main process killed" has a file of its own, `test_main_process_killed.py`.

Runs in: the test process.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from pairwise import pairwise

BEFORE_THE_FIRST_SAMPLE = ("import", "unpickling", "worker_init_fn")
IN_THE_DATASET_OR_AFTER = ("getitem", "collate", "sending")
WHEN = (*BEFORE_THE_FIRST_SAMPLE, *IN_THE_DATASET_OR_AFTER, "between samples", "end of epoch", "shutdown")

SIGNALS = ("SIGKILL", "SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGSTOP")
EXITS = ("os._exit", "sys.exit")
RAISES = ("exception", "unpicklable result")
HOW = ("exception", *SIGNALS, *EXITS, "endless loop", "unpicklable result", "supervisor killed")

TIMES = ("once", "always")
METHODS = ("fork", "spawn", "forkserver", "portable")
"""The last is a backend of its own: its workers are spawned, by the main process itself."""
MAPS = ("map", "map of many", "unbatched")
ITERABLES = ("iterator class", "generator")
KINDS = (*MAPS, *ITERABLES)
PERSISTENT = (False, True)
ON_ERROR = ("raise", "skip", "replace")


class Row(NamedTuple):
    """One line of the table."""

    when: str
    how: str
    times: str
    method: str
    kind: str
    persistent: bool
    on_error: str

    @property
    def is_iterable(self) -> bool:
        return self.kind in ITERABLES

    @property
    def is_portable(self) -> bool:
        return self.method == "portable"

    @property
    def is_once(self) -> bool:
        return self.times == "once"

    @property
    def comes_from_outside(self) -> bool:
        """Whether the test itself sends the signal: no code of the user's runs at that moment."""
        return self.when == "between samples" or (self.when == "end of epoch" and not self.is_iterable)

    def __str__(self) -> str:
        workers = "persistent" if self.persistent else "per epoch"
        words = (self.when, self.how, self.times, self.method, self.kind, workers, self.on_error)
        return "-".join(words).replace(" ", "_")


def why_not(row: Row) -> str | None:
    """Why this row cannot be; None if it can."""
    return _no_such_supervisor(row) or _no_such_fault(row) or _no_such_number(row)


def _no_such_supervisor(row: Row) -> str | None:
    if row.how == "supervisor killed" and row.is_portable:
        return "the portable backend has no supervisor"
    if row.when == "import" and row.how in ("supervisor killed", "SIGSTOP") and not row.is_portable:
        return "it is the supervisor that imports: SIGKILL is its death, and a stop of it while it imports a long wait"
    return None


def _no_such_fault(row: Row) -> str | None:
    if row.when in ("import", "unpickling") and row.method == "fork":
        return "under fork nothing is imported or unpickled in a worker"
    if row.how == "unpicklable result" and row.when != "sending":
        return "that a result cannot be pickled is found out when it is sent"
    if row.how == "endless loop" and row.when in BEFORE_THE_FIRST_SAMPLE:
        return "sample_timeout is a limit for samples: before the first there is none, as in torch"
    if row.comes_from_outside and row.how not in (*SIGNALS, "supervisor killed"):
        return "no code of the user's runs then: only a signal comes"
    return None


def _no_such_number(row: Row) -> str | None:
    is_from_others = row.how in ("SIGSTOP", "supervisor killed")
    if is_from_others and not row.is_once:
        return "somebody else does it, and not each time"
    if row.comes_from_outside and not row.is_once:
        return "the test strikes once; max_restarts is another test's"
    if row.when == "shutdown" and row.is_once and not is_from_others:
        return "each worker ends once: nothing comes again"
    if row.is_once and row.how in RAISES and (row.when != "collate" or row.on_error == "raise"):
        return "what raises is not tried again (but collate_fn, unless its error is to be raised): it is always"
    if row.is_once and row.when in BEFORE_THE_FIRST_SAMPLE and not (is_from_others or row.how == "SIGKILL"):
        return "a death before the first sample is final, unless it may come from outside: it is always"
    return None


def all_rows() -> Iterator[Row]:
    for values in product(WHEN, HOW, TIMES, METHODS, KINDS, PERSISTENT, ON_ERROR):
        row = Row(*values)
        if why_not(row) is None:
            yield row


def some_rows() -> list[Row]:
    """Every pair of values that goes together at all."""
    return pairwise(all_rows(), _cost)


def _cost(row: Row) -> float:
    """New interpreters take their time, and deadlines theirs."""
    seconds = {"fork": 0.3, "portable": 5.0}.get(row.method, 2.5) * (1.5 if row.persistent else 1)
    if row.how == "endless loop":
        seconds += 4.0
    return seconds
