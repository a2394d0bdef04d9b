"""Signs that several causes look for in the evidence, and the lines that quote them. Pure.

Standard library only. Runs in: main process.
"""

from __future__ import annotations

import re

from holdfast import words
from holdfast.diagnosis import python_frames, wording
from holdfast.diagnosis.evidence import Ending, Evidence, Frame, Mapping, Place, RaisedException
from holdfast.diagnosis.native import mappings
from holdfast.diagnosis.python_frames import PythonFrame

_WINDOWS_STATUS = {
    0xC0000005: wording.SIGSEGV,  # access violation
    0xC0000006: wording.SIGBUS,  # in page error
    0xC000001D: wording.SIGILL,
    0xC0000094: wording.SIGFPE,  # integer division by zero
    0xC00000FD: wording.SIGSEGV,  # stack overflow
    0xC0000374: wording.SIGABRT,  # heap corruption
    0xC0000409: wording.SIGABRT,  # abort(), stack smashing
}
_SHARED_MEMORY = ("/dev/shm/", "/run/shm/", "/memfd:", "/SYSV", "/dev/zero")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?::[^\n]*)?(?:\n(?:[ \t][^\n]*)?)*$", re.MULTILINE)  # with indented lines
_INSTALLED = re.compile(r".*[/\\](?:site-packages|dist-packages|lib[/\\]python3\.\d+)[/\\](?P<path>.+)$")
_ENDED = {
    Ending.STOPPED: "was stopped by a signal and not continued",
    Ending.OVER_LIMIT: "had more memory than memory_limit allows",
    Ending.OVER_BUDGET: "had, with the others, more memory than memory_budget allows",
    Ending.GREW: "grows",
}
NO_THREAD = "can't start new thread"
NO_MEMORY = ("can't allocate memory", "Unable to allocate", "not enough memory", NO_THREAD)
"""What Python, numpy and torch say where they are refused memory, whatever they raise."""
TO_ITSELF = ("find the call of os.kill, signal.raise_signal or raise() on the line under `where`",)
WINDOWS_STACK_OVERFLOW = 0xC00000FD


def signal_of(evidence: Evidence) -> int | None:
    """The signal that ended it, if one did that was not ours. Windows has status codes that mean the same."""
    if evidence.ending is not Ending.EXITED or evidence.exit_code is None:
        return None
    status = _WINDOWS_STATUS.get(evidence.exit_code & 0xFFFFFFFF)
    return status if status is not None else -evidence.exit_code if evidence.exit_code < 0 else None


def has_exited_by_itself(evidence: Evidence) -> bool:
    """Whether the process ended by its own call of exit."""
    return evidence.ending is Ending.EXITED and evidence.exit_code is not None and signal_of(evidence) is None


def frame_of(evidence: Evidence) -> Frame | None:
    """The kernel's frame, if it belongs to the signal that ended the process: older ones may still lie there."""
    frame = evidence.frame
    return frame if frame is not None and frame.signal == signal_of(evidence) else None


def place_of(evidence: Evidence) -> Place | None:
    return evidence.place if frame_of(evidence) is not None else None


def sender_of(evidence: Evidence) -> int | None:
    """The other process that sent the fatal signal, where the kernel told. 0: one outside of this container."""
    frame = frame_of(evidence)
    if frame is None or frame.code > 0 or frame.sender_pid is None:
        return None
    is_its_own = frame.code == wording.SI_TKILL if evidence.pid is None else frame.sender_pid == evidence.pid
    return None if is_its_own else frame.sender_pid


def is_crash_by(evidence: Evidence, number: int) -> bool:
    """Whether this signal ended it, and no other process is known to have sent it."""
    return signal_of(evidence) == number and sender_of(evidence) is None


def sent_itself(evidence: Evidence) -> bool:
    """Whether the process sent the fatal signal to itself, as raise() and abort() do: nothing failed in the CPU."""
    frame = frame_of(evidence)
    return frame is not None and frame.code <= 0 and sender_of(evidence) is None


def mapping_at(evidence: Evidence, address: int | None) -> Mapping | None:
    return None if address is None else mappings.mapping_at(evidence.mappings, address)


