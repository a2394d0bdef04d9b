"""Native code aborted: it found its own state to be wrong, and stopped the process.

Signs: SIGABRT that no other process sent. The words that glibc, C++, Rust, assert or Python wrote to stderr before it
say why, and are never more than likely. A panic or a failed check may also be survived, by this process or by one that
it started: their words count only if they are the last.

Pure. Runs in: main process.
"""

from __future__ import annotations

import re

from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Evidence

NAME = "abort"
_MOST_READ = 16384

_HEAP = "valgrind python a_script_that_loads_the_sample.py   names the write beyond a buffer, or the second free"
_THROWN = "catch the exception in the native code and raise it in Python, or report it to the library's authors"
_CHECK = "report the failed check to the library's authors, with the sample"
_OPENMP = "keep one OpenMP runtime in the environment: conda or pip for all of torch, numpy and mkl, not both"

_SURVIVED = ("thread '", "Check failed: ", "Assertion ", "OMP: Error")
_AFTER_WORDS = re.compile(  # what may still follow the words: their own indented lines, backtraces, the abort's
    r"\s|$|note:|\*\*\*|@ |#\d|frame #|PC: |stack backtrace|\[?thread |terminate called|fatal runtime error|Aborted|"
    r"Fatal Python error: Aborted|Current thread|Thread 0x|Extension modules|OMP: "
)

# Who says it, in which words, and what to do about it. The last match in the tail is the nearest to the end.
_WORDS: tuple[tuple[str, str, str], ...] = (
    ("C++", r"terminate called after throwing an instance of '[^'\n]*'(?:\s+what\(\):[^\n]*)?", _THROWN),
    ("C++", r"terminate called (?:without an active exception|recursively)", _THROWN),
    ("C++", r"libc\+\+abi: terminating[^\n]*", _THROWN),
    ("C++", r"pure virtual method called", _CHECK),
    ("Rust", r"thread '[^'\n]*'(?: \(\d+\))? panicked at [^\n]*(?:\n(?!note:)[^\n]+)?", _CHECK),
    ("Rust", r"fatal runtime error: [^\n]*", _CHECK),
    ("glibc", r"\*\*\* (?:stack smashing|buffer overflow) detected \*\*\*[^\n]*", _HEAP),
    ("glibc", r"(?:free|malloc|realloc|calloc|munmap_chunk|malloc_consolidate|memalign)\(\): [^\n]*", _HEAP),
    ("glibc", r"double free or corruption[^\n]*", _HEAP),
    ("glibc", r"corrupted (?:size vs\. prev_size|double-linked list|unsorted chunks)[^\n]*", _HEAP),
    ("OpenMP", r"OMP: Error #\d+: [^\n]*", _OPENMP),
    ("assert", r"(?m:^)[^\n]*Assertion [`'\"][^\n]* failed[^\n]*", _CHECK),
    ("a check", r"(?m:^)[^\n]*Check failed: [^\n]*", _CHECK),
    (
        "Python",
        r"Fatal Python error: (?!Aborted|Segmentation fault|Bus error|Illegal instruction|Floating)[^\n]*",
        _CHECK,
    ),
)


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if not signs.is_crash_by(evidence, wording.SIGABRT):
        return None
    who, words, advice, after = last_words(evidence.stderr_tail)
    said = wording.one_line(words, 160) if _is_final(words, after) else ""
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.LIKELY,
        summary=f"aborted: {said}" if said else "aborted",
        because=f"{who} says: {said}"
        if said
        else "native code called abort(), and wrote no words to stderr that say why",
        where=signs.where(evidence),
        evidence=(*signs.signal_line(evidence), *_tail(evidence, said)),
        advice=(advice, "update the native library that the line under `where` calls"),
    )


def last_words(text: str) -> tuple[str, str, str, str]:
    """Who spoke last before the abort, what was said, the remedy, and what was written after it."""
    tail = text[-_MOST_READ:]
    found = [
        (match.start(), who, match[0], advice, tail[match.end() :])
        for who, words, advice in _WORDS
        for match in re.finditer(words, tail)
    ]
    return max(found)[1:] if found else ("", "", _CHECK, "")


def _is_final(words: str, after: str) -> bool:
    """Whether the abort follows from these words: some are always the last, others if nothing else came after."""
    can_be_survived = any(start in words for start in _SURVIVED)
    return not can_be_survived or all(_AFTER_WORDS.match(line) for line in after.splitlines())


def _tail(evidence: Evidence, said: str) -> tuple[str, ...]:
    """Where no words are known, the last line it wrote."""
    lines = evidence.stderr_tail.split("\n")
    last = next((wording.one_line(line, 160) for line in reversed(lines) if line.strip()), "")
    return (f"last on its stderr: {last}",) if last and not said else ()
