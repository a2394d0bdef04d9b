"""What is exported: names, labels and values, and that page and dashboard speak of these and no others.

Runs in: the test process.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast import counted
from holdfast.counted import FRONTS, LOADER, MAP, POOL, SPAWN, Totals
from holdfast.metrics.families import Family, Footprint, Reading, families

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "metrics.md").read_text()
DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana-dashboard.json").read_text())


def reading() -> Reading:
    totals = {front: Totals() for front in FRONTS}
    totals[LOADER].counts.update(batches=3, samples=24, waited_s=1.5, skipped=2, restarts=1, fetch_s=0.25)
    totals[LOADER].incidents = Counter({"hang": 2, "segmentation fault": 1})
    totals[LOADER].last_incident = 1000.0
    totals[MAP].counts.update(samples=7, skipped=1)
    workers = {front: [Footprint()] * 0 for front in FRONTS} | {LOADER: [Footprint(100, 70), Footprint(50, 20)]}
    return Reading("1.2.3", totals, workers, Footprint(500, 300, 40))


def values(name: str) -> dict[tuple[str, ...], float]:
    (family,) = [family for family in families(reading()) if family.name == name]
    return dict(family.samples)


def test_counts_of_a_loader_become_its_metrics() -> None:
    assert values("holdfast_batches_total") == {(): 3}
    assert values("holdfast_samples_total") == {(): 24}
    assert values("holdfast_wait_seconds_total") == {(): 1.5}
    assert values("holdfast_skipped_samples_total") == {(): 2}
    assert values("holdfast_stage_seconds_total") == {("fetch",): 0.25, ("collate",): 0, ("send",): 0}
    assert values("holdfast_incidents_total") == {(LOADER, "hang"): 2, (LOADER, "segmentation fault"): 1}
    assert values("holdfast_last_incident_timestamp_seconds") == {(LOADER,): 1000.0}


def test_calls_are_told_from_samples() -> None:
    """Of a pool `samples` are calls, and `skipped` those that failed: the metrics say so by their names."""
    assert values("holdfast_calls_total") == {(POOL,): 0, (MAP,): 7, (SPAWN,): 0}
    assert values("holdfast_failed_calls_total") == {(POOL,): 0, (MAP,): 1, (SPAWN,): 0}


def test_memory_is_that_of_all_workers_and_of_the_largest() -> None:
    assert values("holdfast_workers")[(LOADER,)] == 2
    assert values("holdfast_workers_resident_bytes")[(LOADER,)] == 150
    assert values("holdfast_workers_anonymous_bytes")[(LOADER,)] == 90
    assert values("holdfast_largest_worker_anonymous_bytes")[(LOADER,)] == 70
    assert values("holdfast_main_shared_memory_bytes") == {(): 40}


@pytest.mark.parametrize("family", families(reading()), ids=lambda family: family.name)
def test_a_name_says_what_it_is(family: Family) -> None:
    """Ours by its prefix, counters by `_total`, units by `_seconds` and `_bytes`; no label without a bound."""
    assert re.fullmatch(r"holdfast_[a-z_]+", family.name)
    assert family.name.endswith("_total") == (family.kind == "counter")
    assert set(family.labels) <= {"front", "cause", "stage", "version"}
    assert not re.search(r"_(s|ms|sec|mb|kb|count)(_|$)", family.name)
    assert family.meaning[0].isupper()
    assert not family.meaning.endswith(".")
    assert all(len(labels) == len(family.labels) for labels, _ in family.samples)


def test_every_count_is_exported() -> None:
    """A name that is added to what is counted is not forgotten here."""
    marked = reading()
    names = (*counted.COUNTS, *counted.STAGES)
    marked.totals[LOADER].counts.update({name: 1000 + number for number, name in enumerate(names)})
    exported = {value for family in families(marked) for _, value in family.samples}
    assert {1000 + number for number in range(len(names))} <= exported


def test_the_page_lists_what_is_exported() -> None:
    """Name, type, labels and meaning, all of them and no others, in the same order."""
    rows = re.findall(r"^\| `(holdfast_\w+)` \| (\w+) \| (.*?) ?\| (.+) \|$", PAGE, re.MULTILINE)
    listed = [(name, kind, tuple(re.findall(r"`(\w+)`", labels)), meaning) for name, kind, labels, meaning in rows]
    assert listed == [(family.name, family.kind, family.labels, family.meaning) for family in families(reading())]


def test_the_page_speaks_of_no_metric_that_does_not_exist() -> None:
    assert set(re.findall(r"\bholdfast_\w+", PAGE)) == {family.name for family in families(reading())}


def queries() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


def test_every_metric_of_the_dashboard_exists_and_every_metric_is_on_it() -> None:
    """In its queries, and in what fills its variables."""
    known = {family.name for family in families(reading())}
    variables = [variable["definition"] for variable in DASHBOARD["templating"]["list"] if "definition" in variable]
    assert set(re.findall(r"\bholdfast_\w+", " ".join([*queries(), *variables]))) == known


def test_every_label_of_the_dashboard_exists() -> None:
    """Those that a panel sums up by or shows are the metric's own, or Prometheus's."""
    labels_of = {family.name: {*family.labels, "job", "instance"} for family in families(reading())}
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            used |= {label for group in re.findall(r"by \(([\w, ]+)\)", target["expr"]) for label in group.split(", ")}
            for name in re.findall(r"\bholdfast_\w+", target["expr"]):
                assert used <= labels_of[name], (panel["title"], name)


def test_the_dashboard_can_be_imported_anywhere() -> None:
    """Its data source is chosen at the top, every panel and variable uses that choice, and every id is there once."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    first, *others = DASHBOARD["templating"]["list"]
    assert (first["type"], first["name"], first["query"]) == ("datasource", "datasource", "prometheus")
    shown = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert all(each["datasource"] == source for each in (*others, *shown))
    assert all(target["datasource"] == source for panel in shown for target in panel["targets"])
    assert all(panel["description"] and panel["title"] for panel in shown)
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert all('{job=~"$job", instance=~"$instance"}' in query for query in queries())
    assert all(query.count("(") == query.count(")") for query in queries())


def test_no_two_panels_of_the_dashboard_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in cells) < 24
        assert taken.isdisjoint(cells), panel["title"]
        taken |= cells
