"""Packages that do not survive a fork once they are in use, and why.

Pure. Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hazard:
    package: str
    """As pip calls it."""
    module: str
    """As it is imported."""
    why: str
    has_threads: bool = False
    """Or else a handle: a file, a connection."""


HAZARDS = (
    Hazard("lmdb", "lmdb", "an environment opened before the fork is corrupt in the workers"),
    Hazard("h5py", "h5py", "a file opened before the fork gives wrong data, or hangs"),
    Hazard("netCDF4", "netCDF4", "a file opened before the fork gives wrong data, or hangs"),
    Hazard("tables", "tables", "a file opened before the fork gives wrong data, or hangs"),
    Hazard("rasterio", "rasterio", "a dataset opened before the fork shares one position in its file"),
    Hazard("psycopg2", "psycopg2", "a connection made before the fork is shared by all workers"),
    Hazard("pymongo", "pymongo", "a client made before the fork hangs in the workers"),
    Hazard("redis", "redis", "a connection made before the fork is shared by all workers"),
    Hazard("grpcio", "grpc", "its threads do not survive a fork, and calls hang", has_threads=True),
    Hazard("polars", "polars", "its pool of threads does not survive a fork, and calls hang", has_threads=True),
    Hazard("jax", "jax", "its threads do not survive a fork, and calls hang", has_threads=True),
    Hazard("tensorflow", "tensorflow", "its threads do not survive a fork, and calls hang", has_threads=True),
    Hazard("gcsfs", "gcsfs", "the thread of its event loop does not survive a fork", has_threads=True),
    Hazard("s3fs", "s3fs", "the thread of its event loop does not survive a fork", has_threads=True),
)


def among(modules: Iterable[str]) -> list[Hazard]:
    """Those that have been imported."""
    imported = set(modules)
    return [hazard for hazard in HAZARDS if hazard.module in imported]
