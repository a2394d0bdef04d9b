"""What `holdfast replay` prints: what happened then, and what happens now.

Runs in: main process.
"""

from __future__ import annotations

import itertools
import re
import shlex
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast import words
from holdfast.cli.lines import Lines
from holdfast.diagnosis.wording import one_line, printable
from holdfast.errors import WorkerError
from holdfast.incident import Incident, bounded_repr
from holdfast.records.reader import Run
from holdfast.tasks.replay.case import Case, as_index

if TYPE_CHECKING:
    from holdfast.tasks.replay.debuggers import Seen
    from holdfast.tasks.replay.guarded import Order, Outcome
    from holdfast.tasks.replay.parts import Part
    from holdfast.tasks.replay.watched import Loaded

_MOST_LISTED = 1000
_MOST_EVIDENCE_LINES = 40
_FRAME = re.compile(r'\s*File "[^"]*", line \d+')
_OUR_FRAME = re.compile(r'\s*File "[^"]*[/\\]holdfast[/\\]tasks[/\\]replay[/\\]')
_OF_MEMORY = ("out of memory", "over memory_limit", "over memory_budget", "memory growth")
_OF_PYTHON = ("dataset exception", "hang")


def is_crash(cause: str) -> bool:
    """Whether a debugger of Python is of no use: the process is gone."""
    return not cause.startswith((*_OF_PYTHON, *_OF_MEMORY))


# -- the incidents of a run --------------------------------------------------------------------------------------------


def print_list(console: Console, run: Run) -> None:
    """One row each."""
    if not run.incidents:
        console.print(f"Nothing went wrong in run {run.id}.", markup=False)
        return
    table = Table("incident", "sample", "what happened", "done", box=None, padding=(0, 2, 0, 0))
    for entry in run.incidents[:_MOST_LISTED]:
        table.add_row(*(Text(printable(each)) for each in _row(run, entry)))
    console.print(table)
    if run.damaged_lines or run.is_full:
        console.print("Its record is damaged, or full: there were more.", style="yellow")


def _row(run: Run, entry: dict[str, Any]) -> tuple[str, str, str, str]:
    index = entry.get("sample_index")
    said = one_line(str(entry.get("summary") or entry.get("cause") or "unknown"), 200)
    return f"{run.id}.{entry.get('number')}", "" if index is None else str(index), said, str(entry.get("done", ""))


# -- before ------------------------------------------------------------------------------------------------------------


def print_case(console: Console, case: Case, target: str, order: Order, dataset: Any) -> None:
    """What happened then, and under which conditions it is tried again."""
    lines = Lines(console)
    lines.add("then", [f"{case.summary or case.cause}, {_ago(case.time)}".strip(", ")], "bold")
    lines.add("again", [f"{wanted(order)} of {target}"])
    lines.add("limits", [_limits(case)])
    lines.add("random", [f"seed {order.seed}; the numbers that the run had are in no record"])
    if order.part is not None and order.part.first != order.part.last:
        lines.add("note", ["which of them it was is not recorded: they were to be one batch"])
    name = case.dataset if target == case.target else type(dataset).__name__  # a command may have wrapped it
    lines.add("note", [_other_dataset(case, name, _length(dataset))], "yellow")


def wanted(order: Order) -> str:
    """ "sample 17", or "element 4 of worker 1's part"."""
    return f"sample {printable(bounded_repr(order.index))}" if order.part is None else str(order.part)


def _limits(case: Case) -> str:
    memory, timeout = case.limits.memory_limit_bytes, case.limits.sample_timeout_s
    said = [
        "no memory_limit" if memory is None else f"memory_limit {words.limit(memory)}",
        "no sample_timeout" if timeout is None else f"sample_timeout {timeout:g} s",
        *([f"start method {case.start_method}"] if case.start_method else []),
    ]
    unknown = "" if case.knows_limits else " (the record does not say which the run had)"
    return ", ".join(said) + unknown


def _other_dataset(case: Case, name: str, length: int | None) -> str:
    """Empty where it is the same, as far as can be told."""
    is_same_length = case.dataset_length is None or length is None or case.dataset_length == length
    if case.dataset in ("", name) and is_same_length:
        return ""
    of_then = "" if case.dataset_length is None else f" of {case.dataset_length}"
    of_now = "" if length is None else f" of {length}"
    return f"the run's dataset was {case.dataset or 'one'}{of_then}; this is {name}{of_now}"


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:  # the user's own code, asked only for a note
        return None


def _ago(then: float | None) -> str:
    """ "5 minutes ago": to the largest unit."""
    if then is None:
        return ""
    passed = max(0.0, time.time() - then)
    for unit, seconds in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if passed >= seconds:
            return f"{words.plural(int(passed // seconds), unit)} ago"
    return "just now"


# -- after -------------------------------------------------------------------------------------------------------------


def print_outcome(console: Console, case: Case, order: Order, outcome: Outcome, peak_bytes: int | None) -> None:
    """That it loaded, and what it is made of; or the whole diagnosis."""
    lines = Lines(console)
    if outcome.error is None:
        times = f", {order.repeat} times" if order.repeat > 1 else ""
        lines.add("now", [f"{wanted(order)} loaded{times}"], "bold green")
    else:
        lines.add("now", [_failed(order, outcome)], "bold red")
        _failure_rows(lines, case, outcome)
    if outcome.loaded:
        _loaded_rows(lines, outcome.loaded)
    if order.memray_file is not None:
        lines.add("memray", _memray(order.memray_file, peak_bytes))


