"""A database, file or connection was opened before the workers were forked, and used in several processes at once.

Signs: a worker started by fork raised, crashed or hung inside lmdb, h5py, sqlite3 or a database client, and a file or
socket that such a library opens was already open before the fork. An exception makes it likely only in words that a
handle in use by several processes leads to: a corrupt sample, or a server that hangs up, raises there as well. So does
waiting for a server, which is no sign that the connection is shared.

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
    modules: tuple[str, ...]
    native: re.Pattern[str] | None  # in the names of its libraries and symbols
    opens: re.Pattern[str]  # what it has open
    words: re.Pattern[str]  # what it says of a handle that others use as well


_SOCKET = re.compile(r"^socket:\[")
_TLS = r"bad.record.mac|decryption.failed|wrong.version.number"
_LIBRARIES = (
    _Library(
        "lmdb",
        ("lmdb",),
        re.compile(r"^mdb_|liblmdb|/lmdb/"),
        re.compile(r"\.mdb$|\.lmdb$"),
        re.compile(r"BadRslot|BAD_RSLOT|ReadersFull|READERS_FULL|BadTxn|BAD_TXN|Corrupted|PageNotFound|PAGE_NOTFOUND"),
    ),
    _Library(
        "h5py",
        ("h5py",),
        re.compile(r"libhdf5|^H5[A-Z]|/h5py/"),
        re.compile(r"\.(h5|hdf5|hdf|he5|nc|mat)$", re.IGNORECASE),
        re.compile(r"can't \w*\s?read data|filter returned failure|inflate\(\) failed|b-tree|object header", re.I),
    ),
    _Library(
        "sqlite3",
        ("sqlite3", "_sqlite3"),
        re.compile(r"^sqlite3|libsqlite3|/_sqlite3\."),
        re.compile(r"\.(db|sqlite3?|db3)(-wal|-journal|-shm)?$"),
        re.compile(r"malformed|not a database|within a transaction|locking protocol|disk I/O error"),
    ),
    _Library(
        "tar and zip files",
        ("tarfile", "zipfile"),
        None,
        re.compile(r"\.(tar|tgz|zip|npz)(\.\w+)?$"),
        re.compile(r"Bad magic number for file header|in directory .* and header .* differ"),
    ),
    _Library(
        "a database client",
        ("psycopg", "psycopg2", "psycopg_c", "psycopg_binary", "pymysql", "MySQLdb", "pymongo", "redis"),
        re.compile(r"libpq|libmysqlclient|libmariadb"),
        _SOCKET,
        re.compile(f"{_TLS}|lost synchronization|packet sequence number|Protocol Error", re.I),
    ),
    _Library(
        "a network client",
        ("grpc", "urllib3", "botocore", "requests", "ssl", "http.client"),
        re.compile(r"libssl\.|/grpc/"),
        _SOCKET,
        re.compile(_TLS, re.I),
    ),
)


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if not signs.is_forked(evidence) or evidence.ending not in (Ending.EXITED, Ending.RAISED, Ending.HUNG):
        return None
    if evidence.ending is Ending.EXITED and (
        signs.signal_of(evidence) is None or signs.sender_of(evidence) is not None
    ):
        return None
    modules, native = _modules_at_fault(evidence), _native_at_fault(evidence)
    for library in _LIBRARIES:
        opened = [path for path in evidence.inherited_files if library.opens.search(path.removesuffix(" (deleted)"))]
        if opened and _is_in(library, modules, native):
            return _diagnosis(evidence, library, opened)
    return None


def _is_in(library: _Library, modules: list[str], native: list[str]) -> bool:
    if any(f"{module}.".startswith(f"{name}.") for module in modules for name in library.modules):
        return True
    return library.native is not None and any(library.native.search(name) for name in native)


def _modules_at_fault(evidence: Evidence) -> list[str]:
    """The innermost code only: a library further out has merely called what failed."""
    raised = [evidence.raised.type] if evidence.raised is not None else []
    return [*raised, *(signs.module_of(frame.file) for frame in signs.frames(evidence)[:_INNERMOST])]


def _native_at_fault(evidence: Evidence) -> list[str]:
    place = signs.place_of(evidence)
    crashed = [place.library, place.symbol] if place is not None else []
    return [*crashed, *(name for line in signs.native_frames(evidence)[:_INNERMOST] for name in line.split())]


def _confidence(evidence: Evidence, library: _Library) -> Confidence:
    if evidence.ending is Ending.RAISED:
        is_said = library.words.search(signs.exception_line(evidence)) is not None
        return Confidence.LIKELY if is_said else Confidence.POSSIBLE
    is_waiting = evidence.ending is Ending.HUNG and library.opens is _SOCKET
    return Confidence.POSSIBLE if is_waiting else Confidence.LIKELY


def _diagnosis(evidence: Evidence, library: _Library, opened: list[str]) -> Diagnosis:
    first, name = wording.one_line(opened[0], 120), library.name
    return Diagnosis(
        cause=NAME,
        confidence=_confidence(evidence, library),
        summary=f"{_how(evidence)} on a handle of {name} that was opened before the fork",
        because=f"{first} was opened before the fork: the workers share one handle, which {name} cannot bear",
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
