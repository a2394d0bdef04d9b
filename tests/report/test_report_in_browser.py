"""The page in a real browser: what is seen, what a keyboard can do, what leaves the page (nothing)."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast import report
from holdfast.records.reader import Run
from holdfast.testing import leaks_since, snapshot
from made_records import HOSTILE, end, full_run, incident, run_of, skipped, start

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("needs Chromium: apt install chromium", allow_module_level=True)

OPEN_DEADLINE_S = 60.0
LEAK_DEADLINE_S = 15.0
LEAST_CONTRAST = 4.5

CONTRASTS = """
() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => c / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const color = rgba(getComputedStyle(each).backgroundColor);
      if (color[3] > 250) return color;
    }
    return [255, 255, 255, 255];
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest("title, desc")) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(rgba(element.closest("svg") ? style.fill : style.color)), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < LEAST) low.push(`${ratio.toFixed(1)} ${element.outerHTML.slice(0, 200)}`);
  }
  return low;
}
""".replace("LEAST", str(LEAST_CONTRAST))


@dataclass
class Opened:
    """A page, and all that it asked for or complained about."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> None:
    """Not after each test: the browser starts and ends processes of its own as it likes. Once it is closed, below."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    before = snapshot()
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=1000 * OPEN_DEADLINE_S
        )
        yield browser
        browser.close()
    leaks = leaks_since(before, LEAK_DEADLINE_S)
    assert not leaks, str(leaks)


@pytest.fixture
def show(chromium: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens the page of a run; at the end nothing but the page was asked for, and nothing complained of."""
    opened: list[Opened] = []
    contexts = []

    def open_page(run: Run, **options: Any) -> Any:
        context = chromium.new_context(**options)
        context.set_default_timeout(1000 * OPEN_DEADLINE_S)
        contexts.append(context)
        page = context.new_page()
        one = Opened(page)
        opened.append(one)
        page.on("request", lambda made: one.requests.append(made.url))
        page.on("console", lambda message: one.complaints.append(message.text))
        page.on("pageerror", lambda error: one.complaints.append(str(error)))
        page.on("dialog", lambda dialog: one.complaints.append(dialog.message))
        path = report.write(run, tmp_path / f"{len(opened)}.html")
        page.goto(path.as_uri())
        return page

    yield open_page
    for one in opened:
        assert [url for url in one.requests if not url.startswith(("file://", "data:"))] == []
        assert len([url for url in one.requests if url.startswith("file://")]) == 1
        assert one.complaints == []
    for context in contexts:
        context.close()


def test_the_top_says_what_happened_and_what_to_do(show: Any, tmp_path: Path) -> None:
    """Without scripts, which the page has none of, and within the first screen."""
    page = show(run_of(tmp_path, *full_run()), java_script_enabled=False)
    assert page.locator("h1").inner_text() == "The run came through 3 incidents; 2 samples were left out"
    box = page.locator("h1").bounding_box()
    assert box["y"] + box["height"] < 400
    told = page.locator(".story").inner_text()
    assert "Worker 1 died of a segmentation fault while loading sample 70" in told
    assert "update libjpeg" in page.locator(".remedies").inner_text()
    assert page.title() == "The run came through 3 incidents; 2 samples were left out · run 7f3a · holdfast"


