"""What is read of a worker from outside: its memory over time, the kernel's counters around its death, its files."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path
from weakref import WeakSet

import pytest

from holdfast.diagnosis import collect
from holdfast.diagnosis.collect import MemoryWatch, open_files
from holdfast.memory import cgroups
from holdfast.memory.cgroups import MemoryCgroup
from holdfast.memory.readings import anonymous_bytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")

GROWTH = 64 << 20


def test_memory_that_was_written_is_counted() -> None:
    before = anonymous_bytes(os.getpid())
    kept = bytearray(os.urandom(1) * GROWTH)
    after = anonymous_bytes("self")
    assert before is not None
    assert after is not None
    assert after - before > len(kept) // 2


def test_a_process_that_has_ended_has_no_memory() -> None:
    """Reaped, or not yet: it is not said to have used nothing."""
    child = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.DEVNULL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert anonymous_bytes(child.pid) is None
    child.wait()
    assert anonymous_bytes(child.pid) is None


def test_readings_are_taken_now_and_then_and_bounded() -> None:
    """With what was in hand, and how long before the end it was."""
    watch = MemoryWatch(os.getpid())
    for k in range(100):
        watch.tick(k * 0.1, unit=k, position=1)
    history = watch.history(10.0)
    assert len(history) == 16
    assert [reading.seconds_before_end for reading in history] == sorted(
        (reading.seconds_before_end for reading in history), reverse=True
    )
    assert history[-1].unit >= 96
    assert all(reading.position == 1 and reading.anonymous_bytes > 0 for reading in history)


def test_readings_cover_the_whole_life() -> None:
    """A leak that takes an hour does not show in six seconds; the latest are close together all the same."""
    watch = MemoryWatch(os.getpid())
    for k in range(9000):
        watch.tick(k * 0.4, unit=k, position=0)
    ages = [reading.seconds_before_end for reading in watch.history(3600.0)]
    assert len(ages) == 16
    assert ages[0] == 3600.0
    assert max(late - early for late, early in itertools.pairwise(ages[:-6])) < 1000
    assert ages[-6] < 5
    assert watch.at_start_bytes > 0


class Counting:
    """A recorded cgroup whose count of kills is set by the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.set(3)
        (folder / "memory.max").write_text("4096")
        (folder / "memory.current").write_text("1024")

    def set(self, kills: int) -> None:
        (self.folder / "memory.events").write_text(f"oom_kill {kills}\n")


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counting:
    monkeypatch.setattr(cgroups, "memory_cgroup_of", lambda pid: MemoryCgroup(tmp_path, 2))
    return Counting(tmp_path)


def test_a_kill_is_seen_as_a_difference(counting: Counting) -> None:
    """Between the last reading while it lived and the one after its death."""
    watch = MemoryWatch(os.getpid())
    counting.set(4)
    before, after = watch.around_death()
    assert (before.cgroup_kills, after.cgroup_kills) == (3, 4)
    assert (before.cgroup, before.cgroup_limit_bytes, before.cgroup_usage_bytes) == (str(counting.folder), 4096, 1024)


def test_what_was_counted_while_it_lived_was_of_others(counting: Counting) -> None:
    watch = MemoryWatch(os.getpid())
    counting.set(4)
    watch.tick(1.0, 0, 0)
    before, after = watch.around_death()
    assert (before.cgroup_kills, after.cgroup_kills) == (4, 4)


