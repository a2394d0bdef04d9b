"""Counts and gauges of this process's loaders, pools and ranks, for Prometheus.

    holdfast.metrics.start(9400)                           serves them at http://127.0.0.1:9400/metrics
    registry.register(holdfast.metrics.collector())        hands them to a registry of your own

    counted.py ──► families.py (pure: names, meanings, values) ──► collector.py ──► server.py

Needs prometheus-client: pip install 'torch-holdfast[metrics]'. Neither torch nor that is imported before it is needed.
"""

from holdfast.metrics.collector import Collector, collector
from holdfast.metrics.server import MetricsServer, start

__all__ = ["Collector", "MetricsServer", "collector", "start"]
