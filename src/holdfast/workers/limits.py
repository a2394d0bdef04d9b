"""What a process may take of the machine, set by the process itself.

Memory of a worker: RLIMIT_DATA counts private, writable memory, so a sample that asks for too much gets an exception,
while slots, shared memory and mapped files are not counted. (RLIMIT_AS would count all of them.) Thread stacks count, 8
MB each, and so does memory that is never touched: hence the slack. What that cannot see is watched from outside
(`watching.py`).

When the machine has none left, the kernel is to take a worker, and not the trainer: a worker can be replaced.
Descriptors: as many as are allowed at all; the usual 1024 are a default from when `select` was all there was.

Runs in: worker process; descriptors also in the main process, whose children inherit the limit.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Callable
from pathlib import Path

from holdfast.diagnosis import signs
from holdfast.memory import readings

_FIRST_TO_GO = 1000  # the most there is: a trainer that holds most of the machine has a score of nearly that
SLACK_BYTES = 64 << 20
"""Beyond the user's limit: the stacks of a few threads, and what an allocator keeps."""
IN_THE_WAY_BYTES = SLACK_BYTES // 2
"""A worker that keeps less has all of its limit left for the next sample, the slack being what it is."""


_own: dict[str, int] = {}  # of this process: its limit, and what it had when that was set


def be_first_to_go() -> None:
    """Have the kernel's out-of-memory killer take this process before others. Never the other way round."""
    file = Path("/proc/self/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):
        if int(file.read_text()) < _FIRST_TO_GO:
            file.write_text(str(_FIRST_TO_GO))  # needs no privilege: lowering it would


def raise_descriptor_limit() -> None:
    """As far as this process may by itself."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # macOS says it has no limit, and allows less
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def limit_memory(limit_bytes: int, start_bytes: int) -> None:
    """Have this process get a MemoryError, or torch's RuntimeError, past so many bytes more than it has now.

    `start_bytes` is what it has by the count of `readings.anonymous_bytes`.
    """
    _own.update(limit=limit_bytes, start=start_bytes)
    mapped = readings.data_bytes("self")
    if sys.platform != "linux" or mapped is None:
        return  # the watch has to do
    import resource

    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    wanted = mapped + limit_bytes + SLACK_BYTES
    _set_data_limit(wanted if hard == resource.RLIM_INFINITY else min(wanted, hard))


def limit_memory_for_now(limit_bytes: int) -> Callable[[], None]:
    """The same until what is returned is called; below 0: no limit until then."""
    before = dict(_own)
    soft, hard = _data_limits()
    if limit_bytes < 0:
        _own.clear()
        _set_data_limit(hard)
    else:
        limit_memory(limit_bytes, readings.anonymous_bytes("self") or 0)

    def put_back() -> None:
        _own.clear()
        _own.update(before)
        _set_data_limit(soft)

    return put_back


def _data_limits() -> tuple[int, int]:
    """The one that is in force, and how far it can be raised."""
    if sys.platform != "linux":
        return -1, -1
    import resource

    return resource.getrlimit(resource.RLIMIT_DATA)


def _set_data_limit(soft: int) -> None:
    if sys.platform == "linux":
        import resource

        with contextlib.suppress(OSError, ValueError):  # a sandbox may forbid it
            resource.setrlimit(resource.RLIMIT_DATA, (soft, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def note_kept(nbytes: int) -> None:
    """Said by a worker between two units: what it has, with nothing in hand."""
    _own["kept"] = nbytes


def kept_bytes() -> int:
    """What this process, which has a limit, keeps since earlier units; 0 where that is too little to be in the way."""
    if "limit" not in _own or "kept" not in _own:
        return 0
    kept = _own["kept"] - _own["start"]
    return kept if kept >= IN_THE_WAY_BYTES else 0


def memory_use() -> tuple[int, int, int] | None:
    """The limit of this process, what it uses of it, above its start, and what it keeps; None if it has none."""
    if "limit" not in _own:
        return None
    return _own["limit"], max(0, (readings.anonymous_bytes("self") or 0) - _own["start"]), kept_bytes()


def is_refusal(error: BaseException) -> bool:
    """Whether this process has a limit, and was refused memory, as far as the exception tells."""
    if "limit" not in _own:
        return False
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    try:
        text = str(error)
    except Exception:
        return False
    return any(words in text for words in signs.NO_MEMORY)
