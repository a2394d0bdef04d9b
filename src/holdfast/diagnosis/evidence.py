"""What was seen of a worker that died, hung or raised: collected where it happened, judged elsewhere.

    supervisor or worker ──► Evidence ──► native.resolve (main: symbols, instruction) ──► engine.diagnose ──► Diagnosis

Plain data throughout: it is pickled once, from the supervisor to the main process. A field is None, or empty, where the
platform or a missing privilege does not let it be known; `missing` then says so in words.
Standard library only. Runs in: main | supervisor process.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Confidence(StrEnum):
    """How sure a diagnosis is, from best to none."""

    CERTAIN = "certain"  # proven: by the kernel's word or a measurement, never by words in an exception or on stderr
    LIKELY = "likely"  # all signs point there, and nothing speaks against it
    POSSIBLE = "possible"  # it would explain what was seen
    UNKNOWN = "unknown"


class Ending(StrEnum):
    """How a worker came to its end, or that it did not."""

    EXITED = "exited"  # by itself, or by a signal that was not ours
    HUNG = "hung"  # ended by us: past sample_timeout
    STOPPED = "stopped"  # ended by us: stopped by a signal and not continued
    OVER_LIMIT = "over limit"  # ended by us: it had more memory than memory_limit allows
    OVER_BUDGET = "over budget"  # ended by us: workers and batches had more memory than memory_budget allows
    RAISED = "raised"  # alive: an exception
    GREW = "grew"  # alive: its memory grows
    SUPERVISOR = "supervisor"  # not a worker: the supervisor was lost
    INTERRUPTED = "interrupted"  # not a worker: a signal handler raised inside next(), and all workers start over


@dataclass(frozen=True, slots=True)
class Frame:
    """What the kernel wrote at the moment of a fatal signal: siginfo and registers (x86_64)."""

    signal: int
    code: int  # si_code
    sender_pid: int | None  # where the signal was sent and not caused
    address: int | None  # si_addr, where the signal was caused by an access or an instruction
    instruction_pointer: int
    stack_pointer: int
    error_code: int  # of a page fault: 1 present, 2 write, 16 instruction fetch


@dataclass(frozen=True, slots=True)
class Mapping:
    """One line of /proc/PID/maps that matters here."""

    start: int
    end: int
    permissions: str  # "r-xp"
    offset: int  # in the file
    path: str  # "" for anonymous memory, "[stack]", "[heap]", or a file


@dataclass(frozen=True, slots=True)
class Place:
    """Where in native code a worker was: found in the main process, from a frame and the mappings."""

    library: str  # path of the file, or "" where the address is in no file
    offset: int  # in the file as its symbols count it
    symbol: str = ""  # "" where the library has none there
    instruction: str = ""  # "vmovupd zmm0,[rdi]"
    needs: tuple[str, ...] = ()  # CPU features it needs, in the words of /proc/cpuinfo
    lacks: tuple[str, ...] = ()  # those of them that this CPU does not have
    is_trap: bool = False  # ud2 and its kin: put there on purpose by a compiler


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """A worker's own memory at one moment."""

    seconds_before_end: float
    anonymous_bytes: int  # resident and not of a file
    unit: int  # what it was loading then
    position: int


@dataclass(frozen=True, slots=True)
class MemoryCounters:
    """What the kernel counts. Two of these, from before and after a death, prove who killed."""

    cgroup: str = ""  # path of the worker's own memory cgroup
    cgroup_kills: int | None = None  # by the out-of-memory killer in that cgroup
    cgroup_limit_bytes: int | None = None
    cgroup_usage_bytes: int | None = None
    host_kills: int | None = None  # on the whole machine: /proc/vmstat oom_kill
    host_available_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """What a worker has seen of its own growth."""

    bytes_per_sample: float
    grown_bytes: int  # since it was ready
    samples: int  # loaded since then
    largest_in: str = ""  # in words
    copied_bytes: int = 0  # of its parent's memory, by writing to it


