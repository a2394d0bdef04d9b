"""Packages that do not survive a fork once they are in use: threads, connections and handles of their own.

What is merely installed does no harm. Which of them a dataset really imports, and what that leaves open,
`holdfast doctor MODULE:DATASET` says.

Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.doctor.checks.python import default_start_method
from holdfast.doctor.finding import Finding, Level, ok
from holdfast.doctor.scope import Scope
from holdfast.doctor.torch_probe import installed_version

NAME = "fork hazards"
LIMIT_S = 10.0

_HANDLE = "open it on first use in __getitem__, not in __init__"
_THREADS = 'multiprocessing_context="spawn"'


@dataclass(frozen=True, slots=True)
class Hazard:
    package: str
    """As pip calls it."""
    module: str
    """As it is imported."""
    why: str
    remedy: str


HAZARDS = (
    Hazard("lmdb", "lmdb", "an environment opened before the fork is corrupt in the workers", _HANDLE),
    Hazard("h5py", "h5py", "a file opened before the fork gives wrong data, or hangs", _HANDLE),
    Hazard("netCDF4", "netCDF4", "a file opened before the fork gives wrong data, or hangs", _HANDLE),
    Hazard("tables", "tables", "a file opened before the fork gives wrong data, or hangs", _HANDLE),
    Hazard("rasterio", "rasterio", "a dataset opened before the fork shares one position in its file", _HANDLE),
    Hazard("psycopg2", "psycopg2", "a connection made before the fork is shared by all workers", _HANDLE),
    Hazard("pymongo", "pymongo", "a client made before the fork hangs in the workers", _HANDLE),
    Hazard("redis", "redis", "a connection made before the fork is shared by all workers", _HANDLE),
    Hazard("grpcio", "grpc", "its threads do not survive a fork, and calls hang", _THREADS),
    Hazard("polars", "polars", "its pool of threads does not survive a fork, and calls hang", _THREADS),
    Hazard("jax", "jax", "its threads do not survive a fork, and calls hang", _THREADS),
    Hazard("tensorflow", "tensorflow", "its threads do not survive a fork, and calls hang", _THREADS),
    Hazard("gcsfs", "gcsfs", "the thread of its event loop does not survive a fork", _THREADS),
    Hazard("s3fs", "s3fs", "the thread of its event loop does not survive a fork", _THREADS),
)


@dataclass(frozen=True, slots=True)
class Facts:
    installed: tuple[str, ...]
    """Of the packages above."""
    start_method: str
    has_dataset: bool = False


def look(scope: Scope) -> Facts:
    installed = tuple(hazard.package for hazard in HAZARDS if installed_version(hazard.package) is not None)
    return Facts(installed, scope.start_method or default_start_method(), scope.has_dataset)


def among(modules: Iterable[str]) -> list[Hazard]:
    """Those that have been imported."""
    imported = set(modules)
    return [hazard for hazard in HAZARDS if hazard.module in imported]


def judge(facts: Facts) -> list[Finding]:
    if facts.start_method != "fork":
        return [ok(NAME, f"workers are started by {facts.start_method}, and inherit nothing")]
    if not facts.installed:
        return [ok(NAME, "none of the packages known for them is installed")]
    if facts.has_dataset:
        return [ok(NAME, f"installed: {', '.join(facts.installed)}; what the dataset does, 'before fork' says")]
    return [
        Finding(
            NAME,
            Level.NOTE,
            f"installed, and no good across a fork once in use: {', '.join(facts.installed)}",
            evidence=tuple(f"{one.package}: {one.why}" for one in HAZARDS if one.package in facts.installed),
            consequence="a dataset that opens them in __init__ gives wrong data, or its workers hang",
            remedy=("holdfast doctor MODULE:DATASET  # says what yours opens before the fork",),
        )
    ]