def is_shared_memory(evidence: Evidence, mapping: Mapping) -> bool:
    """Whether the mapped file lives in memory, and not on a disk: in /dev/shm, on another tmpfs, or a memfd."""
    mount = evidence.shared_memory_mount.rstrip("/")
    return mapping.path.startswith(_SHARED_MEMORY) or (mount != "" and mapping.path.startswith(f"{mount}/"))


def bus_error_in(evidence: Evidence) -> tuple[Mapping, int] | None:
    """The mapping that a bus error hit, and the byte of its file; None where it was none, or hit no file."""
    frame = frame_of(evidence)
    if not is_crash_by(evidence, wording.SIGBUS) or frame is None or frame.code != wording.BUS_ADRERR:
        return None
    mapping = mapping_at(evidence, frame.address)
    if mapping is None or frame.address is None or not mapping.path.startswith("/"):
        return None
    return mapping, frame.address - mapping.start + mapping.offset


def is_bus_error_nowhere(evidence: Evidence) -> bool:
    """Whether a page of a mapped file could not be had, and it is not known which file lay there."""
    frame = frame_of(evidence)
    is_one = is_crash_by(evidence, wording.SIGBUS) and frame is not None and frame.code == wording.BUS_ADRERR
    return is_one and frame is not None and mapping_at(evidence, frame.address) is None


def is_beyond_end(evidence: Evidence, position: int) -> bool:
    return evidence.mapped_file_bytes is not None and position >= evidence.mapped_file_bytes


def out_of_memory_kills(evidence: Evidence) -> tuple[int | None, int | None]:
    """How many kills were counted around the death, in its cgroup and on the machine. None: not known."""
    before, after = evidence.counters_before, evidence.counters_after
    if before is None or after is None:
        return None, None
    same_cgroup = before.cgroup == after.cgroup
    return (
        _rise(before.cgroup_kills, after.cgroup_kills) if same_cgroup else None,
        _rise(before.host_kills, after.host_kills),
    )


