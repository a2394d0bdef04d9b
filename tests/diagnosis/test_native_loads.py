"""Loads of libraries are noticed, and looking for them disturbs nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import holdfast
from native_libraries import NULL_WRITE, compile_library
from waits import PATIENCE_S

PROGRAMS = Path(__file__).parents[1] / "programs"
SOURCE = Path(holdfast.__file__).parents[1]

LOADS = """
import ctypes, os, sys

import numpy as np
from holdfast.diagnosis.native.loads import LibraryReporter, LibraryWatch
from holdfast.diagnosis.native.mappings import LibraryPage

watch = LibraryWatch()
assert not watch.changed()
ctypes.CDLL(sys.argv[1])
assert watch.changed()
assert not watch.changed()

old, page = LibraryPage.create(), LibraryPage.create()
LibraryReporter(old, forked=True)
reporter = LibraryReporter(page, forked=True)
ctypes.CDLL(sys.argv[1])
assert page.read() is None, "it was loaded already"
ctypes.CDLL(sys.argv[2])
assert sys.argv[2] in {mapping.path for mapping in page.read()}
assert old.read() is None, "a later reporter takes the place of an earlier one"

page.clear()
import _ctypes
_ctypes.dlopen(sys.argv[3], 2)  # as native code does it: seen at the next look
assert page.read() is None
reporter.look()
assert sys.argv[3] in {mapping.path for mapping in page.read()}

page.clear()
mapped = np.memmap(sys.argv[1], mode="r")
assert sys.argv[1] in {mapping.path for mapping in page.read() if mapping.permissions == "r--s"}
page.clear()
other = np.memmap(sys.argv[2], mode="r")
assert page.read() is None, "so soon after the last one it is not worth the time"

try:
    ctypes.CDLL("/no/such/library.so")
except OSError as error:
    print(error)
"""


def run(*command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_loads_are_noticed(tmp_path: Path) -> None:
    """Once each, by the last reporter made, and an error of the user's load stays as it is. Mapped files as well."""
    libraries = [str(compile_library(tmp_path, NULL_WRITE, name=f"made_{k}")) for k in range(3)]
    assert "/no/such/library.so: cannot open shared object file" in run("-c", LOADS, *libraries)


def test_a_look_does_not_wait_for_a_thread_that_loads(tmp_path: Path) -> None:
    """With a callback in Python, the two wait for each other within a second."""
    library = compile_library(tmp_path, NULL_WRITE)
    assert run(str(PROGRAMS / "watch_while_loading.py"), str(library), "1.5") == "done\n"
