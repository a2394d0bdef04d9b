"""Scrapes as Prometheus would.

Runs in: the test process.
"""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from holdfast.metrics import MetricsServer
from waits import PATIENCE_S

Scraped = dict[tuple[str, ...], float]
"""By the name of the metric and the values of its labels, in the order of the labels' names."""


def scrape(server: MetricsServer) -> Scraped:
    return parse(text_of(server))


def text_of(server: MetricsServer) -> str:
    with urllib.request.urlopen(server.url, timeout=PATIENCE_S) as answer:
        said: bytes = answer.read()
    return said.decode()


def parse(text: str) -> Scraped:
    """With prometheus-client's own parser, which knows nothing of us."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
