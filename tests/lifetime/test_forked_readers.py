"""A child that user code forks in mid-epoch reads the batch it holds, and disturbs nothing of its parent's.

The child shares the slot's memory with its parent. So the parent must not use that memory again, even when its own last
reference to the batch is gone. And the iterator that the child inherited is not the child's to shut down.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import select
import signal
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import NoReturn, Self

import numpy as np
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

pytestmark = pytest.mark.timeout(60)

BATCH_SIZE = 8
WIDTH = 4_000
BATCHES = 120


def new_loader(**options: object) -> DataLoader[torch.Tensor]:
    return DataLoader(Numbers(BATCHES * BATCH_SIZE, WIDTH), batch_size=BATCH_SIZE, num_workers=2, **options)


def expected(batch: int) -> torch.Tensor:
    return numbers(batch * BATCH_SIZE, BATCH_SIZE, WIDTH)


class Child:
    """A forked child that waits for a word, then sends back what `answer` returns. It ends with the block."""

    def __init__(self, answer: Callable[[], bytes]) -> None:
        word_read, self._word = os.pipe()
        self._answer, answer_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(answer, word_read, answer_write)
        os.close(word_read)
        os.close(answer_write)
        self.status: int | None = None

    @staticmethod
    def _run(answer: Callable[[], bytes], word_read: int, answer_write: int) -> NoReturn:
        try:
            torch.set_num_threads(1)  # OpenMP's threads are not in this process: a parallel loop would wait for ever
            os.read(word_read, 1)
            with os.fdopen(answer_write, "wb") as file:
                file.write(answer())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def ask(self) -> bytes:
        os.write(self._word, b"!")
        with os.fdopen(os.dup(self._answer), "rb") as file:
            answer = file.read()
        pidfd = os.pidfd_open(self.pid)
        try:
            assert select.select([pidfd], [], [], PATIENCE_S)[0], "the forked child did not end"
        finally:
            os.close(pidfd)
        self._reap()
        assert self.status == 0
        return answer

    def _reap(self) -> None:
        self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self._reap()
        os.close(self._word)
        os.close(self._answer)


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
        with Child(lambda: held.numpy().tobytes()) as child:
            kept = None if dropped else held
            held = torch.empty(0)
            for number in range(10, 110):
                assert torch.equal(next(iterator), expected(number))
            assert child.ask() == expected(9).numpy().tobytes()
        assert kept is None or torch.equal(kept, expected(9))
        check_to_the_end(iterator, 110)


def test_a_forked_child_reads_what_it_held_as_numpy() -> None:
    """A view without a tensor is enough for the child; the parent has dropped both."""
    with new_loader() as loader:
        iterator = iter(loader)
        view = next(iterator)[2:5].numpy()
        with Child(lambda: bytes(view)) as child:
            view = np.empty(0)
            check_to_the_end(iterator, 1)
            assert child.ask() == expected(0)[2:5].numpy().tobytes()


def test_children_of_two_forks_each_read_what_they_held() -> None:
    """Two children, forked at different batches; the parent drops all of them and goes on."""
    with new_loader() as loader:
        iterator = iter(loader)
        held = [next(iterator) for _ in range(4)]
        with Child(lambda: torch.stack(held).numpy().tobytes()) as first:
            held = [next(iterator) for _ in range(4)]
            with Child(lambda: torch.stack(held).numpy().tobytes()) as second:
                held = []
                check_to_the_end(iterator, 8)
                assert first.ask() == torch.stack([expected(number) for number in range(4)]).numpy().tobytes()
                assert second.ask() == torch.stack([expected(number) for number in range(4, 8)]).numpy().tobytes()


def test_a_forked_child_reads_the_batch_after_the_loader_is_closed() -> None:
    """Closing gives memory back, but not from under a child that still reads it."""
    loader = new_loader()
    iterator = iter(loader)
    held = next(iterator)
    with Child(lambda: held.numpy().tobytes()) as child:
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

        with Child(drop_all) as child:
            assert child.ask() == b"dropped"
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
    with Child(lambda: b"alive") as child:
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

        with Child(own_epoch) as child:
            answer = child.ask()
        assert answer == torch.stack([expected(number) for number in range(BATCHES)]).sum().numpy().tobytes()
        check_to_the_end(iterator, 1)


@pytest.mark.long
def test_the_interpreter_exit_of_a_forked_child_does_not_disturb_its_parent() -> None:
    """A child that ends as a Python program ends, with the inherited iterator alive: exit hooks, finalizers and all."""
    assert run_program("fork_in_epoch.py").splitlines()[-1] == "whole epoch"
