"""The module can be imported, and the dataset made: without an exception, a crash or a hang. It has a length.

Pure. Runs in: main process.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from holdfast.doctor.finding import Finding, Level, ok
from holdfast.tasks.examine.seen import Lost, Made, Raised, Seen, duration
from holdfast.words import plural

NAME = "dataset"


def judge(seen: Seen) -> list[Finding]:
    if seen.made is None:
        return [_not_looked_at(seen)]
    if isinstance(seen.made, Raised):
        return [_raised(seen, seen.made)]
    if isinstance(seen.made, Lost):
        return [_lost(seen, seen.made)]
    return [*_length(seen, seen.made)] or [ok(NAME, _summary(seen.made))]


def _summary(made: Made) -> str:
    length = "an iterable dataset" if made.is_iterable else "no length"
    count = length if made.length is None else plural(made.length, "sample")
    return f"{made.type_name}, {count}, imported and made in {duration(made.seconds)}"


def _not_looked_at(seen: Seen) -> Finding:
    return Finding(
        NAME,
        Level.NOTE,
        f"{seen.target} was not looked at",
        evidence=("torch cannot be imported, see there",),
        consequence="what is wrong with the dataset itself is not known yet",
        remedy=(f"holdfast doctor {shlex.quote(seen.target)}  # again, once torch can be imported",),
    )


def _raised(seen: Seen, raised: Raised) -> Finding:
    return Finding(
        NAME,
        Level.PROBLEM,
        f"{seen.target} cannot be made: {raised.what}",
        evidence=(raised.where or raised.what,),
        consequence="there is no dataset to load; nothing more of it could be checked",
        remedy=(_by_hand(seen.target),),
    )


def _lost(seen: Seen, lost: Lost) -> Finding:
    return Finding(
        NAME,
        Level.PROBLEM,
        f"making {seen.target}: the process {lost.summary}",
        evidence=lost.lines,
        consequence=f"{_ends(lost)} the trainer, and every worker that imports it; nothing more of it could be checked",
        remedy=(_by_hand(seen.target), *(f"# {line}" for line in lost.advice[:1])),
    )


def _ends(lost: Lost) -> str:
    return "it holds up" if lost.is_hang else "it ends"


def _by_hand(target: str) -> str:
    """A command that does the same in the open."""
    module, _, name = target.rpartition(":")
    path = Path(module)
    before, module = (f"cd {path.parent} && ", path.stem) if module.endswith(".py") else ("", module)
    program = f"import {module}; it = {module}.{name}; it() if callable(it) else it"
    return f'{before}python -X faulthandler -c "{program}"'


def _length(seen: Seen, made: Made) -> list[Finding]:
    if made.is_iterable or (made.length is not None and made.length > 0):
        return []
    if made.length == 0:
        what, evidence = f"{seen.target} has no samples", "len() is 0"
        consequence = "a loader gives no batch; with shuffle=True it cannot be made"
    else:
        what = f"{seen.target} has no length"
        evidence = f"len() raises {made.no_length}" if made.no_length else f"{made.type_name} has no __len__"
        consequence = "a loader cannot tell which samples there are, unless it is given a sampler"
    return [
        Finding(
            NAME,
            Level.PROBLEM,
            what,
            evidence=(evidence,),
            consequence=consequence,
            remedy=("def __len__(self): return len(self.paths)  # of what it reads its samples from",)
            if made.length is None
            else ("ls -l  # are the files there that it reads its samples from?",),
        )
    ]
