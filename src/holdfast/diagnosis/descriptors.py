"""Who holds the descriptors of this process: files, by folder, sockets, pipes, shared memory.

Asked when there are none left, so nothing may have to be opened for it, not even a module: all are imported here, and
links are read one by one if the folder cannot be listed. Never raises.
Standard library only. Runs in: main | worker process.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.diagnosis.wording import one_line

if sys.platform == "linux":
    import resource

_FOLDER = Path("/proc/self/fd")
_MOST_PROBED = 1 << 16
_KINDS = (
    (re.compile(r"^/memfd:holdfast|^/dev/shm/holdfast"), "of holdfast"),
    (re.compile(r"^/memfd:|^/dev/shm/"), "shared memory"),
    (re.compile(r"^socket:"), "sockets"),
    (re.compile(r"^pipe:"), "pipes"),
    (re.compile(r"^anon_inode:"), "of the kernel's own"),
    (re.compile(r"^/dev/"), "devices"),
)
_FILES = "files"


def held() -> str:
    """ "1024 of 1024: 812 files, of which 700 in /data/train; 150 sockets; 62 pipes"; "" where it cannot be told."""
    if sys.platform != "linux":
        return ""
    targets = list(_targets())
    return f"{len(targets)} of {_limit()}: {describe(targets)}" if targets else ""


def _limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def describe(targets: Iterable[str]) -> str:
    """What the links of /proc/self/fd point to, in a few words, the most first."""
    kinds, folders = Counter[str](), Counter[str]()
    for target in targets:
        kind = next((name for pattern, name in _KINDS if pattern.match(target)), _FILES)
        kinds[kind] += 1
        if kind == _FILES:
            folders[os.path.dirname(target)] += 1  # noqa: PTH120  (one of thousands, and of any form)
    return "; ".join(_part(kind, count, folders) for kind, count in kinds.most_common())


def _part(kind: str, count: int, folders: Counter[str]) -> str:
    if kind != _FILES:
        return f"{count} {kind}"
    folder = max(folders, key=folders.__getitem__)  # (most_common(1) would import a module)
    return f"{count} {kind}, of which {folders[folder]} in {one_line(folder, 80)}"


def _targets() -> Iterator[str]:
    for number in _numbers():
        with contextlib.suppress(OSError):
            yield str((_FOLDER / str(number)).readlink())


def _numbers() -> Iterable[int]:
    try:
        return [int(path.name) for path in _FOLDER.iterdir()]
    except OSError:  # to list them takes one
        return range(min(_limit(), _MOST_PROBED))
