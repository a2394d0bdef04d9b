"""The memory cgroup of a process, against recorded trees of versions 1 and 2, and against this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.memory.cgroups import MemoryCgroup, host_available_bytes, host_kills, memory_cgroup_of

PID = 41
V1_MOUNT = "36 32 0:31 / /sys/fs/cgroup/memory rw,relatime shared:13 - cgroup cgroup rw,memory"
V1_CPU = "37 32 0:32 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu"
V2_MOUNT = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V2_IN_CONTAINER = "812 801 0:26 /docker/abc /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw"
EVENTS = "low 0\nhigh 3\nmax 120\noom 2\noom_kill 2\noom_group_kill 0\n"


def record(root: Path, files: dict[str, str]) -> Path:
    """A recorded tree: text of each file by its path."""
    for path, text in files.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def version_2(root: Path, **changes: str) -> Path:
    job = "/sys/fs/cgroup/slurm/job_7"
    return record(
        root,
        {
            f"/proc/{PID}/cgroup": "0::/slurm/job_7\n",
            f"/proc/{PID}/mountinfo": f"{V2_MOUNT}\n",
            f"{job}/memory.events": EVENTS,
            f"{job}/memory.max": "max\n",
            f"{job}/memory.current": "1048576\n",
            "/sys/fs/cgroup/slurm/memory.max": "67108864\n",
            **changes,
        },
    )


def version_1(root: Path) -> Path:
    job = "/sys/fs/cgroup/memory/job"
    return record(
        root,
        {
            f"/proc/{PID}/cgroup": "5:cpu,cpuacct:/\n4:memory:/job\n0::/\n",
            f"/proc/{PID}/mountinfo": f"{V1_CPU}\n{V1_MOUNT}\n",
            f"{job}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
            f"{job}/memory.limit_in_bytes": "8388608\n",
            f"{job}/memory.usage_in_bytes": "4096\n",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )


def found(root: Path) -> MemoryCgroup:
    cgroup = memory_cgroup_of(PID, root)
    assert cgroup is not None
    return cgroup


def test_version_2_is_read(tmp_path: Path) -> None:
    """Kills and use of its own; the limit is the smallest of those above it, and "max" is none."""
    cgroup = found(version_2(tmp_path))
    assert cgroup == MemoryCgroup(tmp_path / "sys/fs/cgroup/slurm/job_7", 2)
    assert (cgroup.kills(), cgroup.limit_bytes(), cgroup.usage_bytes()) == (2, 64 << 20, 1 << 20)


def test_version_1_is_read(tmp_path: Path) -> None:
    """Of several hierarchies it is the one that counts memory; a limit of nearly 2**63 is none."""
    cgroup = found(version_1(tmp_path))
    assert cgroup == MemoryCgroup(tmp_path / "sys/fs/cgroup/memory/job", 1)
    assert (cgroup.kills(), cgroup.limit_bytes(), cgroup.usage_bytes()) == (3, 8 << 20, 4096)


def test_the_room_left_is_the_limit_without_what_is_in_use(tmp_path: Path) -> None:
    """Pages of files count as room; those below are counted by version 1 under other names."""
    job = "sys/fs/cgroup/memory/job"
    files = {f"{job}/memory.stat": "inactive_file 7\ntotal_inactive_file 1024\ntotal_active_file 512\n"}
    (one,) = found(record(version_1(tmp_path / "1"), files)).limited()
    assert one.headroom_bytes() == (8 << 20) - 4096 + 1024 + 512
    slurm = "sys/fs/cgroup/slurm"
    files = {f"{slurm}/memory.current": "1000\n", f"{slurm}/memory.stat": "inactive_file 100\nactive_file 50\n"}
    (two,) = found(record(version_2(tmp_path / "2"), files)).limited()
    assert two.directory == tmp_path / "2" / slurm
    assert two.headroom_bytes() == (64 << 20) - 1000 + 150


def test_where_there_is_no_limit_there_is_no_room_to_be_told(tmp_path: Path) -> None:
    assert MemoryCgroup(tmp_path / "none", 2).limited() == []
    assert MemoryCgroup(tmp_path / "none", 1).headroom_bytes() is None
    assert found(version_2(tmp_path)).headroom_bytes() is None


def test_a_container_sees_its_own_part_of_the_tree(tmp_path: Path) -> None:
    """What is mounted there begins at the container's own cgroup, whose path the process still bears."""
    files = {
        f"/proc/{PID}/cgroup": "0::/docker/abc/worker\n",
        f"/proc/{PID}/mountinfo": f"{V2_IN_CONTAINER}\n",
        "/sys/fs/cgroup/worker/memory.events": EVENTS,
    }
    assert found(record(tmp_path, files)).directory == tmp_path / "sys/fs/cgroup/worker"


def test_the_root_of_version_2_counts_nothing(tmp_path: Path) -> None:
    """It has no memory.events, as on a host without containers: then the machine's own counters are asked."""
    files = {f"/proc/{PID}/cgroup": "0::/\n", f"/proc/{PID}/mountinfo": f"{V2_MOUNT}\n"}
    assert memory_cgroup_of(PID, record(tmp_path, files)) is None


def test_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    """Of a process that is gone, of a platform without /proc, of files that say something else."""
    assert memory_cgroup_of(PID, tmp_path) is None
    assert (host_kills(tmp_path), host_available_bytes(tmp_path)) == (None, None)
    nothing = MemoryCgroup(tmp_path / "none", 2)
    assert (nothing.kills(), nothing.limit_bytes(), nothing.usage_bytes()) == (None, None, None)
    odd = version_2(tmp_path, **{"/sys/fs/cgroup/slurm/job_7/memory.events": "oom_kill\noom_kill many\n"})
    assert found(odd).kills() is None


@pytest.mark.parametrize("text", ["", "\n", "no colons here\n", "4:memory\n"])
def test_a_strange_list_of_cgroups_is_no_error(tmp_path: Path, text: str) -> None:
    files = {f"/proc/{PID}/cgroup": text, f"/proc/{PID}/mountinfo": "short line\n\n"}
    assert memory_cgroup_of(PID, record(tmp_path, files)) is None


def test_the_machine_is_read(tmp_path: Path) -> None:
    files = {"/proc/vmstat": "pgfault 1\noom_kill 5\n", "/proc/meminfo": "MemTotal: 9 kB\nMemAvailable:   2 kB\n"}
    root = record(tmp_path, files)
    assert (host_kills(root), host_available_bytes(root)) == (5, 2048)


@pytest.mark.skipif(not Path("/proc/self/cgroup").exists(), reason="needs Linux's /proc")
def test_this_machine_is_read_without_an_error() -> None:
    cgroup = memory_cgroup_of(os.getpid())
    if cgroup is not None:
        assert (cgroup.kills() or 0) >= 0
        assert (cgroup.usage_bytes() or 0) >= 0
    assert (host_available_bytes() or 1) > 0
