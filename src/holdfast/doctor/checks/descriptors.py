"""How many files a process may have open.

Runs in: main process.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from holdfast.doctor import kernel_files
from holdfast.doctor.finding import Finding, Level, ok
from holdfast.doctor.scope import Scope

NAME = "descriptors"
LIMIT_S = 10.0
_PROBLEM = 256
_FEW = 4096
_NO_LIMIT = 1 << 30
_FULL_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Facts:
    soft: int = _NO_LIMIT
    hard: int = _NO_LIMIT
    of_machine: int | None = None
    used_on_machine: int | None = None


def look(scope: Scope) -> Facts:
    if sys.platform == "win32":
        return Facts()
    import resource

    soft, hard = (
        _NO_LIMIT if limit == resource.RLIM_INFINITY else limit for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    words = (kernel_files.text(scope.root / "proc/sys/fs/file-nr") or "").split()
    used, most = (int(words[0]), int(words[2])) if len(words) == 3 else (None, None)
    return Facts(soft, hard, most, used)


def judge(facts: Facts) -> list[Finding]:
    return [*_of_process(facts), *_of_machine(facts)] or [ok(NAME, _limits(facts))]


def _limits(facts: Facts) -> str:
    hard = "without a limit" if facts.hard >= _NO_LIMIT else str(facts.hard)
    return f"{facts.soft} per process, and {hard} where it asks, as holdfast does" if facts.soft < facts.hard else hard


def _of_process(facts: Facts) -> list[Finding]:
    if facts.hard >= _FEW:
        return []
    return [
        Finding(
            NAME,
            Level.PROBLEM if facts.hard < _PROBLEM else Level.WARNING,
            f"a process may have only {facts.hard} files open, and cannot ask for more",
            evidence=(f"ulimit -Sn is {facts.soft}, ulimit -Hn is {facts.hard}",),
            consequence='a loader with many workers, or a dataset with many files, fails with "Too many open files"',
            remedy=(
                "docker run --ulimit nofile=65536 ...",
                "echo '* hard nofile 65536' | sudo tee -a /etc/security/limits.conf  # then log in again",
            ),
        )
    ]


def _of_machine(facts: Facts) -> list[Finding]:
    if not facts.of_machine or (facts.used_on_machine or 0) < _FULL_SHARE * facts.of_machine:
        return []
    return [
        Finding(
            NAME,
            Level.WARNING,
            "nearly all files that the machine can have open are open",
            evidence=(f"{facts.used_on_machine} of {facts.of_machine} in /proc/sys/fs/file-nr",),
            consequence='any process fails with "Too many open files in system"',
            remedy=("sudo sysctl fs.file-max=2000000",),
        )
    ]
