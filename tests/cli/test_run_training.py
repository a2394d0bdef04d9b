"""`holdfast run` on training scripts that nobody changed, with real crashes in their workers.

The scripts are in tests/programs/training; none of them knows holdfast.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytest.importorskip("torch")
from test_run import started

from helpers import wait_until_ended
from holdfast.records import reader
from holdfast.records.reader import Run

LIMIT_S = 150.0
TRAINING = Path(__file__).parents[1] / "programs" / "training"
SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "run.json"
BAD, SAMPLES = 17, 48
SCRIPTS = ["by_name.py", "plain.py", "with_accelerate.py", "with_lightning.py", "with_trainer.py"]


def python(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments, to its end, with the records in a directory of its own."""
    paths = os.pathsep.join(filter(None, [str(TRAINING), os.environ.get("PYTHONPATH")]))
    home = {"HOLDFAST_HOME": str(cwd / "home"), "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, *arguments]
    environment = os.environ | home | variables
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=cwd, env=environment
    )


def holdfast_run(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The same under `holdfast run`, with the summary in sum.json."""
    return python("-m", "holdfast", "run", "--json", "sum.json", *arguments, cwd=cwd, **variables)


def summary_in(cwd: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((cwd / "sum.json").read_text())
    jsonschema.validate(data, json.loads(SCHEMA.read_text()))
    return data


def runs_in(cwd: Path) -> list[Run]:
    return [reader.read(file) for file in sorted((cwd / "home" / "runs").iterdir())]


def losses(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What a script printed of its training. (Lightning and the Trainer print times too.)"""
    assert done.returncode == 0, done.stderr
    assert "done" in done.stdout
    return [line for line in done.stdout.splitlines() if line.startswith(("loss", "validation", "["))]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("")
    return tmp_path


# --- scripts nobody changed ---------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_worker_that_crashes_once_changes_nothing(here: Path, script: str) -> None:
    """The losses are those of plain Python without the crash, to the last digit; the crash is in a record."""
    program = [str(TRAINING / script), *(["out"] if script == "with_trainer.py" else [])]
    plain = losses(python(*program, cwd=here))
    done = holdfast_run(*program, cwd=here, PHOTOS=str(here / "crashed"))
    assert losses(done) == plain
    assert "prepare()" not in done.stderr  # Accelerate makes our loader anew, and the new one is ours
    assert (here / "crashed").exists()
    summary = summary_in(here)
    assert summary["incidents"] == {"segmentation fault": 1}
    assert (summary["restarts"], summary["skipped"]) == (1, 0)
    [incident] = [incident for run in runs_in(here) for incident in run.incidents]
    assert (incident["sample_index"], incident["done"]) == (BAD, "retried")


@pytest.mark.parametrize(
    "script", [script if script == "plain.py" else pytest.param(script, marks=pytest.mark.long) for script in SCRIPTS]
)
def test_a_sample_that_always_crashes_is_skipped(here: Path, script: str) -> None:
    """The training goes on and finishes; the summary says what happened, and which command tells more."""
    program = [str(TRAINING / script), *(["out"] if script == "with_trainer.py" else [])]
    done = holdfast_run("--on-error", "skip", *program, cwd=here, PHOTOS="always")
    losses(done)
    summary = summary_in(here)
    assert summary["incidents"].keys() == {"segmentation fault"}
    assert summary["skipped"] >= 1
    bad = [run for run in runs_in(here) if run.incidents]
    assert {incident["sample_index"] for run in bad for incident in run.incidents} == {BAD}
    assert summary["report"] in [run.id for run in bad]
    assert f"\nnext  holdfast report {summary['report']}   what happened, and what to do\n" in done.stderr
    assert "segmentation fault" in done.stderr
    assert max(map(len, done.stderr.partition("holdfast run: ")[2].splitlines()[1:])) < 80


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_start_methods_work_as_under_python(here: Path, method: str) -> None:
    """Workers import the main script again, which finds what it finds under plain Python."""
    program = [str(TRAINING / "plain.py"), method]
    plain = losses(python(*program, cwd=here))
    assert losses(holdfast_run(*program, cwd=here, PHOTOS=str(here / "crashed"))) == plain
    assert summary_in(here)["incidents"] == {"segmentation fault": 1}


@pytest.mark.long
def test_an_error_of_the_loader_ends_the_script_as_any_error(here: Path) -> None:
    """Without an option it is as torch: the sample's failure is raised in the script, and the summary follows."""
    done = holdfast_run(str(TRAINING / "by_name.py"), cwd=here, PHOTOS="always")
    assert done.returncode == 1
    assert "holdfast.errors.WorkerCrashed: " in done.stderr
    assert done.stderr.index("WorkerCrashed") < done.stderr.index("holdfast run: ")
    assert "runpy" not in done.stderr
    assert "holdfast/tasks" not in done.stderr


@pytest.mark.long
def test_disabled_it_is_torchs_loader(here: Path) -> None:
    """`HOLDFAST_DISABLE=1`: nothing is replaced, and the summary says so."""
    done = holdfast_run(str(TRAINING / "by_name.py"), cwd=here, PHOTOS="always", HOLDFAST_DISABLE="1")
    assert done.returncode == 1
    assert "RuntimeError: DataLoader worker" in done.stderr
    assert "HOLDFAST_DISABLE is set" in done.stderr
    assert summary_in(here)["disabled"] is True
    assert not (here / "home").exists()


# --- a loader of ours that is given to Accelerate -----------------------------------------------------------------


@pytest.mark.parametrize("is_run", [False, True], ids=["python", "holdfast run"])
def test_a_loader_that_becomes_torchs_is_warned_of(here: Path, is_run: bool) -> None:
    """By Accelerate's prepare(), with what works in its place, once for the line that calls it. Under `holdfast run`,
    which is one of the two, nothing is lost and nothing is said; nor where somebody else looks at the loader.
    """
    script = TRAINING / "ours_with_accelerate.py"
    done = (holdfast_run if is_run else python)(str(script), cwd=here)
    assert done.returncode == 0, done.stderr
    [line] = [number for number, text in enumerate(script.read_text().splitlines(), 1) if "is warned of" in text]
    is_warned = f"{script.name}:{line}: HoldfastWarning: Accelerate's prepare()" in done.stderr
    assert is_warned == (not is_run)
    assert done.stderr.count("HoldfastWarning") == is_warned
    if is_warned:
        assert "holdfast run train.py" in done.stderr
        assert "do not pass the loader to prepare()" in done.stderr
    made = "ours" if is_run else "torch's"
    assert done.stdout.splitlines()[:3] == [f"prepared {made} 48", f"again {made} 48", "kept ours 48"]


# --- processes that the script starts -----------------------------------------------------------------------------

RANKS = """
import sys
import torch.multiprocessing as mp
from torch.utils.data import DataLoader
from photos import Photos

def rank(number):
    sys.stdout.write(f"{sum(len(x) for x, y in DataLoader(Photos(), batch_size=8, num_workers=1))}\\n")  # in one piece
    sys.stdout.flush()

if __name__ == "__main__":
    mp.start_processes(rank, nprocs=2, start_method=sys.argv[1])
"""
TORCHRUN = """
import sys
import torch.distributed as dist
from torch.utils.data import DataLoader
from photos import Photos

dist.init_process_group("gloo")
sys.stdout.write(f"{sum(len(x) for x, y in DataLoader(Photos(), batch_size=8, num_workers=1))}\\n")  # in one piece
sys.stdout.flush()
dist.destroy_process_group()
"""


@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_ranks_that_the_script_starts_have_the_loader_too(here: Path, method: str) -> None:
    """However they are started; the summary counts them, by their records."""
    (here / "ranks.py").write_text(RANKS)
    done = holdfast_run("--on-error", "skip", "ranks.py", method, cwd=here, PHOTOS="always")
    assert (done.returncode, done.stdout.split()) == (0, [str(SAMPLES - 1)] * 2)
    summary = summary_in(here)
    assert (summary["processes"], summary["loaders"], summary["skipped"]) == (2, 2, 2)
    assert summary["samples"] == 2 * (SAMPLES - 1)
    assert summary["incidents"] == {"segmentation fault": 4}


@pytest.mark.long
def test_torchrun_starts_ranks_that_have_the_loader(here: Path) -> None:
    """`holdfast run -m torch.distributed.run`: they are new Pythons, and inherit it."""
    (here / "ranks.py").write_text(TORCHRUN)
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "ranks.py"]
    done = holdfast_run("--on-error", "skip", *launcher, cwd=here, PHOTOS="always")
    assert (done.returncode, done.stdout.split()) == (0, [str(SAMPLES - 1)] * 2), done.stderr
    assert summary_in(here)["skipped"] == 2
    assert {run.start["world_size"] for run in runs_in(here)} == {2}


