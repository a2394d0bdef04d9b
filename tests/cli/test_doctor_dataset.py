"""`holdfast doctor MODULE:DATASET`, as a user runs it: real datasets that are well, wrong, or end the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from native_libraries import NULL_WRITE, compile_library

LIMIT_S = 150.0
SCHEMA = json.loads((Path(__file__).parents[2] / "docs/schemas/doctor.json").read_text(encoding="utf-8"))

DATASETS = """
import ctypes, os, random, threading, time
import numpy as np, torch
from torch.utils.data import Dataset, IterableDataset

class Well(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        print("loading", index)
        return torch.full((3, 8, 8), float(index)), index

well = Well()
seven = 7

class Wrong(Well):
    def __init__(self):
        self.file = open(__file__)
        self.inner = {"lock": threading.Lock()}
        self.thread = threading.Thread(target=threading.Event().wait, daemon=True, name="reads ahead")
        self.thread.start()

    def __getitem__(self, index):
        return {"image": torch.ones(3), "at": time.perf_counter()}

class Augmented(Well):
    def __getitem__(self, index):
        return torch.rand(3), np.random.rand(), random.random()

class Own(Well):
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index):
        return self.rng.random()

class Bad(Well):
    def __getitem__(self, index):
        if index == 0:
            raise ValueError("bad [red]header[/red]\\x1b[31m")
        if index == 33:
            ctypes.string_at(8)
        if index == 66:
            time.sleep(600)
        return index

class Endless(IterableDataset):
    def __iter__(self):
        return iter(range(10**9))

class Lazy(Well):
    file = None

    def __getitem__(self, index):
        self.file = self.file or open(__file__)
        return index

class Large(Well):
    def __getitem__(self, index):
        return torch.ones(300 << 20, dtype=torch.uint8)[:7].clone()

def fails():
    raise RuntimeError("no data here")

def queue():
    import multiprocessing
    dataset = Well()
    dataset.queue = multiprocessing.get_context("spawn").Queue()
    return dataset
"""
MODULES = {
    "segfault": "import ctypes; ctypes.string_at(8)",
    "hang": "import time; time.sleep(600)",
    "raises": "1 / 0",
    "exits": "import os; os._exit(3)",
    "quits": "import sys; sys.exit('not today')",
    "needs": "import a_package_that_nobody_has",
}


@pytest.fixture
def doctor(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`python -m holdfast doctor`, to its end, in a directory with the modules above."""
    for name, source in {"data": DATASETS, **MODULES}.items():
        (tmp_path / f"{name}.py").write_text(source)
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").touch()

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        return subprocess.run(
            [sys.executable, "-m", "holdfast", "doctor", *arguments],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": path, "HOLDFAST_HOME": str(tmp_path / "home")},
        )

    return run


