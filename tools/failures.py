"""Writes docs/failures/index.md from the causes: their names, what their modules say of them, and their pages;
and from the table of reproducers: how sure each diagnosis is, by start method.

    python tools/failures.py            writes it
    python tools/failures.py --check    exit status 1 if it is not as it would be written

A test does the same check, and that each cause has its page. Runs in: a process of its own, or the test process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.diagnosis import reproducers  # noqa: E402

FOLDER = ROOT / "docs" / "failures"
INDEX = FOLDER / "index.md"
_HEAD = """# What kills a DataLoader's workers

One page per cause: what it means, how holdfast tells it, how to fix it. The names are those of `incident.cause`, and
of `loader.incidents.counts`. This page is made by `tools/failures.py` from the code that judges.

| cause | what happened | how it is told |
|---|---|---|
"""
_REPRODUCED = """
## Reproduced for real

Each cause has at least one reproducer that really does it to a worker (tests/diagnosis/reproducers.py): machine code
that crashes, a cgroup that is full, a process that kills. This is what the incident says, and how sure it is, for each
way to start workers, on x86_64 Linux; elsewhere the registers of a crash are missing, and it is less sure. `named`: the
incident has the index of the sample; its worker is named wherever there is one.

| reproducer | cause | sample | fork | spawn | forkserver | portable |
|---|---|---|---|---|---|---|
"""
_EMPTY = """
Empty cells:

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
    return _HEAD + "".join(rows) + _REPRODUCED + "".join(_reproduced(page_of)) + _EMPTY + "".join(_reasons())


def _reproduced(page_of: dict[str, str]) -> Iterator[str]:
    """A row for each reproducer, in the order of its table."""
    for row in reproducers.ALL:
        cells = " | ".join("-" if method in row.absent else row.confidence for method in reproducers.METHODS)
        sample = "named" if row.names_sample else "-"
        yield f"| {row.name} | [{row.cause}]({page_of[row.cause]}) | {sample} | {cells} |\n"


def _reasons() -> Iterator[str]:
    """Why cells are empty."""
    for row in reproducers.ALL:
        for why in dict.fromkeys(row.absent.values()):
            methods = ", ".join(method for method, reason in row.absent.items() if reason == why)
            yield f"- {row.name}, {methods}: {why}.\n"


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
    text = index_page()
    if "--check" in sys.argv[1:]:
        return int(INDEX.read_text(encoding="utf-8") != text)
    INDEX.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
