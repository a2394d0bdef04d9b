"""A library is built for another kind of processor than this one.

Signs: an OSError or ImportError for a library whose file says so in its ELF header, where the loader says only "No such
file": certain. The loader's own words: likely. "Exec format error" is none of these: a script without `#!` has it, too.

Pure. Runs in: main process.
"""

from __future__ import annotations

import errno
import re

from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Evidence, RaisedException

NAME = "wrong-architecture library"
_OF_LOADING = (None, errno.ENOENT, errno.ENOEXEC)  # any other error is of reading the file, whatever it is built for
_IN_WORDS = re.compile(r"wrong ELF class|incompatible architecture")
_ON_WINDOWS = "not a valid Win32 application"  # is also said of a program that a subprocess was to run


def diagnose(evidence: Evidence) -> Diagnosis | None:
    raised = evidence.raised
    if raised is None:
        return None
    is_seen = bool(evidence.wrong_machine) and raised.errno in _OF_LOADING
    if not is_seen and not _is_said(raised):
        return None
    line = signs.exception_line(evidence)
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN if is_seen else Confidence.LIKELY,
        summary=f"could not load a file that is built for another processor: {wording.one_line(line, 120)}",
        because=wording.one_line(evidence.wrong_machine) if is_seen else f"the loader says so: {line}",
        where=signs.where(evidence),
        evidence=(line,),
        advice=(
            "python -c 'import platform; print(platform.machine())'   what this machine is: install the build for it",
            "pip install --force-reinstall --no-cache-dir PACKAGE   if an environment was copied from another machine",
        ),
    )


def _is_said(raised: RaisedException) -> bool:
    """Whether the loader of libraries says so."""
    if not signs.is_of(raised, "OSError", "ImportError"):
        return False
    is_library = signs.is_of(raised, "ImportError") or "ctypes" in raised.traceback
    return _IN_WORDS.search(raised.message) is not None or (is_library and _ON_WINDOWS in raised.message)
