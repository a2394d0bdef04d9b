"""What the checks read, of recorded trees: cgroups of both versions, a machine with a GPU, a container."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.doctor.checks import container, descriptors, gpu, memory, pinned_memory, processes, shared_memory, swap
from holdfast.doctor.scope import Scope
from holdfast.doctor.torch_probe import TorchProbe

MEMINFO = "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nSwapTotal: 2097152 kB\nSwapFree: 1048576 kB\nBad line\n"
V1 = {
    "proc/self/cgroup": "4:memory:/job\n8:pids:/job\n0::/",
    "proc/self/mountinfo": "36 32 0:31 / /sys/fs/cgroup/memory rw shared:13 - cgroup cgroup rw,memory\n"
    "37 32 0:32 / /sys/fs/cgroup/pids rw shared:14 - cgroup cgroup rw,pids",
    "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "1073741824",
    "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "536870912",
    "sys/fs/cgroup/memory/job/memory.oom_control": "oom_kill_disable 1\nunder_oom 0\noom_kill 3",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
    "sys/fs/cgroup/pids/job/pids.max": "100",
    "sys/fs/cgroup/pids/job/pids.current": "60",
}
V2 = {
    "proc/self/cgroup": "0::/pods/job",
    "proc/self/mountinfo": "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate",
    "sys/fs/cgroup/pods/job/memory.max": "max",
    "sys/fs/cgroup/pods/job/memory.current": "536870912",
    "sys/fs/cgroup/pods/job/memory.events": "oom 4\noom_kill 3",
    "sys/fs/cgroup/pods/job/memory.oom.group": "1",
    "sys/fs/cgroup/pods/job/memory.swap.max": "0",
    "sys/fs/cgroup/pods/memory.max": "2147483648",
    "sys/fs/cgroup/pods/memory.current": "536870912",
    "sys/fs/cgroup/pods/job/pids.max": "max",
    "sys/fs/cgroup/pods/job/pids.current": "60",
    "sys/fs/cgroup/pods/pids.max": "500",
    "sys/fs/cgroup/pods/pids.current": "70",
}


def recorded(root: Path, **trees: Any) -> Scope:
    files = {"proc/meminfo": MEMINFO} | {path: text for tree in trees.values() for path, text in tree.items()}
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    scope = Scope(root=root)
    scope.__dict__["torch"] = TorchProbe("2.9.0", works=True, cuda_built="12.8")
    return scope


def test_the_memory_of_a_cgroup_of_version_1(tmp_path: Path) -> None:
    """Its limit, what is left of it, what was killed in it, and that it stops processes in place of killing them."""
    facts = memory.look(recorded(tmp_path, v1=V1))
    assert [(one.version, one.limit_bytes, one.left_bytes) for one in facts.limits] == [(1, 1 << 30, 512 << 20)]
    assert (facts.kills, facts.stops_instead, facts.kills_all_together) == (3, True, False)
    assert (facts.total_bytes, facts.left_bytes) == (16 << 30, 512 << 20)


def test_the_memory_of_a_cgroup_of_version_2(tmp_path: Path) -> None:
    """The limit is that of the cgroup above, and all in it are killed together."""
    facts = memory.look(recorded(tmp_path, v2=V2))
    assert [(one.version, one.limit_bytes, one.left_bytes) for one in facts.limits] == [(2, 2 << 30, 1536 << 20)]
    assert (facts.kills, facts.stops_instead, facts.kills_all_together) == (3, False, True)


def test_a_machine_that_shows_nothing(tmp_path: Path) -> None:
    """No /proc, no cgroups: nothing is known, and nothing is said to be wrong."""
    scope = Scope(root=tmp_path)
    assert memory.look(scope).left_bytes is None
    assert swap.look(scope) == swap.Facts()
    assert not shared_memory.look(scope).exists
    assert container.look(scope).first_process == ""
    assert descriptors.look(scope).of_machine is None


def test_swap_and_whether_the_cgroup_may_use_it(tmp_path: Path) -> None:
    assert swap.look(recorded(tmp_path / "v1", v1=V1)) == swap.Facts(2 << 30, 1 << 30, cgroup_allows_none=False)
    assert swap.look(recorded(tmp_path / "v2", v2=V2)).cgroup_allows_none


@pytest.mark.parametrize(("tree", "limits"), [(V1, [(100, 60)]), (V2, [(500, 70)])])
def test_the_processes_of_a_cgroup(tree: dict[str, str], limits: list[tuple[int, int]], tmp_path: Path) -> None:
    """Of both versions, and of those above."""
    found = processes.look(recorded(tmp_path, tree=tree)).limits
    assert [(one.most, one.used) for one in found if "cgroup" in one.what] == limits


def test_the_processes_of_the_machine(tmp_path: Path) -> None:
    kernel = {
        "proc/sys/kernel/pid_max": "32768",
        "proc/sys/kernel/threads-max": "9000",
        "proc/loadavg": "0.1 0.2 0.3 2/8990 77",
    }
    found = processes.look(recorded(tmp_path, kernel=kernel))
    machine = next(one for one in found.limits if one.what == "of the machine")
    assert (machine.most, machine.used) == (9000, 8990)
    assert "of the machine: 8990 of 9000" in processes.judge(processes.Facts(8, (machine,)))[0].evidence[0]


def test_an_nvidia_driver_is_read_from_its_files(tmp_path: Path) -> None:
    """Its version, its devices as this container has them, and their names."""
    nvidia = {
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56",
        "proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t\t NVIDIA H200\nIRQ: 5",
        "dev/nvidia0": "",
        "dev/nvidiactl": "",
        "sys/class/infiniband/mlx5_0": "",
    }
    scope = recorded(tmp_path, nvidia=nvidia, v2=V2)
    facts = gpu.look(scope)
    assert (facts.driver, facts.nodes, facts.models) == ("550.54.15", ("/dev/nvidia0",), ("NVIDIA H200",))
    pinned = pinned_memory.look(scope)
    assert (pinned.gpus, pinned.has_infiniband, pinned.cgroup_bytes) == (1, True, 2 << 30)


def test_a_container_is_known_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    facts = container.look(recorded(tmp_path, files={".dockerenv": "", "proc/1/comm": "tini"}))
    assert facts == container.Facts(("Docker", "Kubernetes"), "tini")
