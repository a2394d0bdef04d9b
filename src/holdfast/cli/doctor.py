"""`holdfast doctor`: what on this machine would kill a loader, and what about a dataset would.

Exit status 1: a problem was found. Warnings and notes are told, and leave it 0.

Runs in: main process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from holdfast.cli import console, targets
from holdfast.cli.doctor_text import print_findings, summary
from holdfast.doctor.examination import OF_LIBRARIES, OF_MACHINE, examine
from holdfast.doctor.finding import Finding, Level, worst_first
from holdfast.doctor.scope import Scope, default_start_method

if TYPE_CHECKING:
    from holdfast.tasks.examine.seen import Seen


@click.command()
@click.argument("target", metavar=f"[{targets.FORM}]", required=False)
@click.option("--deep", is_flag=True, help="Look at the code of every library that is installed; up to two minutes.")
@click.option(
    "--start-method",
    type=click.Choice(["fork", "spawn", "forkserver"]),
    help="How your loader starts workers. Default: as this Python does.",
)
@click.option("--samples", type=click.IntRange(1), default=4, show_default=True, help="How many to load.")
@click.option(
    "--limit",
    "limit_s",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds that making the dataset, and each sample, may take.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(
    *, target: str | None, deep: bool, start_method: str | None, samples: int, limit_s: float, as_json: bool
) -> None:
    """Say what on this machine would kill a loader, before it does.

    With MODULE:DATASET, such as my_project.data:train_set or data.py:make_train_set, also whether the dataset pickles,
    opens nothing before the workers are forked, and gives the same sample twice; and what one costs.
    """
    if target is not None:
        targets.check_module(target)  # wrong usage is said at once
    method = start_method or default_start_method()
    scope = Scope(deep=deep, start_method=method, has_dataset=target is not None)
    talk = console.talk()
    with _steps(talk) as on_step:
        # First: to load samples imports torch here, which sets variables and limits of this process.
        of_machine = examine(scope, OF_MACHINE, on_step)
        seen = _look_at_dataset(scope, target, samples, limit_s, on_step) if target is not None else None
        mapped = seen.around.mapped if seen is not None else ()
        of_libraries = examine(dataclasses.replace(scope, mapped=mapped), OF_LIBRARIES, on_step)
    findings = worst_first([*of_libraries, *of_machine, *_of_dataset(seen)])
    if as_json:
        console.print_json(as_data(findings, target, seen))
    else:
        print_findings(console.out(), findings)
        _name_next(talk, target, seen)
    sys.exit(console.PROBLEMS if _counts(findings)[Level.PROBLEM] else console.HEALTHY)


@contextlib.contextmanager
def _steps(talk: Console) -> Iterator[Callable[[str], None]]:
    """On a terminal: what is being looked at."""
    if not talk.is_terminal:
        yield lambda step: None
        return
    with talk.status("looking") as status:
        yield lambda step: status.update(Text(step))


def _look_at_dataset(scope: Scope, target: str, samples: int, limit_s: float, on_step: Callable[[str], None]) -> Seen:
    """Not at all where torch cannot be imported: that is a finding of its own, and would end this process as well."""
    from holdfast.tasks.examine import examination
    from holdfast.tasks.examine.seen import Seen

    if not scope.torch.works:
        return Seen(target, scope.start_method, None)
    plan = examination.Plan(target, scope.start_method, samples, limit_s)
    return examination.examine(targets.load_dataset, plan, on_step)


def _of_dataset(seen: Seen | None) -> list[Finding]:
    if seen is None:
        return []
    from holdfast.tasks.examine import examination

    return examination.findings(seen)


def _name_next(talk: Console, target: str | None, seen: Seen | None) -> None:
    if target is None:
        console.name_next(talk, f"holdfast doctor {targets.FORM}", "the same, and what your dataset does")
    elif seen is not None and seen.pickled is not None:
        console.name_next(talk, f"holdfast scan {shlex.quote(target)}", "load every sample once, and list the bad ones")
    else:
        console.name_next(talk, f"holdfast doctor {shlex.quote(target)}", "again, once that is done")


def _counts(findings: list[Finding]) -> Counter[Level]:
    return Counter(finding.level for finding in findings)


def as_data(findings: list[Finding], target: str | None, seen: Seen | None) -> dict[str, Any]:
    """What docs/schemas/doctor.json describes."""
    counts = _counts(findings)
    return {
        "healthy": not counts[Level.PROBLEM],
        "target": target,
        "summary": summary(findings),
        "counts": {str(level): counts[level] for level in Level},
        "findings": [finding.to_json() for finding in findings],
        "dataset": None if seen is None else _dataset_data(seen),
    }


def _dataset_data(seen: Seen) -> dict[str, Any] | None:
    """The figures; None where the dataset could not be made."""
    from holdfast.tasks.examine.seen import Made, Pickled

    if not isinstance(seen.made, Made):
        return None
    return {
        "type": seen.made.type_name,
        "length": seen.made.length,
        "made_s": seen.made.seconds,
        "pickle_bytes": seen.pickled.nbytes if isinstance(seen.pickled, Pickled) else None,
        "samples": [
            {
                "index": sample.index,
                "what": sample.what,
                "first_s": sample.seconds,
                "again_s": sample.again_s,
                "bytes": sample.nbytes,
                "peak_bytes": sample.peak_bytes,
            }
            for sample in seen.samples
        ],
    }
