"""The portable backend, forced on Linux: the same epochs, the same deaths, the same silence afterwards.

That nothing is left (processes, descriptors, names in /dev/shm, threads) is checked after every test.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import psutil
import pytest
import torch
from torch.utils.data import BatchSampler, SequentialSampler

from helpers import (
    CLOSE_DEADLINE_S,
    PATIENCE_S,
    Numbers,
    Program,
    Stream,
    Stuck,
    Waves,
    run_program,
    shared_memory_names,
    wait_until,
    wait_until_ended,
    worker_pids,
)
from holdfast import DataLoader, NotPicklable
from holdfast.transport import names
from holdfast.workers import shared_job
from holdfast.workers.portable import PortableCrew
from portably import BATCHES, LENGTH, Random, check_batch, names_of_ours, portable, whole

GONE_S = PATIENCE_S
"""A spare that is on its way notices the end of the main process when it has imported torch, whenever that is."""

# `make test` runs a part of test_portable_deaths.py instead
pytestmark = [pytest.mark.timeout(120), pytest.mark.long]


# --- which backend ------------------------------------------------------------------------------------------------


def test_the_environment_chooses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """HOLDFAST_BACKEND=portable, for loaders that name no backend."""
    monkeypatch.setenv("HOLDFAST_BACKEND", "portable")
    with DataLoader(Numbers(8), batch_size=4, num_workers=1) as loader:
        iterator = iter(loader)
        assert isinstance(iterator._backend, PortableCrew)
        assert whole(list(iterator), 8)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
@pytest.mark.parametrize("as_object", [False, True], ids=["string", "context"])
def test_another_start_method_is_refused_at_construction(method: str, as_object: bool) -> None:
    """A ValueError that names the argument; spawn is what it has."""
    context = torch.multiprocessing.get_context(method) if as_object else method
    with pytest.raises(ValueError, match=f"multiprocessing_context='{method}' .* use None or 'spawn'"):
        portable(Numbers(8), multiprocessing_context=context)


@pytest.mark.parametrize("method", [None, "spawn"])
def test_spawn_and_the_platforms_own_are_fine(method: str | None) -> None:
    """The platform's default is replaced without a word; names and numbers are as torch's."""
    with portable(Numbers(8), multiprocessing_context=method) as loader:
        iterator = iter(loader)
        prefix = "SpawnProcess-" if method else "Process-"
        assert all(worker.name.startswith(prefix) for worker in iterator._workers)
        assert all(worker.is_alive() and worker.daemon for worker in iterator._workers)
        assert whole(list(iterator), 8)


@pytest.mark.parametrize("what", ["import", "epoch"])
def test_it_needs_nothing_that_only_linux_has(what: str) -> None:
    """Without fork, memfd, pidfd, poll, descriptor passing (and, to import it, fcntl and AF_UNIX): all goes well."""
    assert run_program("portable_epoch.py", what).splitlines()[-1] == "done"


# --- epochs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", [False, True])
def test_epochs_equal_torchs(persistent: bool) -> None:
    """Same order, same random numbers, same worker ids, over two epochs."""
    outcomes = []
    for kind, extra in ((torch.utils.data.DataLoader, {}), (DataLoader, {"backend": "portable"})):
        torch.manual_seed(7)
        loader = kind(
            Random(),
            batch_size=4,
            shuffle=True,
            num_workers=2,
            multiprocessing_context="spawn",
            persistent_workers=persistent,
            **extra,
        )
        outcomes.append([batch.clone() for _ in range(2) for batch in loader])
        del loader
        gc.collect()
    theirs, ours = outcomes
    assert len(ours) == 24
    assert all(map(torch.equal, theirs, ours))


def test_an_iterable_dataset_is_split_over_the_workers() -> None:
    """Elements once each, over two epochs of persistent workers."""
    with portable(Stream(101), batch_size=3, persistent_workers=True) as loader:
        for _ in range(2):
            assert sorted(torch.cat(list(loader)).flatten().tolist()) == list(range(101))
    with portable(Stream(40), num_workers=3) as loader:
        assert sorted(torch.cat(list(loader)).flatten().tolist()) == list(range(40))


def test_batches_may_grow_a_thousandfold_and_be_kept() -> None:
    """What outgrows its slot comes by a name that is gone at once; every batch stays as it was."""
    dataset = Waves(24, 4, [25, 25, 25, 25, 25_000, 250_000])
    kept = []
    with portable(dataset) as loader:
        for number, batch in enumerate(loader):
            assert torch.equal(batch, dataset.batch(number))
            kept.append(batch)
    for number, batch in enumerate(kept):
        assert torch.equal(batch, dataset.batch(number))


@pytest.mark.parametrize("size", [3_000, 10_000, 65_536])
def test_requests_may_be_large(size: int) -> None:
    """Indices in one piece, in several, and in a slot."""
    dataset = Numbers(4 * size + 10)
    sampler = BatchSampler(SequentialSampler(dataset), batch_size=size, drop_last=False)
    with portable(dataset, batch_size=1, batch_sampler=sampler, prefetch_factor=4) as loader:
        assert whole(list(loader), len(dataset))


def test_many_units_may_be_under_way() -> None:
    """Deep prefetching: more than fits into a pipe waits here, and nothing blocks."""
    with portable(Numbers(2000), batch_size=1, num_workers=2, prefetch_factor=500) as loader:
        assert whole(list(loader), 2000)


def test_multiprocessings_objects_in_a_dataset_are_the_parents_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queue, lock, value, event and a shared tensor."""
    monkeypatch.setenv("HOLDFAST_BACKEND", "portable")
    assert run_program("connected_dataset.py", "spawn").splitlines()[-1] == "connected"


