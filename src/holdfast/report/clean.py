"""Text of a record made harmless: what it holds was written by datasets, libraries and whoever had the file since.

No control character gets through, so no terminal is steered; none that turns the direction of text or hides it, so that
what is read is what is there; and no text is longer than it is worth. What is taken out leaves a mark. The page's own
escaping comes after this, not instead of it.

Pure. Runs in: wherever records are read.
"""

from __future__ import annotations

import re
import unicodedata

LONGEST_LINE = 400
LONGEST_BLOCK = 9000

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_SPACED = "   "
_MARK = "\N{REPLACEMENT CHARACTER}"
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Categories of Unicode: control, format (with all that turns direction), halves of a pair, private, unassigned."""


def line(text: str, longest: int = LONGEST_LINE) -> str:
    """As one line."""
    shown = _visible(" ".join(_ANSI.sub("", text[: 4 * longest]).split()))
    return shown if len(shown) <= longest and len(text) <= 4 * longest else f"{shown[: longest - 1].rstrip()}…"


def spaced(text: str, longest: int = LONGEST_LINE) -> str:
    """As one line whose runs of spaces stay: in advice they set a command apart from what it does."""
    return _SPACED.join(line(part, longest) for part in text.split(_SPACED) if part.strip())[:longest]


def block(text: str, longest: int = LONGEST_BLOCK) -> str:
    """As several lines, without empty ones at its ends. Of one that is too long the middle goes."""
    if len(text) > longest:
        kept = longest // 2
        text = f"{text[:kept]}\n[... {len(text) - 2 * kept} characters left out ...]\n{text[-kept:]}"
    lines = _ANSI.sub("", text).replace("\r\n", "\n").replace("\t", "    ").split("\n")
    return "\n".join(_visible(each).rstrip() for each in lines).strip("\n")


def _visible(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(_MARK if unicodedata.category(char) in _HIDDEN else char for char in text)