def read(done: subprocess.CompletedProcess[str]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """All that was printed, as its schema says; and by check, the worst finding of each."""
    data = json.loads(done.stdout)
    jsonschema.validate(data, SCHEMA)
    assert done.returncode == (0 if data["healthy"] else 1)
    found: dict[str, dict[str, Any]] = {}
    for finding in data["findings"]:
        found.setdefault(finding["check"], finding)
    return data, found


def said(finding: dict[str, Any]) -> str:
    return "\n".join((finding["what"], *finding["evidence"], finding["consequence"], *finding["remedy"]))


@pytest.mark.long
def test_a_dataset_that_is_well(doctor: Any, tmp_path: Path) -> None:
    """A line for each check, and the next command; what the dataset prints is no data. It is no run of the user's: no
    record of it is kept.
    """
    done = doctor("data:well")
    assert not (tmp_path / "home").exists()
    assert "loading" not in done.stdout
    assert "loading 99" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("next  holdfast scan data:well ")
    lines = {line[4:26].strip(): line[26:].strip() for line in done.stdout.splitlines() if line.startswith("ok  ")}
    assert lines["dataset"].startswith("Well, 100 samples, imported and made in ")
    assert lines["pickling"].endswith(" bytes")
    assert lines["before fork"].startswith("nothing is opened, no thread is started")
    assert lines["samples"] == "4 samples loaded, each tuple of Tensor float32 3x8x8, int"
    assert lines["same sample twice"] == "4 samples, each loaded twice: equal"
    assert "768 bytes each" in lines["sample time and memory"]
    assert done.returncode == (1 if "\nproblem" in f"\n{done.stdout}" else 0)


def test_a_dataset_with_everything_wrong(doctor: Any) -> None:
    """A file and a thread before the fork, a lock deep in it that does not pickle, samples that nobody can repeat."""
    data, found = read(doctor("data.py:Wrong", "--json", "--samples", "2", "--start-method", "fork"))
    assert not data["healthy"]
    opened, threads = [one for one in data["findings"] if one["check"] == "before fork"]
    assert opened["level"] == "problem"
    assert opened["evidence"][0].endswith("data.py")
    assert (threads["level"], threads["evidence"]) == ("warning", ["thread reads ahead"])
    assert found["pickling"]["level"] == "warning"
    assert "because of dataset.inner['lock']" in found["pickling"]["what"]
    assert found["same sample twice"]["level"] == "warning"
    assert "dataset[0]['at']" in found["same sample twice"]["evidence"][0]
    assert [sample["index"] for sample in data["dataset"]["samples"]] == [0, 99]
    assert (data["dataset"]["type"], data["dataset"]["length"], data["dataset"]["pickle_bytes"]) == ("Wrong", 100, None)


@pytest.mark.long
def test_a_module_that_crashes_at_import_is_told_with_its_cause(doctor: Any) -> None:
    """A real segmentation fault: it ends a process that was made for it."""
    data, found = read(doctor("segfault:dataset", "--json"))
    assert (found["dataset"]["level"], data["dataset"]) == ("problem", None)
    assert "segmentation fault" in found["dataset"]["what"]
    assert "SIGSEGV" in said(found["dataset"])
    assert "segfault.py" in said(found["dataset"])
    assert "pickling" not in found


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("hang:dataset", ("hung for more than 2 s", "hang.py:1")),
        ("raises:dataset", ("ZeroDivisionError: division by zero", "raises.py:1")),
        ("exits.py:dataset", ("exited with status 3",)),
        ("quits:dataset", ("SystemExit: not today",)),
        ("needs:dataset", ("a_package_that_nobody_has",)),
        ("data:fails", ("RuntimeError: no data here", "in fails")),
    ],
)
def test_a_dataset_that_cannot_be_made_is_a_problem_with_a_cause(
    doctor: Any, target: str, words: tuple[str, ...]
) -> None:
    """However that ended: the machine is told of all the same."""
    data, found = read(doctor(target, "--json", "--limit", "2"))
    assert (found["dataset"]["level"], data["dataset"]) == ("problem", None)
    assert [word for word in words if word not in said(found["dataset"])] == []
    assert "memory" in found


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("package.nowhere:dataset", "There is no module 'package.nowhere'"),
        ("data:wel", "Did you mean well?"),
        ("data:seven", "is no dataset, but an object of int"),
    ],
)
def test_wrong_usage_of_a_dataset_ends_with_2(doctor: Any, target: str, words: str) -> None:
    """Nothing on stdout, the argument and the remedy on stderr."""
    done = doctor(target, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


@pytest.mark.long
def test_bad_samples_are_told_one_by_one(doctor: Any) -> None:
    """One raises, one crashes, one hangs, after which no other is tried. Text of others is harmless."""
    data, _ = read(doctor("data:Bad", "--json", "--limit", "2"))
    bad = [finding for finding in data["findings"] if finding["check"] == "samples"]
    assert [finding["level"] for finding in bad] == ["problem"] * 3
    assert bad[0]["what"] == "sample 0 raises ValueError: bad [red]header[/red] [31m"
    assert "sample 33: the process died of a segmentation fault" in bad[1]["what"]
    assert "sample 66: the process hung" in bad[2]["what"]
    assert all("holdfast scan data:Bad" in finding["remedy"][0] for finding in bad)


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "check", "level", "words"),
    [
        ("data:Augmented", "same sample twice", "note", 'rng="sample"'),
        ("data:Own", "same sample twice", "warning", "dataset.rng is a random generator of its own"),
        ("data:Endless", "same sample twice", "ok", "4 samples"),
        ("data:Lazy", "before fork", "note", "data.py"),
        ("data:Large", "sample time and memory", "ok", "30"),
        ("data:queue", "pickling", "ok", ""),
    ],
)
def test_what_a_dataset_does_is_told_apart(doctor: Any, target: str, check: str, level: str, words: str) -> None:
    """Augmentation from what cannot be repeated, a file opened in the worker from one before the fork."""
    _, found = read(doctor(target, "--json", "--start-method", "fork"))
    assert found[check]["level"] == level
    assert words in said(found[check])


