"""What `holdfast` shows to the outside, and that looking at it has no effects."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import types
from typing import Any

import pytest

import holdfast
from waits import PATIENCE_S


def in_a_new_interpreter(program: str, *options: str) -> Any:
    """Run a program that prints JSON."""
    command = [sys.executable, *options, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_all_lists_every_public_name() -> None:
    """What dir() shows without an underscore, and is no submodule, is in `__all__`, and the other way round."""
    pytest.importorskip("torch")  # of all names, DataLoader needs it
    for name in holdfast.__all__:
        getattr(holdfast, name)
    visible = {
        name
        for name in dir(holdfast)
        if not name.startswith("_") and not isinstance(getattr(holdfast, name), types.ModuleType)
    }
    assert sorted(visible) == sorted(holdfast.__all__)


def test_all_is_sorted() -> None:
    """So that a new name has one place: classes first, then functions."""
    assert holdfast.__all__ == sorted(holdfast.__all__, key=lambda name: (name.islower(), name))


def test_every_error_is_public() -> None:
    """Whoever can get one can name it."""
    raised = {name for name, value in vars(holdfast.errors).items() if isinstance(value, type)}
    assert raised <= set(holdfast.__all__)


@pytest.mark.parametrize("name", holdfast.__all__)
def test_a_public_name_is_the_object_of_its_module(name: str) -> None:
    """Loaded on first use, and one and the same from then on."""
    if name in ("DataLoader", "FailedItem", "ProcessPoolExecutor", "map", "spawn"):
        pytest.importorskip("torch")
    value = getattr(holdfast, name)
    assert value.__name__ == name
    assert getattr(sys.modules[value.__module__], name) is value
    assert getattr(holdfast, name) is value


def test_an_unknown_name_is_an_attribute_error() -> None:
    """hasattr() and getattr() with a default work as with any module."""
    assert not hasattr(holdfast, "DataLoda")
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'DataLoda'"):
        holdfast.DataLoda  # noqa: B018


def test_importing_holdfast_imports_neither_torch_nor_numpy() -> None:
    """`import holdfast` costs milliseconds: the names load on first use."""
    program = """
        import json, sys
        before = set(sys.modules)
        import holdfast
        dir(holdfast)
        new = set(sys.modules) - before
        third_party = {name for name in new if name.partition(".")[0] not in sys.stdlib_module_names}
        print(json.dumps(sorted(third_party)))
    """
    assert in_a_new_interpreter(program) == ["holdfast"]


def test_errors_can_be_caught_without_torch() -> None:
    """The foundation needs the standard library only."""
    program = """
        import json, sys
        import holdfast
        holdfast.WorkerCrashed, holdfast.HoldfastWarning
        import holdfast.options
        print(json.dumps(sorted({"torch", "numpy", "psutil", "cloudpickle"} & set(sys.modules))))
    """
    assert in_a_new_interpreter(program) == []


def test_importing_holdfast_has_no_effects() -> None:
    """No thread, descriptor, signal handler, exit handler, fork hook, warning filter, log handler, path or variable."""
    program = """
        import atexit, gc, json, logging, os, random, signal, sys, threading, warnings

        hooks = []
        os.register_at_fork = lambda **functions: hooks.append(sorted(functions))

        def state():
            return {
                "threads": threading.active_count(),
                "descriptors": len(os.listdir("/proc/self/fd")),
                "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
                "exit handlers": atexit._ncallbacks(),
                "fork hooks": list(hooks),
                "warning filters": list(map(str, warnings.filters)),
                "log handlers": [str(handler) for handler in logging.getLogger().handlers],
                "loggers": sorted(logging.Logger.manager.loggerDict),
                "path": list(sys.path),
                "environment": dict(os.environ),
                "hooks": [str(sys.excepthook), str(sys.unraisablehook), str(sys.getswitchinterval())],
                "collector": [gc.isenabled(), gc.get_threshold()],
                "random state": hash(random.getstate()),
                "directory": os.getcwd(),
            }

        before = state()
        import holdfast, holdfast.errors, holdfast.options
        dir(holdfast)
        after = state()
        print(json.dumps({name: [before[name], after[name]] for name in before if before[name] != after[name]}))
    """
    assert in_a_new_interpreter(program) == {}


def test_importing_the_loader_starts_nothing() -> None:
    """Also with torch and the engine loaded: no process, and no hook of ours, before the first iterator is made."""
    pytest.importorskip("torch")
    program = """
        import json, os, sys, threading
        import torch.utils.data, torch.multiprocessing, numpy, psutil, cloudpickle, multiprocessing.forkserver

        hooks = []
        os.register_at_fork = lambda **functions: hooks.append(sorted(functions))
        before = threading.active_count(), len(os.listdir("/proc/self/fd"))
        from holdfast import DataLoader
        after = threading.active_count(), len(os.listdir("/proc/self/fd"))
        print(json.dumps([before == after, hooks, len(psutil.Process().children())]))
    """
    assert in_a_new_interpreter(program) == [True, [], 0]
