"""This process becomes `python SCRIPT ARGS...`, with `startup/sitecustomize.py` to be imported before the script.

Runs in: the command, to its end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import holdfast
from holdfast import options
from holdfast.tasks.runner.settings import Settings

STARTUP = Path(__file__).parent / "startup"


def check_python() -> None:
    """ValueError, with the remedy, where a new Python would not look at its environment."""
    if not sys.executable:
        raise ValueError("This Python does not know its own program (sys.executable): there is nothing to run with")
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise ValueError("Python runs with -E, -I or -S, under which nothing can be replaced. Run holdfast without")


def become(program: Sequence[str], settings: Settings, target: str | None) -> NoReturn:
    """Run `python *program` in place of this process."""
    # The same flags as this Python has, such as -W and -X: there is no public way to ask for them.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    command = [sys.executable, *flags, *program]
    environment = {**os.environ, **settings.to_environment(), "PYTHONPATH": _python_path()}
    if target is not None:
        environment[options.TARGET] = target
    if sys.platform == "win32":  # exec returns to the shell at once there
        sys.exit(subprocess.call(command, env=environment))
    os.execve(sys.executable, command, environment)


def _python_path() -> str:
    entries = [str(STARTUP), *filter(None, [os.environ.get("PYTHONPATH")])]
    ours = Path(holdfast.__file__).parents[1]
    if Path(sys.path[0] or ".").resolve() == ours.resolve():  # found beside the command: the script is elsewhere
        entries.append(str(ours))
    return os.pathsep.join(entries)
