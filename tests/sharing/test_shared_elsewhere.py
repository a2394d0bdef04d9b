"""What is shared travels as a handle wherever multiprocessing pickles: processes, queues, pools, torch's own loader."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing
import torch.utils.data

import holdfast
from helpers import START_METHODS, Program, run_program
from holdfast.sharing.arrays import find_array, is_shared_tensor
from shared_datasets import KINDS, LENGTH, Calling, Looking
from waits import PATIENCE_S

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("sharer_stopped")]


def describe(data: Any) -> tuple[float, bool, bool, str]:
    array, tensor, texts = data
    return float(array.sum() + tensor.sum()), find_array(array) is not None, is_shared_tensor(tensor), texts[-1]


def describe_from(source: Any, answers: Any) -> None:
    answers.put(describe(source.get() if hasattr(source, "get") else source))


def describe_to_file(rank: int, data: Any, folder: str) -> None:
    Path(folder, str(rank)).write_text(repr(describe(data)))


def data() -> Any:
    return holdfast.share((np.ones(1000), torch.ones(1000), [str(index) for index in range(100)]))


EXPECTED = (2000.0, True, True, "99")


@pytest.mark.parametrize("method", START_METHODS)
@pytest.mark.parametrize("way", ["argument", "queue"])
def test_a_process_gets_it_as_an_argument_and_through_a_queue(method: str, way: str) -> None:
    """As what it was: shared over there too."""
    context = multiprocessing.get_context(method)
    questions, answers = context.SimpleQueue(), context.SimpleQueue()
    shared = data()
    process = context.Process(target=describe_from, args=(shared if way == "argument" else questions, answers))
    process.start()
    if way == "queue":
        questions.put(shared)
    assert answers.get() == EXPECTED
    process.join(PATIENCE_S)
    process.close()
    for queue in (questions, answers):
        queue.close()


@pytest.mark.parametrize("method", START_METHODS)
def test_a_pool_and_an_executor_get_it_with_every_task(method: str) -> None:
    """Again and again."""
    context = multiprocessing.get_context(method)
    shared = data()
    with context.Pool(1) as pool:
        assert pool.map(describe, [shared] * 3) == [EXPECTED] * 3
    pool.join()
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
        assert list(executor.map(describe, [shared] * 3)) == [EXPECTED] * 3


@pytest.mark.long
def test_torchs_spawn_gets_it(tmp_path: Path) -> None:
    """`torch.multiprocessing.spawn`, which knows nothing of us."""
    torch.multiprocessing.spawn(describe_to_file, args=(data(), str(tmp_path)), nprocs=2)
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == [repr(EXPECTED)] * 2


@pytest.mark.parametrize("method", START_METHODS)
@pytest.mark.parametrize("kind", ["array", "tensor", "list of dicts", "dict"])
def test_torchs_loader_reads_it(kind: str, method: str) -> None:
    """Also what its workers send back is right, whether or not it lies in a segment."""
    assert kind in KINDS
    loader = torch.utils.data.DataLoader(Looking(kind), num_workers=1, batch_size=None, multiprocessing_context=method)
    assert list(loader) == list(range(LENGTH))


def test_what_a_worker_of_torchs_wrote_to_a_tensor_is_what_it_sends() -> None:
    """A view of a shared tensor that was changed in place is not sent as a handle of what it was."""
    shared = holdfast.share(torch.zeros(100, 1000))
    loader = torch.utils.data.DataLoader(Calling(shared, _double), num_workers=1, batch_size=None)
    assert [float(row[0]) for row in loader] == [float(index + 1) for index in range(8)]
    assert shared.sum() == 0


def _double(data: torch.Tensor, index: int) -> torch.Tensor:
    return data[index].add_(index + 1)


def test_a_receiver_can_send_it_on() -> None:
    """From a spawned process to one that it spawns."""
    assert run_program("shared_twice.py").splitlines()[-1] == "499500 shared"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_are_new_interpreters_get_it_too(method: str) -> None:
    """Handed on by a supervisor that must not be forked, also to the one that takes a dead one's place."""
    expected = "1 importing the dataset's modules started threads (started-on-import)"
    assert run_program("shared_new_interpreters.py", method).splitlines()[-1] == expected


def test_more_segments_than_a_fork_server_takes_are_refused_with_a_remedy() -> None:
    """Python's fork server takes 256 descriptors with a process."""
    parts = [holdfast.share(np.arange(3)) for _ in range(250)]
    process = multiprocessing.get_context("forkserver").Process(target=describe, args=(parts,))
    with pytest.raises(
        holdfast.SharedMemoryError, match=r"more than 240 shared segments .*\n  try   share them in one"
    ):
        process.start()


@pytest.mark.long
@pytest.mark.parametrize("how", ["script", "stdin"])
def test_items_of_classes_from_main_reach_spawned_workers(how: str) -> None:
    """By name where a new interpreter finds them, by value where it does not."""
    output = run_program("shared_main_classes.py", through_stdin=how == "stdin")
    assert output.splitlines()[-1] == "[0, 1, 2, 3, 4, 5, 6, 7]"


@pytest.mark.parametrize("method", ["fork", "spawn", "portable"])
def test_nothing_is_left_when_everything_is_killed(method: str) -> None:
    """`kill -9` of the main process: the memory has no name, so it goes with the last process."""
    with Program("shared_epoch.py", method) as program:
        program.wait_for_lines("ready")
        assert len(program.processes()) >= 3
        program.process.kill()
        program.wait_until_nothing_is_left()
        assert program.wait() == -signal.SIGKILL


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_samples_that_are_shared_arrays_are_collated_in_silence(method: str) -> None:
    """torch would warn in every worker that they are not writable, although it only copies them."""
    assert run_program("shared_samples.py", method).splitlines()[-1] == "[[0, 1, 2, 3], [4, 5, 6, 7]]"


def test_many_shares_need_one_descriptor_each() -> None:
    """And nothing more: 500 of them under a limit of 600, sent to a forked worker each."""
    assert run_program("many_shares.py").splitlines()[-1] == "124750"


def test_a_forked_child_that_ends_takes_nothing_with_it() -> None:
    """Its finalizers close what is its own."""
    shared = holdfast.share(list(range(1000)))
    pid = os.fork()
    if pid == 0:
        total = sum(shared)
        del shared
        os._exit(0 if total == 499_500 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert sum(shared) == 499_500
