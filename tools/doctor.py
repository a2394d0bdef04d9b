"""Writes the tables of docs/doctor.md from the checks: their names, and what their modules say of them.

    python tools/doctor.py            writes them
    python tools/doctor.py --check    exit status 1 if they are not as they would be written

A test does the same check. Runs in: a process of its own, or the test process.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src")]

PAGE = ROOT / "docs" / "doctor.md"
_TABLE = re.compile(r"(\| check \| what it looks at \|\n\|---\|---\|\n)(?:\|.*\n)*")


def page() -> str:
    """The text of the page, with its tables as they should be: the machine's first."""
    from holdfast.doctor import examination
    from holdfast.tasks.examine import checks

    tables = iter((_rows(examination.ALL), _rows(checks.ALL)))
    return _TABLE.sub(lambda match: match[1] + next(tables), PAGE.read_text(encoding="utf-8"))


def _rows(checks: Iterable[Any]) -> str:
    return "".join(f"| {check.NAME} | {_sentence(check)} |\n" for check in checks)


def _sentence(check: Any) -> str:
    """The first paragraph of the module's docstring."""
    return " ".join(check.__doc__.split("\n\n")[0].split())


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