# --- what loaders are told ----------------------------------------------------------------------------------------

LOADERS = """
from holdfast import DataLoader as first
import holdfast
from torch.utils.data import DataLoader, IterableDataset
import torch.utils.data.dataloader

class Mine(DataLoader):
    @property
    def device(self):
        return "mine"

class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))

def show(name, loader):
    print(name, loader.on_error, loader.sample_timeout, loader.max_skipped, loader.retry_on)

assert DataLoader is first is holdfast.DataLoader is torch.utils.data.dataloader.DataLoader
assert issubclass(DataLoader[int].__origin__, DataLoader)
data = list(range(8))
show("torch", DataLoader(data, 2, None, None, None, 1))
show("in process", DataLoader(data))
show("stream", DataLoader(Stream(), num_workers=1))
show("ours", holdfast.DataLoader(data, num_workers=1, on_error="raise", sample_timeout=1))
show("subclass", Mine(data, num_workers=1))
print(Mine(data).device)
try:
    DataLoader(data, workers=1)
except TypeError as error:
    print(error)
"""


@pytest.mark.long
def test_options_are_defaults_where_they_apply(here: Path) -> None:
    """What the script passes itself wins; what needs workers, or a length, is left out where there are none."""
    (here / "loaders.py").write_text(LOADERS)
    flags = ["--on-error", "skip", "--sample-timeout", "30", "--max-skipped", "0.5", "--retry-on", "OSError"]
    done = holdfast_run(*flags, "loaders.py", cwd=here)
    assert done.returncode == 0, done.stderr
    common = "(<class 'OSError'>,)"
    assert done.stdout.splitlines() == [
        f"torch skip 30 0.5 {common}",
        f"in process skip None 0.5 {common}",
        f"stream skip 30 auto {common}",
        f"ours raise 1 0.5 {common}",
        f"subclass skip 30 0.5 {common}",
        "mine",
        "DataLoader.__init__() got an unexpected keyword argument 'workers'",
    ]
    assert "loaders.py:24: HoldfastWarning: max_skipped is a share of the epoch, but Stream has no len()" in done.stderr
    (here / "one.py").write_text("import torch.utils.data\nprint(torch.utils.data.DataLoader([1]).max_skipped)")
    assert holdfast_run("--max-skipped", "none", "one.py", cwd=here).stdout.split() == ["None"]


