"""Evidence as it is seen in real deaths, for each cause at least once. Several test files share it.

Runs in: the test process.
"""

from __future__ import annotations

import errno

from holdfast.diagnosis.evidence import (
    Ending,
    Evidence,
    MemoryCounters,
    MemoryGrowth,
    Place,
)

from .evidence_made import (
    BEFORE,
    CERTAIN,
    CUDA,
    GROWING,
    GUARD,
    H5PY,
    IN_LOGGING,
    IN_QUEUE,
    IN_SHARED_LOCK,
    IN_THREADING,
    LIKELY,
    MIB,
    NO_FILES,
    NO_THREAD,
    PERHAPS_SHARED,
    POSSIBLE,
    SIGABRT,
    SIGBUS,
    SIGKILL,
    SIGSEGV,
    SIGTERM,
    SMALL,
    TRACEBACK,
    UNKNOWN,
    USER_FRAME,
    Seen,
    counted,
    crashed,
    died,
    exited,
    hung,
    raised,
)
from .evidence_of_crashes import CRASHES

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
        LIKELY,
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
        LIKELY,
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
    Seen(raised("builtins.MemoryError", memory_limit_bytes=10**9), "over memory_limit", LIKELY, ("more memory",)),
    Seen(raised("builtins.RuntimeError", NO_THREAD, memory_limit_bytes=10**9), "over memory_limit", LIKELY),
    Seen(
        raised("builtins.RuntimeError", NO_THREAD, memory_limit_bytes=10**9, memory_used_bytes=999 * 10**6),
        "over memory_limit",
        LIKELY,
        ("asked for a thread",),
    ),
    Seen(  # a limit on processes (pids.max, ulimit -u)
        raised("builtins.RuntimeError", NO_THREAD, memory_limit_bytes=2 * 10**9, memory_used_bytes=148 << 10),
        "dataset exception",
        CERTAIN,
        ("ruled out, over memory_limit: it had 148.0 KiB of 2 GB when it was refused a thread", "pids.max"),
    ),
    Seen(  # a service's words
        raised(
            "builtins.RuntimeError",
            "server: Unable to allocate 16.0 MiB for an array",
            memory_limit_bytes=10**9,
            memory_used_bytes=48 << 20,
        ),
        "dataset exception",
        CERTAIN,
        ("ruled out, over memory_limit: it had 48.0 MiB of 1 GB when it was refused 16.0 MiB",),
    ),
    Seen(  # of more than the limit: but what was asked for, and of whom, is said in words only
        raised(
            "builtins.RuntimeError",
            "server: Unable to allocate 400. GiB for an array",
            memory_limit_bytes=10**9,
            memory_used_bytes=48 << 20,
        ),
        "over memory_limit",
        LIKELY,
        ("asked for 400 GiB",),
    ),
    Seen(
        raised("builtins.OSError", "Cannot allocate memory", errno=errno.ENOMEM, memory_limit_bytes=10**9),
        "over memory_limit",
        LIKELY,
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
            memory=GROWING,
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
        died(SIGKILL, counters_before=counted(3, 7), counters_after=counted(4, 8)),
        "out of memory",
        LIKELY,
        ("killed by SIGKILL, when the kernel was out of memory", "does not tell which"),
    ),
    Seen(  # a neighbour's kill: 40 MiB are nothing in a cgroup of 8 GiB
        died(SIGKILL, counters_before=counted(3, 7), counters_after=counted(4, 8), memory=SMALL),
        "out of memory",
        LIKELY,
        ("does not tell which", "did not grow", "40.0 MiB"),
    ),
    Seen(
        died(SIGKILL, counters_before=counted(3, 7), counters_after=counted(4, 8), memory=GROWING, kills_seen=2),
        "out of memory",
        LIKELY,
        ("does not tell which", "at that moment: 2"),
    ),
    Seen(
        died(SIGKILL, counters_before=counted(3, 7), counters_after=counted(5, 9), memory=GROWING, kills_seen=2),
        "out of memory",
        CERTAIN,
        ("killed by the kernel",),
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
    Seen(
        exited(1, stderr_tail=TRACEBACK),
        "exit by user code",
        LIKELY,
        ("last on its stderr: ValueError: bad header", "an exception that nobody caught"),
    ),
    Seen(exited(1, stderr_tail=f"{TRACEBACK}sample 5 is left out\n"), "exit by user code", CERTAIN),
    Seen(exited(3, stderr_tail=TRACEBACK), "exit by user code", CERTAIN, ("exited with status 3",)),
    # descriptors closed
    Seen(
        exited(1, phase="sending", is_cut_off=True),
        "descriptors closed",
        CERTAIN,
        ("lost its channel", "os.closerange()", "grep"),
    ),
    Seen(  # by these words alone nobody can tell
        exited(1, phase="sending", stderr_tail=f"{TRACEBACK}OSError: [Errno 9] Bad file descriptor\n"),
        "exit by user code",
        CERTAIN,
    ),
    Seen(died(SIGKILL, is_cut_off=True), "killed by another process", POSSIBLE),
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
        LIKELY,
        ("unpickling the dataset in the worker raised", "'Cells'", "top level of a module"),
    ),
    Seen(
        raised("builtins.AttributeError", "Can't get attribute 'Cells' on <module '__main__'>", phase="starting"),
        "failure before the first sample",
        LIKELY,
        ("unpickling the dataset in the worker raised",),
    ),
    Seen(
        exited(1, phase="starting", stderr_tail=f"{TRACEBACK}no cache: starting without\n"),
        "failure before the first sample",
        CERTAIN,
        ("starting the worker ended the process",),
    ),
    Seen(
        exited(1, phase="starting", stderr_tail=TRACEBACK), "failure before the first sample", LIKELY, ("bad header",)
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
    Seen(  # the words of an import, in another exception
        raised("builtins.ValueError", "plugin: ImportError: no GPU", phase="starting"),
        "failure before the first sample",
        CERTAIN,
        ("starting the worker raised ValueError",),
    ),
    Seen(  # a method that is only called like it
        raised(
            "builtins.ValueError",
            "bad table",
            'File "/a.py", line 3, in __setstate__\n    self.init_fn()\nFile "/a.py", line 9, in init_fn',
            phase="starting",
        ),
        "failure before the first sample",
        CERTAIN,
        ("starting the worker raised ValueError",),
    ),
    Seen(died(31, phase="starting"), "failure before the first sample", LIKELY, ("SIGSYS",)),
    Seen(died(SIGSEGV, phase="starting"), "segmentation fault", LIKELY),
    # missing main guard
    Seen(
        exited(1, phase="starting", start_method="spawn", stderr_tail=GUARD),
        "missing main guard",
        LIKELY,
        ("__main__",),
    ),
    Seen(raised("builtins.RuntimeError", GUARD, phase="starting"), "missing main guard", LIKELY),
    Seen(exited(1, phase="loading", start_method="spawn", stderr_tail=GUARD), "exit by user code", CERTAIN),
    Seen(exited(3, phase="starting", stderr_tail=GUARD + "fell back to threads\n"), BEFORE, CERTAIN, ("status 3",)),
    Seen(
        exited(1, phase="starting", stderr_tail=GUARD + "bye\n"),
        BEFORE,
        CERTAIN,
        ("also possible, missing main guard",),
    ),
    Seen(crashed(SIGSEGV, start_method="spawn", stderr_tail=GUARD), "segmentation fault", CERTAIN),
    Seen(hung(USER_FRAME, start_method="spawn", stderr_tail=GUARD), "hang", CERTAIN),
    # CUDA used after fork
    Seen(
        exited(1, stderr_tail=f"Traceback (most recent call last):\n  File ...\n{CUDA}\n"),
        "CUDA used after fork",
        LIKELY,
        ("on its stderr: RuntimeError: Cannot re-initialize CUDA",),
    ),
    Seen(
        exited(1, stderr_tail=f"Traceback (most recent call last):\n  File ...\n{CUDA}\nusing the CPU\n"),
        "exit by user code",
        CERTAIN,
        ("also possible, CUDA used after fork",),
    ),
    Seen(
        died(SIGKILL, counters_before=counted(3, 7), counters_after=counted(4, 8), stderr_tail=f"{CUDA}\nok\n"),
        "out of memory",
        LIKELY,
    ),
    Seen(crashed(SIGSEGV, stderr_tail=f"{CUDA}\n"), "segmentation fault", CERTAIN),
    Seen(exited(3, stderr_tail=f"WARNING falling back to the CPU: {CUDA}\n"), "exit by user code", CERTAIN),
    Seen(
        raised("builtins.RuntimeError", "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multi"),
        "CUDA used after fork",
        LIKELY,
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
        LIKELY,
        ("1020 of 1024", "ulimit -n"),
    ),
    Seen(
        raised("builtins.OSError", "", errno=errno.EMFILE, open_files_held="1024 of 1024: 812 files; 150 sockets"),
        "too many open files",
        CERTAIN,
        ("1024 of 1024: 812 files",),
    ),
    Seen(raised("builtins.OSError", "[Errno 24] Too many open files", errno=24), "too many open files", LIKELY),
    Seen(  # of inotify, or of a server whose client gives its number on
        raised("builtins.OSError", "Too many open files", errno=24, open_files_held="17 of 20000: 9 files; 8 pipes"),
        "dataset exception",
        CERTAIN,
        ("ruled out, too many open files: the process held 17 of 20000 descriptors",),
    ),
    Seen(
        raised("service.Error", "store: Too many open files", open_files_held="40 of 1024: 40 files"),
        "dataset exception",
        CERTAIN,
        ("ruled out, too many open files",),
    ),
    Seen(raised("service.Error", "store: Too many open files"), "too many open files", LIKELY),
    Seen(
        raised("service.Error", "Too many open files in system", open_files_held="1024 of 1024: 1024 files"),
        "too many open files",
        LIKELY,
        ("machine",),
    ),
    Seen(raised("builtins.OSError", "", errno=errno.ENFILE), "too many open files", LIKELY, ("machine",)),
    Seen(
        exited(1, stderr_tail=f"Traceback (most recent call last):\n  File ...\n{NO_FILES}\n"),
        "too many open files",
        LIKELY,
        ("on its stderr: OSError: [Errno 24]",),
    ),
    Seen(
        exited(1, stderr_tail=f"Traceback (most recent call last):\n  File ...\n{NO_FILES}\nskipped\n"),
        "exit by user code",
        CERTAIN,
        ("also possible, too many open files",),
    ),
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
    *CRASHES,
]
