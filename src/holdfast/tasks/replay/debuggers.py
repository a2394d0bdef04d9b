"""A closer look: pdb at the exception, gdb at the signal.

    pdb   this process loads the sample; what it raises is looked at where it was raised
    gdb   a child loads it: `gdb ... --args python -X faulthandler ...`; it stops at the signal of a crash, and at the
          alarm of sample_timeout. Without a terminal gdb prints the native stack, Python prints its own, and both end.

Runs in: main process; `load_under_gdb` in the child.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import faulthandler
import json
import pdb
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.tasks.replay import alone, parts, watched
from holdfast.tasks.replay.case import CannotReplayError, Limits, Part
from holdfast.tasks.replay.guarded import Order

_FRAMES = 24
_GDB = f"""\
set pagination off
set confirm off
set print thread-events off
handle SIGALRM stop print pass
run
if $_isvoid($_exitcode)
  backtrace {_FRAMES}
"""
_BATCH_END = "  continue\nend\n"
_PROMPT_END = r"""  echo \n'continue' lets Python print its own stack and end; 'quit' leaves.\n
end
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What is known afterwards. `parts`: of the sample, None: it was not loaded."""

    parts: tuple[parts.Part, ...] | None
    said: str = ""
    """Of the exception, in a line."""


def with_pdb(dataset: Any, order: Order, *, before: bool) -> Seen:
    """Load the sample here; where it raises, pdb begins there. `before`: pdb begins at the sample's first line."""
    _refuse_split(order, "--pdb")
    faulthandler.enable()
    debugger = pdb.Pdb(nosigint=True)
    try:
        if before:
            sample = debugger.runcall(_first_call(dataset, order))
            if debugger.quitting:
                return Seen(None, "left in the debugger")
        else:
            load = alone.prepared(dataset, order)
            with alone.limited(order.limits):
                sample = load()
    except (KeyboardInterrupt, CannotReplayError):
        raise
    except BaseException as error:  # also SystemExit: it would have ended a worker
        place = alone.users_part(error.__traceback__)
        traceback.print_exception(error.with_traceback(place))
        pdb.post_mortem(place)
        return Seen(None, traceback.format_exception_only(error)[-1].strip())
    return Seen(parts.parts_of(sample))


def _first_call(dataset: Any, order: Order) -> Callable[[], Any]:
    """What pdb is to stop in: the user's own code, not ours around it."""
    if order.part is not None:
        raise CannotReplayError("--pdb-before stops in __getitem__, which an iterable dataset has not. Use --pdb.")
    watched.seed_all(order.seed)
    if order.in_batches and callable(getattr(dataset, "__getitems__", None)):
        return partial(dataset.__getitems__, [order.index])
    return partial(dataset.__getitem__, order.index)


def with_gdb(child: Sequence[str], order: Order) -> Seen:
    """Have a child load the sample under gdb, in the foreground. `child`: its command, up to the order."""
    _refuse_split(order, "--gdb")
    gdb = shutil.which("gdb")
    if gdb is None:
        raise CannotReplayError("--gdb needs gdb, which is not installed here: apt-get install gdb")
    is_batch = not sys.stdin.isatty()
    with tempfile.TemporaryDirectory(prefix="holdfast-replay-") as folder:
        script, outcome = Path(folder, "commands.gdb"), Path(folder, "outcome.json")
        script.write_text(_GDB + (_BATCH_END if is_batch else _PROMPT_END))
        command = [
            gdb,
            "-q",
            *(["-batch"] if is_batch else []),
            *_python_commands(),
            "-x",
            str(script),
            "--args",
            *child,
        ]
        with _interrupts_are_gdbs():
            subprocess.run([*command, as_text(order), str(outcome)], check=False)
        if not outcome.exists():
            return Seen(None, "the process that loaded it did not come to its end")
        told = json.loads(outcome.read_text())
    if told["parts"] is None:
        return Seen(None, told["said"])
    return Seen(tuple(parts.Part(**each) for each in told["parts"]))


def _python_commands() -> list[str]:
    """gdb's commands for Python, such as py-bt, where the interpreter came with them: they are as trusted as it is."""
    file = Path(f"{Path(sys.executable).resolve()}-gdb.py")
    return ["-iex", f"add-auto-load-safe-path {file}"] if file.exists() else []


@contextlib.contextmanager
def _interrupts_are_gdbs() -> Iterator[None]:
    """Ctrl-C at its prompt comes to us as well. A handler, unlike SIG_IGN, is not inherited by what is started."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def load_under_gdb(dataset: Any, text: str, outcome: str) -> int:
    """In the child: load, and write down what became of it. An alarm is gdb's; what goes on past it ends the child."""
    order = from_text(text)
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGALRM, chain=True)
    told: dict[str, Any] = {"parts": None, "said": ""}
    try:
        load = alone.prepared(dataset, order)
        with alone.limited(order.limits, raises=False):
            sample = load()
        told["parts"] = [dataclasses.asdict(part) for part in parts.parts_of(sample)]
    except Exception as error:
        traceback.print_exception(error.with_traceback(alone.users_part(error.__traceback__)))
        told["said"] = traceback.format_exception_only(error)[-1].strip()
    Path(outcome).write_text(json.dumps(told))
    return 1 if told["parts"] is None else 0


def as_text(order: Order) -> str:
    """For the command line of a child."""
    return json.dumps(dataclasses.asdict(order) | {"index": repr(order.index)})


def from_text(text: str) -> Order:
    """The same again. Its index is a number, a text or a tuple of those: all that a record can tell."""
    told = json.loads(text)
    wanted = None if told["part"] is None else Part(**told["part"])
    return Order(
        **told | {"index": ast.literal_eval(told["index"]), "part": wanted, "limits": Limits(**told["limits"])}
    )


def _refuse_split(order: Order, option: str) -> None:
    """In this process nobody says that it is one of several workers: an iterable dataset would not be split."""
    if order.part is not None and order.part.num_workers > 1:
        raise CannotReplayError(
            f"{option} loads in one process, and {order.part.num_workers} workers had split this dataset among them: "
            f"{order.part} cannot be found there. Without {option} such a worker loads it."
        )
