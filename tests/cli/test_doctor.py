"""`holdfast doctor` of this machine, as a user runs it: on a terminal and in a pipe, as JSON, under real limits.

torch is a made-up one that is imported in no time: this runs where torch is not installed.
"""

from __future__ import annotations

import io
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from holdfast.cli.doctor_text import print_findings, summary
from holdfast.doctor.finding import Finding, Level, ok
from memory_cgroups import limited_cgroup

LIMIT_S = 120.0
SCHEMA = json.loads((Path(__file__).parents[2] / "docs/schemas/doctor.json").read_text(encoding="utf-8"))
WORKING_TORCH = """
__version__ = "2.9.0"
class version: cuda = None
class cuda:
    def is_available(): return False
"""
CRASHING_TORCH = "import ctypes; ctypes.string_at(8)"


def install_torch(folder: Path, source: str = WORKING_TORCH) -> Path:
    """A package by that name that Python finds first, and pip knows of."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch/__init__.py").write_text(source)
    (folder / "torch-2.9.0.dist-info").mkdir()
    (folder / "torch-2.9.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0\n")
    return folder


@pytest.fixture
def doctor(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`python -m holdfast doctor`, to its end, in an empty directory."""
    here = tmp_path / "here"
    here.mkdir()

    def run(
        *arguments: str,
        torch: str = WORKING_TORCH,
        program: tuple[str, ...] = ("-m", "holdfast", "doctor"),
        before: tuple[str, ...] = (),
        preexec: Any = None,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        installed = tmp_path / "installed"
        path = os.pathsep.join([str(installed if installed.exists() else install_torch(installed, torch)), *sys.path])
        return subprocess.run(
            [*before, sys.executable, *program, *arguments],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            cwd=here,
            env=os.environ | {"PYTHONPATH": path} | variables,
            preexec_fn=preexec,
        )

    return run


def findings_of(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """By check, the worst of each; what was printed is as the schema says, and nothing else was."""
    assert done.stderr == ""
    data = json.loads(done.stdout)
    jsonschema.validate(data, SCHEMA)
    assert done.returncode == (0 if data["healthy"] else 1)
    assert data["healthy"] == (data["counts"]["problem"] == 0)
    found: dict[str, dict[str, Any]] = {}
    for finding in data["findings"]:
        found.setdefault(finding["check"], finding)
    return found


# --- what is printed -------------------------------------------------------------------------------------------------


def test_it_prints_its_findings_and_names_the_next_command(doctor: Any) -> None:
    """Data on stdout, without colour in a pipe; what to run next on stderr. Notes alone are no problem."""
    done = doctor(JPY_PARENT_PID="7")
    assert done.returncode == int(done.stdout.startswith("problem"))
    assert "\x1b" not in done.stdout + done.stderr
    assert "note  notebook\n  this runs in Jupyter\n  evidence     JPY_PARENT_PID is set\n" in done.stdout
    assert "  try          from holdfast import DataLoader" in done.stdout
    assert "\nok  swap  " in done.stdout
    assert done.stdout.splitlines()[-1].endswith(" well")
    assert done.stderr.splitlines()[-1].startswith("next  holdfast doctor MODULE:DATASET")


def test_json_is_as_its_schema_says(doctor: Any) -> None:
    """Every check has a finding, and nothing is said on stderr."""
    found = findings_of(
        doctor("--json", CUDA_VISIBLE_DEVICES="", RAY_JOB_ID="\x1b[31m<b>", DATABRICKS_RUNTIME_VERSION="15")
    )
    assert {"library machine", "memory", "/dev/shm", "GPU", "Ray", "Databricks", "Python"} <= set(found)
    assert found["torch"]["what"].startswith("2.9.0")
    assert found["Ray"]["level"] == "note"
    assert "runtime 15" in found["Databricks"]["what"]


def test_text_of_others_cannot_move_the_cursor(doctor: Any) -> None:
    """An environment variable may be anything: control characters go, markup is printed as it is."""
    done = doctor(RAY_JOB_ID="\x1b[31m[red]x[/red]")
    assert "\x1b" not in done.stdout
    assert "RAY_JOB_ID= [31m[red]x[/red]" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no-colon",), "is not of the form MODULE:DATASET"),
        ((":x",), "is not of the form MODULE:DATASET"),
        (("nowhere:dataset",), "There is no module 'nowhere', which nowhere:dataset names"),
        (("nowhere.data:dataset",), "There is no module 'nowhere'"),
        (("nowhere.py:dataset",), "There is no file nowhere.py, which nowhere.py:dataset names"),
        (("--samples", "0", "a:b"), "--samples"),
        (("--limit", "0", "a:b"), "--limit"),
        (("a:b", "c"), "unexpected extra argument"),
    ],
)
def test_wrong_usage_ends_with_2(doctor: Any, arguments: tuple[str, ...], words: str) -> None:
    """And says so on stderr, before anything is looked at."""
    done = doctor(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: holdfast doctor" in done.stderr
    assert words in done.stderr


FINDINGS = [
    Finding(
        "memory",
        Level.PROBLEM,
        "only 100 MiB of memory are left for workers, which is less than torch alone takes",
        ("cgroup v2 /sys/fs/cgroup/kubepods.slice/a-very-long-name-of-a-pod-that-goes-on: limit 4.0 GiB", "and more"),
        "the kernel kills a worker, or the trainer, with SIGKILL and without a word",
        ("docker run --memory 16g --shm-size 8g --pids-limit -1 --init ...  # or in Kubernetes, or Slurm, and so on",),
    ),
    ok("sample time and memory", "0.025 ms, the first 1.2 ms; 12.0 KiB each; 4.9 MiB of memory at most to load one"),
]


@pytest.mark.parametrize("width", [80, 40])
def test_it_fits_a_narrow_terminal(width: int) -> None:
    """Text wraps, what is well has one line each; what is to be pasted stays in one piece."""
    file = io.StringIO()
    print_findings(Console(file=file, width=width, force_terminal=True, color_system=None, highlight=False), FINDINGS)
    lines = file.getvalue().splitlines()
    assert [line for line in lines if len(line) > width and "docker run" not in line] == []
    assert sum("docker run --memory 16g --shm-size 8g --pids-limit -1 --init ..." in line for line in lines) == 1
    assert "so on" in lines[lines.index("") - 1]
    assert sum(line.startswith("ok  ") for line in lines) == 1
    assert lines[-1] == "1 problem; 1 check well"


def test_a_pipe_gets_whole_lines() -> None:
    """For grep."""
    file = io.StringIO()
    print_findings(Console(file=file, width=80, highlight=False), FINDINGS)
    assert FINDINGS[0].evidence[0] in file.getvalue()
    assert FINDINGS[1].what in file.getvalue()
    assert not any(line.endswith(" ") for line in file.getvalue().splitlines())


def test_the_summary_counts() -> None:
    assert summary([FINDINGS[1]]) == "nothing found that would kill a loader; 1 check well"
    assert summary([FINDINGS[0], FINDINGS[0], FINDINGS[1]]) == "2 problems; 1 check well"


def test_on_a_terminal_it_has_colour_and_its_width(doctor: Any, tmp_path: Path) -> None:
    """A real one, of 80 columns: nothing of it is left when it is piped."""
    pexpect = pytest.importorskip("pexpect")
    path = os.pathsep.join([str(install_torch(tmp_path / "installed")), *sys.path])
    variables = {"PYTHONPATH": path, "TERM": "xterm-256color", "RAY_JOB_ID": "7"}
    child = pexpect.spawn(
        sys.executable,
        ["-m", "holdfast", "doctor"],
        env={name: value for name, value in os.environ.items() if name != "NO_COLOR"} | variables,
        dimensions=(60, 80),
        timeout=LIMIT_S,
        encoding="utf-8",
    )
    child.expect(pexpect.EOF)
    child.wait()  # by itself: `close` waits for a tenth of a second, and then ends it
    child.close()
    assert child.exitstatus in (0, 1)
    assert "\x1b[1;36mnote\x1b[0m  \x1b[1mRay\x1b[0m" in child.before
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", child.before).replace("\r", "").splitlines()
    assert [line for line in plain if len(line) > 80 and "  # " not in line and "next" not in line] == []


# --- torch -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [(), ("json:dataset",)])
def test_a_torch_that_crashes_is_found_and_does_not_end_it(doctor: Any, arguments: tuple[str, ...]) -> None:
    """A real segmentation fault on import. A dataset is then not looked at, and that is said."""
    found = findings_of(doctor("--json", *arguments, torch=CRASHING_TORCH))
    assert found["torch"]["level"] == "problem"
    assert "SIGSEGV" in found["torch"]["evidence"][0]
    assert ("dataset" in found) == bool(arguments)
    assert found.get("dataset", {"level": "note"})["level"] == "note"


def test_it_works_where_torch_cannot_be_imported_at_all(doctor: Any) -> None:
    """In the very process that runs the command."""
    program = "import sys; sys.modules['torch'] = None\nfrom holdfast.cli.main import main\nmain(['doctor', '--json'])"
    assert "memory" in findings_of(doctor(program=("-c", program)))


# --- real limits -----------------------------------------------------------------------------------------------------


def limits(kind: int, soft: int, hard: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (soft, hard))


def test_few_descriptors_are_a_problem(doctor: Any) -> None:
    """A hard limit that nobody but root can raise."""
    found = findings_of(doctor("--json", preexec=limits(resource.RLIMIT_NOFILE, 200, 200)))["descriptors"]
    assert (found["level"], found["evidence"]) == ("problem", ["ulimit -Sn is 200, ulimit -Hn is 200"])


def test_a_limit_of_the_address_space_is_a_warning(doctor: Any) -> None:
    found = findings_of(doctor("--json", preexec=limits(resource.RLIMIT_AS, 8 << 30, 8 << 30)))["memory"]
    assert (found["level"], found["evidence"]) == ("warning", ["ulimit -v is 8388608"])


@pytest.mark.root
def test_a_small_dev_shm_is_a_warning(doctor: Any) -> None:
    """As containers have it, in a mount namespace of its own."""
    mount = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
    probe = subprocess.run(["unshare", "--mount", "sh", "-c", mount], capture_output=True, timeout=30, check=False)
    if probe.returncode != 0:
        pytest.skip("needs root and `unshare --mount` to mount a small /dev/shm")
    done = doctor("--json", before=("unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"))
    found = findings_of(done)["/dev/shm"]
    assert (found["level"], found["evidence"]) == ("warning", ["64.0 MiB free of 64.0 MiB"])


@pytest.mark.root
def test_a_cgroup_with_little_memory_is_a_problem(doctor: Any) -> None:
    """A real one, in which the command runs, and every worker would."""
    with limited_cgroup(300 << 20) as cgroup:
        enter = (cgroup.directory / "cgroup.procs").as_posix()
        done = doctor("--json", before=("sh", "-c", f'echo $$ > {enter} && exec "$@"', "sh"))
        found = findings_of(done)["memory"]
    assert found["level"] == "problem"
    assert any(f"{cgroup.directory}: limit 300.0 MiB" in line for line in found["evidence"])


FAKE_FLAGS = "fpu lm cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"


@pytest.mark.root
@pytest.mark.long
def test_a_deep_look_finds_an_installed_library_that_needs_avx512(doctor: Any, tmp_path: Path) -> None:
    """On a machine that says it has none, by a /proc/cpuinfo of its own."""
    pytest.importorskip("iced_x86", reason="there on x86-64 only")
    from native_libraries import AVX512_LOAD, compile_library

    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor : 0\nmodel name : An Older CPU\nflags : {FAKE_FLAGS}\n")
    mount = f"mount --bind {cpuinfo} /proc/cpuinfo"
    probe = subprocess.run(["unshare", "--mount", "sh", "-c", mount], capture_output=True, timeout=30, check=False)
    if probe.returncode != 0:
        pytest.skip("needs root and `unshare --mount` to put a file in the place of /proc/cpuinfo")
    package = install_torch(tmp_path / "installed") / "fast"
    package.mkdir()
    compile_library(package, AVX512_LOAD, "-mavx512f", name="decoder")
    done = doctor("--deep", "--json", before=("unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"))
    found = findings_of(done)
    assert found["CPU level"]["what"].startswith("An Older CPU is x86-64-v3")
    assert found["instructions"]["level"] == "warning"
    assert "decoder.so" in found["instructions"]["evidence"][0]
    assert "avx512f" in found["instructions"]["evidence"][0]
