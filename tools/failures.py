"""Writes docs/failures/index.md from the causes: their names, what their modules say of them, and their pages.

    python tools/failures.py            writes it
    python tools/failures.py --check    exit status 1 if it is not as it would be written

A test does the same check, and that each cause has its page. Runs in: a process of its own, or the test process.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "failures"
INDEX = FOLDER / "index.md"
_HEAD = """# What kills a DataLoader's workers

One page per cause: what it means, how holdfast tells it, how to fix it. The names are those of `incident.cause`, and
of `loader.incidents.counts`. This page is made by `tools/failures.py` from the code that judges.

| cause | what happened | how it is told |
|---|---|---|
"""


def pages() -> dict[str, str]:
    """Each cause's name, and the file name of its page."""
    return {cause.NAME: f"{_module(cause).replace('_', '-')}.md" for cause in _causes()}


def index_page() -> str:
    """The text of the index."""
    page_of = pages()
    rows = []
    for cause in sorted(_causes(), key=lambda cause: (cause.NAME == "unknown", cause.NAME.lower())):
        sentence, signs = _said_by(cause)
        rows.append(f"| [{cause.NAME}]({page_of[cause.NAME]}) | {sentence} | {signs} |\n")
    return _HEAD + "".join(rows)


def _causes() -> tuple[Any, ...]:
    from holdfast.diagnosis import engine

    return engine.ALL


def _module(cause: Any) -> str:
    return cause.__name__.rpartition(".")[2]


def _said_by(cause: Any) -> tuple[str, str]:
    """The first line of the module's docstring, and its paragraph of signs."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in cause.__doc__.split("\n\n")]
    signs = next(paragraph for paragraph in paragraphs if paragraph.startswith("Signs: "))
    return paragraphs[0], signs.removeprefix("Signs: ")


def main() -> int:
    sys.path.insert(0, str(ROOT / "src"))
    text = index_page()
    if "--check" in sys.argv[1:]:
        return int(INDEX.read_text(encoding="utf-8") != text)
    INDEX.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
