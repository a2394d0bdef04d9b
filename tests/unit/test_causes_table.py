"""Evidence in, cause out: what real deaths look like, and what is said of them."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from holdfast.diagnosis import engine, wording
from holdfast.diagnosis.causes import illegal_instruction
from holdfast.diagnosis.evidence import Ending, Evidence, MemoryCounters, MemoryReading, Place

from .evidence_made import AVX512, CERTAIN, LIKELY, PERHAPS_SHARED, SIGKILL, Seen, counted, crashed, died, hung, raised
from .evidence_seen import SEEN


def has_size(seen: Seen) -> bool:
    return seen.cause == "over memory_limit" and seen.evidence.ending is Ending.RAISED


PROVEN = [seen for seen in SEEN if seen.confidence is CERTAIN and not has_size(seen)]
"""But for a refused size, which is measured against the limit, and stands in the exception."""


def text_of(diagnosis: engine.Diagnosis) -> str:
    lines = (diagnosis.summary, diagnosis.because, diagnosis.where, *diagnosis.evidence, *diagnosis.advice)
    return "\n".join([*lines, *(f"ruled out, {text}" for text in diagnosis.ruled_out)])


@pytest.mark.parametrize("seen", SEEN, ids=[f"{k}-{seen.cause}" for k, seen in enumerate(SEEN)])
def test_the_evidence_gives_the_cause(seen: Seen) -> None:
    """The right name, as sure as the evidence allows, with the facts that show it and a remedy."""
    diagnosis = engine.diagnose(seen.evidence)
    text = text_of(diagnosis)
    assert (diagnosis.cause, diagnosis.confidence) == (seen.cause, seen.confidence), text
    assert [words for words in seen.words if words not in text] == [], text
    assert "a bug of holdfast" not in text
    assert diagnosis.advice
    assert diagnosis.evidence
    assert pickle.loads(pickle.dumps(diagnosis)) == diagnosis


@pytest.mark.parametrize("seen", PROVEN, ids=[f"{k}-{seen.cause}" for k, seen in enumerate(PROVEN)])
def test_no_cause_is_certain_by_words(seen: Seen) -> None:
    """Without a word on stderr or in the exception it would be as certain: wait status and measurements make it so."""
    raised_ = seen.evidence.raised
    silent = dataclasses.replace(raised_, message="") if raised_ is not None else None
    diagnosis = engine.diagnose(dataclasses.replace(seen.evidence, stderr_tail="", raised=silent))
    assert (diagnosis.cause, diagnosis.confidence) == (seen.cause, CERTAIN)


def test_every_cause_is_in_the_table() -> None:
    """Each at least once; and names are not used twice."""
    names = [cause.NAME for cause in engine.ALL]
    assert len(set(names)) == len(names)
    assert {seen.cause for seen in SEEN} == set(names)


COUNTERS = [
    (None, None),
    (MemoryCounters(), MemoryCounters()),
    (counted(3, 7), None),
    (None, counted(4, 8)),
    (counted(3, 7), counted(3, 7)),
    (counted(4, 8), counted(3, 7)),
    (counted(None, 7), counted(4, 7)),
]


@pytest.mark.parametrize(("before", "after"), COUNTERS)
def test_a_plain_kill_is_never_called_out_of_memory(
    before: MemoryCounters | None, after: MemoryCounters | None
) -> None:
    """Without a count that went up there is no proof, however large the worker was."""
    evidence = died(SIGKILL, counters_before=before, counters_after=after)
    assert engine.diagnose(evidence).cause == "killed by another process"


def test_only_a_kill_can_be_out_of_memory() -> None:
    """The kernel's killer sends SIGKILL; a crash beside a count that went up is still a crash."""
    evidence = dataclasses.replace(crashed(11), counters_before=counted(3, 7), counters_after=counted(4, 8))
    assert engine.diagnose(evidence).cause == "segmentation fault"


def test_a_frame_of_another_signal_is_not_believed() -> None:
    """An old frame may still lie in the shared page: it must be of the signal that ended the process."""
    evidence = dataclasses.replace(crashed(6, 0, None, sender_pid=77), exit_code=-11)
    diagnosis = engine.diagnose(evidence)
    assert diagnosis.cause == "segmentation fault"
    assert "77" not in text_of(diagnosis)


def test_a_signal_to_itself_is_not_from_another_process() -> None:
    """raise() and abort() are sent by the process's own pid, or by tgkill where that pid is not known."""
    own = crashed(6, 0, None, sender_pid=41822)
    unknown_pid = dataclasses.replace(crashed(6, -6, None, sender_pid=41822), pid=None)
    assert [engine.diagnose(evidence).cause for evidence in (own, unknown_pid)] == ["abort", "abort"]
    assert engine.diagnose(crashed(15, 0, None, sender_pid=41822)).cause == "unknown"


