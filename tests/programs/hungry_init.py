"""A loader in a cgroup that has less memory than its worker_init_fn needs: what it raises.

Usage: hungry_init.py CGROUP METHOD (a start method or "portable")
Runs in: a child of the test process.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

from helpers import Numbers, say
from holdfast import DataLoader, HoldfastWarning, WorkerError


def eat(worker_id: int) -> None:
    """Twice what the cgroup has."""
    held = bytearray(2 << 30)
    held[::4096] = b"x" * (len(held) // 4096)


def main(cgroup: Path, method: str) -> None:
    warnings.simplefilter("ignore", HoldfastWarning)  # of the restart, which is among the incidents
    (cgroup / "cgroup.procs").write_text(str(os.getpid()))
    how: dict[str, Any] = {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}
    with DataLoader(Numbers(8), 2, num_workers=1, worker_init_fn=eat, max_restarts=5, **how) as loader:
        try:
            list(loader)
        except WorkerError as error:
            say(type(error).__name__, [(incident.cause, incident.done) for incident in loader.incidents])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
