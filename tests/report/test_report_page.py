"""The page: one file, small, harmless, and well formed. Without a browser."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import stat
import time
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast import report
from holdfast.report import html, keeping
from holdfast.report.columns import LETTERS
from holdfast.report.families import TITLES
from holdfast.report.model import Report, report_of
from holdfast.report.text import text
from made_records import HOSTILE, end, full_run, incident, run_of, skipped, start

MOST_BYTES = 1_500_000
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Outline(HTMLParser):
    """Tags in order, headings, ids, links; and whether every tag is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.hrefs: list[str] = []
        self.attributes: set[str] = set()
        self.data: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.hrefs += [value for name, value in attrs if name in ("href", "src") and value]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.data.append(data)


def told(folder: Path, *lines: dict[str, Any]) -> Report:
    return report_of(run_of(folder, *lines))


def hostile_lines() -> list[dict[str, Any]]:
    """Hostile text wherever a text can be."""

    def spoilt(line: dict[str, Any]) -> dict[str, Any]:
        kept = ("kind", "version", "holdfast", "done", "event", "why", "front")
        return {name: HOSTILE if isinstance(value, str) and name not in kept else value for name, value in line.items()}

    lines = [spoilt(line) for line in full_run()]
    lines[5] |= {"sample_index": HOSTILE, "advice": [HOSTILE, f"{HOSTILE}   {HOSTILE}"], "done": HOSTILE}
    return lines


def test_a_page_is_well_formed_and_its_parts_are_in_order(tmp_path: Path) -> None:
    outline = Outline(html.page(told(tmp_path, *full_run())))
    headings = [tag for tag in outline.tags if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == "h1"
    assert headings.count("h1") == 1
    assert all(int(b[1]) - int(a[1]) <= 1 for a, b in pairwise(headings)), "no level is left out"
    assert len(outline.ids) == len(set(outline.ids))
    assert {href[1:] for href in outline.hrefs if href.startswith("#")} <= set(outline.ids)
    assert {"main", "header", "nav", "footer"} <= set(outline.tags)


def test_a_page_has_nothing_outside_and_runs_nothing(tmp_path: Path) -> None:
    """No script, no handler, no inline style, no address but places in the page and the files it holds."""
    outline = Outline(html.page(told(tmp_path, *full_run())))
    assert {"script", "iframe", "object", "link", "base", "form"} & set(outline.tags) == set()
    assert [name for name in outline.attributes if name.startswith("on") or name in ("style", "src")] == []
    assert [
        href[:30] for href in outline.hrefs if not href.startswith(("#", "data:text/csv", "data:application/"))
    ] == []


def test_the_policy_allows_the_style_and_nothing_else(tmp_path: Path) -> None:
    page = html.page(told(tmp_path, *full_run()))
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.replace("&#39;", "'") == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert "@import" not in style
    assert "url(" not in style


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("no `if x:` around", "no <code>if x:</code> around"),
        ("`<b>` & `", "`&lt;b&gt;` &amp; `"),
        ("`<b>` & ``", "<code>&lt;b&gt;</code> &amp; <code></code>"),
        ("plain", "plain"),
    ],
)
def test_what_stands_between_backticks_is_code(said: str, shown: str) -> None:
    assert str(html.with_code(said)) == shown


