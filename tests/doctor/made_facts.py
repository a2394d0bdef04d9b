"""Facts of machines that nobody here has, and what each check must say of them.

Runs in: the test process.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any

from holdfast.doctor.checks import (
    container,
    cpu_and_threads,
    cpu_level,
    databricks,
    descriptors,
    fork_hazards,
    gpu,
    instructions,
    library_machine,
    memory,
    notebook,
    pinned_memory,
    processes,
    python,
    ray,
    shared_memory,
    swap,
    torch_and_driver,
)
from holdfast.doctor.dispatch import Use
from holdfast.doctor.finding import Level
from holdfast.doctor.libraries import Library
from holdfast.doctor.torch_probe import TorchProbe

PROBLEM, WARNING, NOTE, OK = Level.PROBLEM, Level.WARNING, Level.NOTE, Level.OK
GB = 1 << 30

FAST = Library(f"/site/fast{EXTENSION_SUFFIXES[0]}", "fast")
ABI = Library("/site/fast.abi3.so", "fast")
PLAIN = Library("/site/debug/attach_x86.so", "debug")
USE = Use("vaddpd zmm0,zmm0,[rdi]", ("avx512f",), 0x1110, "decode_block")
CPU_TORCH = TorchProbe("2.9.0+cpu", works=True, import_s=1.0)
CUDA_TORCH = TorchProbe("2.9.0", works=True, import_s=1.0, cuda_built="12.8")
GPU_TORCH = TorchProbe("2.9.0", works=True, import_s=1.0, cuda_built="12.8", cuda_works=True, devices=2)
NO_TORCH = TorchProbe(None, why_not="torch is not installed")
CRASHING_TORCH = TorchProbe("2.9.0", why_not="it ended with SIGILL", last_words=("Fatal Python error",))


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    check: Any
    facts: Any
    level: Level
    """Of the worst finding."""
    words: tuple[str, ...] = ()
    """In the findings, wherever."""


def _library_machine(*libraries: tuple[Library, str]) -> library_machine.Facts:
    return library_machine.Facts("x86_64", libraries)


def _limit(left_bytes: int | None, version: int = 2) -> memory.Limit:
    return memory.Limit("/sys/fs/cgroup/job", version, 4 * GB, left_bytes)


def _cpus(machine: int = 8, affinity: int = 8, usable: int = 8, opencv: str | None = None, **names: str) -> Any:
    return cpu_and_threads.Facts(machine, affinity, usable, names, opencv)


def _processes(most: int, used: int) -> processes.Facts:
    return processes.Facts(8, (processes.Limit("of the cgroup /pods/job", most, used, "docker run --pids-limit -1"),))


ROWS = (
    Row(
        "an extension for aarch64",
        library_machine,
        _library_machine((FAST, "aarch64"), (ABI, "x86_64")),
        PROBLEM,
        ("for aarch64, and this is x86_64", "--force-reinstall --no-cache-dir fast"),
    ),
    Row("a package for another machine", library_machine, _library_machine((PLAIN, "i386")), PROBLEM, ("i386",)),
    Row(
        "a library that no package owns",
        library_machine,
        _library_machine((Library("/my/fast.so"), "aarch64")),
        PROBLEM,
        ("file /my/fast.so",),
    ),
    Row(
        "one of several for several machines",
        library_machine,
        _library_machine((PLAIN, "i386"), (Library("/site/debug/attach.so", "debug"), "x86_64")),
        OK,
    ),
    Row("libraries for this machine", library_machine, _library_machine((FAST, "x86_64")), OK, ("for x86_64",)),
    Row(
        "a note above the CPU",
        cpu_level,
        cpu_level.Facts("x86-64-v3", "AMD", ((FAST, "x86-64-v4"),)),
        PROBLEM,
        ("needs x86-64-v4; AMD is x86-64-v3", "pip install --force-reinstall --no-binary :all: fast"),
    ),
    Row(
        "a note of a library that no package owns",
        cpu_level,
        cpu_level.Facts("x86-64-v2", "", ((Library("/my/fast.so"), "x86-64-v3"),)),
        PROBLEM,
        ("-march=x86-64-v2",),
    ),
    Row("a note that the CPU meets", cpu_level, cpu_level.Facts("x86-64-v4", "AMD", ((FAST, "x86-64-v4"),)), OK),
    Row("no x86 to have levels", cpu_level, cpu_level.Facts("", "", ()), OK, ("not an x86_64 CPU",)),
    Row(
        "AVX-512 unguarded",
        instructions,
        instructions.Facts("x86-64-v3", "AMD", unguarded=((FAST, USE),)),
        WARNING,
        ("vaddpd zmm0,zmm0,[rdi] needs avx512f", "decode_block", "SIGILL"),
    ),
    Row(
        "AVX-512 unguarded in many",
        instructions,
        instructions.Facts("x86-64-v3", "AMD", unguarded=((Library("/my/fast.so"), USE),) * 9),
        WARNING,
        ("9 native libraries use", "and 4 more", "-march=x86-64-v3"),
    ),
    Row(
        "no time for all",
        instructions,
        instructions.Facts("x86-64-v3", "AMD", looked_at=3, not_reached=5),
        NOTE,
        ("5 libraries were not looked at", "--deep"),
    ),
    Row(
        "a CPU that has it", instructions, instructions.Facts("x86-64-v4", "AMD", is_looked_for=False), OK, ("--deep",)
    ),
    Row("no x86 to have it", instructions, instructions.Facts(""), OK),
    Row("nothing unguarded", instructions, instructions.Facts("x86-64-v3", "AMD", looked_at=63), OK, ("63 libraries",)),
    Row(
        "a cgroup with little left",
        memory,
        memory.Facts(64 * GB, 60 * GB, (_limit(100 << 20),)),
        PROBLEM,
        ("only 100.0 MiB", "cgroup v2 /sys/fs/cgroup/job: limit 4.0 GiB", "docker run --memory"),
    ),
    Row(
        "a cgroup of version 1",
        memory,
        memory.Facts(64 * GB, 60 * GB, (_limit(GB, version=1),)),
        WARNING,
        ("cgroup v1",),
    ),
    Row("a machine with little left", memory, memory.Facts(8 * GB, 200 << 20), PROBLEM, ("ps -eo rss",)),
    Row("kills before", memory, memory.Facts(64 * GB, 60 * GB, kills=1), WARNING, ("has ended 1 process here",)),
    Row("many kills before", memory, memory.Facts(64 * GB, 60 * GB, kills=7), WARNING, ("ended 7 processes",)),
    Row("all killed at once", memory, memory.Facts(64 * GB, 60 * GB, kills_all_together=True), WARNING, ("oom.group",)),
    Row("stopped for ever", memory, memory.Facts(64 * GB, 60 * GB, stops_instead=True), PROBLEM, ("oom_kill_disable",)),
    Row("an address space", memory, memory.Facts(64 * GB, 60 * GB, ulimit_bytes=GB), WARNING, ("ulimit -v unlimited",)),
    Row("no overcommit", memory, memory.Facts(64 * GB, 60 * GB, never_overcommits=True), WARNING, ("sysctl",)),
    Row(
        "memory in plenty",
        memory,
        memory.Facts(64 * GB, 60 * GB, (_limit(3 * GB),)),
        OK,
        ("3.0 GiB left of a cgroup's",),
    ),
    Row("memory unknown", memory, memory.Facts(), OK, ("cannot be read",)),
    Row("memory of a cgroup unknown", memory, memory.Facts(64 * GB, 60 * GB, (_limit(None),)), OK),
    Row("swap in use", swap, swap.Facts(8 * GB, 2 * GB), WARNING, ("6.0 GiB of 8.0 GiB",)),
    Row("swap free", swap, swap.Facts(8 * GB, 8 * GB), OK),
    Row("no swap", swap, swap.Facts(), OK, ("kills at once",)),
    Row("no swap in the cgroup", swap, swap.Facts(8 * GB, 8 * GB, cgroup_allows_none=True), OK, ("may use none",)),
    Row("no /dev/shm", shared_memory, shared_memory.Facts(exists=False), PROBLEM, ("there is no /dev/shm",)),
    Row("a /dev/shm to read", shared_memory, shared_memory.Facts(True, False, GB, GB), PROBLEM, ("remount,rw",)),
    Row("a full /dev/shm", shared_memory, shared_memory.Facts(True, True, 8 * GB, 1 << 20), WARNING, ("nearly full",)),
    Row(
        "a /dev/shm of 64 MB",
        shared_memory,
        shared_memory.Facts(True, True, 64 << 20, 60 << 20),
        WARNING,
        ("64.0 MiB, as containers have it", "--shm-size=8g"),
    ),
    Row("no Linux", shared_memory, shared_memory.Facts(), OK, ("not of a size",)),
    Row("a large /dev/shm", shared_memory, shared_memory.Facts(True, True, 8 * GB, 8 * GB), OK),
    Row("few descriptors", descriptors, descriptors.Facts(128, 128), PROBLEM, ("ulimit -Hn is 128",)),
    Row("some descriptors", descriptors, descriptors.Facts(1024, 1024), WARNING, ("--ulimit nofile",)),
    Row(
        "descriptors of the machine",
        descriptors,
        descriptors.Facts(1 << 20, 1 << 20, 1000, 990),
        WARNING,
        ("990 of 1000",),
    ),
    Row("descriptors to ask for", descriptors, descriptors.Facts(1024, 65536, 10**6, 100), OK, ("as holdfast does",)),
    Row("descriptors without end", descriptors, descriptors.Facts(), OK, ("without a limit",)),
    Row("no process to be had", processes, _processes(100, 95), PROBLEM, ("95 of 100 are there", "--pids-limit")),
    Row("few processes", processes, _processes(100, 60), WARNING, ("only 40 more",)),
    Row("more than there may be", processes, _processes(100, 120), PROBLEM, ("only 0 more",)),
    Row("many processes", processes, _processes(10_000, 60), OK, ("9940 more",)),
    Row("no limit of processes", processes, processes.Facts(8), OK),
    Row("an old Python", python, python.Facts("3.9.1", "fork"), PROBLEM, ("3.11 is the oldest",)),
    Row(
        "a Python without the lock",
        python,
        python.Facts("3.14.0", "fork", is_free_threaded=True),
        NOTE,
        ("PYTHON_GIL=1",),
    ),
    Row("forkserver by default", python, python.Facts("3.14.0", "forkserver"), NOTE, ("must pickle",)),
    Row("macOS", python, python.Facts("3.13.0", "spawn", "darwin"), NOTE, ("portable backend",)),
    Row("a usual Python", python, python.Facts("3.12.1", "fork"), OK, ("started by fork",)),
    Row("no torch", torch_and_driver, torch_and_driver.Facts(NO_TORCH), PROBLEM, ("pip install torch",)),
    Row(
        "a torch that crashes",
        torch_and_driver,
        torch_and_driver.Facts(CRASHING_TORCH),
        PROBLEM,
        ("SIGILL", "Fatal Python error", "--force-reinstall"),
    ),
    Row(
        "an old torch",
        torch_and_driver,
        torch_and_driver.Facts(TorchProbe("2.1.0", works=True)),
        PROBLEM,
        ("'torch>=2.6'",),
    ),
    Row(
        "a torchvision of another torch",
        torch_and_driver,
        torch_and_driver.Facts(CPU_TORCH, (torch_and_driver.Companion("torchvision", "0.21.0", "2.6.0"),)),
        PROBLEM,
        ("torchvision 0.21.0 requires torch==2.6.0",),
    ),
    Row(
        "a torchvision that fits",
        torch_and_driver,
        torch_and_driver.Facts(CPU_TORCH, (torch_and_driver.Companion("torchvision", "0.24.0", "2.9.0"),)),
        OK,
    ),
    Row(
        "an old driver",
        torch_and_driver,
        torch_and_driver.Facts(CUDA_TORCH, driver="470.82.01"),
        PROBLEM,
        ("driver 470.82.01 is too old for CUDA 12.8", "525.60 or newer"),
    ),
    Row(
        "a driver new enough", torch_and_driver, torch_and_driver.Facts(CUDA_TORCH, driver="550.54.15"), OK, ("550.54",)
    ),
    Row("a driver that works in spite of it", torch_and_driver, torch_and_driver.Facts(GPU_TORCH, driver="470.82"), OK),
    Row("a GPU", gpu, gpu.Facts(GPU_TORCH, "550.54", ("/dev/nvidia0",), ("NVIDIA H200",)), OK, ("NVIDIA H200",)),
    Row("CUDA and no driver", gpu, gpu.Facts(CUDA_TORCH), NOTE, ("no NVIDIA driver", "--gpus all")),
    Row("no GPU and no CUDA", gpu, gpu.Facts(CPU_TORCH), OK),
    Row(
        "hidden GPUs",
        gpu,
        gpu.Facts(CUDA_TORCH, "550.54", ("/dev/nvidia0",), visible=""),
        NOTE,
        ("unset CUDA_VISIBLE",),
    ),
    Row("a container without its GPU", gpu, gpu.Facts(CUDA_TORCH, "550.54"), WARNING, ("docker run --gpus all",)),
    Row(
        "a GPU that CUDA does not take", gpu, gpu.Facts(CUDA_TORCH, "550.54", ("/dev/nvidia0",)), WARNING, ("says why",)
    ),
    Row("a GPU for a CPU build", gpu, gpu.Facts(CPU_TORCH, "550.54", ("/dev/nvidia0",)), WARNING, ("without CUDA",)),
    Row("a GPU, and torch crashes", gpu, gpu.Facts(CRASHING_TORCH, "550.54", ("/dev/nvidia0",)), OK),
    Row(
        "InfiniBand and no memory to lock",
        pinned_memory,
        pinned_memory.Facts(64 << 10, has_infiniband=True),
        WARNING,
        ("ulimit -l is 64", "memlock=-1"),
    ),
    Row(
        "GPUs in a small cgroup",
        pinned_memory,
        pinned_memory.Facts(None, 8, cgroup_bytes=16 * GB),
        WARNING,
        ("8 GPUs",),
    ),
    Row("memory to pin", pinned_memory, pinned_memory.Facts(None, 8), OK, ("without a limit",)),
    Row("nothing to pin for", pinned_memory, pinned_memory.Facts(64 << 10), OK, ("no GPU",)),
    Row("a quota", cpu_and_threads, _cpus(64, 64, 4), WARNING, ("gets the time of 4", "OMP_NUM_THREADS=4")),
    Row("one CPU of many", cpu_and_threads, _cpus(64, 1, 1), WARNING, ("one of 64 CPUs", "taskset")),
    Row("OpenMP told to have many", cpu_and_threads, _cpus(OMP_NUM_THREADS="8"), WARNING, ("num_workers=1)",)),
    Row(
        "MKL told to have two",
        cpu_and_threads,
        _cpus(MKL_NUM_THREADS="2"),
        WARNING,
        ("MKL_NUM_THREADS=2", "16 threads"),
    ),
    Row("threads bound", cpu_and_threads, _cpus(OMP_PROC_BIND="close"), WARNING, ("unset OMP_PROC_BIND",)),
    Row("threads not bound", cpu_and_threads, _cpus(OMP_PROC_BIND="false"), OK),
    Row("two OpenMPs", cpu_and_threads, _cpus(KMP_DUPLICATE_LIB_OK="TRUE"), WARNING, ("crashes and wrong results",)),
    Row("OpenCV", cpu_and_threads, _cpus(opencv="4.11"), NOTE, ("cv2.setNumThreads(0)",)),
    Row("OpenCV that was told", cpu_and_threads, _cpus(opencv="4.11", OPENCV_FOR_THREADS_NUM="1"), OK),
    Row("threads as they should be", cpu_and_threads, _cpus(OMP_NUM_THREADS="1"), OK, ("OMP_NUM_THREADS=1",)),
    Row("a number of threads that is none", cpu_and_threads, _cpus(OMP_NUM_THREADS="many"), OK),
    Row(
        "lmdb, with fork", fork_hazards, fork_hazards.Facts(("lmdb", "grpcio"), "fork"), NOTE, ("lmdb: an environment",)
    ),
    Row(
        "lmdb, with a dataset",
        fork_hazards,
        fork_hazards.Facts(("lmdb",), "fork", has_dataset=True),
        OK,
        ("before fork",),
    ),
    Row("lmdb, with spawn", fork_hazards, fork_hazards.Facts(("lmdb",), "spawn"), OK),
    Row("no hazards", fork_hazards, fork_hazards.Facts((), "fork"), OK),
    Row("Jupyter", notebook, notebook.Facts({"JPY_PARENT_PID": "7"}), NOTE, ("Jupyter", "from holdfast import")),
    Row("Colab", notebook, notebook.Facts({"COLAB_GPU": "", "JPY_PARENT_PID": "7"}), NOTE, ("Google Colab",)),
    Row("no notebook", notebook, notebook.Facts(), OK),
    Row("Databricks", databricks, databricks.Facts({"DATABRICKS_RUNTIME_VERSION": "15.4"}), NOTE, ("HOLDFAST_HOME",)),
    Row(
        "Databricks, with a volume",
        databricks,
        databricks.Facts({"DATABRICKS_RUNTIME_VERSION": "15.4", "HOLDFAST_HOME": "/Volumes/x"}),
        OK,
        ("/Volumes/x",),
    ),
    Row("no Databricks", databricks, databricks.Facts(), OK),
    Row("a container without init", container, container.Facts(("Docker",), "python"), NOTE, ("docker run --init",)),
    Row(
        "a container with init",
        container,
        container.Facts(("Docker", "Kubernetes"), "tini"),
        OK,
        ("Docker, Kubernetes",),
    ),
    Row("no container", container, container.Facts((), "systemd"), OK),
    Row("Ray", ray, ray.Facts("2.60", {"RAY_JOB_ID": "01"}), NOTE, ("RAY_JOB_ID=01", "0.95")),
    Row(
        "Ray, with a threshold",
        ray,
        ray.Facts("2.60", {"RAY_JOB_ID": "01", "RAY_memory_usage_threshold": "0.8"}),
        NOTE,
        ("is 0.8",),
    ),
    Row("Ray, not in use", ray, ray.Facts("2.60"), OK, ("not in use",)),
    Row("no Ray", ray, ray.Facts(), OK),
)
