"""What `holdfast doctor` prints: the findings, the worst first; of what is well one line each; a summary.

Text wraps at the width of a terminal, and not in a pipe. What is to be pasted never does: the terminal breaks its lines
without a line break, which would be pasted too. In paths and messages of others nothing may move the cursor.

Runs in: main process.
"""

from __future__ import annotations

import textwrap
from collections import Counter

from rich.console import Console
from rich.text import Text

from holdfast.diagnosis.wording import printable
from holdfast.doctor.finding import Finding, Level
from holdfast.words import plural

_STYLES = {Level.PROBLEM: "bold red", Level.WARNING: "bold yellow", Level.NOTE: "bold cyan", Level.OK: "green"}
_NARROW = 60
_LABEL = 13  # "consequence", and two spaces
_SHORT = {"evidence": "seen", "consequence": "so"}
_LONGEST_CHECK = 22
_NO_END = 10_000


def print_findings(console: Console, findings: list[Finding]) -> None:
    """All of them, and how many of each level there are."""
    for finding in findings:
        if finding.level is not Level.OK:
            _print_finding(console, finding)
    well = [finding for finding in findings if finding.level is Level.OK]
    for finding in well:
        console.print(_line(console, finding), soft_wrap=True)
    if well:
        console.print()
    worst = findings[0].level if findings else Level.OK
    console.print(Text(summary(findings), style=_STYLES[Level.OK if worst is Level.NOTE else worst]))


def summary(findings: list[Finding]) -> str:
    """ "1 problem, 2 warnings; 15 checks well"."""
    counts = Counter(finding.level for finding in findings)
    found = [plural(counts[level], str(level)) for level in Level if level is not Level.OK and counts[level]]
    well = f"{plural(counts[Level.OK], 'check')} well" if counts[Level.OK] else ""
    return "; ".join(filter(None, (", ".join(found) or "nothing found that would kill a loader", well)))


def _print_finding(console: Console, finding: Finding) -> None:
    head = Text.assemble((str(finding.level), _STYLES[finding.level]), "  ", (finding.check, "bold"))
    console.print(head)
    _print_wrapped(console, "", printable(finding.what))
    for label, lines in (("evidence", finding.evidence), ("consequence", (finding.consequence,))):
        for number, line in enumerate(filter(None, lines)):
            _print_wrapped(console, label if number == 0 else " ", printable(line))
    for number, line in enumerate(finding.remedy):
        _print_remedy(console, "try" if number == 0 else " ", printable(line))
    console.print()


def _print_remedy(console: Console, label: str, line: str) -> None:
    """What is said about it stands beside it where there is room, and below it where there is not."""
    code, mark, comment = line.partition("  # ")
    first = _label(console, label)
    is_beside = not console.is_terminal or len(first) + len(line) < console.width
    beside = f"{mark}{comment}" if is_beside else ""
    console.print(Text.assemble((first, "dim"), (code, "bold"), (beside, "dim")), soft_wrap=True)
    if comment and not is_beside:
        _print_wrapped(console, " ", f"# {comment}", style="dim")


def _print_wrapped(console: Console, label: str, text: str, style: str = "") -> None:
    width = console.width if console.is_terminal else _NO_END
    first = _label(console, label)
    for number, line in enumerate(textwrap.wrap(text, max(10, width - len(first) - 1)) or [""]):
        before = first if number == 0 else " " * len(first)
        console.print(Text.assemble((before, "dim"), (line, style)), soft_wrap=True)


def _label(console: Console, label: str) -> str:
    """With the space after it: a shorter word on a narrow terminal, so that the text has room."""
    if not label:
        return "  "
    if console.width < _NARROW:
        return f"  {_SHORT.get(label, label):<5}"
    return f"  {label:<{_LABEL}}"


def _line(console: Console, finding: Finding) -> Text:
    """Cut where it does not fit a terminal; whole in a pipe."""
    wide = min(_LONGEST_CHECK, max(8, console.width // 3))
    name = finding.check if len(finding.check) <= wide else f"{finding.check[: wide - 1]}…"
    line = Text.assemble(("ok  ", "green"), f"{name:<{wide}}  ", (printable(finding.what), "dim"))
    if console.is_terminal:
        line.truncate(console.width - 1, overflow="ellipsis")
    return line
