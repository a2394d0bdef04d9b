"""docs/doctor.md has every check, and no other; its schema is one."""

from __future__ import annotations

import json

import pytest
from tools import doctor


def test_the_tables_are_as_they_are_generated() -> None:
    """If not: python tools/doctor.py"""
    assert doctor.PAGE.read_text(encoding="utf-8") == doctor.page()


def test_the_readme_leads_to_the_page() -> None:
    assert "(docs/doctor.md)" in (doctor.ROOT / "README.md").read_text(encoding="utf-8")


def test_the_schema_is_a_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((doctor.ROOT / "docs/schemas/doctor.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
