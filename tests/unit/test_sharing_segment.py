"""The segment under what is shared: one mapping and one descriptor per process, sealed, freed with its last user."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import mmap
import os
import pickle
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast import SharedMemoryError, share
from holdfast.memory import cgroups
from holdfast.sharing import builder, room, segment
from holdfast.sharing.arrays import find_array
from holdfast.sharing.segment import SegmentHandle
from waits import PATIENCE_S, wait_until


def descriptors() -> set[str]:
    """Those of segments."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of this very loop
            if str(link.readlink()).startswith("/memfd:holdfast-shared"):
                found.add(link.name)
    return found


def mappings() -> int:
    """How often a segment is mapped in this process."""
    return Path("/proc/self/maps").read_text().count("/memfd:holdfast-shared")


def handle_of(array: Any) -> SegmentHandle:
    found = find_array(array)
    assert found is not None
    return found[0].handle


def test_a_segment_takes_one_descriptor_and_one_mapping() -> None:
    """However many things are in it, and however many views there are of them."""
    before, mapped = descriptors(), mappings()
    shared = share({"a": np.arange(10), "b": list(range(100)), "c": {str(index): index for index in range(100)}})
    views = [shared["a"][1:], shared["b"][5:], shared["b"][::2]]
    assert len(descriptors() - before) == 1
    assert mappings() == mapped + 1
    assert len(views) == 3


def test_a_segment_is_freed_with_its_last_view() -> None:
    """Whichever that is: memory and descriptor."""
    before = descriptors()
    shared = share({"a": np.arange(10), "b": list(range(100))})
    part = shared["a"][2:4]
    del shared
    assert len(descriptors() - before) == 1
    assert handle_of(part).nbytes > 0
    del part
    gc.collect()
    assert descriptors() == before
    assert mappings() == 0


def test_nobody_can_change_a_segment() -> None:
    """Not even who has its descriptor."""
    shared = share(np.arange(10))
    fd = handle_of(shared).fd
    with pytest.raises(PermissionError):
        os.pwrite(fd, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 1)
    with pytest.raises(PermissionError):
        mmap.mmap(fd, 0)
    assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    assert shared.tolist() == list(range(10))


@pytest.mark.usefixtures("sharer_stopped")
@pytest.mark.parametrize(
    "kind",
    [
        np.zeros(1_000_000),
        np.zeros(1000, [(f"field {index}", "f8") for index in range(8)]),
        [str(index) for index in range(100_000)],
        {str(index): [index] for index in range(10_000)},
        b"x" * 1_000_000,
        [np.zeros(100) for _ in range(1000)],
        {f"array {index}": np.zeros((100, 100)) for index in range(16)},
        (np.zeros(1000), list(range(1000)), {index: index for index in range(1000)}),
    ],
    ids=["array", "structured array", "list", "dict", "bytes", "list of arrays", "dict of arrays", "tuple"],
)
def test_a_handle_is_small(kind: Any) -> None:
    """Under 1 kB, however large what it stands for."""
    handle = ForkingPickler.dumps(share(kind))
    assert len(handle) < 1000
    pickle.loads(handle)  # (the descriptor on its way is fetched)


@pytest.mark.usefixtures("sharer_stopped")
def test_what_arrives_again_is_not_mapped_again() -> None:
    """In a process that has it, also through another thing of the same segment."""
    shared = share({"a": np.arange(10), "b": list(range(100))})
    before, mapped = descriptors(), mappings()
    again = [pickle.loads(ForkingPickler.dumps(shared[key])) for key in ("a", "b", "a")]
    assert np.shares_memory(again[0], shared["a"])
    assert again[1] == shared["b"]
    assert mappings() == mapped
    wait_until(lambda: descriptors() == before, PATIENCE_S, "the end of the descriptors on their way")


def test_a_descriptor_that_is_something_else_is_refused() -> None:
    """A handle that is loaded twice may find another file there: reading it would be a crash."""
    fd = os.memfd_create("other")
    for _ in range(2):
        with pytest.raises(SharedMemoryError, match="is not the shared segment that was sent"):
            segment.adopt(SegmentHandle("an id", 4096, fd))
        with contextlib.suppress(OSError):
            os.close(fd)  # the first time it was still there