def test_a_trap_is_not_called_an_illegal_instruction_by_its_own_cause() -> None:
    """The order of the table does not decide this: the CPU refused nothing."""
    trap = next(seen for seen in SEEN if seen.cause == "compiler trap")
    assert illegal_instruction.diagnose(trap.evidence) is None


def test_of_several_last_words_the_last_are_quoted() -> None:
    """What was written before may have been survived."""
    tail = (
        "malloc(): corrupted top size\n...\npure virtual method called\nterminate called without an active exception\n"
    )
    assert "C++ says: terminate called without" in engine.diagnose(died(6, stderr_tail=tail)).because


def test_an_address_near_the_stack_pointer_but_inside_the_stack_is_no_overflow() -> None:
    """A wild pointer may point anywhere; only the end of the stack's room is its end."""
    evidence = crashed(11, 1, 0x7FFC007FF008, stack_pointer=0x7FFC007FF000, stack_limit_bytes=8 << 20)
    assert engine.diagnose(evidence).cause == "segmentation fault"


def test_memory_that_did_not_grow_is_said_so() -> None:
    """The remedy depends on it."""
    flat = tuple(MemoryReading(3.0 - k, 500 << 20, 1, k) for k in range(3))
    evidence = died(SIGKILL, counters_before=counted(0, 0), counters_after=counted(1, 1), memory=flat)
    text = text_of(engine.diagnose(evidence))
    assert "did not grow over its last 3 samples" in text
    assert "find what the dataset keeps" not in text


def test_a_likely_special_cause_goes_before_a_certain_general_one() -> None:
    """That a worker hung is always certain; that it waits for a lock says more."""
    hang = next(seen for seen in SEEN if seen.cause == "deadlock after fork")
    assert isinstance(hang.evidence, Evidence)
    assert engine.diagnose(hang.evidence).confidence is LIKELY


@pytest.mark.parametrize("folder", ["ssl", "redis", "http/client", "h5py", "sqlite3"])
def test_a_folder_of_the_users_is_no_library(folder: str) -> None:
    """A project may be called like a network client: only installed modules are one."""
    traceback = f'Traceback (most recent call last):\n  File "/home/me/{folder}/train.py", line 3, in __getitem__\n'
    inherited = ("socket:[9]", "/data/a.db", "/data/a.h5")
    evidence = raised("builtins.ValueError", "bad header", traceback, inherited_files=inherited)
    assert PERHAPS_SHARED not in text_of(engine.diagnose(evidence))
    header = (
        f"Process 12: python /home/me/{folder}/train.py\nThread 12\n    read (libc.so.6)\n    f ({folder}/train.py:3)\n"
    )
    evidence = hung(python_stack="", native_stack=header, inherited_files=inherited)
    assert PERHAPS_SHARED not in text_of(engine.diagnose(evidence))


GIB = 1 << 30


def test_what_a_fork_inherited_is_not_its_own_memory() -> None:
    """A leak of 700 MiB is one, however large the process is that it was forked from."""
    leak = tuple(MemoryReading(6.0 - 0.4 * k, 8 * GIB + k * (700 << 20) // 15, k, 0) for k in range(16))
    counts = {"counters_before": counted(0, 0), "counters_after": counted(1, 1)}
    text = text_of(engine.diagnose(died(SIGKILL, memory=leak, memory_at_start_bytes=8 * GIB, **counts)))
    assert "its own memory grew from 0 bytes to 700.0 MiB above its start" in text
    assert "find what the dataset keeps" in text


def test_samples_are_counted_only_where_all_were_seen() -> None:
    """Between two readings of different batches lie as many as were loaded in that time."""
    readings = [MemoryReading(6.0 - k, GIB + k * (100 << 20), 600 * k, 3) for k in range(6)]
    assert wording.growth(readings).endswith("over the samples of its last batches (6 s)")
    readings = [MemoryReading(6.0 - k, GIB + k * (100 << 20), 7, 10 * k) for k in range(6)]
    assert wording.growth(readings).endswith("over its last 51 samples (6 s)")


def test_a_few_pages_are_no_growth() -> None:
    """What a small process has of its own may well double."""
    readings = [MemoryReading(2.0 - k, (9 + k) << 20, 7, k) for k in range(2)]
    assert "did not grow" in wording.growth(readings, 8 << 20)


def test_where_a_library_is_of_no_package_pip_is_not_advised() -> None:
    """A folder is not called like its package, mostly: it was looked up, and is of none."""
    text = text_of(engine.diagnose(crashed(4, 2, place=AVX512, package="")))
    assert "pip" not in text
    assert "rebuild libfast.so" in text


@pytest.mark.parametrize(
    "library", ["/usr/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2", "/opt/libstdc++.so.6"]
)
def test_a_crash_in_a_library_of_all_programs_is_its_callers(library: str) -> None:
    """Nobody is to rebuild libc because it was given a wrong address."""
    advice = "\n".join(engine.diagnose(crashed(11, place=Place(library, 0x10, "memcpy"))).advice)
    assert "update the native libraries the dataset uses" in advice
    assert "belongs to" not in advice
