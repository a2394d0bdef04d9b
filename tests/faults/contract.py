"""What must come of a row of the fault table, from the promises of the design alone.

In short: nothing is lost without a word. A death or a hang is tried again; a fault that does not come again costs
nothing. What comes again, or raises, is the sample's (in a sample), the batch's (in collate_fn or on its way), or
ends the stream of an iterable that cannot go on. A fault before the first sample is raised at once, unless it is a
signal that others send: then the worker is restarted, within bounds.

Runs in: the test process.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from faulty import BAD, BATCH_SIZE, EXIT_STATUS, LENGTH, NUM_WORKERS
from holdfast import TooManyRestarts, WorkerCrashed, WorkerInitError, WorkerTimeout
from table import BEFORE_THE_FIRST_SAMPLE, RAISES, Row

ANY: Any = object()
MATE = BAD - 1
"""The other sample of the bad one's batch, of a map-style dataset."""
ELEMENT = BAD // NUM_WORKERS
"""The bad one's place in the stream of its worker, which is worker 1."""


@dataclass(frozen=True)
class Raised:
    """An exception out of `next()`, and what it must say."""

    kind: type[Exception]
    says: tuple[str, ...] = ()
    sample_index: Any = ANY


@dataclass(frozen=True)
class Substitutes:
    """A batch of so many samples, any but these."""

    count: int
    never: frozenset[int]


Outcome = list[int] | Raised | Substitutes


@dataclass(frozen=True)
class Noted:
    """An entry of `loader.incidents`: its summary, or its evidence, has these words, and `done` begins with that."""

    words: str
    done: str
    phase: str | None = None
    sample_index: Any = ANY


@dataclass(frozen=True)
class Epoch:
    """What one epoch gives. `skipped` are the indices in `loader.skipped_samples`."""

    outcomes: list[Outcome]
    incidents: list[Noted] = field(default_factory=list)
    skipped: list[Any] = field(default_factory=list)
    may_note_anything: bool = False  # nothing is asked of workers that have nothing left to do
    may_note_nothing: bool = False  # the epoch may be over before the main process looks at what happened
    may_note_more: bool = False  # of the other workers, which fare alike


