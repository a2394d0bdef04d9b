"""The table of reproducers: what is really done to a worker, and what its incident must say, by start method.

`tools/failures.py` writes it into docs/failures/index.md, `test_reproducers.py` runs it: a cell that is documented is a
cell that is tested. Plain data, so that it can be read where neither torch nor pytest is installed.

Runs in: the test process, and that of tools/failures.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

METHODS = ("fork", "spawn", "forkserver", "portable")
NEW_INTERPRETERS = ("spawn", "forkserver", "portable")
SAMPLE_TIMEOUT_S = 0.6
_NOTHING: Mapping[str, Any] = MappingProxyType({})

CERTAIN, LIKELY, POSSIBLE, UNKNOWN = "certain", "likely", "possible", "unknown"


class Reproducer(NamedTuple):
    """One row: the outcome is the same for all start methods that can have it.

    `how` is a function of `striking.py`, called with what `places.py` prepared for the row.
    """

    name: str
    cause: str
    how: str
    confidence: str = CERTAIN
    error: str = "WorkerCrashed"  # "": nothing is raised
    says: tuple[str, ...] = ()  # in the error's text, or its incident's; "a|b" is one of the two
    when: str = "getitem"  # or "worker_init_fn", "import", "unpickling"
    options: Mapping[str, Any] = _NOTHING  # of the loader
    absent: Mapping[str, str] = _NOTHING  # by start method: why there is no such cell
    names_worker: bool = True
    is_of_sample: bool = True

    @property
    def names_sample(self) -> bool:
        return self.when == "getitem" and self.names_worker and self.is_of_sample

    @property
    def worker_id(self) -> int | None:
        """What all workers run into is raised for the first; the other strikes are for the second."""
        if not self.names_worker:
            return None
        return 0 if self.when in ("import", "unpickling") else 1

    def __str__(self) -> str:
        return self.name.replace(" ", "_")


_NOT_IMPORTED = {"fork": "under fork nothing is imported or unpickled in a worker"}
_NOT_INHERITED = dict.fromkeys(NEW_INTERPRETERS, "a worker inherits nothing of the main process")
_HANGS = {"sample_timeout": SAMPLE_TIMEOUT_S}
_LIMITED = {"memory_limit": "200MB"}

REPRODUCERS: tuple[Reproducer, ...] = (
    # -- it raises
    Reproducer("an exception", "dataset exception", "raise_value_error", error="ValueError", says=("bad header",)),
    Reproducer(
        "an aarch64 library",
        "wrong-architecture library",
        "load_library",
        error="OSError",
        says=("built for aarch64", "x86_64"),
    ),
    Reproducer(
        "no descriptor left",
        "too many open files",
        "open_too_many",
        error="OSError",
        says=("EMFILE", "128 of 128: ", "files, of which", "ulimit -n"),
    ),
    Reproducer(
        "a service that has no descriptor left",
        "dataset exception",
        "raise_of_a_service",
        error="OSError",
        says=("ruled out, too many open files: the process held ", " descriptors when it raised"),
    ),
    Reproducer(
        "torch's words on CUDA after a fork",
        "CUDA used after fork",
        "use_cuda_in_a_bad_fork",
        LIKELY,
        error="RuntimeError",
        says=("Cannot re-initialize CUDA", "does not survive a fork"),
        absent=dict.fromkeys(NEW_INTERPRETERS, "a worker is no fork of a process that has used CUDA"),
    ),
    Reproducer(
        "an SQLite connection of the main process",
        "handle opened before fork",
        "use_inherited_connection",
        LIKELY,
        error="OperationalError",
        says=("sqlite3", "opened before the fork"),
        absent=_NOT_INHERITED,
    ),
    Reproducer(
        "an lmdb environment of the main process",
        "handle opened before fork",
        "use_inherited_environment",
        LIKELY,
        error="ReadersFullError",
        says=("lmdb", "opened before the fork"),
        absent=_NOT_INHERITED,
    ),
    Reproducer(
        "an HDF5 file of the main process",
        "handle opened before fork",
        "use_inherited_file",
        LIKELY,
        error="OSError",
        says=("h5py", "opened before the fork"),
        absent=_NOT_INHERITED,
    ),
    Reproducer(
        "a socket of the main process",  # to a server that hangs up: as it might without a fork
        "dataset exception",
        "use_inherited_socket",
        error="RemoteDisconnected",
        says=("also possible, handle opened before fork", "a network client"),
        absent=_NOT_INHERITED,
    ),
    Reproducer(
        "8 GiB asked for under memory_limit",
        "over memory_limit",
        "ask_for_memory",
        LIKELY,
        error="RuntimeError",
        says=("asked for 8.0 GiB", "memory_limit (200 MB)", "striking.py"),
        options=_LIMITED,
    ),
    Reproducer(
        "a thread that a limit on processes forbids, under memory_limit",
        "dataset exception",
        "start_one_thread_too_many",
        error="RuntimeError",
        says=("ruled out, over memory_limit: it had ", "when it was refused a thread", "pids.max"),
        options=_LIMITED,
    ),
    # -- it crashes
    Reproducer(
        "an instruction that this CPU lacks",
        "illegal instruction",
        "call_with_memory",
        says=("SIGILL", "made.so", " use", "striking.py", "has no"),
    ),
    Reproducer("__builtin_trap", "compiler trap", "call_library", says=("ud2", "reach_the_unreachable", "striking.py")),
    Reproducer("a read of a null pointer", "segmentation fault", "read_null", says=("read of address 0x0", "null")),
    Reproducer("a write to a null pointer", "segmentation fault", "write_null", says=("write of address 0x0", "null")),
    Reproducer(
        "a call of a null pointer", "segmentation fault", "call_null", says=("execution of address 0x0", "null")
    ),
    Reproducer(
        "an endless recursion in C",
        "stack overflow",
        "call_library",
        says=("the stack of", "descend", "striking.py"),
    ),
    Reproducer(
        "a division by zero in C",
        "floating point exception",
        "call_library",
        says=("FPE_INTDIV", "divided by zero", "divide"),
    ),
    Reproducer(
        "a truncated mapped file",
        "bus error on a truncated file",
        "read_truncated",
        says=("BUS_ADRERR", "samples.bin has 4096 bytes", "striking.py"),
    ),
    Reproducer(
        "a truncated file, mapped a moment before",
        "bus error on a truncated file",
        "map_and_read_truncated",
        POSSIBLE,
        says=("BUS_ADRERR", "which file it was is not known", "striking.py"),
    ),
    Reproducer(
        "a full tmpfs of 8 MB", "shared memory full", "fill_shared_memory", says=("BUS_ADRERR", "8.0 MiB", "remount")
    ),
    Reproducer("a double free", "abort", "call_library", LIKELY, says=("glibc says", "double free")),
    Reproducer(
        "an uncaught C++ exception",
        "abort",
        "call_library",
        LIKELY,
        says=("C++ says", "std::runtime_error", "bad block"),
    ),
    # -- it is killed
    Reproducer(
        "over the limit of a memory cgroup",
        "out of memory",
        "use_memory",
        error="WorkerOutOfMemory",
        says=("kills counted in cgroup", "limit of the cgroup 64.0 MiB", "its own memory grew"),
    ),
    Reproducer(
        "1 GiB of shared memory under memory_limit",
        "over memory_limit",
        "take_shared_memory",
        error="WorkerOutOfMemory",
        says=("of its own, over memory_limit (200 MB)", "above its start"),
        options=_LIMITED,
    ),
    Reproducer(
        "kill -KILL by another process",
        "killed by another process",
        "be_sent",
        LIKELY,
        says=("was killed by SIGKILL", "no out-of-memory kill was counted"),
    ),
    Reproducer(
        "kill -SEGV by another process", "killed by another process", "be_sent", says=("sent it SIGSEGV", "process ")
    ),
    Reproducer(
        "kill -TERM by another process", "killed by another process", "be_sent", says=("sent it SIGTERM", "process ")
    ),
    Reproducer(
        "kill -STOP by another process",
        "stopped",
        "be_sent",
        error="TooManyRestarts",
        says=("was stopped by a signal",),
        options={"max_restarts": 0},
    ),
    Reproducer(
        "the supervisor killed",
        "supervisor killed",
        "kill_supervisor",
        error="",
        names_worker=False,
        absent={"portable": "the portable backend has no supervisor"},
    ),
    # -- it ends itself
    Reproducer("os._exit", "exit by user code", "exit_at_once", says=("exited with status 3",)),
    Reproducer("sys.exit", "exit by user code", "exit_by_exception", says=("exited with status 3",)),
    Reproducer(
        "os.closerange",
        "descriptors closed",
        "close_all_descriptors",
        says=("lost its channel to the main process", "closerange"),
        is_of_sample=False,
    ),
    Reproducer("a timer without a handler", "unknown", "run_into_alarm", UNKNOWN, says=("SIGALRM", "ruled out")),
    # -- it makes no progress
    Reproducer(
        "a sleep",
        "hang",
        "sleep",
        error="WorkerTimeout",
        says=("sample_timeout=0.6", "striking.py", "in sleep"),
        options=_HANGS,
    ),
    Reproducer(
        "a sleep with all signals blocked",
        "hang",
        "sleep_deaf",
        error="WorkerTimeout",
        # py-spy's stack, or why there is none; or another thread hears the signal, and all write theirs
        says=("native|in sleep_deaf", "not available: native stack|it was in striking.py"),
        options=_HANGS,
    ),
    Reproducer(
        "a lock that was held at the fork",
        "deadlock after fork",
        "take_inherited_lock",
        LIKELY,
        error="WorkerTimeout",
        says=("waiting for a lock", "striking.py", "forkserver"),
        options=_HANGS,
        absent=_NOT_INHERITED,
    ),
    # -- before the first sample
    Reproducer(
        "an exception in worker_init_fn",
        "failure before the first sample",
        "raise_value_error",
        error="ValueError",
        says=("bad header", "worker_init_fn"),
        when="worker_init_fn",
    ),
    Reproducer(
        "os._exit in worker_init_fn",
        "failure before the first sample",
        "exit_at_once",
        error="WorkerInitError",
        says=("exited with status 3", "before its first sample"),
        when="worker_init_fn",
    ),
    Reproducer(
        "a logged exception and os._exit in worker_init_fn",
        "failure before the first sample",
        "log_and_exit",
        error="WorkerInitError",
        says=("exited with status 1", "the worker ended the process|worker_init_fn ended the process"),
        when="worker_init_fn",
    ),
    Reproducer(
        "a crash in worker_init_fn",
        "segmentation fault",
        "read_null",
        error="WorkerInitError",
        says=("before its first sample", "striking.py"),
        when="worker_init_fn",
    ),
    Reproducer(
        "an exception on import",
        "failure before the first sample",
        "raise_import_error",
        error="ImportError",
        says=("an import in the worker", "no such driver"),
        when="import",
        absent=_NOT_IMPORTED,
    ),
    Reproducer(
        "an exception on unpickling",
        "failure before the first sample",
        "raise_value_error",
        error="ValueError",
        says=("bad header", "striking.py"),
        when="unpickling",
        absent=_NOT_IMPORTED,
    ),
)

NO_MAIN_GUARD = Reproducer(
    "a script without a main guard",
    "missing main guard",
    "",
    error="WorkerInitError",
    says=("if __name__ == '__main__':",),
    names_worker=False,
    absent={"fork": "under fork the script is not imported again"},
)
"""Has a script of its own, tests/programs/no_main_guard.py. No worker comes to be."""

INTERRUPTED = Reproducer(
    "a signal handler that raises inside next()",
    "interrupted by a signal handler",
    "",
    error="",
    says=("loader was interrupted by a signal handler that raised inside next()", "a flag"),
    names_worker=False,
)
"""It is the main process that is struck: it has a test of its own."""

OVER_BUDGET = Reproducer(
    "1 GiB taken under memory_budget",
    "over memory_budget",
    "",
    error="WorkerOutOfMemory",
    says=("memory_budget (500 MB)", "of its own"),
)
LEAK = Reproducer("a dataset that keeps every sample", "memory growth", "", error="", is_of_sample=False)
COPIES = Reproducer(
    "a list of the main process that is read",
    "copy-on-write growth",
    "",
    error="",
    is_of_sample=False,
    absent=_NOT_INHERITED,
)
"""Have tests of their own, in test_memory_reproducers.py: it takes more samples to see them."""

ALL = (*REPRODUCERS, NO_MAIN_GUARD, INTERRUPTED, OVER_BUDGET, LEAK, COPIES)


def cells() -> Iterator[tuple[Reproducer, str]]:
    """Every cell of the table that a test of the loader runs."""
    for reproducer in REPRODUCERS:
        for method in METHODS:
            if method not in reproducer.absent:
                yield reproducer, method
