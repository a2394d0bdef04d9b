"""docs/failures: each cause has its page, each page its cause, and the index is what the code says."""

from __future__ import annotations

import re

import pytest
from tools import failures

PAGES = sorted(path.name for path in failures.FOLDER.glob("*.md") if path != failures.INDEX)


def test_the_index_is_as_it_is_generated() -> None:
    """If not: python tools/failures.py"""
    assert failures.INDEX.read_text(encoding="utf-8") == failures.index_page()


def test_each_cause_has_a_page_and_each_page_a_cause() -> None:
    """No page is forgotten when a cause is added, renamed or removed."""
    assert sorted(failures.pages().values()) == PAGES


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_its_cause_and_has_its_parts(page: str) -> None:
    """A title to search for, what it means, how it is told, how to fix it; and its links lead somewhere."""
    text = (failures.FOLDER / page).read_text(encoding="utf-8")
    name = next(name for name, of_cause in failures.pages().items() if of_cause == page)
    assert text.startswith("# ")
    assert f"Cause in holdfast: `{name}`." in text
    assert re.findall("^## (.*)$", text, re.MULTILINE) == ["How holdfast tells it", "How to fix it"]
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert [link for link in links if not (failures.FOLDER / link).is_file()] == []
