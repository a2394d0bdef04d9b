"""The native stack of a worker that hangs, by py-spy: for one that does not answer the signal that asks for stacks.

py-spy reads another process's memory and stops it while it does. That needs the right to trace it (the same user, and
no ptrace_scope or seccomp against it), which is often not given in containers: then the reason is handed back.

Runs in: supervisor process, on a worker that is about to be ended.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

LIMIT_S = 2.0


def native_stack(pid: int) -> tuple[str, str]:
    """The stacks of all threads of the process, native frames among the Python ones, and why not where there are none.

    One of the two texts is empty. Takes `LIMIT_S` at most, and raises nothing.
    """
    tool = _find_tool()
    if tool is None:
        return "", "native stack: pip install 'holdfast[native]', for py-spy"
    try:
        done = subprocess.run(
            [tool, "dump", "--native", "--pid", str(pid)],  # --nonblocking cannot be had together with --native
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"native stack: py-spy did not answer within {LIMIT_S:g} s"
    except (OSError, ValueError) as error:
        return "", f"native stack: py-spy cannot be run: {error}"
    if done.returncode or not done.stdout.strip():
        return "", f"native stack: py-spy says: {_reason(done.stderr)}"
    return done.stdout, ""


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
