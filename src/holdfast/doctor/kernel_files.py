"""Small files of the kernel's, read whole; what is not there is None. `root` is for recorded trees.

Runs in: main process.
"""

from __future__ import annotations

from pathlib import Path


def text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def number(path: Path) -> int | None:
    """None also for "max": there is no limit."""
    found = text(path)
    return int(found) if found is not None and found.lstrip("-").isdecimal() else None


def meminfo(root: Path) -> dict[str, int]:
    """In bytes, by the names of /proc/meminfo."""
    found = {}
    for line in (text(root / "proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdecimal():
            found[name] = int(words[0]) * 1024
    return found