@dataclass(frozen=True, slots=True)
class RaisedException:
    """An exception in a worker, as text: the object itself may not travel."""

    type: str  # "builtins.OSError"
    message: str
    traceback: str
    errno: int | None = None
    bases: tuple[str, ...] = ()  # of its class, without object: "OSError", "Exception", "BaseException"
    filename: str = ""  # of an OSError


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known. Nothing here is a judgement."""

    ending: Ending
    exit_code: int | None = None  # below 0: minus the signal
    phase: str = ""  # in the words of an incident: "loading", "collating", "starting"
    start_method: str = ""  # "fork", "spawn", "forkserver", "portable"; "" where nothing was started
    frame: Frame | None = None
    place: Place | None = None  # added in the main process
    mappings: tuple[Mapping, ...] = ()
    stack_limit_bytes: int | None = None  # RLIMIT_STACK
    python_stack: str = ""  # of all threads, the one at fault first, as faulthandler writes it
    native_stack: str = ""  # as py-spy writes it, where that was possible
    stderr_tail: str = ""
    memory: tuple[MemoryReading, ...] = ()  # oldest first
    memory_at_start_bytes: int = 0  # what a reading showed at its birth: of a fork, what it shares with its parent
    counters_before: MemoryCounters | None = None
    counters_after: MemoryCounters | None = None
    kills_seen: int | None = None  # of a death by SIGKILL: how many of them fall between these two readings
    sample_timeout_s: float | None = None
    memory_limit_bytes: int | None = None  # memory_limit: of one worker, above what it started with
    memory_used_bytes: int | None = None  # what it had of that when it was last looked at
    memory_kept_bytes: int = 0  # of that, kept since earlier units, if it was enough to be in the way of this one
    growth: MemoryGrowth | None = None
    memory_budget_bytes: int | None = None  # memory_budget: of all workers and batches together
    memory_needs: str = ""  # what units took so far: "a batch takes 1.0 GiB, and loading one takes 2.0 GiB of a worker"
    open_files: int | None = None
    open_files_limit: int | None = None
    open_files_held: str = ""  # by what, where a process had none left: "1024 of 1024: 812 files; 150 sockets"
    inherited_files: tuple[str, ...] = ()  # paths (and "socket:[n]") that were open before the fork
    is_cut_off: bool = False  # it found the descriptor of its channel to the main process closed, or another's
    raised: RaisedException | None = None
    seen_at: float | None = None  # as time.time() has it: when it had ended, not when the main process heard of it
    missing: tuple[str, ...] = ()  # what could not be had, and why: "registers: not on this platform"
    pid: int | None = None  # the worker's own: a signal it sent to itself did not come from another process
    threads: int | None = None  # of one that hung: how many it had, native ones too
    is_stopped: bool = False  # of a supervisor that gives no sign of life: whether a signal has stopped it
    waiting_in: str = ""  # of one that hung: where in the kernel it sleeps, as /proc/PID/wchan says: "futex_wait_queue"
    # Added in the main process, by `facts.gather`:
    cpu: str = ""  # "AMD EPYC 7B13"
    cpu_level: str = ""  # "x86-64-v3"
    package: str | None = None  # as pip calls it, that the library at fault came with; "": of none; None: not looked up
    wrong_machine: str = ""  # "libfast.so is built for aarch64, and this machine is x86_64"
    mapped_file_bytes: int | None = None  # present size of the mapped file that a SIGBUS hit
    shared_memory_mount: str = ""  # the tmpfs with the mapped file that a SIGBUS hit, or /dev/shm
    shared_memory_bytes: int | None = None  # its size
    shared_memory_free_bytes: int | None = None  # just after


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What killed it, how sure that is, on what evidence, and what to do."""

    cause: str  # of the list in docs/failures: "illegal instruction", "out of memory", "unknown"
    confidence: Confidence
    summary: str  # goes on from "worker 1 (pid 41822) ...": "died of an illegal instruction"
    because: str  # one sentence: "vmovupd zmm0,[rdi] needs avx512f; this CPU (AMD EPYC) has no avx512f"
    where: str = ""  # "my_dataset.py:31 in __getitem__ -> libfast.so+0x1110 decode_block"
    evidence: tuple[str, ...] = ()  # facts, a line each: "SIGILL, ILL_ILLOPN at libfast.so+0x1110"
    advice: tuple[str, ...] = ()  # remedies, runnable as written, the best first
    ruled_out: tuple[str, ...] = ()  # what it was not, and how we know: a measurement, or for an unknown cause all
