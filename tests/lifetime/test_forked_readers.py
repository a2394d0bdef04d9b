"""A child that user code forks in mid-epoch reads the batch it holds, and disturbs nothing of its parent's.

The child shares the slot's memory with its parent. So the parent must not use that memory again, even when its own last
reference to the batch is gone. And the iterator that the child inherited is not the child's to shut down.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import select
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import pytest
import torch

from helpers import (
    CLOSE_DEADLINE_S,
    PATIENCE_S,
    Numbers,
    is_running,
    numbers,
    run_program,
    wait_until_ended,
    worker_pids,
)
from holdfast import DataLoader

pytestmark = pytest.mark.timeout(120)

BATCH_SIZE = 8
WIDTH = 4_000
BATCHES = 120


def new_loader(**options: object) -> DataLoader[torch.Tensor]:
    return DataLoader(Numbers(BATCHES * BATCH_SIZE, WIDTH), batch_size=BATCH_SIZE, num_workers=2, **options)


def expected(batch: int) -> torch.Tensor:
    return numbers(batch * BATCH_SIZE, BATCH_SIZE, WIDTH)


class Child:
    """A forked child that waits for a word, then runs `answer` and sends back what it returned."""

    def __init__(self, answer: Callable[[], bytes]) -> None:
        word_read, self._word = os.pipe()
        self._answer, answer_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.read(word_read, 1)
                with os.fdopen(answer_write, "wb") as file:
                    file.write(answer())
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(word_read)
        os.close(answer_write)

    def ask(self) -> bytes:
        os.write(self._word, b"!")
        os.close(self._word)
        with os.fdopen(self._answer, "rb") as file:
            answer = file.read()
        assert self._exit_status() == 0
        return answer

    def _exit_status(self) -> int:
        pidfd = os.pidfd_open(self.pid)
        try:
            assert select.select([pidfd], [], [], PATIENCE_S)[0], "the forked child did not end"
        finally:
            os.close(pidfd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def check_to_the_end(iterator: Iterator[torch.Tensor], first: int) -> None:
    number = first - 1
    for number, batch in enumerate(iterator, start=first):
        assert torch.equal(batch, expected(number))
    assert number == BATCHES - 1


@pytest.mark.parametrize("dropped", [True, False], ids=["parent-drops-it", "parent-keeps-it"])
def test_a_forked_child_reads_the_batch_it_held(dropped: bool) -> None:
    """The parent goes on through a hundred batches; only then does the child read: the values are those at the fork."""
    with new_loader() as loader:
        iterator = iter(loader)
        held = [next(iterator) for _ in range(10)][-1]
        child = Child(lambda: held.numpy().tobytes())
        kept = None if dropped else held
        held = torch.empty(0)
        for number in range(10, 110):
            assert torch.equal(next(iterator), expected(number))
        answer = child.ask()
        assert answer == expected(9).numpy().tobytes()
        assert kept is None or torch.equal(kept, expected(9))
        check_to_the_end(iterator, 110)


def test_a_forked_child_reads_the_batches_its_parent_kept_in_two_forks() -> None:
    """Two children, forked at different batches, each read what they held then."""
    with new_loader() as loader:
        iterator = iter(loader)
        held = [next(iterator) for _ in range(4)]
        first = Child(lambda: torch.stack(held).numpy().tobytes())
        held = [next(iterator) for _ in range(4)]
        second = Child(lambda: torch.stack(held).numpy().tobytes())
        held = []
        check_to_the_end(iterator, 8)
        assert first.ask() == torch.stack([expected(number) for number in range(4)]).numpy().tobytes()
        assert second.ask() == torch.stack([expected(number) for number in range(4, 8)]).numpy().tobytes()


def test_a_forked_child_reads_the_batch_after_the_loader_is_closed() -> None:
    """Closing gives memory back, but not from under a child that still reads it."""
    loader = new_loader()
    iterator = iter(loader)
    held = next(iterator)
    child = Child(lambda: held.numpy().tobytes())
    held = torch.empty(0)
    loader.close()
    del iterator, loader
    gc.collect()
    assert child.ask() == expected(0).numpy().tobytes()


def send_when_asked(connection: Connection, batch: torch.Tensor) -> None:
    connection.recv()
    connection.send_bytes(batch.numpy().tobytes())


def test_a_forked_multiprocessing_process_reads_the_batch_it_held() -> None:
    """The same with `multiprocessing.Process`, whose end runs finalizers: the parent's epoch goes on to its end."""
    context = multiprocessing.get_context("fork")
    with new_loader() as loader:
        iterator = iter(loader)
        held = next(iterator)
        ours, theirs = context.Pipe()
        process = context.Process(target=send_when_asked, args=(theirs, held))
        process.start()
        theirs.close()
        held = torch.empty(0)
        for number in range(1, 100):
            assert torch.equal(next(iterator), expected(number))
        ours.send("now")
        assert ours.poll(PATIENCE_S)
        assert ours.recv_bytes() == expected(0).numpy().tobytes()
        process.join(PATIENCE_S)
        assert process.exitcode == 0
        process.close()
        ours.close()
        check_to_the_end(iterator, 100)


@pytest.mark.parametrize("persistent", [False, True], ids=["workers-per-epoch", "persistent-workers"])
def test_a_child_that_drops_the_inherited_iterator_does_not_disturb_its_parent(persistent: bool) -> None:
    """Collected in the child, shut down and closed there: the parent's workers live, and its epoch is whole."""
    with new_loader(persistent_workers=persistent) as loader:
        iterator = iter(loader)
        assert torch.equal(next(iterator), expected(0))
        pids = worker_pids(iterator)

        def drop_all() -> bytes:
            nonlocal iterator, loader
            loader.close()
            del iterator, loader
            gc.collect()
            return b"dropped"

        assert Child(drop_all).ask() == b"dropped"
        assert all(map(is_running, pids))
        check_to_the_end(iterator, 1)
        assert worker_pids(loader._iterator) == pids if persistent else True
        del iterator


def test_closing_is_bounded_while_a_forked_child_lives_on() -> None:
    """The child holds a copy of every socket; still close ends, and the workers with it."""
    loader = new_loader()
    iterator = iter(loader)
    next(iterator)
    pids = worker_pids(iterator)
    child = Child(lambda: b"alive")
    loader.close()
    wait_until_ended(pids, CLOSE_DEADLINE_S)
    assert child.ask() == b"alive"


def test_a_child_may_have_a_loader_of_its_own() -> None:
    """In a forked child with an inherited iterator a new loader works; the parent's goes on."""
    with new_loader() as loader:
        iterator = iter(loader)
        next(iterator)

        def own_epoch() -> bytes:
            with new_loader() as own:
                return torch.stack(list(own)).sum().numpy().tobytes()

        answer = Child(own_epoch).ask()
        assert answer == torch.stack([expected(number) for number in range(BATCHES)]).sum().numpy().tobytes()
        check_to_the_end(iterator, 1)


def test_the_interpreter_exit_of_a_forked_child_does_not_disturb_its_parent() -> None:
    """A child that ends as a Python program ends, with the inherited iterator alive: exit hooks, finalizers and all."""
    assert run_program("fork_in_epoch.py").splitlines()[-1] == "whole epoch"
