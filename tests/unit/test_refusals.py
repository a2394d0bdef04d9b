"""Which limit was reached where the kernel refused a process: read from recorded trees."""

from __future__ import annotations

import errno
import os
import resource
import sys
from pathlib import Path

import pytest

from holdfast.diagnosis import refusals

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's limits")

V1 = ("8:pids:/job/step\n", "30 20 0:1 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n", "sys/fs/cgroup/pids")
V2 = ("0::/job/step\n", "30 20 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "sys/fs/cgroup")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of this machine, and no limit of the user's."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)
    (tmp_path / "proc/self").mkdir(parents=True)
    return tmp_path


def write_cgroups(tree: Path, version: tuple[str, str, str], job: str, step: str) -> None:
    """Each with 7 processes."""
    (tree / "proc/self/cgroup").write_text(version[0])
    (tree / "proc/self/mountinfo").write_text(version[1])
    for name, most in (("job", job), ("job/step", step)):
        directory = tree / version[2] / name
        directory.mkdir(parents=True)
        (directory / "pids.max").write_text(f"{most}\n")
        (directory / "pids.current").write_text("7\n")


@pytest.mark.parametrize("version", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize(
    ("job", "step", "found"), [("max", "7", ["job/step"]), ("7", "100", ["job"]), ("8", "max", []), ("max", "max", [])]
)
def test_a_pids_limit_that_is_reached_is_named(
    version: tuple[str, str, str], job: str, step: str, found: list[str], tree: Path
) -> None:
    """Of the cgroup of the process, or of one above it; one that is not reached is not."""
    write_cgroups(tree, version, job, step)
    assert list(refusals.reached(errno.EAGAIN, tree)) == [
        f"processes and threads in the cgroup {tree / version[2] / name}: 7, and its pids.max is 7" for name in found
    ]


@pytest.mark.parametrize(("most", "is_root", "is_said"), [(6, False, True), (7, False, False), (6, True, False)])
def test_the_limit_of_the_user_is_named_where_it_is_reached(
    most: int, is_root: bool, is_said: bool, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads count, those of others do not, and root is not bound by it."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (most, most))
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if is_root else 1000)
    for pid, uid, threads in ((10, 1000, 4), (11, 1000, 2), (12, 1001, 50)):
        (tree / "proc" / str(pid)).mkdir()
        text = f"Name:\ta: b\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nThreads:\t{threads}\n"
        (tree / "proc" / str(pid) / "status").write_text(text)
    said = f"processes and threads of user 1000: 6, and RLIMIT_NPROC (ulimit -u) is {most}"
    assert refusals.reached(errno.EAGAIN, tree) == ((said,) if is_said else ())


def test_nothing_is_said_of_what_cannot_be_read(tree: Path) -> None:
    """Nor of memory, for which there is no such limit."""
    assert refusals.reached(errno.EAGAIN, tree) == ()
    assert refusals.reached(errno.ENOMEM, tree) == ()