def test_what_was_counted_while_the_kernel_takes_it_apart_may_have_been_its_own(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It still shows memory then: with gigabytes, and on a busy machine, that takes longer than a tick."""
    watch = MemoryWatch(os.getpid())
    monkeypatch.setattr(collect, "_is_ending", lambda pid: True)
    counting.set(4)
    watch.tick(1.0, 0, 0)
    before, after = watch.around_death()
    assert (before.cgroup_kills, after.cgroup_kills) == (3, 4)


def test_a_worker_may_be_killed_before_it_is_seen_to_be_ready(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or before it is watched at all: the supervisor has no memory either, and may be late."""
    before_start = collect.read_counters(cgroups.memory_cgroup_of(os.getpid()))
    watch = MemoryWatch(os.getpid())
    counting.set(4)
    monkeypatch.setattr(collect, "_is_ending", lambda pid: True)
    watch.look_again()
    for each in (watch, MemoryWatch(os.getpid(), before_start)):
        before, after = each.around_death()
        assert (before.cgroup_kills, after.cgroup_kills) == (3, 4)


def test_what_others_were_killed_for_at_its_start_is_not_its_own(counting: Counting) -> None:
    before_start = collect.read_counters(cgroups.memory_cgroup_of(os.getpid()))
    counting.set(4)
    before, after = MemoryWatch(os.getpid(), before_start).around_death()
    assert (before.cgroup_kills, after.cgroup_kills) == (4, 4)


def test_a_process_that_was_killed_is_ending() -> None:
    """From the moment of the signal until it is reaped, and after."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdin=subprocess.DEVNULL)
    try:
        assert not collect._is_ending(child.pid)
        child.kill()
        assert collect._is_ending(child.pid)
    finally:
        child.kill()
        child.wait()
    assert collect._is_ending(child.pid)


def test_of_a_process_that_is_gone_nothing_is_taken_for_a_reading(counting: Counting) -> None:
    """A tick may come between the kernel's kill and our noticing of it: its count is not that of before."""
    child = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.DEVNULL)
    watch = MemoryWatch(child.pid)
    child.wait()
    counting.set(4)
    watch.tick(1.0, 0, 0)
    before, after = watch.around_death()
    assert (before.cgroup_kills, after.cgroup_kills) == (3, 4)
    assert watch.history(2.0) == ()


def test_where_there_is_no_cgroup_the_machine_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "memory_cgroup_of", lambda pid: None)
    monkeypatch.setattr(cgroups, "host_kills", lambda: 7)
    before, after = MemoryWatch(os.getpid()).around_death()
    assert (before.host_kills, after.host_kills, after.cgroup) == (7, 7, "")
    assert (after.host_available_bytes or 0) > 0


def test_files_that_matter_are_listed(tmp_path: Path) -> None:
    """A database, but no pipe, device or memfd."""
    path = tmp_path / "samples.db"
    reading, writing = os.pipe()
    with path.open("w"), Path(os.devnull).open():
        found = open_files()
    os.close(reading)
    os.close(writing)
    assert str(path) in found
    assert not [name for name in found if name.startswith(("/dev/", "pipe:", "anon_inode:", "/memfd:"))]


def test_sockets_that_lead_to_a_server_are_listed_and_pairs_are_not() -> None:
    """Pairs are how we talk to our own processes: every program with a loader has them."""
    before = set(open_files())
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client, server.accept()[0] as accepted:
            found = set(open_files()) - before
            inodes = {os.fstat(each.fileno()).st_ino for each in (client, accepted)}
            ours.send(b"still open")
        assert theirs.recv(10) == b"still open"
    assert found == {f"socket:[{inode}]" for inode in inodes}


class InterruptedSocket(socket.socket):
    """A signal handler raises as soon as there is one."""

    def __init__(self, fileno: int) -> None:
        super().__init__(fileno=fileno)
        raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # the copy, which goes with the exception
def test_an_interrupt_while_sockets_are_looked_at_closes_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the user's connections, and our own to the workers."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with monkeypatch.context() as patch:
            patch.setattr(socket, "socket", InterruptedSocket)
            with pytest.raises(KeyboardInterrupt):
                collect._is_of_a_pair(ours.fileno(), "socket:[1]")
        ours.send(b"still open")
        assert theirs.recv(10) == b"still open"


def test_where_there_is_no_proc_no_file_is_listed(tmp_path: Path) -> None:
    assert collect._entries(tmp_path / "none") == []


def test_deaths_within_the_same_readings_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One kill of the kernel's may be of either: also of one that is about to end, and was not told of yet."""
    monkeypatch.setattr(collect, "_watches", WeakSet())
    monkeypatch.setattr(collect, "_killed_s", deque())
    first, second = MemoryWatch(os.getpid()), MemoryWatch(os.getpid())
    assert (first.kills_seen(), second.kills_seen()) == (1, 2)
    third = MemoryWatch(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdin=subprocess.DEVNULL)
    ending = MemoryWatch(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert third.kills_seen() == 2
    child.wait()
    assert ending.kills_seen() == 2
    assert MemoryWatch(os.getpid()).kills_seen() == 1
