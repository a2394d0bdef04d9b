"""Counts and gauges of this process's loaders and pools, for Prometheus."""
