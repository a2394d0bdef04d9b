"""A loader that may start only so many processes, or open only so many descriptors: what it raises, in a few lines.

Usage: no_process.py HOW ROOM METHOD
    HOW is "descriptors" (RLIMIT_NOFILE), "processes" (RLIMIT_NPROC, as another user) or the directory of a pids cgroup
    ROOM is how many descriptors there may be, or how many processes (threads) more than there are now
    METHOD is a start method or "portable"
Runs in: a child of the test process.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any

from helpers import Numbers, say
from holdfast import DataLoader, WorkerError
from holdfast.workers import start_methods

NOBODY = 54321


def limit(how: str, room: int) -> None:
    if how == "descriptors":
        resource.setrlimit(resource.RLIMIT_NOFILE, (room, room))
    elif how == "processes":
        os.setresuid(NOBODY, NOBODY, NOBODY)
        most = threads() + room
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    else:
        cgroup = Path(how)
        (cgroup / "cgroup.procs").write_text(str(os.getpid()))
        (cgroup / "pids.max").write_text(str(int((cgroup / "pids.current").read_text()) + room))


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def main(how: str, room: int, method: str) -> None:
    options: dict[str, Any] = {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}
    start_methods.prepare("spawn" if method == "portable" else method)  # whose own processes are not what is refused
    loader = DataLoader(Numbers(8), 2, num_workers=2, record=False, **options)
    limit(how, room)
    try:
        for batch in loader:
            say("batch", batch[:, 0].tolist())
    except WorkerError as error:
        say(type(error).__name__)
        say(error)
        say("incidents", [(incident.cause, incident.done) for incident in loader.incidents])
    loader.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
