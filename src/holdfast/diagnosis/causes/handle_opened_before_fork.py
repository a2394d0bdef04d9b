"""A database, file or connection was opened before the workers were forked, and used in several processes at once.

Signs: a worker started by fork raised, crashed or hung inside lmdb, h5py, sqlite3 or a database client, and a file or
socket that such a library opens was already open before the fork.

Pure. Runs in: main process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence

NAME = "handle opened before fork"
_INNERMOST = 3


@dataclass(frozen=True, slots=True)
class _Library:
    name: str
    code: re.Pattern[str]  # in its paths, module names and symbols
    opens: re.Pattern[str]  # what it has open


_SOCKET = re.compile(r"^socket:\[")
_LIBRARIES = (
    _Library("lmdb", re.compile(r"\blmdb\b|\bmdb_|liblmdb"), re.compile(r"\.mdb$|\.lmdb$")),
    _Library(
        "h5py", re.compile(r"\bh5py\b|libhdf5|\bH5[A-Z]"), re.compile(r"\.(h5|hdf5|hdf|he5|nc|mat)$", re.IGNORECASE)
    ),
    _Library("sqlite3", re.compile(r"sqlite3"), re.compile(r"\.(db|sqlite3?|db3)(-wal|-journal|-shm)?$")),
    _Library("tar and zip files", re.compile(r"\b(tarfile|zipfile)\b"), re.compile(r"\.(tar|tgz|zip|npz)(\.\w+)?$")),
    _Library("a database client", re.compile(r"psycopg|pymysql|MySQLdb|pymongo|\bredis\b|libpq"), _SOCKET),
    _Library("a network client", re.compile(r"\bgrpc\b|urllib3|botocore|requests|\bssl\b|http/client"), _SOCKET),
)


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if not signs.is_forked(evidence) or evidence.ending not in (Ending.EXITED, Ending.RAISED, Ending.HUNG):
        return None
    if evidence.ending is Ending.EXITED and (
        signs.signal_of(evidence) is None or signs.sender_of(evidence) is not None
    ):
        return None
    code = _code_at_fault(evidence)
    for library in _LIBRARIES:
        opened = [path for path in evidence.inherited_files if library.opens.search(path.removesuffix(" (deleted)"))]
        if opened and library.code.search(code):
            return _diagnosis(evidence, library.name, opened)
    return None


def _code_at_fault(evidence: Evidence) -> str:
    """The innermost code only: a library further out has merely called what failed."""
    place = signs.place_of(evidence)
    frames = [f"{frame.file} {frame.function}" for frame in signs.frames(evidence)[:_INNERMOST]]
    raised = [evidence.raised.type] if evidence.raised is not None else []
    native = [place.library, place.symbol] if place is not None else []
    return "\n".join([*raised, *native, *frames, *evidence.native_stack.splitlines()[:6]])


def _diagnosis(evidence: Evidence, library: str, opened: list[str]) -> Diagnosis:
    first = wording.one_line(opened[0], 120)
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.LIKELY,
        summary=f"{_how(evidence)} on a handle of {library} that was opened before the fork",
        because=f"{first} was opened before the fork: the workers share one handle, which {library} cannot bear",
        where=signs.where(evidence),
        evidence=(
            *signs.signal_line(evidence),
            *([signs.exception_line(evidence)] if evidence.raised is not None else []),
            *(f"open before the fork: {wording.one_line(path, 120)}" for path in opened[:3]),
        ),
        advice=(
            "open it in each worker: on first use in __getitem__, or in worker_init_fn, and not in __init__",
            'DataLoader(..., multiprocessing_context="spawn")   workers then inherit nothing that is open',
        ),
    )


def _how(evidence: Evidence) -> str:
    number = signs.signal_of(evidence)
    if number is not None:
        return f"died of {wording.signal_name(number)}"
    if evidence.ending is Ending.HUNG or evidence.raised is None:
        return signs.hung(evidence)
    return f"raised {wording.one_line(evidence.raised.type.removeprefix('builtins.'), 80)}"