def test_the_charts_are_drawn(show: Any, tmp_path: Path) -> None:
    """Each part has a place and a size, the marks lie on their workers' bars, and in time."""
    page = show(run_of(tmp_path, *full_run()))
    chart = page.locator("svg.timeline").bounding_box()
    bars = [each.bounding_box() for each in page.locator("svg.timeline .life").all()]
    signs = [each.bounding_box() for each in page.locator("svg.timeline .sign").all()]
    assert (len(bars), len(signs)) == (3, 3)
    assert chart["width"] > 600
    assert all(bar["width"] > 50 and bar["height"] > 8 for bar in bars)
    assert all(
        chart["x"] <= box["x"] and box["x"] + box["width"] <= chart["x"] + chart["width"] for box in [*bars, *signs]
    )
    hang, first, second = signs
    assert first["x"] < second["x"] < hang["x"]
    assert abs(middle(hang) - middle(bars[0])) < 2
    assert abs(middle(first) - middle(bars[1])) < 2
    assert page.locator("svg.timeline .restart").count() == 1
    panels = page.locator("#memory .panels svg")
    assert panels.count() == 2
    limit, line = (
        page.locator(f"#memory .panels svg >> nth=0 >> {name}").bounding_box() for name in (".limit", ".line")
    )
    assert limit["y"] < line["y"]
    assert line["width"] > 100
    widths = [each.bounding_box()["width"] for each in page.locator(".stages >> nth=0 >> svg >> nth=0 >> rect").all()]
    assert widths == sorted(widths, reverse=True)
    assert page.locator(".slowest tbody tr").count() == 2


def middle(box: dict[str, float]) -> float:
    return box["y"] + box["height"] / 2


def test_folds_open_and_close_by_keyboard(show: Any, tmp_path: Path) -> None:
    page = show(run_of(tmp_path, *full_run()))
    fold = page.locator(".fold >> nth=0")
    assert not page.locator("pre >> nth=0").is_visible()
    fold.locator("summary").focus()
    page.keyboard.press("Enter")
    assert "Fatal Python error" in page.locator("pre >> nth=0").inner_text()
    page.keyboard.press("Space")
    assert not page.locator("pre >> nth=0").is_visible()


def test_everything_is_reached_by_the_tab_key_and_seen_there(show: Any, tmp_path: Path) -> None:
    """First a link past the navigation. What has the focus has an outline, or a mark of its own."""
    page = show(run_of(tmp_path, *full_run()))
    seen = []
    for _ in range(80):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.outerHTML.slice(0, 60)"))
        if seen[-1].startswith("<body"):
            break
        outlined = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outlined == "solid" or "#group-" in seen[-1]
    assert seen[0].startswith('<a class="skip"')
    reached = "".join(seen)
    for what in ("<summary", 'href="#memory"', 'class="button"', 'class="scroll"', 'href="#group-'):
        assert what in reached, what


def test_a_mark_leads_to_its_evidence(show: Any, tmp_path: Path) -> None:
    """Into a fold that was closed, and opens."""
    lines = [incident(n, n, summary=f"died {'x' * n}") for n in range(1, 7)]
    page = show(run_of(tmp_path, start(), *lines, end()))
    assert not page.locator("#group-6").is_visible()
    page.locator('svg.timeline a[href="#group-6"]').focus()
    page.keyboard.press("Enter")
    page.locator("#group-6").wait_for(state="visible")


def test_what_was_skipped_can_be_saved(show: Any, tmp_path: Path) -> None:
    """As a table, and as the file that a loader takes: without a script, a server or a network."""
    page = show(run_of(tmp_path, *full_run()), java_script_enabled=False, accept_downloads=True)
    texts = {}
    for link in page.locator("a.button").all():
        with page.expect_download() as saved:
            link.click()
        texts[saved.value.suggested_filename] = Path(saved.value.path()).read_text()
    assert texts["skipped-7f3a.csv"].splitlines()[1] == "70,0,raised ValueError: bad,,30.000"
    assert texts["skipped-7f3a.jsonl"].splitlines()[1] == '{"index":70,"reason":"raised ValueError: bad"}'


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast_enough(scheme: str, show: Any, tmp_path: Path) -> None:
    """As WCAG's level AA asks, in both schemes, and for every outcome."""
    for lines in (full_run(), [start(), end()], [start(version=9)]):
        page = show(run_of(tmp_path, *lines), color_scheme=scheme)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert page.evaluate(CONTRASTS) == []


