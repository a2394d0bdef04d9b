"""The parts that evidence is made of, in tests.

Addresses, codes and texts are those of real crashes on x86_64 Linux. Runs in: the test process.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from holdfast.diagnosis.evidence import (
    Confidence,
    Ending,
    Evidence,
    Frame,
    Mapping,
    MemoryCounters,
    MemoryReading,
    Place,
    RaisedException,
)

PID = 41822
CERTAIN, LIKELY, POSSIBLE, UNKNOWN = Confidence
SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGSEGV, SIGTERM = 4, 5, 6, 7, 8, 9, 11, 15

STACK = """Fatal Python error: Segmentation fault

Current thread 0x00007f12 (most recent call first):
  File "/home/me/.venv/lib/python3.11/site-packages/fast/codec.py", line 7 in decode
  File "/home/me/my_dataset.py", line 31 in __getitem__
  File "/home/me/.venv/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", line 54 in fetch
  File "/home/me/.venv/lib/python3.11/site-packages/holdfast/workers/worker.py", line 120 in main
"""
TRACEBACK = """Traceback (most recent call last):
  File "/home/me/my_dataset.py", line 31, in __getitem__
    return self.decode(self.paths[index])
  File "/home/me/.venv/lib/python3.11/site-packages/fast/codec.py", line 7, in decode
    raise ValueError("bad header")
ValueError: bad header
"""
IN_LIBRARY = Place("/home/me/.venv/lib/python3.11/site-packages/fast/libfast.so", 0x1110, "decode_block")
AVX512 = dataclasses.replace(IN_LIBRARY, instruction="vmovupd zmm0,[rdi]", needs=("avx512f",), lacks=("avx512f",))
CODE = Mapping(0x7F0000001000, 0x7F0000009000, "r-xp", 0x1000, IN_LIBRARY.library)
DATA = Mapping(0x7F1000000000, 0x7F1000100000, "rw-s", 0x4000, "/data/train.bin")
SHM = Mapping(0x7F2000000000, 0x7F2000100000, "rw-s", 0, "/dev/shm/psm_1")
MEMFD = Mapping(0x7F3000000000, 0x7F3000100000, "rw-s", 0, "/memfd:cache (deleted)")
STACK_MAPPING = Mapping(0x7FFC00700000, 0x7FFC00800000, "rw-p", 0, "[stack]")
MAPPINGS = (CODE, DATA, SHM, MEMFD, STACK_MAPPING)
STACK_BYTES = 8 << 20


class Seen(NamedTuple):
    evidence: Evidence
    cause: str
    confidence: Confidence
    words: tuple[str, ...] = ()  # all of them are in the rendered diagnosis


def died(number: int, **more: Any) -> Evidence:
    """Ended by a signal, while it loaded a sample."""
    given = {"phase": "loading", "start_method": "fork", "pid": PID, "python_stack": STACK}
    return Evidence(Ending.EXITED, -number, **given | more)


def crashed(number: int, code: int = 1, address: int | None = 0, error_code: int = 4, **more: Any) -> Evidence:
    """Ended by a signal of which the kernel left its frame."""
    given = {"sender_pid": None, "stack_pointer": 0x7FFC007FF000} | {
        name: more.pop(name) for name in ("sender_pid", "stack_pointer") if name in more
    }
    frame = Frame(number, code, address=address, instruction_pointer=0x7F0000001110, error_code=error_code, **given)
    return died(number, frame=frame, **{"mappings": MAPPINGS, "place": IN_LIBRARY} | more)


def raised(kind: str, message: str = "", traceback: str = TRACEBACK, **more: Any) -> Evidence:
    given = {name: more.pop(name) for name in ("errno", "filename", "bases") if name in more}
    exception = RaisedException(kind, message, traceback, **given)
    return Evidence(Ending.RAISED, **{"phase": "loading", "start_method": "fork", "raised": exception} | more)


def exited(status: int, **more: Any) -> Evidence:
    return Evidence(Ending.EXITED, status, **{"phase": "loading", "start_method": "fork"} | more)


def hung(*frames: str, **more: Any) -> Evidence:
    stack = "\n".join(["Current thread 0x00007f12 (most recent call first):", *(f"  File {frame}" for frame in frames)])
    given = {"python_stack": stack, "start_method": "fork", "sample_timeout_s": 30.0, "phase": "loading"}
    return Evidence(Ending.HUNG, -SIGKILL, **given | more)


def counted(cgroup: int | None, host: int | None, **more: Any) -> MemoryCounters:
    given = {"cgroup": "/sys/fs/cgroup/job", "cgroup_limit_bytes": 8 << 30, "cgroup_usage_bytes": 8 << 30}
    return MemoryCounters(cgroup_kills=cgroup, host_kills=host, **given | more)


def room(mount: str, free_bytes: int) -> dict[str, Any]:
    return {"shared_memory_mount": mount, "shared_memory_bytes": 64 * MIB, "shared_memory_free_bytes": free_bytes}


NOWHERE = 0x7F9900000000
MIB = 1 << 20
GROWING = (*tuple(MemoryReading(4.0 - k, (100 + 900 * k) * MIB, 3, k) for k in range(4)), MemoryReading(0, 0, 3, 4))
SMALL = tuple(MemoryReading(1.0 - k / 2, 40 * MIB, 3, k) for k in range(2))
USER_FRAME = '"/home/me/my_dataset.py", line 31 in __getitem__'
IN_THREADING = '"/usr/lib/python3.11/threading.py", line 320 in wait'
IN_QUEUE = '"/usr/lib/python3.11/queue.py", line 171 in get'
IN_SHARED_LOCK = '"/usr/lib/python3.11/multiprocessing/synchronize.py", line 95 in __enter__'
IN_LOGGING = '"/usr/lib/python3.11/logging/__init__.py", line 927 in acquire'
GUARD = """RuntimeError:
        An attempt has been made to start a new process before the
        current process has finished its bootstrapping phase.
"""
CUDA = (
    "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use ..."
)
NO_FILES = "OSError: [Errno 24] Too many open files: '/data/5.png'"
NO_THREAD = "can't start new thread"
BEFORE = "failure before the first sample"
H5PY = """Traceback (most recent call last):
  File "/home/me/my_dataset.py", line 31, in __getitem__
  File "/home/me/.venv/lib/python3.11/site-packages/h5py/_hl/dataset.py", line 781, in __getitem__
  File "h5py/_objects.pyx", line 54, in h5py._objects.with_phil.wrapper
OSError: Can't synchronously read data (filter returned failure during read)
"""
PERHAPS_SHARED = "also possible, handle opened before fork"
DEEP = "Current thread 0x1 (most recent call first):\n" + '  File "/home/me/tree.py", line 9 in walk\n' * 100

OVERFLOW = {
    "address": STACK_MAPPING.end - STACK_BYTES - 8,
    "stack_pointer": STACK_MAPPING.end - STACK_BYTES,
    "stack_limit_bytes": STACK_BYTES,
}
