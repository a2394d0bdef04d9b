"""Plain text in columns: wrapped paragraphs, labels with a hanging indent, tables, and a timeline of letters. Pure.

No line is longer than the width it is given, and none ends in a space. Runs in: wherever reports are made.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from holdfast.report import families
from holdfast.report.lives import Worker

LETTERS = {
    families.CRASH: "C",
    families.KILLED: "K",
    families.HANG: "H",
    families.MEMORY: "M",
    families.EXCEPTION: "E",
    families.OTHER: "O",
}
_LEAST_CELL = 6


def wrapped(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """A paragraph; `first` stands before its first line, `rest` before the others."""
    rest = " " * len(first) if rest is None else rest
    lines = textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    return [line.rstrip() for line in lines]


def labelled(label: str, texts: Iterable[str], width: int, indent: int = 2, column: int = 11) -> list[str]:
    """The label beside the first text; nothing where there is none."""
    lines: list[str] = []
    for text in texts:
        head = f"{'' if lines else label:<{column}}"
        lines += wrapped(text, width, f"{' ' * indent}{head}", " " * (indent + column))
    return lines


def table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """As wide as it needs to be, and where that is too wide its widest column is cut."""
    widths = [max(len(row[number]) for row in (head, *rows)) for number in range(len(head))]
    while sum(widths) + 2 * len(widths) > width and max(widths) > _LEAST_CELL:
        widths[widths.index(max(widths))] -= 1
    return [_row(row, widths)[:width].rstrip() for row in (head, *rows)]


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  " + "  ".join(f"{cut(cell, width):<{width}}" for cell, width in zip(cells, widths, strict=True))


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 2]}.."


def lane(worker: Worker, duration_s: float, width: int) -> str:
    """A worker's time: "====C|======H|===". A letter is an incident, a bar a restart, a blank no process."""
    cells = [" "] * width

    def place(at_s: float) -> int:
        return min(int(width * at_s / duration_s), width - 1) if duration_s > 0 else 0

    for life in worker.lives:
        for cell in range(place(life.from_s), place(life.to_s) + 1):
            cells[cell] = "="
    for life in worker.lives:
        if life.ended == "died":  # after the letter that says of what
            cells[min(place(life.to_s) + 1, width - 1)] = "|"
    for mark in worker.marks:
        cells[place(mark.at_s)] = LETTERS[mark.family]
    return "".join(cells).rstrip()