def _failed(order: Order, outcome: Outcome) -> str:
    """ "worker 0 (pid 41822) died of a segmentation fault while loading sample 17", "sample 17 raised ValueError"."""
    noted, error = outcome.incident, outcome.error
    after = f", after it had loaded {words.times(len(outcome.loaded))}" if outcome.loaded and order.part is None else ""
    if isinstance(error, WorkerError) or noted is None:
        return next(iter(str(error).splitlines()), type(error).__name__) + after
    return f"{_which(order, noted)} {one_line(noted.summary, 300)}{after}"


def _which(order: Order, noted: Incident | None) -> str:
    """Of several elements the one that failed, where it says so."""
    place = noted.sample_index if noted is not None and order.part is not None else None
    return f"element {place[1]}" if isinstance(place, tuple) and len(place) == 2 else wanted(order)


def _failure_rows(lines: Lines, case: Case, outcome: Outcome) -> None:
    noted = outcome.incident
    if noted is None:
        lines.add("error", str(outcome.error).splitlines())
        return
    same = "the same cause as then" if noted.cause == case.cause else f"another cause than then, which was {case.cause}"
    lines.add("cause", [f"{noted.because} ({noted.confidence})", same])
    lines.add("where", [noted.where])
    lines.add("evidence", _bounded(_of_the_user(noted.evidence.splitlines())))
    lines.add("try", noted.advice)


def _loaded_rows(lines: Lines, loaded: tuple[Loaded, ...]) -> None:
    last = loaded[-1]
    seconds = sorted(each.seconds for each in loaded)
    peaks = [each.peak_bytes for each in loaded if each.peak_bytes is not None]
    span = f"{words.took(seconds[0])} to " if len(seconds) > 1 else ""
    lines.add("took", [f"{span}{words.took(seconds[-1])}"])
    if peaks:
        lines.add("memory", [f"{words.size(max(peaks))} more than before, at its peak"])
    lines.add("is", parts_lines(last.parts))


def _memray(file: str, peak_bytes: int | None) -> list[str]:
    peak = "nothing was noted" if peak_bytes is None else f"{words.size(peak_bytes)} allocated at the peak"
    return [peak, f"memray flamegraph {shlex.quote(file)}"]


def print_seen(console: Console, order: Order, seen: Seen) -> None:
    """After a debugger."""
    lines = Lines(console)
    if seen.parts is None:
        lines.add("now", [f"{wanted(order)} did not load: {seen.said}"], "bold red")
    else:
        lines.add("now", [f"{wanted(order)} loaded"], "bold green")
        lines.add("is", parts_lines(seen.parts))


def parts_lines(parts: Iterable[Part]) -> list[str]:
    """ "['image']  Tensor float32 3x224x224, 588.0 KiB"."""
    rows = [(printable(part.path), _part(part)) for part in parts]
    width = min(40, max((len(path) for path, _ in rows), default=0))
    return [f"{path:<{width}}  {said}".strip() if width else said for path, said in rows]


def _part(part: Part) -> str:
    shape = None if part.shape is None else "x".join(map(str, part.shape)) or "scalar"
    said = " ".join(printable(each) for each in (part.type, part.dtype, shape) if each)
    size = "" if part.nbytes is None else f", {words.size(part.nbytes)}"
    return said + size + (f" of {part.length}" if part.length is not None and part.nbytes is None else "")


def next_command(case: Case, target: str, order: Order, outcome: Outcome) -> tuple[str, str]:
    """The command that is worth running after this one, and why."""
    if outcome.error is None:
        run_id = case.id.rpartition(".")[0]
        if order.part is None and order.repeat == 1:
            return _again(case, target, order, "--repeat 20"), "loads it with other random numbers"
        return f"holdfast report {run_id}", "all that is known of that run"
    cause = outcome.incident.cause if outcome.incident else ""
    is_split = order.part is not None and order.part.num_workers > 1
    if is_split and not cause.startswith(_OF_MEMORY):
        return f"holdfast report {case.id.rpartition('.')[0]}", "all that is known of that run"
    if cause.startswith(_OF_MEMORY):
        return _again(case, target, order, "--memray"), "shows who allocates the memory"
    if is_crash(cause):
        return _again(case, target, order, "--gdb"), "stops where it crashes"
    return _again(case, target, order, "--pdb"), f"stops where it {'hangs' if cause == 'hang' else 'raises'}"


def _again(case: Case, target: str, order: Order, option: str) -> str:
    """This command once more: with whatever the record does not know."""
    named = "" if target == case.target else f" --dataset {shlex.quote(target)}"
    is_chosen = order.part is None and order.index != as_index(case.index)
    chosen = f" --index {shlex.quote(repr(order.index))}" if is_chosen else ""
    return f"holdfast replay {case.id}{named}{chosen} {option}"


def _of_the_user(lines: list[str]) -> list[str]:
    """A stack without what is below the user's frames: the worker, and whoever started it."""
    ours = (number for number, line in enumerate(lines) if _OUR_FRAME.match(line))
    first = next(ours, len(lines))
    rest = itertools.dropwhile(_FRAME.match, lines[first:])
    return [*lines[:first], *rest]


def _bounded(lines: list[str]) -> list[str]:
    if len(lines) <= _MOST_EVIDENCE_LINES:
        return lines
    half = _MOST_EVIDENCE_LINES // 2
    return [*lines[:half], f"... {words.plural(len(lines) - 2 * half, 'line')} more, in --json ...", *lines[-half:]]