def test_hostile_text_is_shown_and_does_nothing(tmp_path: Path) -> None:
    """HTML is text; what steers a terminal or turns the direction of text is gone."""
    page = html.page(told(tmp_path, *hostile_lines()))
    outline = Outline(page)
    assert "script" not in outline.tags
    assert "img" not in outline.tags
    assert any("<script>alert(" in data for data in outline.data)
    assert re.findall("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page) == []
    assert "49" not in "".join(data for data in outline.data if "7 * 7" in data)


@pytest.mark.parametrize("width", [80, 40])
def test_hostile_text_steers_no_terminal(width: int, tmp_path: Path) -> None:
    said = text(told(tmp_path, *hostile_lines()), width)
    assert re.findall("[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", said) == []
    assert [line for line in said.split("\n") if len(line) > width or line != line.rstrip()] == []


@pytest.mark.parametrize("width", [80, 40])
def test_the_text_has_all_parts_within_its_width(width: int, tmp_path: Path) -> None:
    said = text(told(tmp_path, *full_run()), width)
    lines = said.split("\n")
    assert [line for line in lines if len(line) > width] == []
    heads = ("What happened", "What to do", "Workers over time", "Memory", "Where the time went", "Incidents (3)")
    assert [head for head in (*heads, "Left out (2)", "The run") if head not in lines] == []
    assert any(re.fullmatch(r"worker 1  =+C\|=+C=+", line) for line in lines)
    assert LETTERS.keys() == TITLES.keys()


def test_the_text_says_what_is_missing(tmp_path: Path) -> None:
    said = text(report_of(run_of(tmp_path, start(version=9), torn=b"{")))
    assert said.startswith("Cut short after 0 s: the record has no end\nrun 7f3a, cut short, 16 November 2026")
    assert "! This record was written by a newer version" in said
    assert "! 1 line of the record could not be read" in said


# -- size --------------------------------------------------------------------------------------------------------------


def ten_thousand(different: bool) -> list[dict[str, Any]]:
    """Incidents with long stacks; equal, or each with words of its own."""
    stack = "Traceback (most recent call last):\n" + '  File "a.py", line 1, in <f>\n' * 250
    return [
        incident(n, n / 1000, evidence=stack, summary=f"died of {'xy' * (n % 300) if different else n}", sample_index=n)
        for n in range(10_000)
    ]


@pytest.mark.parametrize("different", [False, pytest.param(True, marks=pytest.mark.long)])
def test_ten_thousand_incidents_are_a_small_page(different: bool, tmp_path: Path) -> None:
    """More than a record keeps: the report has a bound of its own."""
    few = run_of(tmp_path, start(num_workers=64), end())
    run = dataclasses.replace(few, incidents=tuple(ten_thousand(different)))
    began = time.monotonic()
    page = html.page(report_of(run))
    assert time.monotonic() - began < 60, "a generous deadline"
    assert len(page.encode()) < MOST_BYTES
    assert "10,000" in page


@pytest.mark.long
def test_the_worst_that_a_record_can_hold_is_a_small_page(tmp_path: Path) -> None:
    """Text that grows fivefold by being escaped, in every field, in hundreds of groups and of skipped samples."""
    bad = "\"'<>&" * 1600
    fields = ("summary", "because", "where", "evidence", "phase", "confidence", "done")
    incidents = [
        incident(n, **dict.fromkeys(fields, f"{'x' * n}{bad}"), sample_index=bad, advice=[bad] * 10)
        for n in range(1, 301)
    ]
    lost = [skipped(f"{bad}{n}", reason=bad) for n in range(1500)]
    page = html.page(told(tmp_path, start(script=bad), *incidents, *lost, end()))
    assert len(page.encode()) < MOST_BYTES
    Outline(page)


# -- where it lies -----------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_page_lies_beside_the_records_and_is_private(home: Path) -> None:
    path = report.write(run_of(home, *full_run()))
    assert path == home / "reports" / "7f3a.html"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["7f3a.html"]


def test_a_page_goes_where_it_is_wanted(home: Path, tmp_path: Path) -> None:
    """Over what was there."""
    wanted = tmp_path / "mine.html"
    wanted.write_text("old")
    assert report.write(run_of(home, start(), end()), wanted) == wanted
    assert wanted.read_text().startswith("<!doctype html>")
    assert not (home / "reports").exists()


def test_what_is_no_file_is_written_to_and_not_replaced(home: Path, tmp_path: Path) -> None:
    """A device stays a device, a link a link."""
    run = run_of(home, start(), end())
    report.write(run, "/dev/null")
    assert Path("/dev/null").is_char_device()
    target, link = tmp_path / "target.html", tmp_path / "link.html"
    link.symlink_to(target)
    report.write(run, link)
    assert link.is_symlink()
    assert target.read_text().startswith("<!doctype html>")


def test_only_the_last_pages_are_kept(home: Path) -> None:
    """And nothing that is not a page of ours is touched."""
    folder = home / "reports"
    folder.mkdir(parents=True)
    for n in range(keeping.MOST_FILES + 10):
        (folder / f"{n:04x}.html").write_text("x")
    (folder / "my notes.html").write_text("x")
    path = report.write(run_of(home, start(), end()))
    assert path.exists()
    assert (folder / "my notes.html").exists()
    assert len(list(folder.glob("*.html"))) == keeping.MOST_FILES + 1


def test_a_record_of_a_strange_name_has_a_page_of_a_plain_one(home: Path) -> None:
    """The name of a page never comes from inside a record as it is."""
    made = run_of(home, start(id="../../evil"), end())
    renamed = made.path.with_name("handed-on.jsonl")
    made.path.rename(renamed)
    from holdfast.records import reader

    run = reader.read(renamed)
    assert run.id == "../../evil"
    assert report.write(run) == home / "reports" / "report.html"
