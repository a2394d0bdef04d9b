"""Evidence as it is seen in real deaths, for each cause at least once. Several test files share it.

Addresses, codes and texts are those of real crashes on x86_64 Linux. Runs in: the test process.
"""

from __future__ import annotations

import dataclasses
import errno
from typing import Any, NamedTuple

from holdfast.diagnosis.evidence import (
    Confidence,
    Ending,
    Evidence,
    Frame,
    Mapping,
    MemoryCounters,
    MemoryGrowth,
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

SEEN = [
    # dataset exception
    Seen(
        raised("builtins.ValueError", "bad header"), "dataset exception", CERTAIN, ("ValueError: bad header", "31 in")
    ),
    Seen(raised("builtins.KeyError", "", ""), "dataset exception", CERTAIN, ("raised KeyError",)),
    Seen(
        raised("builtins.OSError", "Input/output error", errno=errno.EIO), "dataset exception", CERTAIN, ("retry_on",)
    ),
    Seen(raised("builtins.MemoryError"), "dataset exception", CERTAIN, ("fewer workers",)),
    Seen(
        raised("builtins.OSError", "No space left on device", errno=28, filename="/data/x"),
        "dataset exception",
        CERTAIN,
    ),
    # over memory_limit
    Seen(
        raised(
            "builtins.RuntimeError",
            "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
            "allocate 8589934592 bytes. Error code 12 (Cannot allocate memory)",
            memory_limit_bytes=10**9,
            memory_used_bytes=48 << 20,
        ),
        "over memory_limit",
        CERTAIN,
        ("asked for 8.0 GiB", "memory_limit (1 GB)", "it had 48.0 MiB", "31 in __getitem__"),
    ),
    Seen(
        raised(
            "numpy._core._exceptions._ArrayMemoryError",
            "Unable to allocate 16.0 GiB for an array with shape (2147483648,) and data type float64",
            bases=("MemoryError", "Exception", "BaseException"),
            memory_limit_bytes=1 << 30,
        ),
        "over memory_limit",
        CERTAIN,
        ("asked for 16.0 GiB", "memory_limit (1.0 GiB)"),
    ),
    Seen(
        raised(
            "builtins.MemoryError",
            memory_limit_bytes=10**9,
            memory_used_bytes=1100 << 20,
            memory_kept_bytes=900 << 20,
        ),
        "over memory_limit",
        CERTAIN,
        ("more memory when it had 1.1 GiB", "kept 900.0 MiB", "recycle_after"),
    ),
    Seen(raised("builtins.MemoryError", memory_limit_bytes=10**9), "over memory_limit", CERTAIN, ("more memory",)),
    Seen(
        raised("builtins.RuntimeError", "can't start new thread", memory_limit_bytes=10**9),
        "over memory_limit",
        CERTAIN,
    ),
    Seen(
        raised("builtins.OSError", "Cannot allocate memory", errno=errno.ENOMEM, memory_limit_bytes=10**9),
        "over memory_limit",
        CERTAIN,
    ),
    Seen(
        Evidence(Ending.OVER_LIMIT, -SIGKILL, "loading", memory_limit_bytes=10**9, memory_used_bytes=1300 << 20),
        "over memory_limit",
        CERTAIN,
        ("had 1.3 GiB", "memory_limit (1 GB)"),
    ),
    Seen(
        died(
            SIGABRT,
            stderr_tail="terminate called after throwing an instance of 'std::bad_alloc'\n",
            memory_limit_bytes=10**9,
        ),
        "over memory_limit",
        LIKELY,
        ("could get no more memory", "C++ could not allocate"),
    ),
    Seen(raised("builtins.ValueError", "bad header", memory_limit_bytes=10**9), "dataset exception", CERTAIN),
    # over memory_budget
    Seen(
        Evidence(
            Ending.OVER_BUDGET,
            -SIGKILL,
            "loading",
            memory_budget_bytes=16 * 10**9,
            memory_used_bytes=9 << 30,
            memory_needs="a batch takes up to 1.0 GiB, and loading one up to 9.0 GiB of its worker",
        ),
        "over memory_budget",
        CERTAIN,
        ("memory_budget (16 GB)", "had 9.0 GiB of its own", "a batch takes up to 1.0 GiB"),
    ),
    # memory growth
    Seen(
        Evidence(Ending.GREW, growth=MemoryGrowth(3.1 * 2**20, 1900 << 20, 613, "Python objects")),
        "memory growth",
        CERTAIN,
        (
            "grows 3.1 MiB per sample, 1.9 GiB since it started",
            "the largest growth is in Python objects",
            "613 samples",
        ),
    ),
    # copy-on-write growth
    Seen(
        Evidence(Ending.GREW, growth=MemoryGrowth(4096.0, 0, 1000, copied_bytes=900 << 20)),
        "copy-on-write growth",
        CERTAIN,
        ("has copied 900.0 MiB", "holdfast.share(", "reference count"),
    ),
    # out of memory
    Seen(
        died(
            SIGKILL,
            counters_before=MemoryCounters("/job", 3, 8 << 30, 7 << 30),
            counters_after=MemoryCounters("/job", 4, 8 << 30, 2 << 30),
            memory_budget_bytes=6 << 30,
            memory_needs="a batch takes up to 1.0 GiB, and loading one up to 9.0 GiB of its worker",
        ),
        "out of memory",
        CERTAIN,
        ("memory_budget 6.0 GiB", "a batch takes up to 1.0 GiB", "limit of the cgroup 8.0 GiB"),
    ),
    Seen(
        died(SIGKILL, counters_before=counted(3, 7), counters_after=counted(4, 8), memory=GROWING),
        "out of memory",
        CERTAIN,
        ("/sys/fs/cgroup/job", "limit of the cgroup 8.0 GiB", "grew from 100.0 MiB to 2.7 GiB over its last 4 samples"),
    ),
    Seen(
        died(SIGKILL, counters_before=counted(3, 7), counters_after=counted(3, 8)),
        "out of memory",
        LIKELY,
        ("machine",),
    ),
    Seen(
        died(
            SIGKILL,
            counters_before=MemoryCounters(host_kills=7, host_available_bytes=90 * MIB),
            counters_after=MemoryCounters(host_kills=8),
        ),
        "out of memory",
        LIKELY,
        ("available on the machine before: 90.0 MiB",),
    ),
    # killed by another process
    Seen(
        died(SIGKILL, counters_before=counted(3, 7), counters_after=counted(3, 7)),
        "killed by another process",
        LIKELY,
        ("the kernel does not tell", "no out-of-memory kill was counted in its cgroup"),
    ),
    Seen(died(SIGKILL), "killed by another process", POSSIBLE, ("SIGKILL",)),
    Seen(
        died(SIGKILL, counters_before=MemoryCounters("/a", 1), counters_after=MemoryCounters("/b", 2)),
        "killed by another process",
        POSSIBLE,
    ),
    Seen(died(SIGTERM), "killed by another process", LIKELY, ("SIGTERM",)),
    Seen(
        crashed(SIGSEGV, 0, None, sender_pid=77, place=None),
        "killed by another process",
        CERTAIN,
        ("killed by SIGSEGV from process 77", "ps -fp 77"),
    ),
    Seen(crashed(SIGABRT, 0, None, sender_pid=0), "killed by another process", CERTAIN, ("outside of this container",)),
    # shared memory full
    Seen(
        crashed(SIGBUS, 2, SHM.start + 5000, **room("/dev/shm", 0)),
        "shared memory full",
        CERTAIN,
        ("/dev/shm/psm_1", "/dev/shm has 64.0 MiB, of which 0 bytes were free", "--shm-size"),
    ),
    Seen(crashed(SIGBUS, 2, SHM.start), "shared memory full", LIKELY),
    Seen(crashed(SIGBUS, 2, SHM.start, **room("/dev/shm", MIB)), "shared memory full", LIKELY),
    Seen(crashed(SIGBUS, 2, SHM.start, **room("/dev/shm", 60 * MIB)), "shared memory full", POSSIBLE),
    Seen(crashed(SIGBUS, 2, DATA.start, **room("/data", 0)), "shared memory full", CERTAIN, ("remount,size=8g /data",)),
    Seen(crashed(SIGBUS, 2, SHM.start + 5000, mapped_file_bytes=4096), "bus error on a truncated file", CERTAIN),
    Seen(crashed(SIGBUS, 2, MEMFD.start), "shared memory full", LIKELY, ("/memfd:cache",)),
    Seen(died(SIGBUS), "shared memory full", POSSIBLE, ("bus error",)),
    Seen(
        raised("builtins.OSError", "[Errno 28] No space left on device: '/dev/shm/x'", errno=28, filename="/dev/shm/x"),
        "shared memory full",
        CERTAIN,
    ),
    Seen(
        raised("builtins.RuntimeError", "unable to write to file </torch_12_3>: No space left on device (28)"),
        "shared memory full",
        CERTAIN,
    ),
    # bus error on a truncated file
    Seen(
        crashed(SIGBUS, 2, DATA.start + 0x100, mapped_file_bytes=1000),
        "bus error on a truncated file",
        CERTAIN,
        ("/data/train.bin has 1000 bytes", "byte 16640"),
    ),
    Seen(crashed(SIGBUS, 2, DATA.start, mapped_file_bytes=1 << 30), "bus error on a truncated file", LIKELY),
    Seen(
        crashed(SIGBUS, 2, NOWHERE, **room("/dev/shm", 60 * MIB)),
        "bus error on a truncated file",
        POSSIBLE,
        ("which file it was is not known", "my_dataset.py:31"),
    ),
    Seen(
        crashed(SIGBUS, 2, NOWHERE, **room("/dev/shm", 0)),
        "shared memory full",
        LIKELY,
        ("shared memory is full", "were free just after", "also possible, bus error on a truncated file"),
    ),
    # segmentation fault
    Seen(
        crashed(SIGSEGV),
        "segmentation fault",
        CERTAIN,
        ("read of address 0x0 (a null pointer)", "my_dataset.py:31 in __getitem__ -> libfast.so+0x1110 decode_block"),
    ),
    Seen(crashed(SIGSEGV, 1, 0x7F9900000000, 6), "segmentation fault", CERTAIN, ("write of address 0x7f9900000000",)),
    Seen(
        crashed(SIGSEGV, 2, DATA.start, 21), "segmentation fault", CERTAIN, ("execution of", "/data/train.bin (rw-s)")
    ),
    Seen(crashed(SIGSEGV, 0x80, 0), "segmentation fault", CERTAIN, ("no program can have", "SI_KERNEL")),
    Seen(crashed(SIGSEGV, -6, None, sender_pid=PID), "segmentation fault", CERTAIN, ("sent SIGSEGV to itself",)),
    Seen(died(SIGSEGV, missing=("registers: not on this platform",)), "segmentation fault", LIKELY, ("not available",)),
    Seen(exited(0xC0000005), "segmentation fault", CERTAIN, ("0xc0000005",)),
    # stack overflow
    Seen(
        crashed(SIGSEGV, 1, **OVERFLOW, python_stack=DEEP),
        "stack overflow",
        CERTAIN,
        ("of 8.0 MiB", "a recursion through tree.py:9 in walk", "ulimit -s"),
    ),
    Seen(crashed(SIGSEGV, 1, **OVERFLOW), "stack overflow", CERTAIN, ("libfast.so+0x1110",)),
    Seen(crashed(SIGSEGV, 1, **OVERFLOW, mappings=()), "stack overflow", LIKELY),
    Seen(exited(0xC00000FD), "stack overflow", CERTAIN),
    Seen(
        crashed(SIGSEGV, 2, 0x7F4000000FF8, stack_pointer=0x7F4000001000, stack_limit_bytes=STACK_BYTES),
        "stack overflow",
        LIKELY,
    ),
    # illegal instruction
    Seen(
        crashed(SIGILL, 2, 0x7F0000001110, place=AVX512, cpu="AMD EPYC 7B13"),
        "illegal instruction",
        CERTAIN,
        (
            "needs avx512f; this CPU (AMD EPYC 7B13) has no avx512f",
            "ILL_ILLOPN",
            "-march=x86-64-v3",
            "--no-binary fast",
        ),
    ),
    Seen(
        crashed(SIGILL, 2, 0x7F0000001110, place=dataclasses.replace(AVX512, lacks=())),
        "illegal instruction",
        LIKELY,
        ("damaged", "--force-reinstall"),
    ),
    Seen(
        crashed(SIGILL, 2, place=dataclasses.replace(AVX512, needs=("fma",), lacks=("fma",), library="/opt/x.so")),
        "illegal instruction",
        CERTAIN,
        ("-march=x86-64-v2",),
    ),
    Seen(
        crashed(SIGILL, 2, place=AVX512, cpu="Intel Xeon", cpu_level="x86-64-v2", package="opencv-python"),
        "illegal instruction",
        CERTAIN,
        ("this CPU (Intel Xeon, x86-64-v2)", "CFLAGS='-march=x86-64-v2'", "--no-binary opencv-python opencv-python"),
    ),
    Seen(died(SIGILL), "illegal instruction", LIKELY, ("was not seen",)),
    # compiler trap
    Seen(
        crashed(SIGILL, 2, place=dataclasses.replace(IN_LIBRARY, instruction="ud2", is_trap=True)),
        "compiler trap",
        CERTAIN,
        ("ud2 is no missing CPU feature", "libfast.so"),
    ),
    # wrong-architecture library
    Seen(
        raised(
            "builtins.OSError",
            "/opt/libfast.so: cannot open shared object file: No such file or directory",
            wrong_machine="libfast.so is built for aarch64, and this Python for x86_64",
        ),
        "wrong-architecture library",
        CERTAIN,
        ("built for aarch64",),
    ),
    Seen(
        raised("builtins.ImportError", "/opt/libfast.so: wrong ELF class: ELFCLASS32"),
        "wrong-architecture library",
        CERTAIN,
        ("ELFCLASS32",),
    ),
    Seen(
        raised("builtins.OSError", "[Errno 8] Exec format error: './decode.sh'", errno=8, filename="./decode.sh"),
        "dataset exception",
        CERTAIN,
    ),
    Seen(
        raised("builtins.OSError", "[WinError 193] %1 is not a valid Win32 application"), "dataset exception", CERTAIN
    ),
    Seen(
        raised("builtins.ImportError", "DLL load failed: %1 is not a valid Win32 application"),
        "wrong-architecture library",
        CERTAIN,
    ),
    # abort
    Seen(
        crashed(SIGABRT, -6, None, sender_pid=PID, stderr_tail="epoch 1\nfree(): double free detected in tcache 2\n"),
        "abort",
        CERTAIN,
        ("glibc says: free(): double free detected in tcache 2",),
    ),
    Seen(
        died(
            SIGABRT,
            stderr_tail="terminate called after throwing an instance of 'std::runtime_error'\n"
            "  what():  bad JPEG marker\n",
        ),
        "abort",
        CERTAIN,
        ("'std::runtime_error' what(): bad JPEG marker",),
    ),
    Seen(
        died(SIGABRT, stderr_tail="python: fast.c:31: decode: Assertion `size > 0' failed.\n"),
        "abort",
        CERTAIN,
        ("Assertion `size > 0' failed.",),
    ),
    Seen(died(SIGABRT, stderr_tail="malloc(): corrupted top size\n"), "abort", CERTAIN, ("malloc(): corrupted top",)),
    Seen(died(SIGABRT, stderr_tail="corrupted double-linked list\n"), "abort", CERTAIN, ("corrupted double-linked",)),
    Seen(
        died(SIGABRT, stderr_tail="*** stack smashing detected ***: terminated\n"),
        "abort",
        CERTAIN,
        ("stack smashing",),
    ),
    Seen(
        died(SIGABRT, stderr_tail="thread '<unnamed>' panicked at src/lib.rs:3:5:\nindex out of bounds\nnote: run\n"),
        "abort",
        CERTAIN,
        ("Rust says: thread '<unnamed>' panicked at src/lib.rs:3:5: index out of bounds",),
    ),
    Seen(died(SIGABRT, stderr_tail="loading\n"), "abort", LIKELY, ("last on its stderr: loading",)),
    Seen(
        died(SIGABRT, stderr_tail="thread 'main' panicked at src/lib.rs:3:5:\nsurvived\nnote: x\nsample 9 is done\n"),
        "abort",
        LIKELY,
        ("no words to stderr that say why", "last on its stderr: sample 9 is done"),
    ),
    Seen(died(SIGABRT, stderr_tail="F0101 x.cc:1] Check failed: a == b\nfell back\n"), "abort", LIKELY),
    Seen(
        died(
            SIGABRT, stderr_tail="F0101 x.cc:1] Check failed: a == b\n*** Check failure stack trace: ***\n    @ 0x7f\n"
        ),
        "abort",
        CERTAIN,
        ("a check says: F0101 x.cc:1] Check failed: a == b",),
    ),
    Seen(died(SIGABRT, stderr_tail="free(): invalid pointer\nanother thread goes on for a moment\n"), "abort", CERTAIN),
    # floating point exception
    Seen(crashed(SIGFPE, 1), "floating point exception", CERTAIN, ("divided by zero", "FPE_INTDIV")),
    Seen(died(SIGFPE), "floating point exception", LIKELY),
    # hang
    Seen(
        hung('"/home/me/net.py", line 3 in read', USER_FRAME),
        "hang",
        CERTAIN,
        ("hung for more than 30 s", "it was in net.py:3 in read", "called by my_dataset.py:31"),
    ),
    Seen(hung(IN_THREADING, USER_FRAME, start_method="spawn"), "hang", CERTAIN),
    Seen(hung(USER_FRAME, waiting_in="hrtimer_nanosleep"), "hang", CERTAIN, ("hrtimer_nanosleep",)),
    Seen(hung(USER_FRAME + "\n    with open(self.block):", waiting_in="0"), "hang", CERTAIN),
    Seen(hung(python_stack="", sample_timeout_s=None), "hang", CERTAIN, ("could not be seen",)),
    Seen(
        hung(
            IN_THREADING,
            python_stack=f"Thread 0x1 (most recent call first):\n  File {IN_THREADING}\n\n"
            f"Thread 0x2 (most recent call first):\n  File {USER_FRAME}",
        ),
        "hang",
        CERTAIN,
        ("also possible, deadlock after fork",),
    ),
    # deadlock after fork
    Seen(
        hung(IN_THREADING, IN_QUEUE, USER_FRAME), "deadlock after fork", LIKELY, ("waiting for a queue", "forkserver")
    ),
    Seen(hung(IN_LOGGING, USER_FRAME), "deadlock after fork", LIKELY, ("waiting for a lock",)),
    Seen(hung(USER_FRAME, waiting_in="futex_wait_queue"), "deadlock after fork", LIKELY, ("futex_wait_queue",)),
    Seen(hung(USER_FRAME + "\n    with self.lock:"), "deadlock after fork", LIKELY, ("waiting for a lock",)),
    Seen(
        hung(USER_FRAME, native_stack="Thread 1 (idle)\n    gomp_team_barrier_wait_end (libgomp.so.1)\n"),
        "deadlock after fork",
        LIKELY,
        ("OpenMP", "set_num_threads(1)"),
    ),
    Seen(
        hung(USER_FRAME, waiting_in="futex_wait_queue", threads=2),
        "hang",
        CERTAIN,
        ("also possible, deadlock after fork", "its own 1 other thread"),
    ),
    Seen(hung(USER_FRAME, waiting_in="futex_wait_queue", threads=1), "deadlock after fork", LIKELY),
    Seen(hung(IN_SHARED_LOCK, USER_FRAME, waiting_in="futex_wait_queue", threads=1), "hang", CERTAIN),
    Seen(
        hung(
            python_stack="",
            waiting_in="pipe_read",
            native_stack="Process 12: python /home/me/comp_vision/train.py\nPython v3.11.7\n\n"
            'Thread 12 (idle): "MainThread"\n    read (libc.so.6)\n    omp_sum (comp_vision/train.py:10)\n',
        ),
        "hang",
        CERTAIN,
    ),
    # stopped
    Seen(Evidence(Ending.STOPPED, -SIGKILL, "loading"), "stopped", CERTAIN, ("SIGSTOP",)),
    # exit by user code
    Seen(exited(3), "exit by user code", CERTAIN, ("exited with status 3", "os._exit")),
    Seen(exited(0), "exit by user code", CERTAIN, ("exited with status 0",)),
    Seen(exited(1, stderr_tail=TRACEBACK), "exit by user code", CERTAIN, ("on its stderr: ValueError: bad header",)),
    # failure before the first sample
    Seen(raised("builtins.ValueError", "no", phase="starting"), "failure before the first sample", CERTAIN),
    Seen(
        exited(
            1,
            phase="starting",
            start_method="spawn",
            stderr_tail="Traceback (most recent call last):\n  File ...\n"
            "AttributeError: Can't get attribute 'Cells' on <module '__main__' (built-in)>\n",
        ),
        "failure before the first sample",
        CERTAIN,
        ("unpickling the dataset in the worker raised", "'Cells'", "top level of a module"),
    ),
    Seen(
        raised("builtins.ModuleNotFoundError", "No module named 'fast'", phase="starting"),
        "failure before the first sample",
        CERTAIN,
        ("an import in the worker raised", "PYTHONPATH"),
    ),
    Seen(
        raised("builtins.KeyError", "'x'", 'File "/a.py", line 3, in worker_init_fn', phase="starting"),
        "failure before the first sample",
        CERTAIN,
        ("worker_init_fn raised KeyError: 'x'",),
    ),
    Seen(died(31, phase="starting"), "failure before the first sample", LIKELY, ("SIGSYS",)),
    Seen(died(SIGSEGV, phase="starting"), "segmentation fault", LIKELY),
    # missing main guard
    Seen(
        exited(1, phase="starting", start_method="spawn", stderr_tail=GUARD),
        "missing main guard",
        CERTAIN,
        ("__main__",),
    ),
    Seen(raised("builtins.RuntimeError", GUARD, phase="starting"), "missing main guard", CERTAIN),
    Seen(exited(1, phase="loading", start_method="spawn", stderr_tail=GUARD), "exit by user code", CERTAIN),
    Seen(exited(3, phase="starting", stderr_tail=GUARD + "fell back to threads\n"), BEFORE, CERTAIN, ("status 3",)),
    Seen(exited(1, phase="starting", stderr_tail=GUARD + "bye\n"), "missing main guard", LIKELY),
    Seen(crashed(SIGSEGV, start_method="spawn", stderr_tail=GUARD), "segmentation fault", CERTAIN),
    Seen(hung(USER_FRAME, start_method="spawn", stderr_tail=GUARD), "hang", CERTAIN),
    # CUDA used after fork
    Seen(
        exited(1, stderr_tail=f"Traceback (most recent call last):\n  File ...\n{CUDA}\n"),
        "CUDA used after fork",
        CERTAIN,
        ("on its stderr: RuntimeError: Cannot re-initialize CUDA",),
    ),
    Seen(
        died(SIGKILL, counters_before=counted(3, 7), counters_after=counted(4, 8), stderr_tail=f"{CUDA}\nok\n"),
        "out of memory",
        CERTAIN,
    ),
    Seen(crashed(SIGSEGV, stderr_tail=f"{CUDA}\n"), "segmentation fault", CERTAIN),
    Seen(exited(3, stderr_tail=f"WARNING falling back to the CPU: {CUDA}\n"), "exit by user code", CERTAIN),
    Seen(
        raised("builtins.RuntimeError", "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multi"),
        "CUDA used after fork",
        CERTAIN,
        ("spawn",),
    ),
    Seen(raised("builtins.RuntimeError", "CUDA error: initialization error"), "CUDA used after fork", LIKELY),
    Seen(
        raised("builtins.RuntimeError", "CUDA error: initialization error", start_method="spawn"),
        "dataset exception",
        CERTAIN,
    ),
    Seen(
        raised("builtins.KeyError", "'x'", stderr_tail="Cannot re-initialize CUDA in forked subprocess"),
        "dataset exception",
        CERTAIN,
    ),
    # too many open files
    Seen(
        raised("builtins.OSError", "[Errno 24] Too many open files", errno=24, open_files=1020, open_files_limit=1024),
        "too many open files",
        CERTAIN,
        ("1020 of 1024", "ulimit -n"),
    ),
    Seen(
        raised("builtins.OSError", "", errno=errno.EMFILE, open_files_held="1024 of 1024: 812 files; 150 sockets"),
        "too many open files",
        CERTAIN,
        ("1024 of 1024: 812 files",),
    ),
    Seen(raised("builtins.OSError", "", errno=errno.ENFILE), "too many open files", CERTAIN, ("machine",)),
    Seen(raised("builtins.RuntimeError", "received 0 items of ancdata"), "too many open files", LIKELY),
    # handle opened before fork
    Seen(
        raised("lmdb.BadRslotError", "mdb_txn_begin", inherited_files=("/usr/x", "/data/train.lmdb/data.mdb")),
        "handle opened before fork",
        LIKELY,
        ("/data/train.lmdb/data.mdb", "worker_init_fn"),
    ),
    Seen(
        raised("sqlite3.DatabaseError", "database disk image is malformed", inherited_files=("/data/index.db",)),
        "handle opened before fork",
        LIKELY,
        ("sqlite3",),
    ),
    Seen(
        crashed(SIGSEGV, place=Place("/x/libhdf5-1.so", 5, "H5F_open"), inherited_files=("/data/train.h5",)),
        "handle opened before fork",
        LIKELY,
        ("died of SIGSEGV on a handle of h5py",),
    ),
    Seen(
        raised("psycopg.OperationalError", "bad record mac", inherited_files=("socket:[9]",)),
        "handle opened before fork",
        LIKELY,
        ("socket:[9]",),
    ),
    Seen(
        raised("lmdb.Error", "x", inherited_files=("/data/a.mdb",), start_method="spawn"), "dataset exception", CERTAIN
    ),
    Seen(raised("lmdb.Error", "x"), "dataset exception", CERTAIN),
    Seen(raised("builtins.KeyError", "'x'", inherited_files=("/data/a.mdb",)), "dataset exception", CERTAIN),
    Seen(raised("lmdb.Error", "x", inherited_files=("/data/a.mdb",)), "dataset exception", CERTAIN, (PERHAPS_SHARED,)),
    Seen(
        raised(
            "builtins.OSError",
            "Can't synchronously read data (filter returned failure during read)",
            H5PY,
            inherited_files=("/data/train.h5",),
        ),
        "handle opened before fork",
        LIKELY,
        ("h5py",),
    ),
    Seen(
        raised("zipfile.BadZipFile", "File is not a zip file", inherited_files=("/data/labels.npz",)),
        "dataset exception",
        CERTAIN,
        ("BadZipFile", PERHAPS_SHARED),
    ),
    Seen(
        raised("http.client.RemoteDisconnected", "closed without response", inherited_files=("socket:[9]",)),
        "dataset exception",
        CERTAIN,
        (PERHAPS_SHARED,),
    ),
    Seen(hung('"/usr/lib/python3.11/ssl.py", line 9 in read', inherited_files=("socket:[9]",)), "hang", CERTAIN),
    # supervisor killed
    Seen(Evidence(Ending.SUPERVISOR, -SIGKILL), "supervisor killed", CERTAIN, ("SIGKILL",)),
    Seen(
        Evidence(Ending.SUPERVISOR, -SIGKILL, counters_before=counted(0, 0), counters_after=counted(1, 1)),
        "supervisor killed",
        CERTAIN,
        ("out-of-memory killer was at work",),
    ),
    Seen(
        Evidence(Ending.SUPERVISOR, is_stopped=True),
        "supervisor killed",
        CERTAIN,
        ("was stopped by a signal and not continued",),
    ),
    Seen(Evidence(Ending.SUPERVISOR), "supervisor killed", POSSIBLE, ("gave no sign of life",)),
    # interrupted by a signal handler
    Seen(Evidence(Ending.INTERRUPTED), "interrupted by a signal handler", CERTAIN, ("raised inside next()", "a flag")),
    # unknown
    Seen(
        crashed(SIGBUS, 1, 0x10, counters_before=counted(1, 1), counters_after=counted(1, 1)),
        "unknown",
        UNKNOWN,
        ("ruled out, out of memory: no kill was counted", "the kernel raised the signal itself (BUS_ADRALN)"),
    ),
    Seen(died(31), "unknown", UNKNOWN, ("seccomp", "SIGSYS")),
    Seen(Evidence(Ending.EXITED), "unknown", UNKNOWN, ("was lost",)),
    Seen(Evidence(Ending.SUPERVISOR, 1), "unknown", UNKNOWN, ("exited with status 1",)),
]