def whole_epoch(row: Row) -> list[tuple[int, list[int]]]:
    """(worker, batch) in the order of delivery, without faults."""
    if row.kind == "unbatched":
        return [(index % NUM_WORKERS, [index]) for index in range(LENGTH)]
    if not row.is_iterable:
        starts = range(0, LENGTH, BATCH_SIZE)
        return [(unit % NUM_WORKERS, list(range(start, start + BATCH_SIZE))) for unit, start in enumerate(starts)]
    streams = [list(range(worker, LENGTH, NUM_WORKERS)) for worker in range(NUM_WORKERS)]
    rounds = range(0, LENGTH // NUM_WORKERS, BATCH_SIZE)
    return [(worker, stream[k : k + BATCH_SIZE]) for k in rounds for worker, stream in enumerate(streams)]


def expected(row: Row) -> list[Epoch]:
    """What the epochs of a row give: two with persistent workers, else one."""
    if row.when in BEFORE_THE_FIRST_SAMPLE and not row.is_once:
        return [_fails_to_start(row)]
    first = _first_epoch(row)
    if not row.persistent:
        return [first]
    return [first, _second_epoch(row, first)]


def _second_epoch(row: Row, first: Epoch) -> Epoch:
    if first.may_note_nothing:
        return first  # it may be noted only now
    if row.is_once or row.when == "shutdown":
        return _fault_free(row)
    is_known = row.when == "getitem" and not row.is_iterable and row.on_error != "raise"
    return replace(first, incidents=[]) if is_known else first  # a known bad sample is not tried again


def _fault_free(row: Row) -> Epoch:
    return Epoch([batch for _, batch in whole_epoch(row)])


def _first_epoch(row: Row) -> Epoch:
    if row.when == "shutdown":
        return replace(_fault_free(row), may_note_anything=True)
    if row.when in BEFORE_THE_FIRST_SAMPLE or row.how in ("SIGSTOP", "supervisor killed") or row.comes_from_outside:
        return replace(_fault_free(row), incidents=_restarted(row), may_note_nothing=row.when == "end of epoch")
    if row.is_once:
        return replace(_fault_free(row), incidents=[_noted(row, "retried")])
    if row.when in ("collate", "sending"):
        return _bad_batch(row)
    return _bad_element(row) if row.is_iterable else _bad_sample(row)


# -- what is said ------------------------------------------------------------------------------------------------------


def _words(row: Row) -> str:
    if row.how == "exception":
        return "ValueError"
    if row.how == "unpicklable result":
        return "TypeError"
    if row.how == "endless loop":
        return "hung"
    if row.how == "SIGSTOP":
        return "stopped"
    if row.how == "supervisor killed" or _dies_importing(row):
        return "supervisor"
    return row.how if row.how.startswith("SIG") else f"status {EXIT_STATUS}"


def _dies_importing(row: Row) -> bool:
    """The supervisor, where there is one, imports the modules for all workers, and dies of what it cannot catch."""
    return row.when == "import" and row.how not in ("exception", "sys.exit") and not row.is_portable


def _phase(row: Row) -> str:
    if row.when in BEFORE_THE_FIRST_SAMPLE:
        return "starting"
    if row.comes_from_outside:
        return "waiting for work"
    return {"collate": "collating", "sending": "sending"}.get(row.when, "loading")


def _noted(row: Row, done: str, sample_index: Any = ANY) -> Noted:
    return Noted(_words(row), done, _phase(row), sample_index)


def _restarted(row: Row) -> list[Noted]:
    """Nobody's sample: the worker, or the supervisor, which has no phase."""
    words = _words(row)
    return [Noted(words, "restarted", None if words == "supervisor" else _phase(row))]


def _done(row: Row) -> str:
    return {"raise": "raised", "skip": "skipped", "replace": "replaced"}[row.on_error]


def _error(row: Row) -> type[Exception]:
    """What `on_error="raise"` raises: what the user's code raised, or ours for a death or a hang."""
    if row.how in RAISES:
        return ValueError if row.how == "exception" else TypeError
    return WorkerTimeout if row.how == "endless loop" else WorkerCrashed


# -- before the first sample -------------------------------------------------------------------------------------------


def _fails_to_start(row: Row) -> Epoch:
    """Raised, whatever on_error says: an exception as itself, a death as WorkerInitError, at once; but SIGKILL, which
    others send, when it has come more often than max_restarts allows.
    """
    if row.how in RAISES:
        return Epoch([Raised(_error(row))], [_noted(row, "raised")])
    if row.how == "SIGKILL":
        noted = Noted("supervisor", "raised") if _dies_importing(row) else _noted(row, "raised")
        return Epoch([Raised(TooManyRestarts, (noted.words, "SIGKILL"))], [noted], may_note_more=True)
    if _dies_importing(row):
        ended = row.how if row.how.startswith("SIG") else f"status {EXIT_STATUS}"
        error = Raised(WorkerInitError, ("supervisor", "while importing", ended))
        return Epoch([error], [Noted("supervisor", "raised", "starting")], may_note_more=True)
    return Epoch([Raised(WorkerInitError, (_words(row),))], [_noted(row, "raised")], may_note_more=True)


# -- a sample ----------------------------------------------------------------------------------------------------------


def _with(row: Row, bad: list[Outcome]) -> list[Outcome]:
    """The epoch with these in place of the bad sample's batch."""
    outcomes: list[Outcome] = []
    for _, batch in whole_epoch(row):
        outcomes.extend(bad if BAD in batch else [batch])
    return outcomes


def _attempts(row: Row, final: Noted) -> list[Noted]:
    """A death or a hang is tried once more, as max_retries says by default; what raises is not."""
    if row.how in RAISES:
        return [final]
    return [replace(final, done="retried"), final]


def _bad_sample(row: Row) -> Epoch:
    """Of a map-style dataset: the rest of its batch is delivered, unless it is to be raised."""
    index: Any = ANY if row.kind == "map of many" and row.on_error == "raise" and row.how in RAISES else BAD
    incidents = _attempts(row, _noted(row, _done(row), index))
    if row.kind == "map of many" and row.how not in RAISES:
        incidents.insert(0, _noted(row, "retried", None))  # one by one, to find out which it is
    if row.on_error == "raise":
        says = (f"dataset[{BAD}]",) if row.kind != "map of many" else (str(BAD),)
        error = Raised(_error(row), says, ANY if row.how in RAISES else BAD)
        return Epoch(_with(row, [error]), incidents)
    if row.on_error == "skip":
        return Epoch(_with(row, [] if row.kind == "unbatched" else [[MATE]]), incidents, [BAD])
    instead: Outcome = Substitutes(1, frozenset({BAD})) if row.kind == "unbatched" else [MATE, MATE]
    return Epoch(_with(row, [instead]), incidents, [BAD])


def _bad_element(row: Row) -> Epoch:
    """Of an iterable: passed over by an iterator that survives its exception; else the stream ends with an error."""
    is_at_end = row.when == "end of epoch"
    place = LENGTH // NUM_WORKERS if is_at_end else ELEMENT
    if row.how in RAISES and row.kind == "iterator class":
        return _element_passed_over(row, is_at_end, place)
    says = () if row.how in RAISES and row.kind == "iterator class" else (f"after {place} elements",)
    error = Raised(_error(row), says)
    incidents = _attempts(row, _noted(row, "raised"))
    if is_at_end:
        return Epoch([*_fault_free(row).outcomes, error], incidents)
    outcomes: list[Outcome] = []
    for worker, batch in whole_epoch(row):
        if worker == BAD % NUM_WORKERS and batch[0] > BAD:
            continue  # the stream has ended
        outcomes.append(batch)
    at = outcomes.index([BAD - NUM_WORKERS, BAD])
    if row.how in RAISES and row.on_error != "raise":  # what came before it in its batch is delivered
        outcomes[at : at + 1] = [[BAD - NUM_WORKERS]]
        outcomes.append(error)
    else:
        outcomes[at] = error
    return Epoch(outcomes, incidents)


def _element_passed_over(row: Row, is_at_end: bool, place: int) -> Epoch:
    is_alone = is_at_end and row.on_error == "replace"  # in its batch: nothing is there to stand for it
    done = "skipped" if is_alone else _done(row)
    incidents = [_noted(row, done, ANY if row.on_error == "raise" else (1, place))]
    if row.on_error == "raise":
        error = Raised(ValueError)
        return Epoch([*_fault_free(row).outcomes, error] if is_at_end else _with(row, [error]), incidents)
    mate = BAD - NUM_WORKERS
    instead: list[int] = [mate, mate] if row.on_error == "replace" else [mate]
    outcomes = _fault_free(row).outcomes if is_at_end else _with(row, [instead])
    return Epoch(outcomes, incidents, [(1, place)])


# -- a batch -----------------------------------------------------------------------------------------------------------


def _bad_batch(row: Row) -> Epoch:
    """All of its samples are raised, skipped or replaced together; an iterable has no others, and skips them."""
    batch = next(batch for _, batch in whole_epoch(row) if BAD in batch)
    listed = [(1, ELEMENT - 1), (1, ELEMENT)] if row.is_iterable else batch
    done = "skipped" if row.is_iterable and row.on_error == "replace" else _done(row)
    incidents = _attempts(row, _noted(row, done))
    if row.on_error == "raise":
        says = () if row.is_iterable or row.how in RAISES else tuple(map(str, batch))
        return Epoch(_with(row, [Raised(_error(row), says)]), incidents)
    if row.on_error == "skip" or row.is_iterable:
        return Epoch(_with(row, []), incidents, listed)
    return Epoch(_with(row, [Substitutes(len(batch), frozenset(batch))]), incidents, listed)
