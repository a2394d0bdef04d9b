"""This Python, and how it starts processes.

Runs in: main process.
"""

from __future__ import annotations

import platform
import sys
import sysconfig
from dataclasses import dataclass

from holdfast.doctor.finding import Finding, Level, ok
from holdfast.doctor.scope import Scope

NAME = "Python"
LIMIT_S = 10.0
_LEAST = (3, 11)


@dataclass(frozen=True, slots=True)
class Facts:
    version: str
    start_method: str
    platform: str = "linux"
    is_free_threaded: bool = False


def look(scope: Scope) -> Facts:
    is_free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    return Facts(platform.python_version(), scope.start_method, sys.platform, is_free_threaded)


def judge(facts: Facts) -> list[Finding]:
    found = [*_version(facts), *_free_threaded(facts), *_platform(facts), *_new_interpreters(facts)]
    return found or [ok(NAME, f"{facts.version}, workers are started by {facts.start_method}")]


def _version(facts: Facts) -> list[Finding]:
    numbers = tuple(int(part) for part in facts.version.split(".")[:2])
    if numbers >= _LEAST:
        return []
    return [
        Finding(
            NAME,
            Level.PROBLEM,
            f"Python {facts.version} is older than holdfast knows",
            evidence=(f"sys.version is {facts.version}; 3.11 is the oldest",),
            consequence="holdfast does not run on it",
            remedy=("python3.11 -m venv .venv && .venv/bin/pip install torch-holdfast",),
        )
    ]


def _free_threaded(facts: Facts) -> list[Finding]:
    if not facts.is_free_threaded:
        return []
    return [
        Finding(
            NAME,
            Level.NOTE,
            f"this Python {facts.version} has no global lock",
            evidence=("Py_GIL_DISABLED is 1",),
            consequence="many native packages are not made for it; one that is not turns the lock on again, or crashes",
            remedy=("PYTHON_GIL=1 python train.py  # the same Python, with the lock",),
        )
    ]


def _platform(facts: Facts) -> list[Finding]:
    if facts.platform == "linux":
        return []
    return [
        Finding(
            NAME,
            Level.NOTE,
            f"on {facts.platform} holdfast uses its portable backend",
            evidence=(f"sys.platform is {facts.platform}, workers are started by {facts.start_method}",),
            consequence="workers are new interpreters, which takes seconds, and a crash is told with less evidence",
            remedy=("DataLoader(..., persistent_workers=True)  # start them once, and not for every epoch",),
        )
    ]


def _new_interpreters(facts: Facts) -> list[Finding]:
    if facts.platform != "linux" or facts.start_method == "fork":
        return []
    return [
        Finding(
            NAME,
            Level.NOTE,
            f"workers are started by {facts.start_method}, in Python {facts.version}",
            evidence=("the default on Linux was fork up to Python 3.13, and is forkserver from 3.14 on",),
            consequence="dataset, collate_fn and worker_init_fn must pickle, and the first batch takes seconds longer",
            remedy=(
                "holdfast doctor MODULE:DATASET  # says whether it pickles, and what does not",
                'DataLoader(..., multiprocessing_context="fork")  # sends nothing; for datasets without threads',
            ),
        )
    ]