def test_light_and_dark_differ(show: Any, tmp_path: Path) -> None:
    run = run_of(tmp_path, *full_run())
    colours = [
        show(run, color_scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    assert colours == ["rgb(245, 244, 240)", "rgb(15, 18, 21)"]


@pytest.mark.parametrize("width", [320, 1280])
def test_nothing_is_wider_than_the_window(width: int, show: Any, tmp_path: Path) -> None:
    """Charts and tables scroll within themselves, long words are broken."""
    lines = [start(script="x" * 300), incident(where="y" * 300), skipped("z" * 300, reason="w" * 300), end()]
    for run in (run_of(tmp_path, *full_run()), run_of(tmp_path, *lines)):
        page = show(run, viewport={"width": width, "height": 800})
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_screen_reader_has_landmarks_headings_and_names(show: Any, tmp_path: Path) -> None:
    page = show(run_of(tmp_path, *full_run()))
    for role in ("banner", "main", "contentinfo"):
        assert page.get_by_role(role).count() == 1
    assert page.get_by_role("navigation", name="Parts of the report").count() == 1
    assert page.get_by_role("heading", level=1).count() == 1
    names = [each.inner_text() for each in page.get_by_role("heading", level=2).all()]
    assert names[2:6] == ["Workers over time", "Memory", "Where the time went", "Incidents 3"]
    assert page.get_by_role("img", name="Memory of worker 0 over time: peak 155.0 MiB of").count() == 1
    assert page.get_by_role("img", name="Time in the workers, all together: fetch 1 min 22 s (80 %)").count() == 1
    assert page.get_by_role("link", name="worker 0, 31 s: hung for more than 1 s, sample 107").count() == 1
    assert page.get_by_role("table", name="Slowest samples").count() == 1
    assert page.evaluate("[...document.querySelectorAll('th')].every((each) => each.scope)")


def test_hostile_text_runs_nothing(show: Any, tmp_path: Path) -> None:
    """No dialog, no request, no error: the fixture looks. And the text is there to be read."""
    line = incident(summary=HOSTILE, where=HOSTILE, evidence=HOSTILE, sample_index=HOSTILE, advice=[HOSTILE])
    run = run_of(tmp_path, start(dataset=HOSTILE), line, skipped(HOSTILE, reason=HOSTILE), end())
    page = show(run)
    assert page.locator("script, img").count() == 0
    assert '<script>alert("no")</script>' in page.locator(".group h3").inner_text()


@pytest.mark.parametrize("different", [False, pytest.param(True, marks=pytest.mark.long)])
def test_ten_thousand_incidents_open(different: bool, show: Any, tmp_path: Path) -> None:
    """Equal ones are folded. A generous deadline: on a quiet machine it takes a part of a second."""
    few = run_of(tmp_path, start(num_workers=16), end())
    stack = "Traceback (most recent call last):\n" + '  File "a.py", line 1, in f\n' * 250
    many = tuple(
        incident(
            n, n / 200, evidence=stack, sample_index=n, worker_id=n % 16, summary="x" * (n % 300 if different else 9)
        )
        for n in range(10_000)
    )
    run = dataclasses.replace(few, incidents=many)
    began = time.monotonic()
    page = show(run)
    assert page.locator(".group").count() == (page.locator("details.group").count() if different else 1)
    assert time.monotonic() - began < OPEN_DEADLINE_S
    assert "10,000" in page.locator("#incidents h2").inner_text()
    timing = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    assert 0 < timing < 1000 * OPEN_DEADLINE_S


@pytest.mark.parametrize(
    ("lines", "title"),
    [
        ([], "Nothing of this record can be read"),
        ([start(), end(batches=0, samples=0, waited_s=0.0)], "The run ended, and nothing was counted"),
        ([start(), end()], "All went well"),
        ([start(front="holdfast.spawn", dataset=None), end(samples=4, batches=0)], "All went well"),
    ],
)
def test_a_page_of_little_is_a_page(lines: list[dict[str, Any]], title: str, show: Any, tmp_path: Path) -> None:
    page = show(run_of(tmp_path, *lines))
    assert page.locator("h1").inner_text() == title
    assert page.locator("section").count() == 7
