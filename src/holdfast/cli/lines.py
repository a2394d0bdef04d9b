"""Labels with what stands beside them.

Texts of a record, of an exception and of a dataset are never read as markup, and their control characters are not sent
to a terminal. Lines are wrapped where a person reads them, and whole where a program does.

Runs in: main process.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from holdfast.diagnosis.wording import printable

_LABEL_WIDTH = 10
_LEAST_WIDTH = 20


class Lines:
    """Labels, and what stands beside them, wrapped where somebody reads it and whole where a program does."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def add(self, label: str, texts: Iterable[str], style: str = "") -> None:
        """Nothing where there is no text."""
        heads = itertools.chain([f"{label:<{_LABEL_WIDTH}}"], itertools.repeat(" " * _LABEL_WIDTH))
        lines = (line for text in texts for line in wrapped(self._console, printable(text).rstrip(), _LABEL_WIDTH))
        for head, line in zip(heads, lines, strict=False):
            self._console.print(Text.assemble((head, "dim"), (line, style)), soft_wrap=True)


def wrapped(console: Console, text: str, beside: int = 0) -> list[str]:
    """The lines of a text beside a label of so many columns: one, where a program reads it. None of no text."""
    if not console.is_terminal or not text:
        return [text] if text else []
    width = max(_LEAST_WIDTH, console.width - beside)
    indent = " " * (len(text) - len(text.lstrip()))
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)
