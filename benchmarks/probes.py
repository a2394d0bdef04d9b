"""Runs a measurement in a fresh interpreter, so that both loaders start from the same state.

Spawn and forkserver need a main module that can be imported again: the probes are modules of this package.
Runs in: main.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

LIMIT_S = 180.0


def run_probe(module: str, *arguments: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Run `python -m benchmarks.MODULE ARGUMENTS` and return the JSON object of its last line."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} ended with status {done.returncode}:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
