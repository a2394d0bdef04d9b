"""Ranks whose function lives in `__main__`, through to an end of one kind or another.

Usage: spawn_in_main.py METHOD finish | leave | leave-daemon | stay | deaf, also as `python - METHOD WHAT < ...`
    finish        two ranks say so and end
    leave         the program ends without a join: its ranks are waited for
    leave-daemon  the same with daemons: they are ended
    stay, deaf    ranks, and a child of each in a session of its own, that end only if they are ended
Runs in: a child of the test process.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import holdfast
from helpers import say, stay


def work(rank: int, what: str) -> None:
    if what in ("stay", "deaf"):
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        say("ready")
        stay("asleep" if what == "stay" else "deaf")
    elif what == "leave-daemon":
        say("ready")
        stay("asleep")
    elif what == "leave":
        time.sleep(0.5)
    say("finished", rank)


def main(method: str, what: str) -> None:
    joins = not what.startswith("leave")
    how: dict[str, Any] = {"backend": method} if method == "portable" else {"start_method": method}
    group = holdfast.spawn(work, (what,), nprocs=2, join=joins, daemon=what == "leave-daemon", grace_period=1.0, **how)
    if what == "leave-daemon":
        assert group is not None
        assert not group.join(timeout=1.0)
    say("main ends")


if __name__ == "__main__":
    main(*sys.argv[1:])
