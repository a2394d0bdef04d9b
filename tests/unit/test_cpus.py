"""How many CPUs a process may use, against recorded trees of cgroups of both versions, and in a real one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.cgroup_files import directories_of
from holdfast.cpus import limited_by_quota
from waits import PATIENCE_S, wait_until

V1_MOUNT = "37 32 0:32 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct"
V1_MEMORY = "36 32 0:31 / /sys/fs/cgroup/memory rw,relatime shared:13 - cgroup cgroup rw,memory"
V2_MOUNT = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V2_IN_CONTAINER = "812 801 0:26 /docker/abc /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw"


def record(root: Path, cgroup: str, mounts: str, files: dict[str, str]) -> Path:
    """A recorded tree: the cgroup and mounts of this process, and what files say."""
    for path, text in {"proc/self/cgroup": cgroup, "proc/self/mountinfo": mounts, **files}.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return root


def version_2(root: Path, own: str, above: str = "max 100000") -> Path:
    files = {"sys/fs/cgroup/pods/job/cpu.max": own, "sys/fs/cgroup/pods/cpu.max": above}
    return record(root, "0::/pods/job", V2_MOUNT, files)


def version_1(root: Path, quota_us: int, period_us: int = 100_000) -> Path:
    job = "sys/fs/cgroup/cpu,cpuacct/job"
    files = {f"{job}/cpu.cfs_quota_us": str(quota_us), f"{job}/cpu.cfs_period_us": str(period_us)}
    return record(root, "5:cpu,cpuacct:/job\n4:memory:/\n0::/", f"{V1_MEMORY}\n{V1_MOUNT}", files)


@pytest.mark.parametrize(
    ("quota", "cpus"),
    [
        ("max 100000", 64),
        ("200000 100000", 2),
        ("150000 100000", 2),  # a fraction counts as one
        ("10000 100000", 1),
        ("6400000 50000", 64),  # more than there are
        ("nonsense", 64),
    ],
)
def test_a_quota_of_version_2_limits(quota: str, cpus: int, tmp_path: Path) -> None:
    """`docker run --cpus 1.5` is 150 ms of each 100."""
    assert limited_by_quota(64, version_2(tmp_path, quota)) == cpus


def test_the_smallest_quota_above_counts(tmp_path: Path) -> None:
    """A pod has more than all its containers may use, or less."""
    assert limited_by_quota(64, version_2(tmp_path, own="800000 100000", above="300000 100000")) == 3


@pytest.mark.parametrize(("quota_us", "cpus"), [(-1, 64), (400_000, 4), (250_000, 3), (50_000, 1)])
def test_a_quota_of_version_1_limits(quota_us: int, cpus: int, tmp_path: Path) -> None:
    """In the hierarchy of the cpu controller, which has its own mount; -1 is none."""
    assert limited_by_quota(64, version_1(tmp_path, quota_us)) == cpus


def test_a_cgroup_seen_from_inside_its_container_is_found(tmp_path: Path) -> None:
    """The path is that on the host, the mount a part of the hierarchy."""
    files = {"sys/fs/cgroup/cpu.max": "200000 100000"}
    assert limited_by_quota(64, record(tmp_path, "0::/docker/abc", V2_IN_CONTAINER, files)) == 2


def test_without_cgroups_the_affinity_counts(tmp_path: Path) -> None:
    """Not Linux, or no /proc."""
    assert limited_by_quota(6, tmp_path) == 6


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs an affinity mask")
def test_the_affinity_of_this_process_counts() -> None:
    """`taskset`, a cpuset: the kernel shows both as one mask."""
    code = (
        "import os, holdfast; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); print(holdfast.available_cpus())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == "1\n"


def test_there_is_one_at_least_and_no_more_than_the_machine_has() -> None:
    assert 1 <= holdfast.available_cpus() <= (os.cpu_count() or 1)


@contextlib.contextmanager
def real_quota(quota_us: int) -> Iterator[Path]:
    """A cgroup below that of this process whose CPU time is limited."""
    below, version = _new_cgroup()
    try:
        (below / ("cpu.cfs_quota_us" if version == 1 else "cpu.max")).write_text(str(quota_us))
        yield below
    except OSError as error:
        pytest.skip(f"needs a cgroup whose CPU time can be limited: {error}")
    finally:
        wait_until(lambda: _is_removed(below), PATIENCE_S, f"rmdir {below}")


def _new_cgroup() -> tuple[Path, int]:
    for path, version in directories_of("self", "cpu"):
        with contextlib.suppress(OSError):
            below = path / f"holdfast-test-cpus-{os.getpid()}"
            below.mkdir()
            return below, version
    pytest.skip("needs root, and cgroups that may be written to")


def _is_removed(directory: Path) -> bool:
    with contextlib.suppress(OSError):
        directory.rmdir()
    return not directory.exists()


@pytest.mark.root
def test_a_process_in_a_real_cgroup_knows_its_quota() -> None:
    """Half of a CPU, on a machine with more."""
    with real_quota(50_000) as directory:
        code = (
            "import os, pathlib, sys, holdfast\n"
            "pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))\n"
            "print(holdfast.available_cpus())"
        )
        command = [sys.executable, "-c", code, str(directory / "cgroup.procs")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == "1\n"