@pytest.mark.parametrize("through_stdin", [False, True], ids=["script", "stdin"])
def test_a_dataset_defined_in_main_with_lambdas_works(through_stdin: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They travel by value where the spawned process would not find them."""
    monkeypatch.setenv("HOLDFAST_BACKEND", "portable")
    output = run_program("main_module.py", "spawn", through_stdin=through_stdin)
    assert output.splitlines()[-1] == "[0, 10, 20, 30, 40, 50, 60, 70] init [0, 1]"


def test_the_job_may_be_pickled_for_each_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, and where torch shares tensors by file name."""
    monkeypatch.setattr(shared_job, "_serves_all", lambda popen: False)
    number = -1
    with portable(Numbers(LENGTH)) as loader:
        iterator = iter(loader)
        for number, batch in enumerate(iterator):
            check_batch(batch, number)
            if number == 10:
                os.kill(worker_pids(iterator)[0], signal.SIGKILL)
    assert number == BATCHES - 1


class Growing(Numbers):
    """Says how large it was when it was sent."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([self.width])


def test_a_replaced_worker_has_the_dataset_as_it_was_when_the_epoch_began() -> None:
    """What the user changes meanwhile counts from the next epoch on, as with the workers that live."""
    dataset = Growing(LENGTH)
    with portable(dataset, num_workers=1) as loader:
        iterator = iter(loader)
        next(iterator)
        dataset.width = 1000
        os.kill(worker_pids(iterator)[0], signal.SIGKILL)
        assert {int(value) for batch in iterator for value in batch} == {4}
        assert {int(value) for batch in loader for value in batch} == {1000}


def test_what_cannot_be_pickled_is_named() -> None:
    """As on Linux, with nothing left behind."""
    dataset = Numbers(8)
    dataset.lock = threading.Lock()  # type: ignore[attr-defined]
    with portable(dataset) as loader, pytest.raises(NotPicklable, match=r"dataset\.lock"):
        iter(loader)


def test_segments_lose_their_names_in_the_first_batches() -> None:
    """Once every process has opened them: in the middle of an epoch /dev/shm has none of ours."""
    with portable(Numbers(100_000), batch_size=1) as loader:
        iterator = iter(loader)
        next(iterator)
        wait_until(lambda: next(iterator) is not None and not names_of_ours(), PATIENCE_S, "no name")


# --- closing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["asleep", "python loop", "C loop", "deaf", "stopped"])
def test_close_is_bounded_whatever_a_worker_does(how: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Asleep, in a loop, with the GIL held, deaf to SIGTERM, or stopped: close ends them in time."""
    loader = portable(Stuck(100, 8, "asleep" if how == "stopped" else how), batch_size=1)
    iterator = iter(loader)
    for _ in range(8):
        next(iterator)
    said = ""

    def all_stuck() -> bool:
        nonlocal said
        said += capfd.readouterr().out
        return said.count("stuck") >= 2

    wait_until(all_stuck, PATIENCE_S, "two stuck workers")
    pids = worker_pids(iterator)
    if how == "stopped":
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
    start = time.monotonic()
    loader.close()
    assert time.monotonic() - start < CLOSE_DEADLINE_S
    wait_until_ended(pids)


def test_a_stopped_worker_blocks_nobody_but_itself() -> None:
    """Sending to it goes on, into an outbox: `next()` keeps its timeout, and the epoch goes on when it continues."""
    with portable(Numbers(LENGTH), prefetch_factor=8, timeout=PATIENCE_S) as loader:
        iterator = iter(loader)
        check_batch(next(iterator), 0)
        iterator._timeout = 1  # from here on: starting takes longer
        pid = worker_pids(iterator)[1]
        os.kill(pid, signal.SIGSTOP)
        seen = [0]
        with pytest.raises(RuntimeError, match="timed out"):
            check_the_rest(iterator, seen)
        iterator._timeout = PATIENCE_S
        with contextlib.suppress(ProcessLookupError):  # stopped for so long that it was replaced
            os.kill(pid, signal.SIGCONT)
        check_the_rest(iterator, seen)
        assert seen == list(range(BATCHES))


def check_the_rest(iterator: Iterator[torch.Tensor], seen: list[int]) -> None:
    for batch in iterator:
        check_batch(batch, len(seen))
        seen.append(len(seen))


def test_idle_workers_end_at_once_when_the_loader_is_closed() -> None:
    """Told to end, they need none of the grace."""
    loader = portable(Numbers(LENGTH), persistent_workers=True)
    assert whole(list(loader))
    pids = worker_pids(loader._iterator)
    handles = loader._iterator._workers
    loader.close()
    wait_until_ended(pids, 0.1)
    assert [handle.exitcode for handle in handles] == [0, 0]
    assert not any(handle.is_alive() for handle in handles)


def test_an_iterator_in_a_reference_cycle_is_closed_by_the_collector() -> None:
    """Everything goes in one collection, its shared memory too: closing must not touch what is gone already."""
    iterator = iter(portable(Numbers(LENGTH)))
    next(iterator)
    pids = worker_pids(iterator)
    cycle: list[object] = [iterator]
    cycle.append(cycle)
    del iterator, cycle
    gc.collect()
    wait_until_ended(pids)


# --- the main process ---------------------------------------------------------------------------------------------


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs inherit the environment."""
    monkeypatch.setenv("HOLDFAST_BACKEND", "portable")


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("state", ["idle", "asleep", "python loop"])
def test_nothing_is_left_when_the_main_process_is_killed(state: str) -> None:
    """Workers idle, asleep or busy in Python, and a spare that may be starting: all gone, no name, not a word."""
    with Program("stay_in_epoch.py", "spawn", state) as program:
        program.wait_for_lines("ready")
        if state != "idle":
            program.wait_for_lines("stuck", count=2)
        assert len(program.processes()) >= 3
        program.process.kill()
        program.wait_until_nothing_is_left(GONE_S)
        assert program.stderr == ""


@pytest.mark.usefixtures("forced")
def test_nothing_is_left_although_a_child_of_the_user_lives_on() -> None:
    """A forked child holds copies of every pipe: the end of the main process is noticed all the same."""
    with Program("stay_in_epoch.py", "spawn", "asleep", "forked child") as program:
        program.wait_for_lines("ready")
        program.wait_for_lines("stuck", count=2)
        child = next(int(line.split()[1]) for line in program.stdout.splitlines() if line.startswith("child "))
        program.process.kill()

        def only_the_child() -> bool:
            left = {pid for pid, command in program.processes().items() if "resource_tracker" not in command}
            return left == {child}

        wait_until(only_the_child, GONE_S, "the end of all but the user's own child")
        os.kill(child, signal.SIGKILL)
        program.wait_until_nothing_is_left(GONE_S)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("state", ["idle", "asleep"])
def test_ctrl_c_ends_the_program_with_its_own_traceback_only(state: str) -> None:
    """Every process gets it, the spare on its way too."""
    with Program("stay_in_epoch.py", "spawn", state) as program:
        program.wait_for_lines("ready")
        if state != "idle":
            program.wait_for_lines("stuck", count=2)
        program.signal_group(signal.SIGINT)
        assert program.wait(CLOSE_DEADLINE_S) == -signal.SIGINT
        program.wait_until_nothing_is_left()
        assert program.stderr.count("Traceback") == 1, program.stderr
        assert program.stderr.splitlines()[-1] == "KeyboardInterrupt"


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("how", ["end_of_script", "persistent_workers", "thread", "stuck_workers", "os_exit"])
def test_the_interpreter_ends_quietly_with_the_iterator_alive(how: str) -> None:
    """Not a word on stderr, and nothing left."""
    with Program("leave_epoch.py", "spawn", how) as program:
        assert (program.wait(PATIENCE_S), program.stderr) == (4 if how == "os_exit" else 0, "")
        program.wait_until_nothing_is_left()


def test_names_of_a_main_process_that_is_gone_are_swept_at_the_next_start() -> None:
    """Those of a living one, of another pid namespace, and of others' programs are left alone."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    _, _, started, *namespace = names.this_owner().split("-")
    stale = "-".join(("holdfast", str(gone.pid), started, *namespace, "0", "1"))
    reused = "-".join(("holdfast", str(os.getpid()), f"{int(psutil.boot_time()):x}", *namespace, "3", "a"))
    elsewhere = "-".join(("holdfast", str(gone.pid), started, "abc", "0", "1"))
    alive, foreign = f"{names.this_owner()}-0-ffff", "holdfast_of_someone_else"
    everything = (stale, reused, elsewhere, alive, foreign)
    for name in everything:
        names.create(name, 4096)
    try:
        with portable(Numbers(8), num_workers=1) as loader:
            assert whole(list(loader), 8)
        assert {*everything} & shared_memory_names() == {elsewhere, alive, foreign}
    finally:
        for name in everything:
            names.remove(name)