@pytest.mark.long
def test_what_does_not_pickle_is_a_problem_for_spawn(doctor: Any) -> None:
    """And what is open is none: nothing is inherited."""
    _, found = read(doctor("data:Wrong", "--json", "--start-method", "spawn"))
    assert (found["pickling"]["level"], found["before fork"]["level"]) == ("problem", "ok")


@pytest.mark.long
@pytest.mark.parametrize("library", ["h5py", "lmdb"])
def test_handles_of_databases_are_found_before_the_fork(doctor: Any, tmp_path: Path, library: str) -> None:
    """Opened in __init__, as many do."""
    pytest.importorskip(library)
    (tmp_path / "bases.py").write_text(
        "import os\n"
        "class Data:\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, index): return index\n"
        "def h5py():\n"
        "    import h5py\n"
        "    made = Data(); made.base = h5py.File('a.h5', 'w'); return made\n"
        "def lmdb():\n"
        "    import lmdb\n"
        "    made = Data(); made.base = lmdb.open('a.lmdb', map_size=1 << 20); return made\n"
    )
    _, found = read(doctor(f"bases:{library}", "--json", "--start-method", "fork"))
    assert found["before fork"]["level"] == "problem"
    assert f"{library} is imported" in said(found["before fork"])
    assert "because of dataset.base" in found["pickling"]["what"]


@pytest.mark.long
def test_libraries_that_a_dataset_has_loaded_are_looked_at(doctor: Any, tmp_path: Path) -> None:
    """Wherever they lie: one more than are installed, from the folder of the dataset."""
    library = compile_library(tmp_path, NULL_WRITE, name="mine")
    (tmp_path / "loads.py").write_text(f"import ctypes\nctypes.CDLL({str(library)!r})\ndataset = [1, 2, 3]\n")
    _, with_it = read(doctor("loads:dataset", "--json"))
    _, without = read(doctor("data:well", "--json"))
    count, fewer = (int(found["library machine"]["what"].split()[0]) for found in (with_it, without))
    assert count >= fewer + 1


@pytest.mark.long
def test_an_interrupt_ends_it_cleanly(doctor: Any, tmp_path: Path) -> None:
    """Ctrl-C on a real terminal, while a module hangs: no traceback, and nothing left running."""
    pexpect = pytest.importorskip("pexpect")
    path = os.pathsep.join(entry for entry in sys.path if entry)
    child = pexpect.spawn(
        sys.executable,
        ["-m", "holdfast", "doctor", "hang:dataset"],
        cwd=str(tmp_path),
        env=os.environ | {"PYTHONPATH": path, "TERM": "xterm"},
        timeout=LIMIT_S,
        encoding="utf-8",
    )
    try:
        child.expect("making hang:dataset")
        child.sendintr()
        child.expect(pexpect.EOF)
        child.wait()  # by itself: `close` waits for a tenth of a second, and then ends it
        assert "Traceback" not in child.before
    finally:
        child.close(force=True)
    assert child.exitstatus == 1
