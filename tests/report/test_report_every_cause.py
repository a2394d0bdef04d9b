"""A real run with every kind of incident, as a page in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from every_cause import run_all
from holdfast import report
from holdfast.diagnosis import engine
from holdfast.diagnosis.native.crash_page import can_have_registers
from holdfast.records.reader import Run
from holdfast.report.model import report_of
from holdfast.report.text import text
from waits import PATIENCE_S

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("needs Chromium: apt install chromium", allow_module_level=True)
if not can_have_registers():
    pytest.skip("the reproducers are of x86_64 Linux with glibc", allow_module_level=True)

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

NEED_ROOT = {"out of memory", "shared memory full"}
NEED_A_CPU = {"illegal instruction"}
"""Not to be had everywhere: a cgroup, a mount, an instruction that the CPU does not have."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("every-cause")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_HOME", str(folder / "home"))
        patch.setattr("holdfast.workers.watching.STOPPED_GRACE_S", 1.0)
        yield run_all(folder)


def test_every_cause_is_in_the_report(run: Run) -> None:
    """Each with its words, a remedy and its place in the time of the run."""
    told = report_of(run)
    causes = {cause.NAME for cause in engine.ALL}
    found = {group.cause for group in told.incidents.groups}
    assert causes - found <= NEED_ROOT | NEED_A_CPU
    assert told.warnings == ()
    for group in told.incidents.groups:
        assert group.summary
        assert group.because
        assert group.advice
        assert 0.0 <= group.first_at_s <= group.last_at_s <= told.duration_s
    said = text(told)
    assert [cause for cause in found if cause not in said] == []


def test_every_cause_is_on_the_page(run: Run, tmp_path: Path) -> None:
    """Folds open, marks lead to their groups, nothing is complained of or asked for."""
    told = report_of(run)
    path = report.write(run, tmp_path / "page.html")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=1000 * PATIENCE_S)
        page = browser.new_page()
        page.set_default_timeout(1000 * PATIENCE_S)
        requests: list[str] = []
        complaints: list[str] = []
        page.on("request", lambda made: requests.append(made.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.as_uri())
        assert page.locator("h1").inner_text() == told.headline.title
        assert page.locator("details.group").count() == len(told.incidents.groups)
        for group in told.incidents.groups:
            page.evaluate(f"location.hash = 'group-{group.number}'")
            body = page.locator(f"#group-{group.number}")
            body.wait_for(state="visible")
            assert group.cause in body.inner_text()
            fold = body.locator(".fold >> nth=0")
            fold.locator("summary").focus()
            page.keyboard.press("Enter")
            assert fold.evaluate("each => each.open")
        signs = page.locator("svg.timeline .sign")
        assert signs.count() >= 10
        assert all(sign.bounding_box()["width"] > 5 for sign in signs.all())
        browser.close()
    assert requests == [path.as_uri()]
    assert complaints == []
    assert path.stat().st_size < 1_500_000
