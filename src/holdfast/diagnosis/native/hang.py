"""The native stack of a worker that hangs, by py-spy: for one that does not answer the signal that asks for stacks.

py-spy reads another process's memory and stops it while it does. That needs the right to trace it (the same user, and
no ptrace_scope or seccomp against it), which is often not given in containers: then the reason is handed back.

It may take its time, so nobody waits for it: it is asked, and looked at now and then.

Runs in: supervisor process, on a worker that is about to be ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

LIMIT_S = 2.0
_REAP_WITHIN_S = 0.1
_LONGEST_BYTES = 32 * 1024  # it travels in one message, and the main thread comes first


class NativeStackRequest:
    """py-spy at work on one process. Raises nothing."""

    def __init__(self, pid: int) -> None:
        self._give_up_s = time.monotonic() + LIMIT_S
        self._process: subprocess.Popen[bytes] | None = None
        self._why_not = ""
        self.descriptors: list[int] = []  # what it writes to, and what it says of errors
        tool = _find_tool()
        if tool is None:
            self._why_not = "native stack: py-spy is not installed: pip install py-spy"
            return
        try:
            for _ in range(2):
                self.descriptors.append(os.memfd_create("holdfast-py-spy", os.MFD_CLOEXEC))
            self._process = subprocess.Popen(
                [tool, "dump", "--native", "--pid", str(pid)],  # --nonblocking cannot be had together with --native
                stdin=subprocess.DEVNULL,
                stdout=self.descriptors[0],
                stderr=self.descriptors[1],
            )
        except (OSError, ValueError) as error:
            self._why_not = f"native stack: py-spy cannot be run: {error}"

    def answer(self) -> tuple[str, str] | None:
        """The stacks of all threads, native frames among the Python ones, and why not where there are none.

        One of the two texts is empty. None: it is at work, for `LIMIT_S` at most.
        """
        if self._process is None:
            return "", self._why_not
        if self._process.poll() is None:
            is_late = time.monotonic() >= self._give_up_s
            return ("", f"native stack: py-spy did not answer within {LIMIT_S:g} s") if is_late else None
        stacks, errors = (os.pread(fd, _LONGEST_BYTES, 0).decode(errors="replace") for fd in self.descriptors)
        if self._process.returncode or not stacks.strip():
            return "", f"native stack: py-spy says: {_reason(errors)}"
        return stacks, ""

    def close(self) -> None:
        """Harmless when called again."""
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel: init will reap it
                self._process.wait(_REAP_WITHIN_S)
        while self.descriptors:
            os.close(self.descriptors.pop())


def _find_tool() -> str | None:
    """Beside this interpreter first: a virtual environment need not be on the PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def _reason(stderr: str) -> str:
    """Its first line: a backtrace of py-spy's own comes after it."""
    first = next((line.strip() for line in stderr.splitlines() if line.strip()), "nothing")
    if first.startswith("Permission Denied"):
        return "permission denied; as root, or in a container started with --cap-add SYS_PTRACE, it may trace"
    return first.removeprefix("Error: ")