def test_a_page_that_was_written_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the kernel; and where it cannot be asked, by comparing."""
    shared = share(np.zeros(10_000))
    memory = next(iter(segment._memories.values()))
    address = segment.address_of(shared)
    for ask in ("the kernel", "by comparing"):
        if ask == "by comparing":
            monkeypatch.setattr(segment, "_own_pages", _cannot_tell)
        assert not segment.was_written(memory, address, shared.nbytes)
    memoryview(memory).cast("B")[50_000] = 1
    assert segment.was_written(memory, address, shared.nbytes)
    assert not segment.was_written(memory, address, 1000)
    monkeypatch.undo()
    assert segment.was_written(memory, address, shared.nbytes)
    assert not segment.was_written(memory, address, 1000)


def test_what_lies_beside_what_was_written_travels_as_a_handle() -> None:
    """The page that they have in common is this process's own, and what is in it is not."""
    shared = share({"before": np.arange(3), "labels": np.zeros(10), "images": np.arange(100_000)})
    memory = next(iter(segment._memories.values()))
    memoryview(memory).cast("B")[segment.address_of(shared["labels"]) - memory.address] = 1
    assert find_array(shared["labels"]) is None
    for name in ("before", "images"):
        assert find_array(shared[name]) is not None
        assert np.shares_memory(pickle.loads(ForkingPickler.dumps(shared[name])), shared[name])


def _cannot_tell(address: int, nbytes: int) -> bool:
    raise OSError(errno.ENOENT, "no /proc")


# -- room --------------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the sizes, and what to do. Past a limit the kernel would kill us instead."""
    monkeypatch.setattr(room, "headroom_bytes", lambda: 1_500_000)
    before = descriptors()
    with pytest.raises(SharedMemoryError, match=r"no room .*: 8 MB more are needed, and 1.5 MB are left .*\n  try   "):
        share(np.zeros(1_000_000))
    assert descriptors() == before
    assert share(np.zeros(1000)).shape == (1000,)


def test_a_list_is_looked_at_while_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size is not known before: after each part the headroom is looked at again."""
    rooms = iter([10_000_000, 1000])
    monkeypatch.setattr(room, "headroom_bytes", lambda: next(rooms))
    monkeypatch.setattr(builder, "_ASK_AGAIN_BYTES", 1_000_000)
    with pytest.raises(SharedMemoryError):
        share([f"{index:020}" for index in range(200_000)])


def test_a_full_file_system_is_the_same_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what is shared is a file, on other platforms."""
    monkeypatch.setattr(builder, "_new_file", lambda: os.open("/dev/full", os.O_WRONLY))
    with pytest.raises(SharedMemoryError, match="No space left on device"):
        share(np.zeros(1_000_000))


def test_without_memfd_a_file_that_has_no_name_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS."""
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(builder, "_seal", lambda fd: None)
    shared = share({"a": np.arange(10), "b": ["x"] * 20})
    assert shared["a"].tolist() == list(range(10))
    assert shared["b"] == ["x"] * 20


@pytest.mark.parametrize("version", [1, 2])
def test_the_headroom_is_that_of_the_cgroup_where_it_is_less(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of files that nobody uses are as good as free."""
    limit, usage = (
        ("memory.limit_in_bytes", "memory.usage_in_bytes") if version == 1 else ("memory.max", "memory.current")
    )
    (tmp_path / limit).write_text("1000000")
    (tmp_path / usage).write_text("600000")
    (tmp_path / "memory.stat").write_text(f"anon 400000\n{'total_' if version == 1 else ''}inactive_file 150000\n")
    monkeypatch.setattr(cgroups, "memory_cgroup_of", lambda pid: cgroups.MemoryCgroup(tmp_path, version))
    assert room.headroom_bytes() == 550_000


def test_where_nothing_is_known_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """On other platforms."""
    monkeypatch.setattr(cgroups, "memory_cgroup_of", lambda pid: None)
    monkeypatch.setattr(cgroups, "host_available_bytes", lambda: None)
    assert room.headroom_bytes() is None
    assert share(np.arange(3)).tolist() == [0, 1, 2]