LATE = """
import sys, torch, torch.utils.data as data
ours = "holdfast.loader.dataloader"
assert ours not in sys.modules
stock = vars(data)["DataLoader"]
from torch.utils.data.dataloader import *
assert ours in sys.modules and DataLoader is data.DataLoader is vars(data)["DataLoader"] is not stock
assert issubclass(DataLoader, stock) and type(data) is type(sys)
data.DataLoader = stock
assert data.DataLoader is stock
"""


@pytest.mark.long
def test_the_class_is_replaced_when_it_is_asked_for(here: Path) -> None:
    """Not before: a script that imports torch and makes no loader imports nothing of ours. What it sets stays."""
    (here / "late.py").write_text(LATE)
    done = holdfast_run("late.py", cwd=here)
    assert done.returncode == 0, done.stderr


TWO_SETS = """
from torch.utils.data import DataLoader
from photos import Photos

def count(dataset):
    return sum(len(x) for x, y in DataLoader(dataset, batch_size=8, num_workers=2))

train, validation = Photos(), Photos()
print(count(train), count(validation), count(train))
"""


@pytest.mark.long
def test_a_skipped_file_is_of_one_dataset(here: Path) -> None:
    """Sample 17 of another dataset of that length is not passed over for it. The next run does not try it again.

    The dataset by its name is in the record, for `holdfast replay`. Without records there is a summary too.
    """
    (here / "two.py").write_text(TWO_SETS)
    flags = ["--on-error", "skip", "--skipped-file", "bad.jsonl"]
    crashed = holdfast_run(*flags, "--dataset", "photos:Photos", "two.py", cwd=here, PHOTOS="always")
    assert crashed.stdout.split() == ["47", "47", "47"], crashed.stderr
    assert "is of another dataset than this Photos" in crashed.stderr
    assert {run.start["target"] for run in runs_in(here)} == {"photos:Photos"}
    again = holdfast_run(*flags, "--no-record", "two.py", cwd=here)
    assert again.stdout.split() == ["47", "48", "47"]
    summary = summary_in(here)
    assert (summary["loaders"], summary["skipped"], summary["report"]) == (3, 2, None)
    assert len(runs_in(here)) == 3


# --- signals, with workers ----------------------------------------------------------------------------------------

ENDLESS = """
import os
from torch.utils.data import DataLoader, get_worker_info

class Pids:
    def __len__(self):
        return 1 << 40
    def __getitem__(self, index):
        return os.getpid()

for number, pids in enumerate(DataLoader(Pids(), batch_size=1, num_workers=2)):
    if number < 2:
        print(int(pids), flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=str)
def test_a_signal_in_an_epoch_ends_the_script_and_its_workers(here: Path, number: signal.Signals) -> None:
    """It dies of the signal, and nothing is left. The record says whose run it was."""
    (here / "endless.py").write_text(ENDLESS)
    with started("-m", "holdfast", "run", "endless.py", cwd=here, HOLDFAST_HOME=str(here / "home")) as process:
        assert process.stdout is not None
        workers = [int(process.stdout.readline()) for _ in range(2)]
        process.send_signal(number)
        _, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == -number
    assert ("KeyboardInterrupt" in stderr) == (number == signal.SIGINT)
    assert ("holdfast run: endless.py" in stderr) == (number == signal.SIGINT)
    wait_until_ended(workers)
    [run] = runs_in(here)
    assert (run.start["script"], run.is_alive) == ("endless.py", False)
