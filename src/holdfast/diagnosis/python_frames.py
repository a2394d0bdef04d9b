"""Python's frames, read from text: of faulthandler (most recent call first) or of a traceback (last). Pure.

    File "/home/me/my_dataset.py", line 31 in __getitem__       faulthandler
    File "/home/me/my_dataset.py", line 31, in __getitem__      a traceback; the source may stand on the next line

Standard library only. Runs in: main process.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from holdfast.diagnosis.wording import file_name, one_line

_OUR_FILES = str(PurePath(__file__).parent.parent)
FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]*)", line (?P<line>\d+),? in (?P<function>.+)$')
_PY_SPY_FRAME = re.compile(r"^ +(?P<function>[^\s(]+) \((?P<file>[^():]+\.py):(?P<line>\d+)\)$")
_SECTION = re.compile(r"^(Current thread|Thread) .*\(most recent call first\):")
_LIBRARY = re.compile(
    r"[/\\](site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python3\.\d+[/\\]|^<frozen ", re.IGNORECASE
)

_STARTER = re.compile(r"[/\\]multiprocessing[/\\]\w+\.py$|runpy|^<string>$")  # of a new interpreter


@dataclass(frozen=True, slots=True)
class PythonFrame:
    file: str
    line: int
    function: str
    source: str = ""  # the line itself, where the text has it

    def __str__(self) -> str:
        return one_line(f"{file_name(self.file)}:{self.line} in {self.function}", 120)


def of_stack(text: str) -> list[PythonFrame]:
    """Of the thread at fault, innermost first.

    faulthandler marks the one that the signal came to. Where it marks none, or one of our own, which only happened to
    be awake, it is the main thread; where that is not there either, the first. Of a crash it marks none where the
    thread was not Python's, or one of very many: none is at fault then.
    """
    sections = [(title, frames) for title, frames in _sections(text) if not _is_watcher(frames)]
    marked = [frames for title, frames in sections if title.startswith("Current thread")]
    if not marked and text.startswith("Fatal Python error"):
        return []
    main = [frames for _, frames in sections if frames[-1].function != "_bootstrap"]
    return next(iter([*marked, *main, *(frames for _, frames in sections)]), [])


def of_traceback(text: str) -> list[PythonFrame]:
    """Of an exception that was raised, innermost first. Of a chain, the last: that is what was raised."""
    last = text[max(text.rfind("Traceback (most recent call last)"), 0) :]
    return _frames(last.splitlines())[::-1]


def of_py_spy(text: str) -> list[PythonFrame]:
    """Python's frames among the native ones, of the first thread, innermost first. py-spy shortens the files' names."""
    thread = text.split("\nThread ")[1] if "\nThread " in text else text
    found = (_PY_SPY_FRAME.match(line) for line in thread.splitlines())
    return [PythonFrame(match["file"], int(match["line"][:9]), match["function"]) for match in found if match]


def other_threads(text: str) -> int:
    """How many threads a stack shows beside the one at fault, and our own."""
    return max(sum(not _is_watcher(frames) for _, frames in _sections(text)) - 1, 0)


def innermost_of_user(frames: Sequence[PythonFrame]) -> PythonFrame | None:
    """The innermost frame in the user's own files; where there is none, in a library other than torch and holdfast."""
    for is_right in (_is_users, _is_not_machinery, lambda frame: True):
        found = next((frame for frame in frames if is_right(frame)), None)
        if found is not None:
            return found
    return None


def called_by_us(frames: Sequence[PythonFrame]) -> list[PythonFrame]:
    """What the worker ran for the user, without what called it; where it ran nothing for the user, our own frames.

    Further out is nothing of interest: the worker's loop, and under fork whatever had started the loader.
    """
    users = [*itertools.takewhile(lambda frame: not _is_ours(frame), frames)]
    while len(users) > 1 and _STARTER.search(users[-1].file):
        users.pop()
    return users or [*itertools.takewhile(_is_ours, frames)]


def recursion(frames: Sequence[PythonFrame]) -> PythonFrame | None:
    """The frame that a deep stack consists of; None where no frame comes again and again."""
    if not frames:
        return None
    most, times = Counter((frame.file, frame.function) for frame in frames).most_common(1)[0]
    if times < 10:
        return None
    return next(frame for frame in frames if (frame.file, frame.function) == most)


def _is_users(frame: PythonFrame) -> bool:
    return _is_not_machinery(frame) and not _LIBRARY.search(frame.file)


def _is_not_machinery(frame: PythonFrame) -> bool:
    parts = re.split(r"[/\\]", frame.file)
    return not _is_ours(frame) and "torch" not in parts and "multiprocessing" not in parts


def _is_ours(frame: PythonFrame) -> bool:
    return frame.file.startswith(_OUR_FILES) or "site-packages/holdfast" in frame.file


def _is_watcher(frames: Sequence[PythonFrame]) -> bool:
    """Whether this is the thread by which a portable worker notices that the main process is gone."""
    return any(_is_ours(frame) and frame.function == "_go_with_main" for frame in frames)


def _sections(text: str) -> list[tuple[str, list[PythonFrame]]]:
    """The frames of each thread under its title, without those that have none."""
    sections: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines():
        if _SECTION.match(line) or "C stack trace" in line:
            sections.append((line, []))
        else:
            sections[-1][1].append(line)
    found = [(title, _frames(lines)) for title, lines in sections]
    return [(title, frames) for title, frames in found if frames]


def _frames(lines: Sequence[str]) -> list[PythonFrame]:
    frames = []
    for k, line in enumerate(lines):
        match = FRAME.match(line)
        if match:
            following = lines[k + 1] if k + 1 < len(lines) else ""
            source = "" if FRAME.match(following) or not following.startswith("    ") else following.strip()
            frames.append(PythonFrame(match["file"], int(match["line"][:9]), match["function"].strip(), source))
    return frames