def _rise(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(after - before, 0)


def is_forked(evidence: Evidence) -> bool:
    """Whether the worker is a copy of the main process. Under spawn it is forked too, but of a clean process."""
    return evidence.start_method == "fork"


def frames(evidence: Evidence) -> list[PythonFrame]:
    """Python's frames at the end, innermost first."""
    if evidence.raised is not None and evidence.ending is Ending.RAISED:
        return python_frames.of_traceback(evidence.raised.traceback)
    return python_frames.of_stack(evidence.python_stack)


def frames_seen(evidence: Evidence) -> list[PythonFrame]:
    """The same, as py-spy saw them where the worker itself said nothing."""
    return frames(evidence) or python_frames.of_py_spy(evidence.native_stack)


def where(evidence: Evidence) -> str:
    """ "my_dataset.py:31 in __getitem__ -> libfast.so+0x1110 decode_block", as far as it is known."""
    user = python_frames.innermost_of_user(python_frames.called_by_us(frames_seen(evidence)))
    place = place_of(evidence)
    parts = [str(user) if user else "", native(place) if place else ""]
    return " -> ".join(part for part in parts if part)


def native(place: Place) -> str:
    """ "libfast.so+0x1110 decode_block"."""
    if not place.library:
        return f"{place.offset:#x}, in no library"
    text = f"{wording.file_name(place.library)}+{place.offset:#x} {place.symbol}"
    return wording.one_line(text, 160)


def signal_line(evidence: Evidence) -> tuple[str, ...]:
    """ "SIGILL, ILL_ILLOPN at libfast.so+0x1110", as far as it is known."""
    number, frame, place = signal_of(evidence), frame_of(evidence), place_of(evidence)
    if number is None:
        return ()
    line = wording.signal_name(number)
    if frame is not None:
        line += f", {wording.code_name(number, frame.code)}"
        if place is not None:
            line += f" at {native(place)}"
        elif frame.code > 0:
            line += f" at instruction {frame.instruction_pointer:#x}"
    elif evidence.exit_code is not None and evidence.exit_code > 0:
        line = f"exit status {evidence.exit_code:#x}, which is Windows' {line}"
    return (line,)


def stack_lines(evidence: Evidence, most: int = 6) -> tuple[str, ...]:
    """The innermost Python frames, one under the other."""
    found = python_frames.called_by_us(frames(evidence))
    lines = [f"{'in' if k == 0 else 'called by'} {frame}" for k, frame in enumerate(found[:most])]
    more = len(found) - most
    return (*lines, f"and {words.plural(more, 'frame')} more") if more > 0 else tuple(lines)


def hung(evidence: Evidence) -> str:
    """ "hung for more than 30 s"."""
    timeout = evidence.sample_timeout_s
    return "hung" if timeout is None else f"hung for more than {words.seconds(timeout)}"


def module_of(file: str) -> str:
    """ "urllib3.connection", of a file of an installed package or the standard library; "" for the user's own."""
    found = _INSTALLED.match(file)
    path = found["path"] if found else file if file.endswith(".pyx") else ""  # Cython's are relative to the package
    return re.sub(r"[/\\]", ".", path.rpartition(".")[0])


def package_folder(library: str) -> str:
    """The folder in site-packages that a library lies in: mostly called like its package; "" where it is in none."""
    match = re.search(r"/(?:site|dist)-packages/([A-Za-z0-9_]+)(?:\.libs)?/", library)
    return match[1] if match else ""


def native_frames(evidence: Evidence) -> list[str]:
    """Of py-spy, innermost first: symbols and libraries. Without its header, which has the user's command line."""
    frames = [line.strip() for line in evidence.native_stack.splitlines() if line.startswith("    ")]
    return [re.sub(r"[()]", " ", line) for line in frames if not re.search(r"\.py:\d+\)$", line)]


def native_lines(evidence: Evidence, most: int = 4) -> tuple[str, ...]:
    """What is known beside the Python stack of one that hung: native frames, and where in the kernel it slept."""
    stack = [wording.one_line(line, 120) for line in evidence.native_stack.splitlines() if line.startswith("    ")]
    lines = [f"native: {line}" for line in stack[:most]]
    if evidence.waiting_in.strip("0"):  # "0": it was running
        lines.append(f"waiting in the kernel: {wording.one_line(evidence.waiting_in, 80)}")
    return tuple(lines)


def ended(evidence: Evidence) -> str:
    """How it ended, in a few words that go on from "worker 1 (pid 41822)"."""
    if evidence.ending is Ending.HUNG:
        return hung(evidence)
    if evidence.ending in _ENDED:
        return _ENDED[evidence.ending]
    if evidence.raised is not None:
        return f"raised {exception_line(evidence)}"
    return _exit(evidence)


def _exit(evidence: Evidence) -> str:
    if evidence.exit_code is None:
        return "was lost"
    number = -evidence.exit_code if evidence.exit_code < 0 else signal_of(evidence)
    if number is None:
        return f"exited with status {evidence.exit_code}"
    return f"was killed by {wording.signal_name(number)}"


def is_of(raised: RaisedException, *names: str) -> bool:
    """Whether the exception's class is one of these built-in ones, or derived from one."""
    return any(name in raised.bases or raised.type.removeprefix("builtins.") == name for name in names)


def exception_line(evidence: Evidence, longest: int = 200) -> str:
    """ "ValueError: bad header"."""
    raised = evidence.raised
    if raised is None:
        return ""
    name = raised.type.removeprefix("builtins.")
    return wording.one_line(f"{name}: {raised.message}" if raised.message.strip() else name, longest)


def died_of_exception(evidence: Evidence) -> tuple[str, bool]:
    """What Python printed last of an exception, if the process may have died of it; and whether it wrote no more.

    Python then exits with status 1. What was caught and logged before a crash or a hang is no reason for either; and
    before an exit it is no more than possible, if more was written after it. Last words are likely: a program may log
    an exception, and then exit.
    """
    if not has_exited_by_itself(evidence) or evidence.exit_code != 1:
        return "", False
    text = evidence.stderr_tail
    start = max(text.rfind("Traceback (most recent call last)"), 0)
    found = _EXCEPTION.search(text, start)
    return ("", False) if found is None else (found[0], not text[found.end() :].strip())


def last_exception_printed(evidence: Evidence) -> str:
    """The last line of the last traceback on stderr: what a process that exited with status 1 may have died of."""
    text = evidence.stderr_tail
    start = text.rfind("Traceback (most recent call last)")
    if start < 0:
        return ""
    lines = text[start:].splitlines()[1:]
    return wording.one_line(next((line for line in lines if line and not line[0].isspace()), ""))
